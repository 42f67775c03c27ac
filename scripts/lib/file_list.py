"""The line for every file of the product: its name, and the first sentence of the comment that it begins with.

A header and its source are one entry; the header's comment is taken where it has one. A file in a folder that is
compiled several times or in another language counts like any other.
"""
import os
import re

SOURCES = (".h", ".cpp", ".cu", ".cuh", ".inl", ".capnp")
HEADERS = (".h", ".cuh", ".inl")


def source_files(root, top):
    """Paths of the sources below a top folder, relative to the root, sorted."""
    found = []
    for folder, folders, names in os.walk(os.path.join(root, top)):
        folders.sort()
        for name in sorted(names):
            if name.endswith(SOURCES):
                found.append(os.path.relpath(os.path.join(folder, name), root))
    return found


def first_sentence(text):
    """The first sentence of the comment at the beginning of a file; empty where it begins with something else."""
    block = re.match(r"\s*/\*(.*?)\*/", text, re.DOTALL)
    if block:
        text = "\n".join("// " + line.strip().lstrip("*") for line in block.group(1).splitlines())
    words = []
    for line in text.splitlines():
        mark = re.match(r"\s*(//|#(?!pragma|include|ifdef|if |define))\s?(.*)", line)
        if not mark or not mark.group(2).strip():
            if words or (line.strip() and not mark):
                break
            continue
        words.append(mark.group(2).strip())
    paragraph = " ".join(words)
    end = re.search(r"[.?!](?=\s+[A-Z`(\"]|$)|:$", paragraph)
    return paragraph[: end.start()] if end else paragraph


def entries(root, paths):
    """(name, sentence, path) of each component in one folder, sorted by name; sentence empty where nobody wrote one."""
    parts = {}
    for path in paths:
        stem = path[: -len(".capnp")] + ".capnp" if path.endswith(".capnp") else os.path.splitext(path)[0]
        parts.setdefault(stem, []).append(path)
    lines = []
    for stem, files in sorted(parts.items()):
        files.sort(key=lambda path: not path.endswith(HEADERS))
        sentences = [first_sentence(open(os.path.join(root, path), encoding="utf-8").read()) for path in files]
        name = os.path.basename(files[0] if len(files) == 1 else stem)
        lines.append((name, next((each for each in sentences if each), ""), files[0]))
    return lines
