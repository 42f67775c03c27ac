"""Compares `tandem tokenize` with HF tokenizers over tokenizers of random components, each of a few hundred tokens.

    python tests/golden/compare_components.py [--count N] [--seed S] [--texts T] [--tandem BINARY]
    python tests/golden/compare_components.py --golden

--golden writes tests/golden/tokenizers/components.json, which unit tests read, and asks no tandem.

Normalizers, pre-tokenizers, models, post-processors and decoders of HF tokenizers are put together at random; what HF
refuses is left out. Each must give HF's ids and HF's text, or be refused by name when it is read. Prints how many of
each type were read and refused, with the reasons; exits 1 where any differed. Needs the `tokenizers` package.
"""
import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from strings import strings

CORPUS = ["the quick brown fox jumps over the lazy dog 0123456789", "Größe 中文 def f(x): return x+1", "a-b_c 12,345.67 (don't) \"quoted\" ...",
          "  spaces\tand\nlines  ", "Hello World! HELLO world? it's 2024-05-06", "日本語 テスト ひらがな 1½ ²"] * 4


def trained(model, trainer, pre_tokenizer):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(CORPUS, trainer)
    return json.loads(tokenizer.to_str())["model"]


def make_models():
    special = ["<unk>", "<s>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    byte_level = trained(models.BPE(), trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=special, show_progress=False),
                         pre_tokenizers.ByteLevel(add_prefix_space=False))
    plain = trained(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=300, special_tokens=special, show_progress=False), pre_tokenizers.Whitespace())
    pieces = trained(models.WordPiece(unk_token="<unk>"), trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False), pre_tokenizers.Whitespace())
    words = trained(models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(vocab_size=100, special_tokens=special, show_progress=False), pre_tokenizers.Whitespace())
    unigram = trained(models.Unigram(), trainers.UnigramTrainer(vocab_size=200, special_tokens=special, unk_token="<unk>", show_progress=False), pre_tokenizers.Metaspace())
    return {"ByteLevel": byte_level, "BPE": plain, "WordPiece": pieces, "WordLevel": words, "Unigram": unigram}


def make_normalizer(r, deep=True):
    kinds = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "Strip", "Prepend", "Replace", "ReplaceRegex", "BertNormalizer", "ByteLevel"] + (["Sequence"] * 3 if deep else [])
    kind = r.choice(kinds)
    flag = lambda: r.random() < 0.5
    if kind == "Strip":
        return {"type": kind, "strip_left": flag(), "strip_right": flag()}
    if kind == "Prepend":
        return {"type": kind, "prepend": r.choice(["▁", " ", "ab"])}
    if kind == "Replace":
        return {"type": kind, "pattern": {"String": r.choice([" ", "a", "the", "é"])}, "content": r.choice(["▁", "", "x"])}
    if kind == "ReplaceRegex":
        return {"type": "Replace", "pattern": {"Regex": r.choice([r"\s+", r"\d", "[aeiou]+"])}, "content": r.choice([" ", "", "_"])}
    if kind == "BertNormalizer":
        return {"type": kind, "clean_text": flag(), "handle_chinese_chars": flag(), "strip_accents": r.choice([None, True, False]), "lowercase": flag()}
    if kind == "Sequence":
        return {"type": kind, "normalizers": [make_normalizer(r, False) for _ in range(r.randint(1, 3))]}
    return {"type": kind}


BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def make_pre_tokenizer(r, deep=True):
    kinds = ["BertPreTokenizer", "ByteLevel", "CharDelimiterSplit", "Digits", "FixedLength", "Metaspace", "Punctuation", "Split", "SplitString", "UnicodeScripts", "Whitespace", "WhitespaceSplit"]
    kind = r.choice(kinds + (["Sequence"] * 8 if deep else []))
    flag = lambda: r.random() < 0.5
    if kind == "ByteLevel":
        return {"type": kind, "add_prefix_space": flag(), "trim_offsets": True, "use_regex": flag()}
    if kind == "CharDelimiterSplit":
        return {"type": kind, "delimiter": r.choice(["-", " ", "中"])}
    if kind == "Digits":
        return {"type": kind, "individual_digits": flag()}
    if kind == "FixedLength":
        return {"type": kind, "length": r.randint(1, 7)}
    if kind == "Metaspace":
        return {"type": kind, "replacement": "▁", "prepend_scheme": r.choice(["always", "first", "never"]), "split": flag()}
    if kind == "Punctuation":
        return {"type": kind, "behavior": r.choice(BEHAVIORS)}
    if kind == "Split":
        return {"type": kind, "pattern": {"Regex": r.choice([r"\s+", r"[0-9][0-9][0-9]", r"\p{L}+", r" ?\w+", r"(?i:'s|'t)|\p{N}{1,3}"])}, "behavior": r.choice(BEHAVIORS), "invert": flag()}
    if kind == "SplitString":
        return {"type": "Split", "pattern": {"String": r.choice([" ", "ab", "e"])}, "behavior": r.choice(BEHAVIORS), "invert": flag()}
    if kind == "Sequence":
        return {"type": kind, "pretokenizers": [make_pre_tokenizer(r, False) for _ in range(r.randint(1, 4))]}
    return {"type": kind}


