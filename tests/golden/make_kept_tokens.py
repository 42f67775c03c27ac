#!/usr/bin/env python3
"""Writes kept_tokens.jsonl: the distribution over kept tokens and its gradient, in float64, by their formulas.

A line is a row of a head: state [width] in 64ths, head [vocabulary][width] in 256ths, scale, kept (ids; empty: all), token,
gradient. Expected are log_sum, logprob of the token, entropy, and the gradients of logits and state where dLoss/dlogprob is
`gradient`; that of the head is the logits' times the state. Numbers have seven bits, which bf16 holds exactly.
"""
import json
import math
import pathlib
import random


def case(draw, vocabulary, width, kept, scale):
    state_64ths = [draw.randint(-127, 127) for _ in range(width)]
    head_256ths = [[draw.randint(-127, 127) for _ in range(width)] for _ in range(vocabulary)]
    state = [n / 64 for n in state_64ths]
    head = [[n / 256 for n in row] for row in head_256ths]
    among = kept or list(range(vocabulary))
    token = draw.choice(among)
    gradient = draw.choice([0.5, -0.25, 1.0])
    logits = {v: scale * math.fsum(a * b for a, b in zip(state, head[v])) for v in among}
    peak = max(logits.values())
    log_sum = peak + math.log(math.fsum(math.exp(x - peak) for x in logits.values()))
    p = {v: math.exp(x - log_sum) for v, x in logits.items()}
    of_logits = {v: scale * gradient * ((v == token) - p[v]) for v in among}
    return {
        "vocabulary": vocabulary,
        "width": width,
        "scale": scale,
        "kept": kept,
        "token": token,
        "gradient": gradient,
        "state": state_64ths,
        "head": head_256ths,
        "log_sum": log_sum,
        "logprob": logits[token] - log_sum,
        "entropy": -math.fsum(q * math.log(q) for q in p.values()),
        "grad_logits": [of_logits.get(v, 0.0) for v in range(vocabulary)],
        "grad_state": [math.fsum(of_logits[v] * head[v][i] for v in among) for i in range(width)],
    }


def main():
    draw = random.Random(20)
    lines = []
    for vocabulary, width in [(5, 4), (64, 8), (130, 6), (200, 2)]:
        for size in [0, 1, 2, vocabulary // 2]:
            for scale in [1.0, 0.5]:
                kept = sorted(draw.sample(range(vocabulary), size))
                lines.append(json.dumps(case(draw, vocabulary, width, kept, scale), separators=(",", ":")))
    target = pathlib.Path(__file__).parent / "kept_tokens.jsonl"
    target.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
