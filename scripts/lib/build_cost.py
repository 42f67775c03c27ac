"""Bytes that the compiler reads in each folder, after preprocessing, beside a budget; and seconds of the last build.

usage: build_cost.py BUILD BUDGET [--accept]
"""
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys

SLACK = 1.2
build, budget_file = os.path.abspath(sys.argv[1]), sys.argv[2]
accept = sys.argv[3:] == ["--accept"]
root = os.path.dirname(os.path.dirname(build))


def folder_of(path):
    """The library or test program that a file of the source or the build tree belongs to."""
    parts = os.path.relpath(path, build if path.startswith(build) else root).split(os.sep)
    if parts[0] == "tests":
        program = next((p for p in parts if p.startswith("test_")), None)
        return "tests/" + (program.removeprefix("test_").removesuffix(".dir") if program else parts[1])
    return parts[0]


def read_bytes(entry):
    words = re.sub(r" -o \S+", "", entry["command"])
    words = re.sub(r"^\S*cmake -E env (?:\w+=\S+ )*\S*ccache ", "", words)
    words = re.sub(r" -Winvalid-pch| -include \S*cmake_pch\.hxx", "", words)
    done = subprocess.run(words + " -E -P -w", shell=True, cwd=entry["directory"], stdout=subprocess.PIPE, check=True)
    return folder_of(entry["file"]), len(done.stdout)


entries = [e for e in json.load(open(os.path.join(build, "compile_commands.json")))
           if not e["file"].endswith(".cu") and "cmake_pch" not in e["file"]
           and not re.search(r"(tandem_torch|tandem_ops\w*|test_torch_operators|example_loss)\.dir", e["command"])]  # LibTorch's headers are its own
read = collections.Counter()
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for folder, count in pool.map(read_bytes, entries):
        read[folder] += count

seconds = collections.Counter()
latest = {}
for line in open(os.path.join(build, ".ninja_log")):
    fields = line.split("\t")
    if len(fields) >= 4 and fields[3].endswith((".o", ".gch")):
        latest[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
for name, spent in latest.items():
    seconds[folder_of(os.path.join(build, name))] += spent

budget = {}
if os.path.exists(budget_file):
    for line in open(budget_file):
        if line.strip() and not line.startswith("#"):
            folder, megabytes = line.split()
            budget[folder] = float(megabytes)

print(f"{'folder':<22}{'MB read':>10}{'budget':>10}{'seconds':>10}")
over = []
for folder in sorted(read):
    megabytes = read[folder] / 1e6
    allowed = budget.get(folder)
    print(f"{folder:<22}{megabytes:>10.1f}{allowed if allowed is not None else '-':>10}{seconds[folder]:>10.0f}")
    if allowed is None or megabytes > SLACK * allowed:
        over.append(folder)
print(f"{'all':<22}{sum(read.values()) / 1e6:>10.1f}{sum(budget.values()):>10.1f}{sum(seconds.values()):>10.0f}")

if accept:
    with open(budget_file, "w") as out:
        out.write("# Megabytes that the compiler reads in each folder after preprocessing; scripts/build-time holds them to it.\n")
        for folder in sorted(read):
            out.write(f"{folder} {read[folder] / 1e6:.1f}\n")
elif over:
    sys.exit(f"error: more is read than {budget_file} allows, by over 20 %, in: {', '.join(over)}\n"
             "  see what a new header pulls in; where it is worth it: scripts/build-time --accept")
