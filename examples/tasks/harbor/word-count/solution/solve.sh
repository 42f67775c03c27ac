#!/bin/bash
cat > /app/count.sh <<'END'
tr 'A-Z' 'a-z' < "$1" | grep -o '[a-z]*' | sort | uniq -c | sort -k1,1nr -k2,2 | head -3 | sed 's/^ *//'
END
