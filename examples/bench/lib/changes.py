"""Changes of a project that become commits: a bug that is mended, a name that is changed.

Sources are parsed, never run. Everything here is a function of the files alone, so that a recipe gives the same commits
on every machine."""
import ast
import hashlib
import re
import subprocess

OPERATORS = {ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
             ast.NotEq: ("!=", "=="), ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.And: ("and", "or"),
             ast.Or: ("or", "and"), ast.In: ("in", "not in"), ast.Is: ("is", "is not")}
MOST_BUGS = 24  # of a project that are tried; not all of them are missed by tests
VERBS = {"get": "fetch", "parse": "read", "set": "assign", "make": "build", "normalize": "clean", "check": "verify",
         "load": "read", "find": "search"}


def is_test(path):
    parts = path.split("/")
    return parts[-1].startswith("test") or parts[-1].endswith("_test.py") or "tests" in parts[:-1]


def sources(files):
    """Python sources by path, with their trees; what cannot be parsed is left out."""
    for path in sorted(files):
        if not path.endswith(".py") or is_test(path):
            continue
        try:
            text = files[path].decode("utf-8")
            yield path, text, ast.parse(text)
        except (UnicodeDecodeError, SyntaxError):
            continue


def functions(tree, prefix=""):
    """Functions and methods with their names as `Class.method`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node, prefix + node.name + ".")


def between(lines, left, right, old, new):
    """The place of the operator `old` between two nodes of one line, as (line, begin, end, new text) in bytes."""
    if left.end_lineno != right.lineno:
        return None
    line = lines[left.end_lineno - 1].encode()
    begin = left.end_col_offset
    match = re.fullmatch(rb"([\s)]*)" + re.escape(old.encode()) + rb"([\s(]*)", line[begin:right.col_offset])
    if not match:
        return None
    begin += len(match[1])
    return left.end_lineno, begin, begin + len(old), new


def places(node, lines):
    """What can be made wrong in a function."""
    for each in ast.walk(node):
        if isinstance(each, ast.Compare) and len(each.ops) == 1 and type(each.ops[0]) in OPERATORS:
            yield between(lines, each.left, each.comparators[0], *OPERATORS[type(each.ops[0])])
        elif isinstance(each, ast.BinOp) and type(each.op) in OPERATORS:
            yield between(lines, each.left, each.right, *OPERATORS[type(each.op)])
        elif isinstance(each, ast.BoolOp):
            yield between(lines, each.values[0], each.values[1], *OPERATORS[type(each.op)])
        elif isinstance(each, ast.Constant) and type(each.value) is int and each.lineno == each.end_lineno:
            yield each.lineno, each.col_offset, each.end_col_offset, str(each.value + 1)
        elif isinstance(each, ast.Return) and isinstance(each.value, ast.Constant) and type(each.value.value) is bool:
            value = each.value
            yield value.lineno, value.col_offset, value.end_col_offset, str(not value.value)


def replaced(lines, place):
    number, begin, end, new = place
    changed = list(lines)
    line = changed[number - 1].encode()
    changed[number - 1] = (line[:begin] + new.encode() + line[end:]).decode()
    return "".join(changed)


def order_of(*words):
    return hashlib.sha256("\0".join(map(str, words)).encode()).hexdigest()


def bugs(files):
    """(message, files before, files after): one place of a function is wrong before. The tests are not there before, for
    they would tell."""
    found = []
    for path, text, tree in sources(files):
        lines = text.splitlines(keepends=True)
        for name, node in functions(tree):
            if name.split(".")[-1].startswith("__"):
                continue
            possible = sorted({place for place in places(node, lines) if place}, key=lambda p: order_of(path, *p))
            found += [(path, name, lines, place) for place in possible[:2]]
    found.sort(key=lambda each: order_of(each[0], each[1], *each[3]))
    without_tests = {path: content for path, content in files.items() if not (is_test(path) and path.endswith(".py"))}
    for path, name, lines, place in found[:MOST_BUGS]:
        before = dict(without_tests)
        before[path] = replaced(lines, place).encode()
        message = (f"Mend {name} in {path}\n\nOne place of the function is wrong, so that it does not do what its "
                   f"documentation, its name and\nits callers say. Nothing else of the project changes.\n")
        yield message, before, files


def other_name(name):
    head, _, rest = name.lstrip("_").partition("_")
    lead = name[:len(name) - len(name.lstrip("_"))]
    return f"{lead}{VERBS[head]}_{rest}" if head in VERBS and rest else f"{lead}compute_{name.lstrip('_')}"


RENAME_TEST = '''import ast
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[{depth}]


def names_of(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        for key in ("id", "attr", "name", "asname", "arg"):
            if isinstance(getattr(node, key, None), str):
                yield getattr(node, key)


class Renamed(unittest.TestCase):
    def test_the_new_name_is_defined(self):
        tree = ast.parse((ROOT / {path!r}).read_text("utf-8"))
        defined = [node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        self.assertIn({new!r}, defined)

    def test_nothing_has_the_old_name(self):
        for path in ROOT.rglob("*.py"):
            self.assertNotIn({old!r}, list(names_of(path)), path)
'''


def renames(files, tests):
    """(message, files before, files after): a function has another name afterwards, in all of the project."""
    everywhere = b"\n".join(content for path, content in files.items() if path.endswith(".py"))
    found = []
    for path, _, tree in sources(files):
        for name, _ in functions(tree):
            short = name.split(".")[-1]
            uses = len(re.findall(rb"\b" + re.escape(short.encode()) + rb"\b", everywhere))
            if short.startswith("__") or len(short) < 5 or uses < 3 or other_name(short).encode() in everywhere:
                continue
            found.append((path, short))
    count = {}
    for _, short in found:
        count[short] = count.get(short, 0) + 1
    found = sorted((each for each in found if count[each[1]] == 1), key=lambda each: order_of(*each))
    place = "test_renamed.py" if tests == "." else tests + "/test_renamed.py"
    for path, old in found[:12]:
        new = other_name(old)
        word = re.compile(rb"\b" + re.escape(old.encode()) + rb"\b")
        after = {each: word.sub(new.encode(), content) if each.endswith(".py") else content
                 for each, content in files.items()}
        after[place] = RENAME_TEST.format(depth=place.count("/"), path=path, old=old, new=new).encode()
        message = (f"Rename {old} to {new} everywhere\n\nThe function {old} of {path} gets the name {new}. All that use "
                   f"it follow, the project's\ntests, too; nothing has the name {old} any more.\n")
        yield message, files, after


def write_repository(folder, files, pairs):
    """A bare repository in which each pair is a commit on the tree before it."""
    stream, mark = [], 0

    def commit(message, tree):
        nonlocal mark
        mark += 1
        text = message.encode()
        stream.append(b"commit refs/heads/main\nmark :%d\ncommitter bench <bench@bench.example> %d +0000\ndata %d\n%s\n" %
                      (mark, 1_000_000_000 + mark, len(text), text))
        if mark > 1:
            stream.append(b"from :%d\n" % (mark - 1))
        stream.append(b"deleteall\n")
        for path in sorted(tree):
            stream.append(b'M 100644 inline "%s"\ndata %d\n%s\n' % (path.encode(), len(tree[path]), tree[path]))

    commit("Begin with the project as it is\n", files)
    for message, before, after in pairs:
        commit("Reset\n", before)  # no task: it says too little
        commit(message, after)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1",
                   "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(["git", "-c", "init.defaultBranch=main", "init", "-q", "--bare", "--template=", folder], check=True, env=environment,
                   timeout=60)
    subprocess.run(["git", "--git-dir", folder, "fast-import", "--quiet", "--force"], input=b"".join(stream), check=True,
                   env=environment, timeout=600)
