"""Writes muon.json: a few steps of torch.optim.Muon on small matrices.

Needs torch 2.9 or later.  python tests/golden/make_muon.py
"""

import json
import pathlib

import torch

CASES = [
    # name, rows, columns, nesterov, weight decay, scale
    ("square", 16, 16, True, 0.0, "original"),
    ("wide", 6, 24, True, 0.1, "match_rms_adamw"),
    ("tall", 24, 10, True, 0.1, "original"),
    ("tall, like AdamW", 20, 7, False, 0.0, "match_rms_adamw"),
]


def steps(name, rows, columns, nesterov, decay, scale, seed):
    random = torch.Generator().manual_seed(seed)
    weight = torch.nn.Parameter(torch.randn(rows, columns, generator=random))
    start = weight.detach().clone()
    optimizer = torch.optim.Muon([weight], lr=0.02, weight_decay=decay, nesterov=nesterov, adjust_lr_fn=scale)
    grads = []
    for _ in range(3):
        weight.grad = torch.randn(rows, columns, generator=random)
        grads.append(weight.grad.flatten().tolist())
        optimizer.step()
    return {
        "name": name, "rows": rows, "columns": columns, "nesterov": nesterov, "weight_decay": decay, "scale": scale,
        "start": start.flatten().tolist(), "grads": grads, "end": weight.detach().flatten().tolist(),
    }


target = pathlib.Path(__file__).parent / "muon.json"
target.write_text(json.dumps([steps(*case, seed) for seed, case in enumerate(CASES)]) + "\n")
