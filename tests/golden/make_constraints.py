"""Makes tests/golden/constraints/cases.jsonl: JSON Schemas, and texts that are valid by them or not, as `jsonschema` says.

    python -m venv v && v/bin/pip install jsonschema==4.26.0 rfc3339-validator && v/bin/python tests/golden/make_constraints.py

Each line is {"name", "schema", "valid": [texts], "invalid": [texts]}. Texts are in the form that docs/constrained.md describes
(whole numbers without fraction, keys and constants without needless escapes), in several layouts. Each schema meets values that
were written for it and those of a common pool; which of them are valid is the library's word, with formats checked.
"""
import json
import pathlib

from jsonschema import Draft202012Validator

OUT = pathlib.Path(__file__).parent / "constraints" / "cases.jsonl"

POOL = [None, True, False, 0, 1, -1, 7, 100, 0.5, -2.25, 3.14159, 1e-5, 12345678901, "", "a", "ab", "abc", "abcdef", "A1", "Größe 中 😀", "with \"quotes\" \\ /", "tab\tline\n",
        "\u0001", [], [1], [1, 2, 3], ["a"], ["a", 1], [[]], [None], {}, {"a": 1}, {"a": "x"}, {"b": 2}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"name": "n", "age": 3},
        {"a": {"a": {}}}, {"x": []}, [{}, {"a": 1}], "2024-02-29", "12:30:00Z", "null", "1"]

