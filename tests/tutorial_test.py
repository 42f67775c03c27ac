#!/usr/bin/env python3
"""Runs docs/tutorial.md: its files are written, its commands run in one shell, in order, and what it says they print is looked for.

tutorial_test.py SOURCE TANDEM MODEL

A fenced block is a file (`python file=NAME`), commands (`sh`; `sh any-exit` where the exit code depends on what the model
says), or lines that the commands before it print (`output`): each must be part of a line, in this order. MODEL stands in for
the one that the tutorial trains, and there are two steps of reinforcement.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

LIMIT_SECONDS = 800  # for all commands; they take some seconds on the tiny model


def blocks_of(text):
    """(info string, body, line) of each fenced block."""
    for match in re.finditer(r"^```([^\n]+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield match[1].strip(), match[2], text[: match.start()].count("\n") + 1


def script_of(text):
    """One shell script of all blocks, and what each `output` block expects: (line, marker of its commands, lines)."""
    script, expected, at = ["set -euo pipefail"], [], None
    for info, body, line in blocks_of(text):
        words = info.split()
        if words[0] == "output":
            expected.append((line, at, body.splitlines()))
        elif words[0] == "sh":
            at = f"@@ line {line}"
            script.append(f"echo '{at}'")
            script.append(f"{{\n{body}}} || true" if "any-exit" in words else body)
        elif words[-1].startswith("file="):
            name = words[-1].removeprefix("file=")
            script.append(f"cat > {name} <<'TUTORIAL_FILE'\n{body}TUTORIAL_FILE")
        else:
            sys.exit(f"line {line}: a block of \"{info}\" is neither a file nor commands nor output")
    return "\n".join(script) + "\n", expected


def missing(printed, expected):
    """What the commands should have printed and have not."""
    for line, at, parts in expected:
        lines = printed.split(at + "\n", 1)[1].split("\n@@ line ", 1)[0].splitlines() if at in printed else []
        position = 0
        for part in parts:
            found = [i for i in range(position, len(lines)) if part in lines[i]]
            if not found:
                yield f"line {line}: the commands above do not print \"{part}\""
                break
            position = found[0]


def main():
    source, tandem, model = map(pathlib.Path, sys.argv[1:])
    text = (source / "docs/tutorial.md").read_text(encoding="utf-8")
    script, expected = script_of(text)
    if not expected:
        sys.exit("docs/tutorial.md has no block of output")
    with tempfile.TemporaryDirectory(prefix="tandem-tutorial-") as scratch:
        checkout = pathlib.Path(scratch)
        (checkout / "build/release/bin").mkdir(parents=True)
        (checkout / "build/release/bin/tandem").symlink_to(tandem)
        (checkout / "models").mkdir()
        (checkout / "models/SmolLM2-135M-Instruct").symlink_to(model)
        for folder in ("configs", "profiles"):
            (checkout / folder).symlink_to(source / folder)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TANDEM__", "XDG_"))}
        # So few groups that a run which happens to learn nothing is no failure: the model says what it happens to say.
        environment |= {"TANDEM__RUN__STEPS": "2", "TANDEM__TRAINER__GROUPS_PER_STEP": "1", "TANDEM__TASKS__HELDOUT": "2",
                        "HOME": scratch, "LC_ALL": "C.UTF-8"}
        # A session of its own, so that what it started ends with it.
        shell = subprocess.Popen(["bash", "-c", script], cwd=checkout, env=environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = shell.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            output, _ = shell.communicate()
            sys.exit(f"{output.decode(errors='replace')}\nnot done after {LIMIT_SECONDS} s")
    output = output.decode(errors="replace")
    errors = list(missing(output, expected))
    if shell.returncode != 0:
        errors.insert(0, f"a command ended with {shell.returncode}")
    if errors:
        sys.exit(output + "\n" + "\n".join(errors))


if __name__ == "__main__":
    main()
