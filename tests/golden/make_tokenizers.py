"""Makes tests/golden/tokenizers/: small tokenizers with the settings of real families, and what HF tokenizers does with them.

    python -m venv v && v/bin/pip install tokenizers==0.22.2 sentencepiece==0.2.3 protobuf && v/bin/python tests/golden/make_tokenizers.py

NAME/tokenizer.json   trained here on a few words, so that it is small; the settings are those of the family
NAME/cases.jsonl      {"text", "ids" (with what the post-processor adds), "plain" (without), "decoded" (of ids)}
                      and {"ids", "decoded"} for ids in an order that no text gives
bert-characters.json  by class, the characters that BERT's normaliser and pre-tokenizer treat alike, as [first, last]
cut-characters.json   the same of what Digits, Whitespace and patterns tell apart
joined-characters.json  the same of those that are one grapheme cluster with a letter and its accent before or behind them
lower-case.json       what becomes of each character that the normaliser Lowercase changes
smollm2-cases.jsonl   {"text", "ids"} of SmolLM2-135M-Instruct; made where its folder is given as first argument ("" for none)

Further arguments are the names of the tokenizers to make, where not all are wanted.
"""
import io
import json
import pathlib
import random
import sys
import tempfile
import unicodedata

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from strings import WORDS, strings

OUT = pathlib.Path(__file__).parent / "tokenizers"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CORPUS = [" ".join(WORDS), "def main():\n    return self.value + 1\n\n", "don't they're 中文 日本語 naïve é café 123 456"] * 20 + list(strings(300, 3))


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(pattern if isinstance(pattern, Regex) else pattern, behavior, invert)


def lower_case():
    lower = normalizers.Lowercase().normalize_str
    return {c: lower(c) for c in map(chr, [*range(0xD800), *range(0xE000, 0x110000)]) if lower(c) != c}


def byte_level(pre, normalizer=None, vocab=520, special=("<|end|>", "<|start|>"), extra=(), post=None):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                                      special_tokens=list(special), show_progress=False))
    if extra:
        t.add_tokens(list(extra))
    t.post_processor = post(t) if post else processors.ByteLevel(trim_offsets=False)
    return t


def edited(t, **model):
    data = json.loads(t.to_str())
    data["model"].update(model)
    return Tokenizer.from_str(json.dumps(data, ensure_ascii=False))


def template(*before, after=()):
    def make(t):
        names = [*before, *after]
        return processors.TemplateProcessing(single=" ".join([*before, "$A", *after]), special_tokens=[(n, t.token_to_id(n)) for n in names])
    return make


def llama2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(CORPUS[:60], trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False))
    data = json.loads(t.to_str())
    vocab = data["model"]["vocab"]
    for byte in range(256):
        vocab[f"<0x{byte:02X}>"] = len(vocab)
    data["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    data["pre_tokenizer"] = None
    data["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                              {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    data["decoder"] = {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                                                        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    t = Tokenizer.from_str(json.dumps(data, ensure_ascii=False))
    t.post_processor = template("<s>")(t)
    return t


def bert(lowercase, post, **model):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=520, limit_alphabet=300, show_progress=False,
                                                            special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    t.post_processor = post(t)
    return edited(t, **model)


def ranges_of(classes):
    """By class, the characters that it holds for, as [first, last]."""
    found = {name: [] for name in classes}
    for code in [*range(0xD800), *range(0xE000, 0x110000)]:
        for name, holds in classes.items():
            if holds(chr(code)):
                ranges = found[name]
                if ranges and ranges[-1][1] == code - 1:
                    ranges[-1][1] = code
                else:
                    ranges.append([code, code])
    return found


def bert_characters():
    """The class of a character is what becomes of it between two letters."""
    def normalize(**what):
        off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
        return normalizers.BertNormalizer(**(off | what)).normalize_str
    clean, ideographs, accents = normalize(clean_text=True), normalize(handle_chinese_chars=True), normalize(strip_accents=True)
    pieces = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    return ranges_of({
        "removed": lambda c: clean(f"a{c}b") == "ab",
        "space": lambda c: clean(f"a{c}b") == "a b",
        "ideograph": lambda c: ideographs(c) == f" {c} ",
        "accent": lambda c: accents(f"a{c}b") == "ab",
        "punctuation": lambda c: [x for x, _ in pieces(f"a{c}b")] == ["a", c, "b"],
        "separator": lambda c: [x for x, _ in pieces(f"a{c}b")] == ["a", "b"],
    })


def cut_characters():
    """Those that Digits makes a piece of, that Whitespace leaves within a word, and that patterns match by themselves."""
    digits, words = pre_tokenizers.Digits().pre_tokenize_str, pre_tokenizers.Whitespace().pre_tokenize_str
    by = {pattern: split(Regex(pattern)).pre_tokenize_str for pattern in [r"\w", r"\d", r"\P{L}"]}
    return ranges_of({"number": lambda c: len(digits(f"a{c}b")) == 3, "word": lambda c: len(words(f"a{c}b")) == 1,
                      r"\w": lambda c: len(by[r"\w"](f"!{c}!")) == 3, r"\d": lambda c: len(by[r"\d"](f"!{c}!")) == 3,
                      r"\P{L}": lambda c: len(by[r"\P{L}"](f"a{c}a")) == 3})


def joined_characters():
    """A cluster of six bytes and more is looked up by characters, where the accent is not joined with its letter."""
    normalize = precompiled([("e\u0301", "é")]).normalize_str
    return ranges_of({"behind": lambda c: "é" not in normalize(f"e\u0301{c}"), "before": lambda c: "é" not in normalize(f"{c}e\u0301")})


def precompiled(entries):
    """The table of a Precompiled normaliser that SentencePiece compiles from rules of its own (whole ones take 300 KB)."""
    rules = pathlib.Path(tempfile.mkdtemp()) / "rules.tsv"
    code = lambda text: " ".join(f"{ord(c):04X}" for c in text)
    rules.write_text("".join(f"{code(a)}\t{code(b)}\n" for a, b in entries), encoding="utf-8")
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS[:40]), model_writer=model, vocab_size=400, hard_vocab_limit=False,
                                   normalization_rule_tsv=str(rules), minloglevel=2)
    return normalizers.Precompiled(model_pb2.ModelProto.FromString(model.getvalue()).normalizer_spec.precompiled_charsmap)


