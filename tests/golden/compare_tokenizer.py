"""Compares `tandem tokenize` with HF tokenizers on random strings: ids both ways, and the decoded text.

    python tests/golden/compare_tokenizer.py DIR_OR_TOKENIZER_JSON [--count N] [--seed S] [--tandem BINARY]

Needs the `tokenizers` package. Prints the first differences and exits 1 where there are any.
"""
import argparse
import json
import pathlib
import subprocess
import sys

from tokenizers import Tokenizer

from strings import strings


def tandem(binary, model, lines, *flags):
    done = subprocess.run([binary, "tokenize", "--model", str(model), *flags], input="\n".join(json.dumps(x) for x in lines) + "\n",
                          capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        print(done.stderr, done.stdout[-2000:])
    return [json.loads(x) for x in done.stdout.split("\n") if x]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    options = parser.parse_args()
    path = options.model / "tokenizer.json" if options.model.is_dir() else options.model
    reference = Tokenizer.from_file(str(path))
    reference.no_truncation()  # what transformers does unless it is asked for
    reference.no_padding()
    special = [t.content for t in reference.get_added_tokens_decoder().values()][:40]
    texts = list(strings(options.count, options.seed, special))
    theirs = [e.ids for e in reference.encode_batch(texts)]
    ours = [x.get("ids") for x in tandem(options.tandem, options.model, [{"text": t} for t in texts])]
    differences = [i for i in range(len(texts)) if theirs[i] != ours[i]]
    decoded = reference.decode_batch(theirs, skip_special_tokens=False)
    back = [x.get("text") for x in tandem(options.tandem, options.model, [{"ids": i} for i in theirs], "--decode")]
    decode_differences = [i for i in range(len(texts)) if decoded[i] != back[i]]
    for i in differences[:10]:
        at = next((k for k, (a, b) in enumerate(zip(theirs[i], ours[i] or [])) if a != b), 0)
        print("encode", ascii(texts[i])[:200], "at", at, "HF", [reference.id_to_token(t) for t in theirs[i][max(0, at - 2):at + 6]],
              "tandem", [reference.id_to_token(t) for t in (ours[i] or [])[max(0, at - 2):at + 6]])
    for i in decode_differences[:10]:
        print("decode", theirs[i][:40], ascii(decoded[i])[:200], ascii(back[i])[:200])
    print(f"{path}: {len(texts)} strings, {sum(map(len, theirs))} ids: {len(differences)} encoded and {len(decode_differences)} decoded differently")
    sys.exit(bool(differences or decode_differences))


if __name__ == "__main__":
    main()
