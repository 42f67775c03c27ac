"""Makes tests/golden/chat_templates/: what transformers renders, and what jinja2 under transformers' settings computes.

    python -m venv v && v/bin/pip install transformers==5.23.0 jinja2==3.1.6 && v/bin/python tests/golden/make_chat_templates.py

cases.jsonl        {"template": NAME (of NAME.jinja) or its text, "input": a line of `tandem render`, "text" or "error", "spans"}
expressions.jsonl  {"template", "text"} or {"template", "error"} of small templates over the variables below
"""
import itertools
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

OUT = pathlib.Path(__file__).parent / "chat_templates"
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather <now> & \"later\"\n", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": " Größe 中 "}, "days": {"type": ["integer", "null"], "minimum": 1.5, "default": 1e-7},
                                     "unit": {"enum": ["C", "F"], "nested": {"a": [1, {"b": None}], "t": True}}}, "required": ["city"]}}}
BARE = {"name": "no_arguments", "description": "d", "parameters": {"type": "object", "properties": {}}}
CALL = {"type": "function", "id": "c1", "function": {"name": "get_weather", "arguments": {"city": "Köln's \"x\"\n", "days": 3, "f": 2.0, "l": [1, "a"], "n": None}}}
TEXT_CALL = {"type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Ulm\"}"}}
CHATS = {
    "one": [{"role": "user", "content": "Hi <|im_end|> there"}],
    "system": [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "  Hi\n"}, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"}],
    "calls": [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL, CALL]},
              {"role": "tool", "content": "sunny"}, {"role": "tool", "content": "rain"}, {"role": "assistant", "content": "Mixed."}],
    "bare call": [{"role": "system", "content": "S"}, {"role": "user", "content": "W"}, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "content": "x"}],
    "empty call": [{"role": "user", "content": "W"}, {"role": "assistant", "content": "", "tool_calls": [CALL["function"]]}, {"role": "tool", "content": "x"}],
    "text arguments": [{"role": "user", "content": "W"}, {"role": "assistant", "content": "", "tool_calls": [TEXT_CALL]}, {"role": "tool", "content": "x"}],
    "thinking": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes"}, {"role": "user", "content": "b"},
                 {"role": "assistant", "content": "c", "reasoning_content": "deep\n"}, {"role": "user", "content": "<tool_response>x</tool_response>"}],
    "reasoning": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c", "thinking": "alias"}],
    "odd role": [{"role": "developer", "content": "x"}, {"role": "user", "content": "y"}],
}
GENERATION = ("{%- for m in messages %}\n  {%- if m.role == 'assistant' %}<|a|>{% generation %}{{ m['content'] }}<|e|>{% endgeneration %}\n"
              "  {%- else %}<|{{ m.role }}|>{{ m.content }}<|e|>{% endif %}\n{% endfor %}{% if add_generation_prompt %}<|a|>{% endif %}")
DATED = ("{%- if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}{{ bos_token }}Today: {{ date_string }}\n"
         "{%- for m in messages if m.role != 'system' %}{{ '<' ~ m.role ~ '>' }}{{ m.content | trim }}{{ raise_exception('no tools here: ' ~ tools | length) if tools }}{% endfor %}")
SMOL = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
        "trained by Hugging Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")

VARIABLES = {"i": 7, "f": 2.5, "s": " Hello World\n", "u": "Größe 中文 😀", "empty": "", "none": None, "yes": True, "l": [3, 1, 2], "ls": ["b", "A", "c"],
             "d": {"a": 1, "b": {"c": [1, 2]}, "items": 5}, "m": [{"n": "x", "v": 2, "t": True}, {"n": "Y", "v": 1}, {"n": "z", "v": 3, "t": False}],
             "q": "it's \"q\" \\ \t\x01\x7f\u200b é", "big": 1e22, "small": 1e-7, "whole": 3.0}
