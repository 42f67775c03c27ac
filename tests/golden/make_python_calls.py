"""Writes python_calls.jsonl: calls as Llama 3.1 writes them behind its tag, and what Python's own parser reads in them.

Needs only Python.  python tests/golden/make_python_calls.py
"""

import ast
import json
import pathlib
import random

WRITTEN = [
    """brave_search.call(query="weather in Zürich")""",
    """f.call()""",
    """f.call( )""",
    """f.call(a = 1 , b=-2.5,)""",
    """f.call(\n  a='it\\'s',\n  b="\\"",\n)""",
    """f.call(a=\"\"\"two\nlines "quoted" \"\"\", b='''x''')""",
    """f.call(a="\\n\\t\\x41\\u00e9\\U0001F600\\101\\0\\d\\\n!")""",
    """f.call(a=[1, (2, 3), (4,), (5), [], ()], b={'k': {"n": None}}, c=True, d=False)""",
    """f.call(a="a)b, c=1")""",
    """f.call(a=1e16, b=1e-07, c=+3, d=123456789012)""",
]
LETTERS = ["a", "Z", " ", "\n", "\t", "'", '"', "\\", "é", "中", "😀", "\x00", "\x7f", ",", ")", "(", "=", "{", "#", "%"]


def value(draw, depth):
    kind = draw.randrange(9 if depth < 3 else 6)
    if kind < 3:
        return "".join(draw.choice(LETTERS) for _ in range(draw.randrange(12)))
    if kind == 3:
        return draw.choice([True, False, None])
    if kind == 4:
        return draw.randrange(-(10**12), 10**12)
    if kind == 5:
        return draw.uniform(-1, 1) * 10.0 ** draw.randrange(-12, 20)
    items = [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind == 8:
        return {f"k{i}": item for i, item in enumerate(items)}
    return tuple(items) if kind == 7 else items


def drawn(seed):
    draw = random.Random(seed)
    keywords = [f"{draw.choice('abc')}{i}={value(draw, 0)!r}" for i in range(draw.randrange(4))]
    return f"tool_{seed}.call({draw.choice([', ', ',']).join(keywords)})"


def read(text):
    call = ast.parse(text, mode="eval").body
    arguments = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    return {"text": text, "name": call.func.value.id, "arguments": arguments}


target = pathlib.Path(__file__).parent / "python_calls.jsonl"
lines = [json.dumps(read(text), ensure_ascii=False) for text in WRITTEN + [drawn(seed) for seed in range(200)]]
target.write_text("\n".join(lines) + "\n")