def table():
    """NFKC and lower case of what the strings of the tests have, controls that go, spaces that become plain."""
    characters = [*map(chr, range(0xC0, 0x250)), *map(chr, range(0x1E00, 0x1E40)), *map(chr, range(0x3041, 0x3097)), *map(chr, range(0xFF01, 0xFF5F)),
                  *map(chr, range(65, 91)), *"½²Ⅷ①ﬁÅ\u212bǅßİ\u212a\u017f", "e\u0301", "a\u0308", "A\u0308", "\u1100\u1161", "\u304b\u3099"]
    entries = {c: unicodedata.normalize("NFKC", c).lower() for c in characters}
    entries = {a: b for a, b in entries.items() if a != b}
    entries |= {c: " " for c in "\t\n\r\u0085\u00a0\u2003\u3000\u200b\ufeff\ufffd"} | {c: "" for c in "\x01\x0b\x1c\x1f\x7f\u202e"}
    return sorted(entries.items())


def unigram(normalizer, pre, decoder, post=None, special=("<pad>", "</s>", "<unk>"), extra=(), byte_fallback=False):
    t = Tokenizer(models.Unigram())
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.decoder = decoder
    words = CORPUS[:75]  # all of it has too many characters for a small vocabulary
    t.train_from_iterator([x.replace(" ", "▁") for x in words] if not pre else words,
                          trainers.UnigramTrainer(vocab_size=600, special_tokens=list(special), unk_token="<unk>", show_progress=False))
    data = json.loads(t.to_str())
    if byte_fallback:
        data["model"]["vocab"] += [[f"<0x{byte:02X}>", 0.0] for byte in range(256)]
        data["model"]["byte_fallback"] = True
    t = Tokenizer.from_str(json.dumps(data, ensure_ascii=False))
    if extra:
        t.add_tokens(list(extra))
    if post:
        t.post_processor = post(t)
    return t


def unigrams():
    seq, space = normalizers.Sequence, normalizers.Replace
    meta, decode = pre_tokenizers.Metaspace, decoders.Metaspace
    llama = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return {
        "t5": lambda: unigram(seq([precompiled(table()), normalizers.Strip(left=False, right=True), space(Regex(" {2,}"), "▁")]), meta(), decode(),
                              template(after=("</s>",)), extra=[AddedToken("<extra_id_0>", special=True, normalized=False)]),
        "xlm-roberta": lambda: unigram(precompiled(table()), pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), meta()]), decode(),
                                       template("<s>", after=("</s>",)), special=("<s>", "<pad>", "</s>", "<unk>"), extra=[FLAGS[0]]),
        "llama2-unigram": lambda: unigram(seq([normalizers.Prepend("▁"), space(" ", "▁")]), None, llama, template("<s>"),
                                          special=("<unk>", "<s>", "</s>"), byte_fallback=True),
        "albert": lambda: unigram(seq([space("``", '"'), space("\'\'", '"'), normalizers.Nmt(), normalizers.NFKD(), normalizers.StripAccents(),
                                       normalizers.Lowercase(), normalizers.Strip()]), meta(), decode(), template("[CLS]", after=("[SEP]",)),
                                  special=("<unk>", "[CLS]", "[SEP]")),
        "metaspace-first": lambda: unigram(None, meta(prepend_scheme="first", split=False), decode(prepend_scheme="first"), extra=FLAGS[:4]),
        "metaspace-never": lambda: unigram(normalizers.NFC(), meta(replacement="_", prepend_scheme="never"), decode(replacement="_", prepend_scheme="never")),
    }


