"""Prints, ended by NUL, a command for each file of a compilation database that checks it without writing anything.

usage: syntax_commands.py DATABASE [FILE...]
"""
import json
import os
import re
import sys

database, wanted = sys.argv[1], {os.path.abspath(name) for name in sys.argv[2:]}
seen = set()
for entry in json.load(open(database)):
    name = entry["file"]
    if name in seen or "cmake_pch" in name or name.endswith(".cu") or not name.endswith((".cpp", ".cxx")):
        continue
    if wanted and name not in wanted:
        continue
    seen.add(name)
    words = re.sub(r" -o \S+", "", entry["command"])
    words = re.sub(r" -Winvalid-pch| -include \S*cmake_pch\.hxx| -O[0-9]", "", words)
    words = re.sub(r"^\S*cmake -E env \S+ \S*ccache ", "", words)
    sys.stdout.write(f"cd '{entry['directory']}' && {words} -fsyntax-only\0")
