"""Writes credit.jsonl: batches with their advantages, for kinds that look further than the mean of a group.

pass_at_k (Chen et al. 2025, "Pass@k Training") in two forms that share nothing with ours: over every subset of k samples, in fractions,
and for rewards of 0 and 1 the paper's analytic one. gigpo (Feng et al. 2025) by states written as text. Needs Python alone.  python3 tests/golden/make_credit.py
"""

import fractions
import itertools
import json
import math
import pathlib
import random


def by_subsets(rewards, k, epsilon):
    exact = [fractions.Fraction(r) for r in rewards]
    subsets = [(set(s), max(exact[i] for i in s)) for s in itertools.combinations(range(len(exact)), k)]
    mean = sum(best for _, best in subsets) / len(subsets)
    variance = sum((best - mean) ** 2 for _, best in subsets) / len(subsets)
    deviation = math.sqrt(variance) + epsilon
    result = []
    for i in range(len(exact)):
        mine = [best for subset, best in subsets if i in subset]
        result.append(float(sum(mine) / len(mine) - mean) / deviation)
    return result


def analytic(rewards, k, epsilon):
    n, negative = len(rewards), rewards.count(0.0)
    mean = 1 - math.comb(negative, k) / math.comb(n, k)
    deviation = math.sqrt(mean * (1 - mean)) + epsilon
    of_negative = (1 - mean - math.comb(negative - 1, k - 1) / math.comb(n - 1, k - 1)) / deviation if negative else 0
    return [(1 - mean) / deviation if r == 1 else of_negative for r in rewards]


def pass_at_k(rewards, k, epsilon):
    if len(rewards) == 1:
        return rewards
    k = min(k, len(rewards) - 1)
    found = by_subsets(rewards, k, epsilon)
    if set(rewards) == {0.0, 1.0}:
        for a, b in zip(found, analytic(rewards, k, epsilon)):
            assert abs(a - b) < 1e-12, (rewards, k)
    return found


def batch_of(draw, algorithm, sizes, reward):
    rows, length = sum(sizes), 5
    mask = [[int(draw.random() < 0.7) for _ in range(length)] for _ in range(rows)]
    for row in mask:
        row[draw.randrange(length)] = 1
    return {
        "algorithm": algorithm,
        "logprobs": [[round(-math.exp(draw.gauss(0, 1)), 4) for _ in range(length)] for _ in range(rows)],
        "mask": mask,
        "rewards": [reward() for _ in range(rows)],
        "groups": [g for g, size in enumerate(sizes) for _ in range(size)],
    }


def of_pass_at_k(batch):
    options = batch["algorithm"]
    result = []
    for group in sorted(set(batch["groups"])):
        rewards = [r for r, g in zip(batch["rewards"], batch["groups"]) if g == group]
        result += pass_at_k(rewards, options.get("pass_at_k", {}).get("k", 4), options.get("std_epsilon", 1e-6))
    return [[a * m for m in row] for a, row in zip(result, batch["mask"])]


def normalised(scores, std, epsilon):
    if len(set(scores)) == 1:
        return [0.0] * len(scores)
    mean = math.fsum(scores) / len(scores)
    if not std:
        return [s - mean for s in scores]
    deviation = math.sqrt(math.fsum((s - mean) ** 2 for s in scores) / (len(scores) - 1))
    return [(s - mean) / (deviation + epsilon) for s in scores]


def turns_in(mask):
    """Of each token that counts the number of its turn."""
    turns, turn, before = {}, -1, 0
    for i, m in enumerate(mask):
        turn += m and not before
        before = m
        if m:
            turns[i] = turn
    return turns


def of_gigpo(batch):
    options = batch["algorithm"]
    gamma, epsilon = options.get("gamma", 1), options.get("std_epsilon", 1e-6)
    weight, std = options.get("gigpo", {}).get("weight", 1), options.get("gigpo", {}).get("std", True)
    rows = range(len(batch["mask"]))
    turns = [turns_in(mask) for mask in batch["mask"]]
    result = [[0.0] * len(mask) for mask in batch["mask"]]
    for group in sorted(set(batch["groups"])):
        members = [r for r in rows if batch["groups"][r] == group]
        totals = [math.fsum(batch["rewards"][r][i] for i in turns[r]) for r in members]
        episodes = normalised(totals, std, epsilon) if len(members) > 1 else totals
        by_state = {}
        for r in members:
            of_turn = [math.fsum(batch["rewards"][r][i] for i in turns[r] if turns[r][i] == t) for t in range(len(batch["anchors"][r]))]
            for t in range(len(of_turn)):
                following = math.fsum(gamma ** (u - t) * of_turn[u] for u in range(t, len(of_turn)))
                by_state.setdefault(batch["anchors"][r][t], []).append((r, t, following))
        steps = {}
        for met in by_state.values():
            found = normalised([x for _, _, x in met], std, epsilon) if len(met) > 1 else [0.0]
            steps.update({(r, t): a for (r, t, _), a in zip(met, found)})
        for r, episode in zip(members, episodes):
            for i, t in turns[r].items():
                result[r][i] = episode + weight * steps[r, t]
    return result


def gigpo_batch(draw, algorithm, is_sparse):
    """Rewards of tokens: at the end of a row, or of each turn."""
    batch = batch_of(draw, algorithm, [6, 4, 1], lambda: 0)
    batch["mask"] = [[int(draw.random() < 0.6) for _ in range(12)] for _ in batch["mask"]]
    batch["logprobs"] = [[round(-math.exp(draw.gauss(0, 1)), 4) for _ in range(12)] for _ in batch["mask"]]
    batch["rewards"], batch["anchors"] = [], []
    for mask in batch["mask"]:
        mask[draw.randrange(12)] = 1
        last = max(i for i, m in enumerate(mask) if m)
        turns = turns_in(mask)
        batch["rewards"].append([
            0.0 if not mask[i] or (is_sparse and i != last) else draw.choice([0.0, 1.0]) if is_sparse else round(draw.gauss(0, 1), 4)
            for i in range(12)
        ])
        batch["anchors"].append([0] + [draw.randrange(4) for _ in range(max(turns.values()))])
    return batch


def main():
    draw = random.Random(2)
    with pathlib.Path(__file__).with_name("credit.jsonl").open("w") as out:
        for k in (1, 2, 3, 4, 7):
            for reward in (lambda: draw.choice([0.0, 0.0, 1.0]), lambda: draw.choice([0.0, 0.25, 0.5, 1.0]), lambda: draw.gauss(0, 1)):
                algorithm = {"name": "pass_at_k", "pass_at_k": {"k": k}} if k != 4 else {"name": "dapo", "advantage": "pass_at_k"}
                if k == 2:
                    algorithm["std_epsilon"] = 0.01
                batch = batch_of(draw, algorithm, [8, 12, 4, 2, 1], reward)
                out.write(json.dumps({"batch": batch, "expected": {"advantages": of_pass_at_k(batch)}}) + "\n")
        for algorithm in (
            {"name": "gigpo"},
            {"name": "gigpo", "gamma": 0.95},
            {"name": "gigpo", "gamma": 0.5, "gigpo": {"weight": 0.3, "std": False}},
            {"name": "dapo", "advantage": "gigpo", "gigpo": {"weight": 2}, "std_epsilon": 0.01},
        ):
            for is_sparse in (True, False):
                batch = gigpo_batch(draw, algorithm, is_sparse)
                out.write(json.dumps({"batch": batch, "expected": {"advantages": of_gigpo(batch)}}) + "\n")


main()