FLAGS = [AddedToken("<mask>", lstrip=True, special=True, normalized=False), AddedToken("<sep>", rstrip=True, special=True, normalized=False),
         AddedToken("both", lstrip=True, rstrip=True, normalized=False), AddedToken("Word", single_word=True, normalized=False),
         AddedToken("Café", normalized=True), AddedToken("<a>", normalized=False), AddedToken("<a><b>", normalized=False)]
level = pre_tokenizers.ByteLevel
TOKENIZERS = {
    "gpt2": lambda: byte_level(level(add_prefix_space=False)),
    "roberta": lambda: byte_level(level(add_prefix_space=True), special=("<s>", "</s>"), post=lambda t: processors.RobertaProcessing(("</s>", 1), ("<s>", 0))),
    "smollm": lambda: byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(True), level(add_prefix_space=False)]), extra=FLAGS[:2]),
    "llama3": lambda: edited(byte_level(pre_tokenizers.Sequence([split(Regex(LLAMA3)), level(add_prefix_space=False, use_regex=False)]),
                                        post=template("<|start|>")), ignore_merges=True),
    "qwen2": lambda: byte_level(pre_tokenizers.Sequence([split(Regex(QWEN2)), level(add_prefix_space=False, use_regex=False)]),
                                normalizers.NFC(), extra=[AddedToken("<tool_call>", normalized=False)]),
    "flags": lambda: byte_level(level(add_prefix_space=False), normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase()]), extra=FLAGS,
                                post=template("<|start|>", after=("<|end|>",))),
    "deepseek": lambda: byte_level(pre_tokenizers.Sequence([
        split(Regex(r"\p{N}{1,3}")), split(Regex("[一-龥぀-ゟ゠-ヿ]+")),
        split(Regex(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")),
        level(add_prefix_space=False, use_regex=False)])),
    "splits": lambda: byte_level(pre_tokenizers.Sequence([
        split("-", "merged_with_previous"), split(Regex(r"[=:]"), "merged_with_next"), split(Regex(r"[a-z]"), "contiguous"),
        split(Regex(r"\t"), "removed"), split(Regex(r"[^_]+"), "isolated", True), level(add_prefix_space=False, use_regex=False)])),
    "llama2": llama2,
    "bert": lambda: bert(True, template("[CLS]", after=("[SEP]",))),
    "bert-cased": lambda: bert(False, lambda t: processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)), max_input_chars_per_word=8),
}
TOKENIZERS |= unigrams()


def write_lines(path, lines):
    path.write_text("".join(json.dumps(x, ensure_ascii=True) + "\n" for x in lines), encoding="utf-8")


def main():
    only = set(sys.argv[2:])
    for name, make in TOKENIZERS.items():
        if only and name not in only:
            continue
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        t = make()
        t.save(str(folder / "tokenizer.json"), pretty=False)
        t = Tokenizer.from_file(str(folder / "tokenizer.json"))
        special = [x.content for x in t.get_added_tokens_decoder().values()]
        lines = []
        for text in ["", " ", "Hello world", *strings(160, name, special)]:
            ids = t.encode(text).ids
            lines.append({"text": text, "ids": ids, "plain": t.encode(text, add_special_tokens=False).ids,
                          "decoded": t.decode(ids, skip_special_tokens=False)})
        rng = random.Random(name)
        for _ in range(60):
            ids = [rng.randrange(t.get_vocab_size()) for _ in range(rng.randint(1, 12))]
            lines.append({"ids": ids, "decoded": t.decode(ids, skip_special_tokens=False)})
        write_lines(folder / "cases.jsonl", lines)
    (OUT / "bert-characters.json").write_text(json.dumps(bert_characters()) + "\n", encoding="utf-8")
    (OUT / "cut-characters.json").write_text(json.dumps(cut_characters()) + "\n", encoding="utf-8")
    (OUT / "joined-characters.json").write_text(json.dumps(joined_characters()) + "\n", encoding="utf-8")
    (OUT / "lower-case.json").write_text(json.dumps(lower_case()) + "\n", encoding="utf-8")
    if len(sys.argv) > 1 and sys.argv[1]:
        t = Tokenizer.from_file(str(pathlib.Path(sys.argv[1]) / "tokenizer.json"))
        special = [x.content for x in t.get_added_tokens_decoder().values()]
        write_lines(OUT / "smollm2-cases.jsonl", [{"text": s, "ids": t.encode(s).ids} for s in strings(200, 9, special)])


if __name__ == "__main__":
    main()