EXPRESSIONS = """
i + 1 | i - 10 * 2 | 7 // 2 | -7 // 2 | -7 % 3 | 7 % -3 | 7 / 2 | 2 ** 10 | 2 ** -1 | -2 ** 2 | 1 + 2 ~ 3 | 'a' ~ 1 + 2 | 7.5 // 2 | -7.5 % 2 | 10 / 5 | f * 2 | i * f | 'ab' * 3 | [1] * 2 | [1] + [2]
s.strip() | s.upper() | s.lower().strip() | s.split() | 'a,b,,c'.split(',') | 'a,b,c'.split(',', 1) | 'a,b,c'.rsplit(',', 1) | ' a  b '.split(None, 1) | 'xxabxx'.strip('x') | 'abc'.rstrip('cb') | 'x\\ny\\r\\nz'.splitlines()
'abc'.startswith('a') | 'abc'.endswith(('x', 'c')) | 'hello world'.title() | 'hELLO'.capitalize() | 'a-b-c'.replace('-', '+') | 'a-b-c'.replace('-', '+', 1) | 'abc'.find('c') | u.find('文') | 'aXbX'.count('X') | '-'.join(ls)
'abc'.removeprefix('a') | 'abc'.removesuffix('c') | '12'.isdigit() | 'ab1'.isalpha() | u[0:5] | u[-1] | u[::-1] | u|length | s[1:-1] | l[0] | l[-1] | l[1:] | l[::-1] | l[5] | l[:2] | 'abc'[1] | 'abc'[10] | d.a | d['a'] | d.b.c[1] | d['items'] | d.missing | d['missing']
d.get('a') | d.get('zz') | d.get('zz', 4) | d.keys() | d.values() | d.items() | d | l | m[0] | none | yes | false | True | None | empty | missing | [missing] | missing is defined | i is defined | missing is undefined | none is none | i is number | f is float | i is integer | yes is integer | yes is number | s is string
l is sequence | d is mapping | l is iterable | i is iterable | s is iterable | d is sequence | missing is iterable | yes is true | i is odd | i is even | i is divisibleby 7 | i is divisibleby(2) | i is eq 7 | 'a' is in ls | 'A' in ls | 'z' not in ls | 'ell' in s | 'a' in d | 3 in l | not i is odd | i is not odd | yes is sameas true | 'abc' is lower | 'ABC' is upper | raise_exception is callable
i > 3 and s | empty or 'x' | none or missing or 0 | not empty | 1 < 2 < 3 | 1 < 3 < 2 | 1 == 1.0 | true == 1 | 'a' < 'b' | [1,2] == [1,2] | (1,2) == [1,2] | {'a':1} == {'a':1.0} | 1 != 2 | i if yes else f | i if empty | 'x' if none else 'y' if empty else 'z' | (1,) | (1, 2) | [] | {} | {'a': 1, 'b': [1, 'x']} | [1, 'a', none, true, 2.0]
q | [q] | {'k': q} | q|tojson | u|tojson | u|tojson(ensure_ascii=true) | q|tojson(ensure_ascii=True) | d|tojson | d|tojson(indent=2) | {}|tojson(indent=2) | []|tojson(indent=4) | [[], {}, [1]]|tojson(indent=1) | {'b':1,'a':[2,{'d':3,'c':4}]}|tojson(sort_keys=true) | d|tojson(separators=(',', ':')) | d|tojson(separators=(',', ': '), indent=2)
big | small | whole | [big, small, whole, 0.1, 100000.0, 123456789012345680.0, 1e16, -0.0] | big|tojson | [small, whole, 1e15, 12345.678]|tojson | none|tojson | yes|tojson | 'x'|tojson | missing|tojson
s|trim | s|upper | s|lower | s|title | s|capitalize | 'xax'|trim('x') | l|sort | l|sort(reverse=true) | ls|sort | ls|sort(case_sensitive=true) | m|sort(attribute='v')|map(attribute='n')|list | ls|join | ls|join(', ') | m|join('-', attribute='n') | l|first | l|last | []|first | l|sum | m|sum(attribute='v') | l|min | l|max | l|reverse|list | 'abc'|reverse
m|map(attribute='n')|list | m|map(attribute='t', default='?')|list | ls|map('upper')|list | m|selectattr('t')|list | m|selectattr('v', 'gt', 1)|map(attribute='n')|list | m|rejectattr('t')|list | m|selectattr('n', 'equalto', 'x')|list | m|selectattr('t', 'defined')|list|length | l|select('odd')|list | l|reject('gt', 1)|list | [0, 1, '', 'a']|select|list | m|selectattr('n', 'in', ['x', 'z'])|list|length
missing|default('d') | empty|default('d') | empty|default('d', true) | none|d('x') | none|d('x', boolean=true) | [1,2,2,1]|unique|list | ['a','A','b']|unique|list | d|dictsort | {'b':1,'a':2}|dictsort(by='value') | {'b':1,'a':2}|items|list | 3.7|int | '42'|int | ' 42 '|int | 'x'|int | 'x'|int(5) | '3.5'|float | '3.9'|int | 'x'|float | i|float | -5|abs | 2.567|round(2) | 2.5|round | 3.5|round | 2.1|round(method='ceil') | 2.9|round(method='floor')
'a\\nb\\n\\nc'|indent | 'a\\nb'|indent(2, true) | 'a\\n\\nb'|indent(2, blank=true) | 'a\\nb\\n'|indent('>') | 'a b  c'|wordcount | 5|string|length | [1,2]|string | 'a<b>'|escape | 'a<b>'|e ~ '<' | ('<'|safe) ~ '<' | ('<'|safe) + '<' | '<' + ('a'|safe) | 'a'|replace('a', 'b') | l|count | d|length | d|list | 'abc'|list | range(3)|list | range(1, 7, 2)|list | range(5, 0, -2)|list | range(0)|list
dict(a=1, b=2) | dict({'a': 1}, b=2) | namespace(a=1).a | 'x' 'y' | 'a\\tb\\x41\\u00e9\\'' | "it's" | 1_000 | 1e3 | 1.5e-3 | l.0 | m.1.n | m[0].n ~ m[1]['n'] | -i | +i | not not i | (i) | ((1, 2), 3) | l|length > 2 and d is mapping or false | 'a' if d.a == 1 and not missing else 'b' | s is string and s|trim == 'Hello World' | i is number and i > 3 | [l, ls]|tojson | l|map('string')|join('+')
7|round | 7|round(1) | yes|round | 7|round(-1) | 2.5|round(-1) | 2.25|round(1) | 0.1|wordcount | 'a_b c-d é1'|wordcount | missing|int | missing|float | 1e22|int | '1e400'|int | '12345678901234567890'|int | 'nan'|float | '1_0'|int | 'a_b'|int | '0x1'|float | range(4) | range(4)[1:3] | range(4)[1:3]|list | range(4) == range(4) | range(4) == [0, 1, 2, 3] | range(4) + [1] | range(2) * 2 | range(2)|tojson | range(3)|length | range(3)[-1] | range(3) is sequence | range(0) or 'none'
(l|map('string'))|length | 'y' if l|select('gt', 9) else 'n' | l|select('gt', 9) or 'x' | l|map('string') is sequence | l|map('string') is iterable | d.items() is sequence | l|select|last | l|select|first | l|reverse|length | ls|map('upper')|reverse | ls|unique|length | 3 in l|select | l|map('string')|tojson | l|map('string') == l|map('string') | l|map('string') < l|map('string') | (1,) * 2 | (1,) + (2,) | (1,) + [2] | [1] < (1, 2) | 5|indent | {'a': 1}|indent | d.items() == d.items() | d.items()|tojson | d.keys()[0] | d.items()|length | d.items().copy() | l|select|map('string')|join | (l|map('string'))[0] | l|select + [1]
missing.x | missing['x'] | missing.x.y | missing() | missing + 1 | 1 + missing | 'a' + 1 | 1 + 'a' | none + 1 | l.append(1) | d.update({'a': 2}) | d.pop('a') | 1 / 0 | 1 // 0 | 1 % 0 | i() | d.a.b | d.a.b.c | i.x | none.x | raise_exception('words: ' ~ i) | 'a' < 1 | l < 1 | none < 1 | i|length | i|list | range(1000000)|list | namespace(_a=1) | missing in 'abc' | 'a'.split('') | ''.join([1]) | 1 in i | l|sort(attribute='x') | none|upper | 'x'|tojson(5, 6, 7, 8, 9)
m|groupby('v') | m|groupby('n')|map('first')|list | m|groupby('t', default='none')|length | ['a', 'A', 'b']|groupby(0)|list | (m|groupby('v'))[0].grouper | (m|groupby('v'))[0].list[0].n | (m|groupby('v'))[0] == (1, [m[1]]) | m|groupby('n', case_sensitive=true)|map(attribute='grouper')|list | [1, 2, 3, 4, 5]|slice(2)|list | [1, 2, 3, 4, 5]|slice(3, 'x')|list | l|slice(1)|list | []|slice(2)|list | l|batch(2)|list | l|batch(2, 0)|list
'a<b>&\\'"'|forceescape | ('<'|e)|forceescape | '<p>a <b>c</b>\\n\\n d</p><!-- x -->'|striptags | 'a &amp; b &lt;'|striptags | 'x &#65;&#x42; y'|striptags | 'a < b'|striptags | '<!<!-- x -->-- y -->z'|striptags | 'a &foo; b'|striptags | 'a & b &'|striptags | 'Hello, wörld/a?b=c&d'|urlencode | {'a b': 'c/d', 'e': 5}|urlencode | [('a', 1), ('b', 'ä')]|urlencode | i|urlencode | {'class': 'a<b', 'id': none, 'n': 5}|xmlattr | {'a': 1}|xmlattr(false) | {}|xmlattr | {'a b': 1}|xmlattr | {'a': missing}|xmlattr
1|filesizeformat | 999|filesizeformat | 1000|filesizeformat | 13000|filesizeformat | 4100000|filesizeformat | 300|filesizeformat(true) | 2048|filesizeformat(true) | 1e30|filesizeformat | '1024'|filesizeformat | 0|filesizeformat | 'foo bar baz qux'|truncate(9) | 'foo bar baz qux'|truncate(9, true) | 'foo bar baz qux'|truncate(11) | 'foo bar baz qux'|truncate(11, false, '..', 0) | 'foobarbazqux'|truncate(6, leeway=0) | u|truncate(4, true, '', 0) | 'abc'|truncate(2) | d|pprint | m|pprint | {'b': 1, 'a': [{'d': 2, 'c': 3}]}|pprint | s|pprint | (1,)|pprint
d.keys() | d.values() | d.items() | {}.keys() | [d.keys()] | d.keys()|string | d.items()|list|length | 'a' in d.keys() | ('a', 1) in d.items() | d|attr('items') is callable | d|attr('missing') is defined | d|attr('a') is defined | s|attr('upper') is callable | namespace(a=1)|attr('a') | l|attr('x') is defined | ('<'|e) is escaped | s is escaped | 7 is < 8 | 7 is >= 8 | l|select('!=', 1)|list | l|select('<=', 2)|list | l|select('>', 2)|list
'a\\tb\\tc'.expandtabs() | 'a\\tbc\\n\\td'.expandtabs(4) | 'ab\\tc'.expandtabs(0) | 'Hello World'.istitle() | 'Hello world'.istitle() | ''.istitle() | '1A'.istitle() | 'aB'.istitle() | 'abc'.isprintable() | 'a\\n'.isprintable() | ''.isprintable() | u.isprintable() | 'ab_1'.isidentifier() | '1a'.isidentifier() | ''.isidentifier() | 'größe'.isidentifier() | '{a}-{b[c]}'.format_map(d) | 2.0.is_integer() | f.is_integer()
'ff'|int(0, 16) | '0xff'|int(0, 16) | '0b11'|int(0, 2) | '0o17'|int(base=8) | '0x1F'|int(0, 0) | '010'|int(5, 0) | '12'|int(7, 1) | 'zz'|int(base=36) | '-7f'|int(0, 16) | '1_000'|int | '1__0'|int | '_1'|int | '1_0.5'|float | '1_.5'|float | '12345678901234567890'|int | '-00012345678901234567890'|int | 1e18|int | 1e22|int | 'inf'|int | '+5'|int | '1e3'|int | 12345|round(-2) | 12350|round(-2) | 12450|round(-2) | -15|round(-1) | 1234.5|round(-2) | 25.0|round(-1) | 35.0|round(-1) | 2.5|round(-3)
dict(*[[('a', 1)]]) | dict(**{'x': 1}) | dict(**d) | range(*[1, 4])|list | '{}-{}'.format(*ls) | '{a}'.format(**d) | '{0}{x}'.format(*[1], **{'x': 2}) | s.replace(*['o', '0']) | dict(a=1, **{'a': 2}) | range(*i) | dict(**l) | raise_exception(*['m'])
"""
TEMPLATES = [
    "{% for x in l %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}", "{% for x in [] %}a{% else %}none{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ x }}{{ loop.first }}{{ loop.last }};{% else %}e{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{{ x }}{% if x == 1 %}{% break %}{% endif %}{% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }} {% endfor %}",
    "{% set x = 1 %}{% for y in l %}{% set x = x + y %}{{ x }}{% endfor %}{{ x }}", "{% set ns = namespace(x=1) %}{% for y in l %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }}", "{% if yes %}{% set x = 5 %}{% endif %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set x %}a{{ i }}b{% endset %}{{ x }}{{ x|length }}", "{% set x | upper %}abc{% endset %}{{ x }}", "{% filter upper %}abc{{ u }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aa{% endfilter %}",
    "{% with x = 3, y = i %}{{ x + y }}{% endwith %}{{ x is defined }}", "{% macro f(a, b=2, c='z') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, c=3) }}{{ f(a=5, b=6) }}{{ f() }}{{ f(1)|length }}",
    "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% set g = 1 %}{% macro f() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ f() }}", "{% macro f() %}({{ caller() }}){% endmacro %}{% call f() %}in{{ i }}{% endcall %}",
    "{% macro f() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) f() %}{{ a }}-{{ b }}{% endcall %}", "{% for x in l %}{% macro f() %}{{ x }}{% endmacro %}{{ f() }}{% endfor %}", "{% if empty %}a{% elif none %}b{% elif i %}c{% else %}d{% endif %}",
    "  {% if yes %}\n  a\n  {% endif %}\n  b\n", "  {%- if yes -%}  \n a \n {%- endif -%}\n b", "x\n   {% set a = 1 %}   \ny", "a {{- i -}} b", "a\n {{ i }}\n\n b\n\n", "{# c #}\nx{# d #} y\n   {# e #}\nz", "a {#- c -#} b", "{% raw %}{{ x }}{% y %}{% endraw %}|", "a\n{% raw -%}  {{ {%- endraw %}\nb",
    "   {%+ if yes %}a{% endif %}", "{% if yes +%}\na{% endif %}\nb", "a\r\nb\rc\n", "{{ '}}' }}{{ '{%' }}", "{{ {'a': {'b': 1}}.a.b }}", "{{ 1, 2 }}", "{{ [1,2,] }}{{ {'a':1,} }}", "\n\n{{ i }}", "{{ i }}\n", "{{ i }}\n\n", "{% for x in l -%}\n {{ x }}\n{%- endfor %}", "\t{% if 1 %}\n\ta\n\t{% endif %}\n", "é {%- if 1 %} ü {% endif -%} ö",
    "a\u00a0{%- if 1 %}b{% endif %}", "{% set d2 = {'k': l} %}{{ d2.k[1] }}{{ d2['k']|last }}", "{% set x = none %}{{ x is none }}{{ x }}", "{{ m | selectattr('v', '>', 1) | list }}", "{{ d['b']['c'] | tojson }}", "{{ loop is defined }}", "{% set ns = namespace() %}{% set ns.a = [1] %}{% set ns.a = ns.a + [2] %}{{ ns.a }}{{ ns.b is defined }}",
    "{% for x in missing %}a{% else %}b{% endfor %}", "{% for x in none %}a{% endfor %}", "{% for x in i %}a{% endfor %}", "{% set x.y = 1 %}", "{% set d.a = 1 %}", "{% for a, b in l %}{% endfor %}", "{% if %}a{% endif %}", "{% if 1 %}a", "{{ 1", "{% foo %}", "{{ 1 | nofilter }}", "{{ 1 is notest }}", "{{ }}", "{{ 1 2 }}", "{{ 'a }}", "{% endif %}", "{{ a b }}", "{{ (1 }}", "{# c",
    "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}", "{% break %}", "{{ f(1)(2) }}", "{{ i.__class__ }}", "{{ s.__len__() }}", "{% set x = [] %}{% set _ = x.append(1) %}{{ x }}", "{{ ls | map('nofilter') | list }}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{{ self }}", "{{ d.b is mapping and d.b.c is sequence }}",
    "{% set g = l|map('string') %}{{ g|join }}{{ g|join }}", "{% set g = l|select('gt', 9) %}{% if g %}a{% else %}b{% endif %}{% for x in g %}c{% endfor %}", "{% set g = l|select('gt', 1) %}{% for x in g %}{{ x }}{{ loop.length }}{% endfor %}",
    "{% for m in messages %}{% endfor %}ok", "{{ strftime_now('%Y-%m-%d %H:%M %a %j') }}", "{% generation %}a{% endgeneration %}b", "{% for x in l recursive %}{{ x }}{% endfor %}",
    "{% for x in [[1, [2, 3]], [4]] recursive %}<{% if x is iterable %}{{ loop(x) }}{% else %}{{ x }}{% endif %}{{ loop.depth }}{{ loop.depth0 }}{{ loop.index }}>{% endfor %}",
    "{%- for k, v in d.items() recursive %}{{ k }}{% if v is mapping %}({{ loop(v.items()) }}){% endif %}{% else %}none{% endfor %}",
    "{% for x in l %}{{ loop(l) }}{% endfor %}",
    "{% for x in [1] recursive %}{{ loop([]) }}{% else %}e{% endfor %}",
    "{% for x in l recursive %}{{ loop(l) }}{% endfor %}",
    "{% set a = 5 %}{% for x in [[1], 2] recursive %}{% set b = 7 %}{{ a }}{{ loop(x) if x is iterable else x }}{{ b }}{% endfor %}{{ b is defined }}",
    "{% for x in [[1, 2]] recursive %}{% for y in x %}{{ y }}{{ loop.depth }}{% endfor %}{% endfor %}",
    "{% macro f(a) %}{{ a }}|{{ varargs }}|{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, x=4) }}{{ f(1) }}{{ f(a=1, b=2) }}",
    "{% macro f() %}{{ varargs|length }}{% endmacro %}{{ f(1, 2) }}{{ f() }}",
    "{% macro f(a) %}{{ kwargs }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ varargs }}{% endmacro %}{{ f(1, b=2) }}",
    "{% macro f(a) %}{{ kwargs }}{% endmacro %}{{ f(1, a=2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(*[1]) }}{{ f(**{'a': 2}) }}",
    "{% macro f() %}[{% if caller %}{{ caller() }}{% endif %}]{% endmacro %}{{ f() }}{% call f() %}x{% endcall %}",
    "{% macro f() %}a{% endmacro %}{% call f() %}x{% endcall %}",
    "{% macro f() %}{{ caller is defined }}{% endmacro %}{{ f() }}",
    "{% macro g(x) %}{{ caller(*x) }}{% endmacro %}{% call(a, b) g([1, 2]) %}{{ a }}+{{ b }}{% endcall %}",
    "{% macro f() %}{% if x %}{{ kwargs.y }}{% endif %}{% for z in varargs %}{{ z }}{% endfor %}{% endmacro %}{% set x = 1 %}{{ f(1, 2, y=3) }}",
    "a{% block b %}[{{ i }}]{% endblock %}c{% block e %}{% endblock e %}",
    "{% set x = 1 %}{% block b %}{{ x }}{% set x = 2 %}{{ x }}{% endblock %}{{ x }}",
    "{% for x in l %}{% block b %}{{ x }}{% endblock %}{% endfor %}",
    "{% for x in l %}{% block b scoped %}{{ x }}{% endblock %}{% endfor %}",
    "{% block b %}{% endblock %}{% block b %}{% endblock %}",
    "{% block b %}{% endblock c %}",
    "{% block b required %}{% endblock %}",
    "{% block b %}a",
    "{% macro f() %}{% block b %}{{ i }}{% endblock %}{% endmacro %}{{ f() }}",
    "{% for x in l %}{% block b %}{% break %}{% endblock %}{% endfor %}",
    "{% set c = cycler('a', 'b', 'c') %}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}{% for x in l %}{{ c.next() }}{% endfor %}",
    "{{ cycler() }}",
    "{% set j = joiner('; ') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% set j = joiner() %}{{ j() }}1{{ j() }}2",
    "{% for g in m|groupby('v') %}{{ g.grouper }}:{{ g.list|map(attribute='n')|join }};{% endfor %}",
    "{% for v, items in m|groupby('v') %}{{ v }}:{{ items|length }};{% endfor %}",
    "{% for row in [1,2,3,4,5]|batch(2, '-') %}{{ row|join(',') }};{% endfor %}",
    "{% for column in 'abcde'|slice(2) %}{{ column|join }};{% endfor %}",
    "{% set g = l|select('gt', 1) %}{{ g|first }}{{ g|list }}{{ g|list }}",
    "{% set g = l|map('string') %}{{ '1' in g }}{{ g|list }}",
    "{% set g = l|map('string') %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% else %}none{% endfor %}",
    "{% set g = l|map('string') %}{% for x in g %}{{ x }}{% break %}{% endfor %}{{ g|join }}",
    "{% set g = l|select %}{% set h = g|map('string') %}{{ g|list }}{{ h|list }}",
    "{% set a, b, c = l|map('string') %}{{ a ~ b ~ c }}",
    "{% filter indent(2)|trim %}a\nb{% endfilter %}",
    "{% filter truncate(5, leeway=0) %}{{ s }} and more{% endfilter %}",
    "{% set ns = namespace(last=none) %}{% for x in [1, 1, 2, 2, 3] if x != ns.last %}{{ loop.index }}{{ x }}{% set ns.last = x %}{% endfor %}",
    "{% set ns = namespace(last=none) %}{% for x in [1, 1, 2, 2, 3] if x != ns.last %}{{ loop.last }}{{ x }}{% set ns.last = x %}{% endfor %}",
    "{% for x in range(5) if x % 2 %}{{ loop.index }}/{{ loop.length }}:{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.last }}{{ loop.nextitem|default('-') }};{% endfor %}",
    "{% for x in l %}{% continue %}{% else %}none{% endfor %}", "{% for x in l %}{% break %}{% else %}none{% endfor %}", "{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}none{% endfor %}",
    "{% set c = cycler('a') %}{% set c.x = 1 %}", "{% for x in l %}{% set loop.index = 9 %}{% endfor %}", "{% for x in l %}{% set loop = 3 %}{% endfor %}", "{% for loop in l %}{% endfor %}",
    "{% macro f(x, x) %}{% endmacro %}", "{% macro f(a=1, b) %}{% endmacro %}", "{% macro f(varargs, kwargs) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, kwargs=2) }}",
    "{% macro f(a, b) %}{% endmacro %}{{ f.name }}", "{{ 0 ** -1 }}", "{{ (-8) ** 0.333 }}", "{{ 10.0 ** 400 }}", "{{ i.real }}", "{{ range(3).stop }}",
    "{{ 'a'|upper(1) }}", "{{ l|first(1) }}", "{{ i is number is true }}", "{{ '\\N{BULLET}' }}", "{{ '१२'|int }}{{ '٣.٥'|float }}", "{{ 'abc'.startswith('', 5) }}{{ 'abc'.count('', 5) }}{{ 'abc'.endswith('', 3) }}",
    "{{ m|map(attribute='t', default=none)|list }}", "{{ ('<'|safe)|trim|e }}{{ ('<'|safe)[0]|e }}{{ ('<a'|safe)[:1]|e }}{{ (('<'|safe) * 2)|e }}", "{{ '%s'|e % '<' }}",
]


