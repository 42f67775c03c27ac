#!/usr/bin/env python3
"""Writes eval_statistics.json: what SciPy and NumPy say of the statistics of eval/statistics.h.

  pip install numpy scipy
  python3 tests/golden/make_eval_statistics.py

Intervals are bootstrapped with 400,000 resamples by NumPy's own generator; the test allows for the noise of both.
"""
import json
import math
import os

import numpy as np
from scipy import stats

RESAMPLES = 400_000


def pass_at_k(n, c, k):
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def interval(differences, weights, confidence, random):
    """Percentile bootstrap over tasks, widened as Hesterberg (arXiv 1411.5279) has it."""
    n = len(differences)
    alpha = (1 - confidence) / 2
    if n > 1:
        alpha = stats.norm.cdf(math.sqrt(n / (n - 1)) * stats.t.ppf(alpha, n - 1))
    drawn = random.integers(0, n, size=(RESAMPLES, n))
    means = (differences[drawn] * weights[drawn]).sum(axis=1) / weights[drawn].sum(axis=1)
    return [float(np.quantile(means, alpha)), float(np.quantile(means, 1 - alpha))], float(means.std(ddof=1))


def differences(random):
    cases = []
    for n, before, after in [(12, 0.6, 0.5), (40, 0.5, 0.5), (40, 0.7, 0.4), (100, 0.3, 0.35)]:
        was = random.binomial(4, before, n) / 4
        now = random.binomial(4, after, n) / 4
        weights = np.where(np.arange(n) % 5 == 0, 0.5, 1.0) if n == 100 else np.ones(n)
        for confidence in (0.9, 0.95):
            ends, spread = interval(now - was, weights, confidence, random)
            cases.append({"before": was.tolist(), "after": now.tolist(), "weights": weights.tolist(),
                          "confidence": confidence, "points": float(np.average(now - was, weights=weights)),
                          "interval": ends, "detectable": float(spread * (stats.norm.ppf((1 + confidence) / 2)
                                                                          + stats.norm.ppf(0.8)))})
    return cases


def main():
    random = np.random.default_rng(7)
    values = random.exponential(3, 17)
    golden = {
        "pass_at_k": [{"samples": n, "passed": c, "k": k, "value": pass_at_k(n, c, k)}
                      for n, c, k in [(1, 0, 1), (1, 1, 1), (4, 1, 1), (4, 1, 2), (4, 1, 4), (10, 3, 5), (200, 5, 100)]],
        "mcnemar": [{"lost": a, "won": b, "p": stats.binomtest(a, a + b).pvalue}
                    for a, b in [(1, 0), (5, 0), (6, 2), (10, 10), (30, 12), (2, 40)]],
        "quantile": {"values": values.tolist(),
                     "at": [{"share": q, "value": float(np.quantile(values, q))} for q in (0, 0.05, 0.5, 0.95, 1)]},
        "differences": differences(random),
    }
    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), "eval_statistics.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(golden, file)
        file.write("\n")


if __name__ == "__main__":
    main()
