"""A reward program: partial credit for a file of the right name, and for the right word in some file.

It reads an episode from standard input (examples/rewards/episode.json is one) and prints its terms.
"""

import json
import re
import sys

episode = json.load(sys.stdin)
wanted = set(re.findall(r"\b[A-Z]{4}\b", episode["task"]["instruction"]))
written = [file for file in episode["files"] if file["change"] != "deleted"]
terms = {
    "named": float(any(file["path"] in wanted for file in written)),
    "worded": float(any((file.get("after") or "").strip() in wanted for file in written)),
}
print(json.dumps({"terms": terms}))