SCHEMAS = [
    ("anything", True, []),
    ("anything by an empty object", {}, []),
    ("object", {"type": "object"}, []),
    ("types", {"type": ["string", "null", "integer"]}, []),
    ("number", {"type": "number"}, [1e10, 1.5e-7, -0.001]),
    ("string lengths", {"type": "string", "minLength": 2, "maxLength": 4}, ["ab", "a", "abcd", "abcde", "中文", "😀😀", "😀", "a\nb", "\\\\\\\\"]),
    ("longest", {"type": "string", "maxLength": 3}, ["", "abc", "abcd", "éééé", "ééé"]),
    ("integer bounds", {"type": "integer", "minimum": -12, "maximum": 105}, [-13, -12, -11, -9, -1, 0, 9, 10, 99, 100, 104, 105, 106, 110, 1000, -120]),
    ("exclusive integer bounds", {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10}, [0, 1, 5, 9, 10, 11, -1]),
    ("lower bound alone", {"type": "integer", "minimum": 17}, [16, 17, 18, 20, 99, 100, 170, 1700, 2**60, -17]),
    ("negative bounds", {"type": "integer", "maximum": -5}, [-4, -5, -6, -10, -49, -50, -51, -500, 5]),
    ("bounds with fractions", {"type": "integer", "minimum": 0.5, "maximum": 3.5}, [0, 1, 2, 3, 4]),
    ("number bounds", {"type": "number", "minimum": 0, "maximum": 1}, [0, 1, 0.5, 0.999, 1.001, 2, -0.1, 0.0001]),
    ("number bounds inside", {"type": "number", "exclusiveMinimum": -1.25, "maximum": 2.75}, [-1.25, -1.24, -1.2, -1.26, -2, 2.75, 2.751, 2.7, 2.8, 3, 0, -0.5]),
    ("multiples", {"type": "integer", "multipleOf": 7, "minimum": 0}, [0, 7, 14, 15, 21, 700, 701, 343, -7]),
    ("multiples within bounds", {"type": "integer", "multipleOf": 5, "minimum": -20, "maximum": 40}, [-25, -20, -15, -3, 0, 5, 12, 40, 45]),
    ("enum", {"enum": ["red", "green", 1, None, True, 2.5, "with \"quote\"", "ü"]}, ["red", "gree", "green", "greenish", 2, 12, 2.5, "with \"quote\"", "ü", False]),
    ("typed enum", {"type": "string", "enum": ["a", "b", 3]}, ["a", "b", 3, "c"]),
    ("enum beside length", {"type": "string", "enum": ["a", "bb", "ccc"], "minLength": 2}, ["a", "bb", "ccc"]),
    ("enum beside bounds", {"enum": [1, 5, 10, "x"], "minimum": 4}, [1, 5, 10, "x"]),
    ("numbers that begin alike", {"enum": [1, 12, 123, 13]}, [1, 12, 123, 13, 2, 1234]),
    ("const object", {"const": {"a": [1, "x", {"b": None}], "c": 2}}, [{"a": [1, "x", {"b": None}], "c": 2}, {"c": 2, "a": [1, "x", {"b": None}]}, {"a": [1, "x", {"b": None}]}, {"a": [1, "x", {"b": 1}], "c": 2}]),
    ("const", {"const": "only"}, ["only", "onl", "only "]),
    ("person", {"title": "Person", "type": "object", "properties": {"name": {"type": "string", "description": "d"}, "age": {"type": "integer", "minimum": 0, "default": 3}, "email": {"type": "string", "format": "email"}},
                "required": ["name", "age"], "additionalProperties": False},
     [{"name": "x", "age": 1}, {"age": 1, "name": "x"}, {"name": "x"}, {"name": "x", "age": -1}, {"name": "x", "age": 1, "email": "a@b.example"}, {"name": "x", "age": 1, "email": "nothing"}, {"name": "x", "age": 1, "more": 1}, {"name": 1, "age": 1}]),
    ("open object", {"type": "object", "properties": {"a": {"type": "integer"}, "ab": {"type": "string"}}, "required": ["a"]},
     [{"a": 1}, {"a": 1, "ab": "x"}, {"a": 1, "ab": 1}, {"a": "wrong"}, {"a": 1, "abc": None, "b": [], "": 0}, {"ab": "x"}, {"aa": 1, "a": 1}, {"a": 1, "z\"q": 1, "ü": 2}]),
    ("typed additional", {"type": "object", "additionalProperties": {"type": "integer"}}, [{"x": 1, "y": 2}, {"x": "1"}, {"x": {}}]),
    ("required but not described", {"type": "object", "required": ["x", "y"], "properties": {"x": {"type": "boolean"}}}, [{"x": True, "y": 1}, {"x": True}, {"y": [], "x": False, "z": 1}]),
    ("property counts", {"type": "object", "minProperties": 1, "maxProperties": 2}, [{}, {"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}]),
    ("property counts of a closed object", {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["c"], "additionalProperties": False, "minProperties": 2, "maxProperties": 2},
     [{"c": 1}, {"c": 1, "a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 1, "c": 1}, {"b": 1, "c": 1}]),
    ("forbidden property", {"type": "object", "properties": {"no": False, "yes": {}}, "required": ["yes"]}, [{"yes": 1}, {"yes": 1, "no": 1}, {"no": 1}]),
    ("array", {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3}, [[], [1], [1, 2, 3], [1, 2, 3, 4], ["a"], [1, "a"]]),
    ("tuple", {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": {"type": "boolean"}, "minItems": 2}, [["a", 1], ["a"], ["a", 1, True, False], ["a", 1, 2], [1, "a"]]),
    ("closed tuple", {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": False}, [[], [1], [1, 2], [1, 2, 3], [2]]),
    ("nested arrays", {"type": "array", "items": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}}, [[[1, 2]], [[1, 2], [3.5, 4]], [[1]], [[1, 2, 3]]]),
    ("nullable", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, []),
    ("any of objects", {"anyOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
                                  {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a", "b"], "additionalProperties": False}]},
     [{"a": 1}, {"a": "x", "b": 1}, {"a": "x"}, {"a": 1, "b": 1}, {"b": 1, "a": "x"}]),
    ("one of by a tag", {"oneOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]},
                                   {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]}]},
     [{"kind": "circle", "radius": 1}, {"kind": "square", "side": 2.5}, {"kind": "circle", "side": 1}, {"kind": "square", "radius": 1, "side": 1}, {"radius": 1, "kind": "circle", "more": None}]),
    ("one of by type", {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "array", "items": {"type": "string"}}]}, []),
    ("one of by range", {"type": "integer", "oneOf": [{"maximum": 5}, {"minimum": 10}]}, [3, 5, 6, 9, 10, 11]),
    ("all of", {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"a": {"minimum": 5}, "b": {"type": "string"}}, "required": ["b"]}]},
     [{"a": 5, "b": "x"}, {"a": 4, "b": "x"}, {"a": 5}, {"b": "x"}, {"a": 9, "b": "", "c": 1}]),
    ("keywords beside any of", {"type": "object", "properties": {"k": {"type": "string"}}, "anyOf": [{"required": ["k"]}, {"required": ["n"], "properties": {"n": {"type": "integer"}}}]},
     [{"k": "x"}, {"n": 1}, {"k": 1}, {"n": "x"}, {"n": "x", "k": "y"}, {}]),
    ("defined", {"$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x", "y"], "additionalProperties": False}},
                 "type": "array", "items": {"$ref": "#/$defs/point"}}, [[{"x": 1, "y": 2}], [{"x": 1}], [{"y": 0.5, "x": 1}, {"x": 1, "y": 1}]]),
    ("tree", {"$defs": {"node": {"type": "object", "properties": {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["value"], "additionalProperties": False}},
              "$ref": "#/$defs/node"}, [{"value": 1}, {"value": 1, "children": []}, {"value": 1, "children": [{"value": 2, "children": [{"value": 3}]}]}, {"value": 1, "children": [{"children": []}]}]),
    ("list by recursion", {"type": ["object", "null"], "properties": {"head": {"type": "integer"}, "tail": {"$ref": "#"}}, "required": ["head", "tail"], "additionalProperties": False},
     [{"head": 1, "tail": None}, {"head": 1, "tail": {"head": 2, "tail": None}}, {"head": 1}, {"head": 1, "tail": {}}]),
    ("pattern", {"type": "string", "pattern": "^[a-z]+_[0-9]{2,3}$"}, ["ab_12", "ab_123", "ab_1", "ab_1234", "_12", "é_12"]),
    ("pattern anywhere", {"type": "string", "pattern": "b+c"}, ["bc", "abbcd", "ac", "b", "x\"bc\n"]),
    ("pattern of alternatives", {"type": "string", "pattern": "^(a|bc)$|^x"}, ["a", "bc", "x", "xyz", "ax", "abc", "b"]),
    ("pattern with classes", {"type": "string", "pattern": "^[^\\s\"]{1,5}[A-Za-z0-9_.-]$"}, ["ab", "a\"b", "é_", "a b", "中文字x", "abcdef", "abcdefg"]),
    ("pattern with escapes of characters", {"type": "string", "pattern": "^[\\u00e0-\\u00ff]\\x41?/$"}, ["é/", "éA/", "A/", "é"]),
    ("pattern and length", {"type": "string", "pattern": "^(ab)*$", "minLength": 3, "maxLength": 6}, ["", "ab", "abab", "ababab", "abababab", "aba"]),
    ("two patterns", {"allOf": [{"type": "string", "pattern": "^a"}, {"pattern": "z$"}]}, ["az", "a", "z", "abcz", "za"]),
    ("date", {"type": "string", "format": "date"}, ["2024-02-29", "2023-02-29", "2000-02-29", "1900-02-29", "2024-12-31", "2024-13-01", "2024-04-31", "2024-4-1", "0001-01-01", "9999-12-31"]),
    ("time", {"type": "string", "format": "time"}, ["12:30:00Z", "23:59:59.123+02:00", "24:00:00Z", "12:30:00", "12:60:00Z", "12:30Z"]),
    ("date-time", {"type": "string", "format": "date-time"}, ["2024-02-29T12:30:00Z", "2024-02-29 12:30:00Z", "2023-02-29T12:30:00Z", "2024-01-01T00:00:00.5-08:00", "2024-01-01T00:00:00"]),
    ("uuid", {"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000", "123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400"]),
    ("ipv4", {"type": "string", "format": "ipv4"}, ["127.0.0.1", "255.255.255.255", "256.0.0.1", "1.2.3", "01.2.3.4"]),
    ("ipv6", {"type": "string", "format": "ipv6"}, ["::1", "::", "2001:db8::8a2e:370:7334", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7", "1::2::3", "::ffff:192.0.2.1", "12345::", "1:2:3:4:5:6:7::"]),
    ("tool", {"type": "object", "properties": {"path": {"type": "string", "minLength": 1}, "lines": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 2},
                                               "mode": {"type": "string", "enum": ["read", "write"]}, "options": {"type": "object", "additionalProperties": {"type": ["string", "boolean"]}},
                                               "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}}, "required": ["path", "mode"], "additionalProperties": False},
     [{"path": "a", "mode": "read"}, {"mode": "write", "path": "x", "lines": [1, 2], "options": {"k": True, "v": "s"}, "limit": None}, {"path": "", "mode": "read"}, {"path": "a", "mode": "rea"},
      {"path": "a", "mode": "read", "lines": [0]}, {"path": "a", "mode": "read", "options": {"k": 1}}]),
]

# Texts that no JSON value is, or that are written in other ways than dumps does.
TEXTS = ["", "{", "[1,]", "{\"a\":1,}", "{\"a\":1,\"a\":2}", "01", "1.", ".5", "+1", "tru", "truee", "nul", "\"a", "\"\\x\"", "\"\t\"", "'a'", "{a:1}", "[1 2]", "[1],", "1 1", "\"\\ud800\"", "\"\\udc00\\ud800\"", "NaN", "--1", "-", "1e", "\"\xff\"",
         "\"\\u0061\"", "\"\\u00e9\\u4E2D\"", "\"\\ud83d\\ude00\"", "\"\\ud83d\\ude00\\ud83D\\uDE00\"", "\"\\/\\b\\f\\n\\r\\t\\\"\\\\\"", "\"\\u0061\\u0062\\u005f\\u0031\\u0032\"", " \n\t [ 1 , 2 ] \r\n", "  {  }", "[\n]", "1e5", "-1.5E+3", "2E-7", "0.0", "-0.5"]


def unique(pairs):
    keys = [k for k, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError("twice")
    return dict(pairs)


def refuse(name):
    raise ValueError(name)


def has_half_surrogates(value):
    return any("\ud800" <= c <= "\udfff" for c in json.dumps(value, ensure_ascii=False))


def valid(validator, text):
    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
        return not has_half_surrogates(value) and validator.is_valid(value)
    except ValueError:
        return False


def main():
    lines = []
    for name, schema, values in SCHEMAS:
        validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
        texts = list(TEXTS)
        for value in POOL + values:
            texts.append(json.dumps(value, ensure_ascii=False))
            texts.append(json.dumps(value, ensure_ascii=False, indent=2))
            texts.append(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        texts = list(dict.fromkeys(texts))
        good = [t for t in texts if valid(validator, t)]
        # Valid, and not in the form: 1e5 and 0.0 as whole numbers, exponents where there are bounds.
        form = [t for t in good if not out_of_form(schema, t)]
        lines.append({"name": name, "schema": schema, "valid": form, "invalid": [t for t in texts if t not in good]})
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text("".join(json.dumps(line, ensure_ascii=True) + "\n" for line in lines))
    print(len(lines), "schemas,", sum(len(l["valid"]) for l in lines), "valid,", sum(len(l["invalid"]) for l in lines), "invalid")


def out_of_form(schema, text):
    """Numbers written as whole numbers or numbers within bounds are not; strings with needless escapes where values are listed."""
    if text != text.rstrip():  # no white space behind the value
        return True
    spelled = text.strip()
    exponent_or_fraction = spelled[:1] in "-0123456789" and any(c in spelled for c in ".eE")
    says = json.dumps(schema)
    bounded = any(k in says for k in ("inimum", "aximum", "multipleOf"))
    if exponent_or_fraction and ("e" in spelled or "E" in spelled or spelled == "0.0"):
        if isinstance(schema, dict) and (bounded or "integer" in says or "enum" in says or "const" in says):
            return True
    return "\\u" in spelled and ("enum" in says or "const" in says)


if __name__ == "__main__":
    main()
