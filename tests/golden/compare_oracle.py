"""Compares `tandem score --path torch`, the model in LibTorch's operators, with our kernels and with transformers' figures.

    python3 tests/golden/compare_oracle.py [NAME...] [--tandem BINARY]

Of each golden model: the largest difference of a log-probability to `expected.json` (transformers' fp32), to --path trainer in
float32 and in bf16, and how many likeliest tokens differ from float32's. scripts/with-torch builds what it needs. Exits 1 where a
difference to float32 is above 5e-5.
"""
import argparse
import json
import pathlib
import subprocess
import sys

MODELS = pathlib.Path(__file__).parent / "models"
BOUND = 5e-5

parser = argparse.ArgumentParser()
parser.add_argument("names", nargs="*", default=sorted(path.name for path in MODELS.iterdir()))
parser.add_argument("--tandem", default="build/release/bin/tandem")
given = parser.parse_args()


def score(model, texts, *more):
    lines = "".join(json.dumps({"tokens": text}) + "\n" for text in texts)
    done = subprocess.run([given.tandem, "score", "--model", model, *more], input=lines, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return [answer["logprobs"][1:] for answer in answers], [token for answer in answers for token in answer["argmax"]]


def farthest(found, expected):
    return max(abs(a - b) for one, other in zip(found, expected, strict=True) for a, b in zip(one, other, strict=True))


worst = [0, 0, 0, 0]
for name in given.names:
    cases = json.loads((MODELS / name / "expected.json").read_text())["cases"]
    texts = [case["tokens"] for case in cases]
    torch, chosen = score(MODELS / name, texts, "--path", "torch")
    float32, ours = score(MODELS / name, texts, "--path", "trainer", "--dtype", "float32")
    bf16, _ = score(MODELS / name, texts, "--path", "trainer", "--dtype", "bfloat16")
    # Of a checkpoint in codes transformers' figures are of weights that were rounded to bf16.
    coded = "quantization_config" in json.loads((MODELS / name / "config.json").read_text())
    golden = None if coded else farthest(torch, [case["logprobs"] for case in cases])
    row = [golden or 0, farthest(torch, float32), farthest(torch, bf16), sum(a != b for a, b in zip(chosen, ours, strict=True))]
    worst = [max(a, b) for a, b in zip(worst, row)]
    print(f"{name:20} transformers {'      -' if golden is None else f'{golden:.1e}'}  float32 {row[1]:.1e}  bf16 {row[2]:.3f}  other tokens {row[3]}")
print(f"{'the worst':20} transformers {worst[0]:.1e}  float32 {worst[1]:.1e}  bf16 {worst[2]:.3f}  other tokens {worst[3]}")
sys.exit(max(worst[:2]) > BOUND)
