"""Random strings that tokenizers find hard, from a seed: the same list on every machine."""
import random

ODD = ["\u180e", "\u0085", "\u00a0", "\u2003", "\u3000", "\u200b", "\u200d", "\ufeff", "\u017f", "\u212a", "\u0130", "\u0131", "\x00",
       "\x0b", "\x0c", "\x1c", "\x1f", "\x7f", "\ufffd", "\ufffe", "\U0010ffff", "\u0301", "\u0323", "e\u0301", "\u1100\u1161\u11a8", "\uac01",
       "½", "²", "Ⅷ", "٣", "৪", "①", "〇", "👩‍👩‍👧‍👦", "🇩🇪", "🏽", "ﬁ", "Å", "\u212b", "ǅ", "ß", "İ", "中文", "日本語", "한국어", "ไทย", "हिन्दी",
       "العربية", "עברית", "\u202e", "'s", "'S", "'ſ", "'re", "'LL", "'\u212a", "don't", "_", "__init__", "==", "->", "//", "\\n", "\r\n",
       "\r", "\n\n\n", "\t\t", "    ", "        ", " \n ", "0x1F", "3.14159", "1,000,000", "1e-5", "a1b2", "camelCaseWord", "SCREAMING"]
WORDS = "the def return self import if else for while print value name data list of and to in is class function x y i n result".split()
BLOCKS = [(0x20, 0x7e), (0xa0, 0x24f), (0x250, 0x36f), (0x370, 0x5ff), (0x600, 0x7bf), (0x900, 0xdff), (0xe00, 0x11ff), (0x1e00, 0x20cf),
          (0x2100, 0x2bff), (0x2e80, 0x33ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3), (0xe000, 0xffff), (0x10000, 0x10fff), (0x11000, 0x12fff),
          (0x1d400, 0x1d7ff), (0x1f300, 0x1faff), (0x20000, 0x2a6df), (0x0, 0xd7ff), (0xe000, 0x10ffff)]


def piece(rng, special):
    kind = rng.random()
    if kind < 0.30:
        return rng.choice(["", " ", " ", "  "]) + rng.choice(WORDS)
    if kind < 0.45:
        return rng.choice(ODD)
    if kind < 0.55:
        low, high = rng.choice(BLOCKS)
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 4)))
    if kind < 0.62:
        return "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 7)))
    if kind < 0.72:
        return "".join(rng.choice(" \t\n\r\u00a0\u3000") for _ in range(rng.randint(1, 5)))
    if kind < 0.80:
        return "".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(rng.randint(1, 4)))
    if kind < 0.90:
        return "".join(chr(rng.randint(97, 122)) for _ in range(rng.randint(1, 9)))
    if kind < 0.96 and special:
        token = rng.choice(special)
        return rng.choice([token, " " + token + " ", token[:-1], token + token, "x" + token + "x"])
    return rng.choice(["a", " ", "ab", "=", "-", "7", "é", "\n", "中"]) * rng.randint(1, 80)


def strings(count, seed, special=()):
    rng = random.Random(seed)
    special = list(special)
    for _ in range(count):
        text = "".join(piece(rng, special) for _ in range(rng.randint(1, 12)))
        # Surrogates are no characters: JSON Lines and tokenizers cannot carry them alone.
        yield "".join(c for c in text if not 0xD800 <= ord(c) <= 0xDFFF)
