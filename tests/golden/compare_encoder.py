"""Compares `tandem embed` with transformers on the lines, paragraphs and whole texts of files: the mean of the tokens, divided by its length.

    python tests/golden/compare_encoder.py MODEL_DIR FILE... [--tandem BINARY]

Needs torch and transformers. Prints the least cosine and the largest difference of a number; exits 1 where a cosine is below 0.9999.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import torch
import transformers


def texts_of(paths):
    texts = set()
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace")
        texts |= {text, *text.split("\n"), *text.split("\n\n")}
    return sorted(texts)


def longest_of(model):
    sentences = model / "sentence_bert_config.json"
    longest = json.loads((model / "config.json").read_text())["max_position_embeddings"]
    return min(longest, json.loads(sentences.read_text()).get("max_seq_length", longest)) if sentences.exists() else longest


@torch.no_grad()
def reference(folder, texts):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    longest = longest_of(folder)
    for start in range(0, len(texts), 32):
        batch = tokenizer(texts[start:start + 32], padding=True, truncation=True, max_length=longest, return_tensors="pt")
        mask = batch["attention_mask"].unsqueeze(-1).float()
        hidden = model(**batch).last_hidden_state
        yield from torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9), dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    parser.add_argument("--tandem", default="build/release/bin/tandem")
    options = parser.parse_args()
    texts = texts_of(options.files)
    done = subprocess.run([options.tandem, "embed", "--model", str(options.model)], input="".join(json.dumps({"text": t}) + "\n" for t in texts),
                          capture_output=True, text=True, encoding="utf-8")
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert done.returncode == 0 and len(answers) == len(texts), done.stderr + done.stdout[-1000:]
    cosine, difference = 1.0, 0.0
    for answer, theirs in zip(answers, reference(options.model, texts)):
        ours = torch.tensor(answer["embedding"], dtype=torch.float64)
        cosine = min(cosine, float(ours @ theirs.double() / ours.norm() / theirs.double().norm()))
        difference = max(difference, float((ours - theirs.double()).abs().max()))
    cut = sum(answer.get("truncated", False) for answer in answers)
    print(f"{len(texts)} texts, {cut} of them cut: least cosine {cosine:.9f}, largest difference {difference:.1e}")
    sys.exit(cosine < 0.9999)


if __name__ == "__main__":
    main()
