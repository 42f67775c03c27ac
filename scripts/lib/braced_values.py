"""Where TRY stands behind another value in braces.

TRY returns out of the middle of an expression. GCC 12 and clang 14 then destroy the arguments of a call that they have
already made, and not the members of an aggregate or of a list in braces: the memory and the descriptors of those leak.
"""
import re

BLANKED = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^()\s\\]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', re.S)
TRY = re.compile(r"(?<!\w)TRY\(")
# Arguments of the kernels: numbers and addresses of others' memory.
PLAIN = re.compile(r"\bTandemCuda\w+(\s+\w+)?\s*$")


def lines_of_late_try(text):
    """The numbers of the lines with a TRY that is not the first value of the innermost braces that hold values."""
    code = BLANKED.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    tries = {match.start() for match in TRY.finditer(code)}
    open_at, values, blocks, within = [], {}, set(), {}
    for at, character in enumerate(code):
        if at in tries:
            within[at] = [(brace, values[brace]) for brace in open_at if code[brace] == "{"]
        if character in "([{":
            open_at.append(at)
            values[at] = 1
        elif character in ")]}" and open_at:
            open_at.pop()
        elif character == ";" and open_at:
            blocks.add(open_at[-1])
        elif character == "," and open_at:
            values[open_at[-1]] += 1
    for at, braces in within.items():
        for brace, value in reversed(braces):
            if brace in blocks:
                break
            if value > 1 and not PLAIN.search(code[:brace]):
                yield code.count("\n", 0, at) + 1
                break
