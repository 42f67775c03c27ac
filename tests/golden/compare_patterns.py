"""Compares how `tandem tokenize` and HF tokenizers cut texts by regular expressions of the pre-tokenizer Split.

    python tests/golden/compare_patterns.py [--count N] [--seed S] [--tandem BINARY]

The patterns are those below, which go through Oniguruma's syntax, and N that are put together at random. Each must cut
all texts as HF does, or be refused by name. Exits 1 where any differed. Needs the `tokenizers` package.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import Regex, pre_tokenizers

PATTERNS = r"""
[\p{Han}&&[^\u4e00]]+
[[a-c][x-z]&&[^b]]+
[a-z&&[^aeiou]]+
[^a-z&&[^0-9]]+
[a-z&&b-y&&[^m]]+
[[:alpha:]&&[^a-f]]+
[\w&&[^\d_]]+
[[:digit:][:upper:]]+
[[:^digit:]]+
\h+
\H+
\h{2,}
a{,2}
a{,2}?
a{2,}+
a{1,2}+
(?m:.)+
(?m).+
.+
(?i:abc|ß)
(?i)[à-ü]+
(?i:ſ|K)
(?x: a b)
\R
\X
\K
a\Kb
\G.
\A\w+
\w+\z
\w+\Z
^\w+
\w+$
(?<n>a)\k<n>
(a)\1
(?<a>x)|(?<a>y)
\p{L}+|\p{N}{1,3}|[^\s\p{L}\p{N}]+|\s+
\p{^L}+
\P{L}+
\p{IsHan}
\p{Script=Han}
\p{Alpha}+
\p{alnum}+
\p{Word}+
\p{Cntrl}
\p{Emoji}+
\p{Emoji_Presentation}
\p{InBasicLatin}
\p{Latin}+
\p{Hiragana}+|\p{Katakana}+
\p{LC}+
\p{L&}+
\p{Lu}\p{Ll}*
\p{Greek}+
\p{White_Space}+
\p{Space}+
\s+(?!\S)|\s+
(?<=a)b
(?<!a)b
(?<=a|bc)d
(?<=a+)b
(?>a+)b
a++b
(?=a)\w
(?!a)\w
(?~ab)
(?(1)a|b)
\x{4e00}
\u4e00
\x41
\101
\cA
\C-a
\M-a
\e\t\n
\d+\D+
\S+
\W+
\b\w+\b
\Ba
\y.
\Y
(?y{g}).
(?W:\w+)
(?D:\d+)
(?S:\s+)
(?P:\w+)
(?P<n>a)
(?'n'a)
\g<1>(a)
(?&n)
(?R)
(?#comment)a
a|
|a
()
a**
a{2}{3}
a?+
[]a]+
[a\]b]+
[\[\]]+
[a-]+
[-a]+
[^-a]+
[a-\d]+
[\s\S]+
[.]+
[&]+
[a&&]+
[&&a]+
[^a&&b]+
[a[^b]]+
[^a[^b]]+
[^[a-c]]+
[a-c[^b-z]]+
[[a-z]&&[^aeiou][x]]+
[\n\r]+
[ \t]+
[\u0041-\u005A]+
[\x{41}-\x{5a}]+
[ぁ-ん]+
[\p{L}--[a-z]]+
[[=a=]]
[[.a.]]
[\h]+
[\H]+
[\R]
[\X]
[\b]+
[a-z&&\p{L}]+
[^\S\n]+
[^\r\n\p{L}\p{N}]?\p{L}+
(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
[一-龥぀-ゟ゠-ヿ]+
[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))
(?:\d{3})+$
\d{1,3}(?=(?:\d{3})*\b)
(?i)straße
(?i:[^a]b)
(?i:\p{Lu})+
\p{Lu}+(?i:x)
(?mi-x:a.b)
(?-i:a)
(?a:\w+)
(?u:\w+)
\N+
\O+
\pL+
\p{ L }
\p{l}
\p{Letter}+
\p{Uppercase_Letter}
\p{gc=L}
\p{sc=Han}
\p{Any}
\p{ASCII}+
\p{Assigned}
\p{Unassigned}
\p{XDigit}+
\p{Print}+
\p{Graph}+
\p{Punct}+
[[:punct:]]+
[[:word:]]+
[[:space:]]+
[[:graph:]]+
[[:print:]]+
[[:cntrl:]]+
[[:xdigit:]]+
[[:lower:]]+
[[:blank:]]+
[[:ascii:]]+
[[:foo:]]
[\w]+
[^\w]+
[\W]+
[\D]+
[^\D]+
[\S&&[^a]]+
[^\s\w]+
\bfoo\b|\b
\B.
a(?i)b|c
(?i:a)b|(?-i:c)
x{0}
a{3}?
(?:ab)+?
(?:ab)++c
[a-c-e]+
[\w-]+
[+\-*/]+
[\]\[]+
\p{Han}+|\p{Hiragana}+|\p{Katakana}+|\p{Latin}+|\p{Cyrillic}+
[^\p{L}\p{N}\s]+
\P{L}
\p{^N}+
[\p{^L}]+
[\P{N}&&\p{L}]+
(?<x>a)(b)
(a)(b)\2
[\x{1F600}-\x{1F64F}]+
\u0041
[[:punct:]]+|[[:word:]]+
[[:^space:]]+
[^[:space:]]+
\s{2,}|\S
(?m)a.b
(?x) [a b] # x
\.\-\/
\ 
é+
a{,}
a{
}
]
(?:)
(|a)
a|b|
^
$
\z
(?=.)
[a-z]{2,3}+
\d{1,3}(?=(\d{3})+\b)
'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+
"""
TEXTS = ["world's", "Hello 世界 ひらがな カタカナ abc123 xyz", "a-b_c &|[]^ - \n\r\n\t x", "deadbeef DEAD 0x1F ghij", "éàÜß ſ K ŸΣςσ aabbaab abcd",
         "\x0b\x0c\u0085\u2028 \u00a0\u3000", "😀👍🏽 e\u0301", "1234567 12,345.67", "ab\nabab aaaa aa", "STRASSE straße STRAßE", "\x01\x02\x7f",
         "ǅ ʼ٣½²Ⅷ_‿", "aXb x.y A.B a\nb", "cabd bcd ad", "'S 't I'LL we're", "ⓐ ᾳ ͅ ़ ः", "\u200d\u200c\ufeff\ue000", "²½³ a¹b", "x-1_000 'll DON'T"]
ATOMS = ["a", "b", " ", r"\w", r"\d", r"\s", r"\S", "[a-c]", "[^a]", r"\p{L}", r"\p{N}", r"\p{Lu}", ".", "(?:ab|c)", r"[\w&&[^b]]", r"\b", "^", "$",
         "(?i:q)", r"[\s\d]", r"\h", "(?=a)", "(?!b)", "(?<=a)", "é", "[[:punct:]]", "(?m:.)", r"\R"]
REPEATS = ["", "", "", "*", "+", "?", "+?", "*+", "{2}", "{1,2}", "{,2}", "{1,2}+", "{2}?", "?+", "{1,}?"]


def cut_by_hf(pattern):
    try:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        return [[piece for piece, _ in split.pre_tokenize_str(text)] for text in TEXTS]
    except Exception:
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=700)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    options = parser.parse_args()
    r = random.Random(options.seed)
    branch = lambda: "".join(r.choice(ATOMS) + r.choice(REPEATS) for _ in range(r.randint(1, 4)))
    patterns = PATTERNS.strip("\n").split("\n") + ["|".join(branch() for _ in range(r.randint(1, 3))) for _ in range(options.count)]
    # Every part of a text is a word, so ids tell the pieces.
    words = {"<unk>": 0}
    for text in TEXTS:
        for begin in range(len(text)):
            for end in range(begin + 1, len(text) + 1):
                words.setdefault(text[begin:end], len(words))
    names = {number: word for word, number in words.items()}
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    different = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        for pattern in patterns:
            expected = cut_by_hf(pattern)
            if expected is None:
                continue
            split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
            model = {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}
            (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps({"pre_tokenizer": split, "model": model}))
            ran = subprocess.run([options.tandem, "tokenize", "--model", folder], input=lines, capture_output=True, text=True)
            answers = [json.loads(line) for line in ran.stdout.split("\n") if line]
            if len(answers) != len(TEXTS) or any("ids" not in answer for answer in answers):
                refused += 1
                continue
            pieces = [[names[number] for number in answer["ids"]] for answer in answers]
            for text, ours, theirs in zip(TEXTS, pieces, expected):
                if ours == theirs:
                    continue
                different += 1
                print(f"{pattern}: {text!r} is cut into {ours}, by HF into {theirs}")
                break
    print(f"{len(patterns)} patterns: {different} cut differently, {refused} refused")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