def make_post_processor(r, deep=True):
    kind = r.choice(["ByteLevel", "TemplateProcessing", "BertProcessing", "RobertaProcessing"] + (["Sequence"] * 2 if deep else []))
    if kind == "TemplateProcessing":
        piece = lambda: r.choice([{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}])
        single = [piece() for _ in range(r.randint(0, 2))] + [{"Sequence": {"id": "A", "type_id": 0}}] + [piece() for _ in range(r.randint(0, 2))]
        pair = single + [{"Sequence": {"id": "B", "type_id": 1}}]
        return {"type": kind, "single": single, "pair": pair,
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}}
    if kind == "BertProcessing":
        return {"type": kind, "sep": ["</s>", 2], "cls": ["<s>", 1]}
    if kind == "RobertaProcessing":
        return {"type": kind, "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": False}
    if kind == "Sequence":
        return {"type": kind, "processors": [make_post_processor(r, False) for _ in range(r.randint(1, 2))]}
    return {"type": kind, "add_prefix_space": True, "trim_offsets": r.random() < 0.5, "use_regex": True}


def make_decoder(r, deep=True):
    kinds = ["ByteLevel", "WordPiece", "Metaspace", "BPEDecoder", "CTC", "Fuse", "ByteFallback", "Strip", "Replace"] + (["Sequence", "Llama", "Gemma"] * 2 if deep else [])
    kind = r.choice(kinds)
    llama = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
    if kind == "Llama":
        return {"type": "Sequence", "decoders": llama + [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    if kind == "Gemma":
        return {"type": "Sequence", "decoders": llama}
    if kind == "Sequence":
        return {"type": kind, "decoders": [make_decoder(r, False) for _ in range(r.randint(1, 3))]}
    if kind == "WordPiece":
        return {"type": kind, "prefix": "##", "cleanup": r.random() < 0.5}
    if kind == "Metaspace":
        return {"type": kind, "replacement": "▁", "prepend_scheme": r.choice(["always", "first", "never"]), "split": True}
    if kind == "BPEDecoder":
        return {"type": kind, "suffix": "</w>"}
    if kind == "CTC":
        return {"type": kind, "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True}
    if kind == "Strip":
        return {"type": kind, "content": " ", "start": r.randint(0, 1), "stop": r.randint(0, 1)}
    if kind == "Replace":
        return {"type": kind, "pattern": {"String": r.choice(["▁", "##", "Ġ"])}, "content": r.choice([" ", ""])}
    return {"type": kind, **({"add_prefix_space": True, "trim_offsets": True, "use_regex": True} if kind == "ByteLevel" else {})}


def types_of(json_value):
    if not isinstance(json_value, dict):
        return ["null"]
    return [json_value["type"]] + [t for key in ("normalizers", "pretokenizers", "processors", "decoders") for inner in json_value.get(key, []) for t in types_of(inner)]


def make_tokenizer(r, all_models):
    name = r.choice(list(all_models))
    model = dict(all_models[name])
    if model["type"] == "BPE":
        model |= {"ignore_merges": r.random() < 0.3, "fuse_unk": r.random() < 0.5}
    pre = None if r.random() < 0.1 else make_pre_tokenizer(r)
    if name == "ByteLevel" and "ByteLevel" not in types_of(pre):
        steps = pre["pretokenizers"] if pre and pre["type"] == "Sequence" else [pre] if pre else []
        steps.insert(r.randint(0, len(steps)), {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": r.random() < 0.7})
        pre = {"type": "Sequence", "pretokenizers": steps}
    fitting = {"ByteLevel": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, "WordPiece": {"type": "WordPiece", "prefix": "##", "cleanup": True}}
    decoder = r.choice([None, fitting.get(name), make_decoder(r)])
    added = [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i, c in enumerate(["<unk>", "<s>", "</s>"])]
    size = len(model["vocab"])
    for i in range(r.randint(0, 4)):
        added.append({"id": size + i + (r.randint(0, 3) if r.random() < 0.3 else 0), "content": r.choice(["<x%d>", "tool %d", "Ab%d", " %d "]) % i, "single_word": r.random() < 0.2,
                      "lstrip": r.random() < 0.3, "rstrip": r.random() < 0.3, "normalized": r.random() < 0.5, "special": r.random() < 0.5})
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None if r.random() < 0.5 else make_normalizer(r),
            "pre_tokenizer": pre, "post_processor": None if r.random() < 0.5 else make_post_processor(r), "decoder": decoder, "model": model}


def ask(binary, model, lines, *flags):
    done = subprocess.run([binary, "tokenize", "--model", str(model), *flags], input="\n".join(json.dumps(x) for x in lines) + "\n", capture_output=True, text=True, encoding="utf-8", timeout=120)
    return [json.loads(x) for x in done.stdout.split("\n") if x], done.stderr


def reference_of(made, count, seed):
    """HF's ids and texts; nothing where it refuses the tokenizer or a text."""
    try:
        reference = Tokenizer.from_str(json.dumps(made))
        texts = list(strings(count, seed, [t["content"] for t in made["added_tokens"]]))
        ids = [e.ids for e in reference.encode_batch(texts)]
        return reference, texts, ids, reference.decode_batch(ids, skip_special_tokens=False)
    except BaseException:  # its own panics among them
        return None


def write_golden():
    r = random.Random(7)
    all_models = make_models()
    cases = []
    for number in range(400):
        made = make_tokenizer(r, all_models)
        found = reference_of(made, 5, number)
        if found is None:
            continue
        _, texts, ids, decoded = found
        model = next(name for name, m in all_models.items() if m["vocab"] is made["model"]["vocab"])
        changed = {k: v for k, v in made["model"].items() if all_models[model].get(k) != v}
        cases.append({"model": model, "settings": changed, "tokenizer": {k: v for k, v in made.items() if k != "model"}, "texts": texts, "ids": ids, "decoded": decoded})
    path = pathlib.Path(__file__).parent / "tokenizers" / "components.json"
    path.write_text(json.dumps({"models": all_models}) + "\n" + "".join(json.dumps(c) + "\n" for c in cases))
    print(f"{len(cases)} tokenizers, {path.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    parser.add_argument("--golden", action="store_true")
    options = parser.parse_args()
    if options.golden:
        return write_golden()
    r = random.Random(options.seed)
    all_models = make_models()
    read, refused, reasons = collections.Counter(), collections.Counter(), collections.Counter()
    tried = wrong = by_hf = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokenizer.json"
        for number in range(options.count):
            made = make_tokenizer(r, all_models)
            found = reference_of(made, options.texts, number)
            if found is None:
                by_hf += 1
                continue
            reference, texts, theirs, decoded = found
            tried += 1
            path.write_text(json.dumps(made))
            ours, errors = ask(options.tandem, folder, [{"text": t} for t in texts])
            types = {(part, t) for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder") for t in types_of(made[part])} | {("model", made["model"]["type"])}
            if not ours:
                reason = errors.strip().split("\n")[0].split("tokenizer.json: ")[-1][:110]
                reasons[reason] += 1
                refused.update(types)
                continue
            read.update(types)
            back, _ = ask(options.tandem, folder, [{"ids": i} for i in theirs], "--decode")
            bad = next((i for i in range(len(texts)) if ours[i].get("ids") != theirs[i]), None)
            bad_text = next((i for i in range(len(texts)) if back[i].get("text") != decoded[i]), None)
            if bad is None and bad_text is None:
                continue
            wrong += 1
            shown = {k: made[k] for k in ("normalizer", "pre_tokenizer", "post_processor", "decoder")}
            print(f"#{number}", made["model"]["type"], json.dumps(shown)[:900])
            if bad is not None:
                print("  encode", ascii(texts[bad])[:150], "\n    HF    ", [reference.id_to_token(t) for t in theirs[bad]][:30], "\n    tandem", [reference.id_to_token(t) for t in ours[bad].get("ids") or []][:30], ours[bad].get("error", ""))
            else:
                print("  decode", [reference.id_to_token(t) for t in theirs[bad_text]][:20], "\n    HF    ", ascii(decoded[bad_text])[:150], "\n    tandem", ascii(back[bad_text].get("text"))[:150])
    for part, name in sorted(set(read) | set(refused)):
        print(f"{part:15} {name:22} read {read[part, name]:5} refused {refused[part, name]:5}")
    for reason, count in reasons.most_common():
        print(f"{count:5} {reason}")
    print(f"{options.count} tokenizers: {by_hf} that HF refuses, {tried - sum(reasons.values())} read, {sum(reasons.values())} refused by name, {wrong} differently")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