def write_lines(name, lines):
    (OUT / name).write_text("".join(json.dumps(x) + "\n" for x in lines), encoding="utf-8")


class Frozen:
    """The time that strftime_now is given: 2026-03-01T12:30:00."""

    @staticmethod
    def now():
        import datetime
        return datetime.datetime(2026, 3, 1, 12, 30)


def main():
    import transformers.utils.chat_template_utils as utils
    utils.datetime = Frozen
    templates = {p.stem: p.read_text() for p in sorted(OUT.glob("*.jinja"))} | {GENERATION: GENERATION, DATED: DATED, SMOL: SMOL}
    cases = []
    settings = [{}, {"add_generation_prompt": True}, {"continue_final_message": True}, {"chat_template_kwargs": {"enable_thinking": False}, "add_generation_prompt": True}]
    for (name, source), (chat, tools), setting in itertools.product(templates.items(), itertools.product(CHATS.values(), [None, [], [WEATHER, BARE]]), settings):
        line = {"messages": chat, "now": "2026-03-01T12:30:00", **({} if tools is None else {"tools": tools}), **setting}
        case = {"template": name, "input": line}
        messages = [{k: v for k, v in m.items() if v is not None} for m in chat]
        arguments = {k: v for k, v in setting.items() if k != "chat_template_kwargs"} | setting.get("chat_template_kwargs", {})
        mask = name == GENERATION and not setting.get("continue_final_message")
        try:
            texts, spans = render_jinja_template([messages], tools=tools, chat_template=source, bos_token="<s>", return_assistant_tokens_mask=mask, **arguments)
            case["text"] = texts[0]
            case["spans"] = [[len(texts[0][:a].encode()), len(texts[0][:b].encode())] for a, b in spans[0]] if mask else []
        except Exception as error:
            case["error"] = f"{type(error).__name__}: {error}"[:200]
        cases.append(case)
    write_lines("cases.jsonl", cases)
    lines = []
    small = ["{{ " + e.strip() + " }}" for row in EXPRESSIONS.strip().split("\n") for e in row.split(" | ")] + TEMPLATES
    for source in small:
        try:
            lines.append({"template": source, "text": _compile_jinja_template(source).render(**VARIABLES, messages=[{"role": "user", "content": "x"}], tools=None)})
        except Exception as error:
            lines.append({"template": source, "error": f"{type(error).__name__}: {error}"[:200]})
    write_lines("expressions.jsonl", lines)
    (OUT / "variables.json").write_text(json.dumps(VARIABLES, indent=1) + "\n")
    print(len(cases), "cases,", sum("error" in c for c in cases), "errors;", len(lines), "expressions,", sum("error" in c for c in lines), "errors")


if __name__ == "__main__":
    main()
