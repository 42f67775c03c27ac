"""Writes preferences.jsonl: batches of pairs of answers, and the loss, gradient and rewards of each loss of preferences.

The formulas of DPO (arXiv 2305.18290) with label smoothing, SLiC's hinge (arXiv 2305.10425), IPO over means as TRL has it
(arXiv 2310.12036) and the added likelihood of RPO (arXiv 2404.19733), written out by token in float64 and sharing nothing with
ours. The gradient is taken by central differences.  python3 tests/golden/make_preferences.py   (Needs Python alone.)
"""

import json
import math
import pathlib
import random


def log_sigmoid(x):
    return -math.log1p(math.exp(-x)) if x > -30 else x


def loss_of(pairs, settings):
    total = 0.0
    for chosen, rejected in pairs:
        mean = settings["loss"] == "ipo"

        def ratio(answer):
            moved = [p - r for p, r in zip(answer["logprobs"], answer["reference"])]
            return math.fsum(moved) / (len(moved) if mean else 1)

        h, beta, eps = ratio(chosen) - ratio(rejected), settings["beta"], settings["label_smoothing"]
        if settings["loss"] == "sigmoid":
            loss = -(1 - eps) * log_sigmoid(beta * h) - eps * log_sigmoid(-beta * h)
        elif settings["loss"] == "hinge":
            loss = max(0.0, 1 - beta * h)
        else:
            loss = (h - 1 / (2 * beta)) ** 2
        loss += settings["sft"] * -math.fsum(chosen["logprobs"]) / len(chosen["logprobs"])
        total += loss
    return total / len(pairs)


def gradient(pairs, settings):
    """By the sum of each answer's logprobs: that of its first token, as all have the same."""
    result, step = [], 1e-6
    for pair in pairs:
        for answer in pair:
            kept = answer["logprobs"][0]
            answer["logprobs"][0] = kept + step
            above = loss_of(pairs, settings)
            answer["logprobs"][0] = kept - step
            below = loss_of(pairs, settings)
            answer["logprobs"][0] = kept
            result.append((above - below) / (2 * step))
    return result


def answer(source):
    tokens = source.randint(1, 12)
    logprobs = [-math.exp(source.gauss(0, 1)) for _ in range(tokens)]
    return {"logprobs": logprobs, "reference": [p + source.gauss(0, 0.8) for p in logprobs]}


def main():
    source = random.Random(20)
    lines = []
    for loss in ("sigmoid", "hinge", "ipo"):
        for case in range(8):
            settings = {"loss": loss, "beta": source.choice([0.01, 0.1, 0.5, 2.0]),
                        "label_smoothing": source.choice([0, 0.1, 0.3]) if loss == "sigmoid" else 0,
                        "sft": source.choice([0, 0, 0.2, 1.0])}
            pairs = [(answer(source), answer(source)) for _ in range(source.randint(1, 5))]
            lines.append({**settings, "sums": [math.fsum(a["logprobs"]) for p in pairs for a in p],
                          "reference": [math.fsum(a["reference"]) for p in pairs for a in p],
                          "tokens": [len(a["logprobs"]) for p in pairs for a in p],
                          "value": loss_of(pairs, settings), "gradient": gradient(pairs, settings)})
    out = pathlib.Path(__file__).parent / "preferences.jsonl"
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
