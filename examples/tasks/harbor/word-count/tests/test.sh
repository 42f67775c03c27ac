#!/bin/bash
# The expected words stand here alone; nothing of this folder is there while the model works.
printf 'b a a c\nC b, B d!\n' > /tmp/words.txt
got=$(bash /app/count.sh /tmp/words.txt)
want=$(printf '3 b\n2 a\n2 c')
if [[ "$got" == "$want" && "$(bash /app/count.sh /app/sample.txt | head -1)" == "4 the" ]]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
