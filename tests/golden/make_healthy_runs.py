#!/usr/bin/env python3
"""Writes healthy_runs.jsonl: metrics of runs that learned, over which no alarm may be raised.

    tests/golden/make_healthy_runs.py RUN_DIR... > tests/golden/healthy_runs.jsonl
"""
import json
import pathlib
import sys

KEPT = ("step", "success", "success_by_kind", "groups", "groups_with_signal", "loss", "grad_norm", "entropy", "ratio_max",
        "clip_fraction", "dropped_fraction", "max_abs_logprob_diff", "compared_tokens", "outcomes", "learned_reward")


def shortened(value):
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: shortened(inner) for key, inner in value.items()}
    return value


for run in sys.argv[1:]:
    for line in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines():
        step = json.loads(line)
        print(json.dumps({key: shortened(step[key]) for key in KEPT if key in step}, separators=(",", ":")))
