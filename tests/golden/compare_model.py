"""Compares `tandem score` and `tandem generate` with transformers on the paragraphs of files, for a real model.

    python tests/golden/compare_model.py MODEL_DIR FILE... [--tandem BINARY] [--paragraphs N] [--tokens N]

Needs torch and transformers. Prints how far float32 log-probabilities are from transformers' fp32, how far bf16 ones are beside
transformers' own bf16, whether both paths give the same bits, and how many greedy continuations in float32 differ. Exits 1 where
float32 differs by more than 1e-4, bf16 errs more than twice as much, or bits or tokens differ.
"""
import argparse
import pathlib
import sys

import torch
import transformers

from paragraphs import run, samples_of

GENERATED = 24


@torch.no_grad()
def logprobs_of(model, samples):
    for tokens in samples:
        ids = torch.tensor([tokens])
        yield model(ids).logits[0, :-1].float().log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0].tolist()


@torch.no_grad()
def greedy(model, tokens, ends):
    ids = model.generate(torch.tensor([tokens]), max_new_tokens=GENERATED, do_sample=False, pad_token_id=0)[0, len(tokens):].tolist()
    return next((ids[:at] for at, token in enumerate(ids) if token in ends), ids)


def differences(found, expected):
    return [abs(a - b) for one, other in zip(found, expected) for a, b in zip(one, other, strict=True)]


parser = argparse.ArgumentParser()
parser.add_argument("model", type=pathlib.Path)
parser.add_argument("files", type=pathlib.Path, nargs="+")
parser.add_argument("--tandem", default="build/release/bin/tandem")
parser.add_argument("--paragraphs", type=int, default=64)
parser.add_argument("--tokens", type=int, default=512, help="of a paragraph, at most")
given = parser.parse_args()
samples = samples_of(given.tandem, given.model, given.files, given.paragraphs, given.tokens)
lines = [{"tokens": tokens} for tokens in samples]


def score(*more):
    return [answer["logprobs"][1:] for answer in run([given.tandem, "score", "--model", given.model, *more], lines)]


exact = transformers.AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
reference = list(logprobs_of(exact, samples))
float32, bf16 = score("--dtype", "float32"), score("--dtype", "bfloat16")
same_bits = bf16 == score("--dtype", "bfloat16", "--path", "trainer") and float32 == score("--dtype", "float32", "--path", "trainer")
farthest = max(differences(float32, reference))
half = transformers.AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.bfloat16).eval()
error = [sum(all_of) / len(all_of) for all_of in (differences(bf16, reference), differences(logprobs_of(half, samples), reference))]
prompts = [tokens[:max(2, len(tokens) // 2)] for tokens in samples]
ends = exact.generation_config.eos_token_id
ends = set(ends if isinstance(ends, list) else [ends])
made = run([given.tandem, "generate", "--model", given.model, "--dtype", "float32"],
           [{"id": str(at), "tokens": tokens, "max_tokens": GENERATED, "temperature": 0} for at, tokens in enumerate(prompts)])
made = {answer["id"]: answer["tokens"] for answer in made}
other = sum([token for token in made[str(at)] if token not in ends] != greedy(exact, tokens, ends) for at, tokens in enumerate(prompts))
print(f"{len(samples)} texts, {sum(map(len, samples))} tokens; float32: largest difference {farthest:.1e}, "
      f"{other} of {len(prompts)} greedy continuations of {GENERATED} tokens differ")
print(f"bf16: mean error {error[0]:.5f}, transformers' {error[1]:.5f}; engine and trainer: {'the same bits' if same_bits else 'OTHER BITS'}")
sys.exit(0 if same_bits and farthest <= 1e-4 and error[0] <= 2 * error[1] and other == 0 else 1)
