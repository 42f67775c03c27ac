"""Compiles files of a compilation database by themselves, without code, and says what is wrong with them. Exit code 1 where
something is.

usage: syntax.py [--bare] [--built FOLDER] DATABASE FILE...

By clang, with the headers that the database's build precompiles, which hold nothing of this project; it takes less than half of
GCC's time. --bare: by the compiler of the database, and nothing is precompiled. --built: without what that jumbo build, which
must be up to date, compiles before any neighbour.
"""
import argparse
import concurrent.futures
import glob
import hashlib
import os
import json
import re
import shlex
import subprocess
import sys
import tempfile

# Of clang 14 only errors are asked for: GCC's warnings are the ones that are kept at none.
CLANG = ["clang++", "-w", "-fbracket-depth=1024"]
HEADERS = re.compile(r" -Winvalid-pch -include (\S*cmake_pch\.hxx)")


def command_of(entry, bare):
    """The words that compile an entry, without output, optimisation and cache; and the header that its build precompiles."""
    words = re.sub(r" -o \S+ -c \S+$| -O[0-9]", "", entry["command"])
    words = re.sub(r"^\S*cmake -E env (?:\w+=\S+ )*\S*ccache ", "", words)
    headers = HEADERS.search(words)
    words = shlex.split(HEADERS.sub("", words))
    if bare:
        return words, None
    return CLANG + [w for w in words[1:] if not w.startswith("-W")], headers and headers[1]


def first_of_units(folder):
    """Files that a jumbo build compiles before any other of their unit."""
    for unit in glob.glob(f"{folder}/**/Unity/unity_*.cxx", recursive=True):
        first = re.search(r'^#include "(.*)"', open(unit).read(), re.MULTILINE)
        if first:
            yield first[1]


def run(words, folder):
    done = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    sys.stderr.write(done.stdout)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("database")
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--built")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    wanted = {os.path.abspath(name) for name in options.files}
    wanted -= set(first_of_units(options.built)) if options.built else set()
    entries = {}
    for entry in json.load(open(options.database)):
        if entry["file"] in wanted and entry["file"].endswith((".cpp", ".cxx")):
            entries.setdefault(entry["file"], entry)
    # Longest first, so that no core waits for one at the end.
    entries = sorted(entries.values(), key=lambda entry: -os.path.getsize(entry["file"]))

    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        # Targets that precompile the same share it; a command line that does not fit it is refused by clang.
        commands, precompiled = [], {}
        for entry in entries:
            words, headers = command_of(entry, options.bare)
            if headers:
                name = hashlib.sha256(open(headers, "rb").read()).hexdigest()[:16]
                out = f"{scratch}/{name}.pch"
                if name not in precompiled:
                    precompiled[name] = pool.submit(run, words + ["-x", "c++-header", headers, "-o", out,
                                                                  "-Xclang", "-fpch-instantiate-templates"], entry["directory"])
                words += ["-include-pch", out]
            commands.append((words + ["-fsyntax-only", entry["file"]], entry["directory"]))
        if not all([done.result() for done in precompiled.values()]):
            sys.exit(1)
        if not all(list(pool.map(run, *zip(*commands)))) if commands else False:
            sys.exit(1)
    print(f"{len(commands)} files")


main()
