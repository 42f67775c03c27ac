"""Writes branches.jsonl: batches of samples that share trunks, with loss, gradients and advantages, in Python's float64.

The form shares nothing with ours: a tree is written as its parts, each once, a trunk with the mean of its leaves' advantages; the loss is a
sum over parts. What a row of the batch has of a gradient is its share of that of the part. Needs Python alone.  python3 tests/golden/make_branches.py
"""

import json
import math
import pathlib
import random


def group_advantages(rewards, kind, epsilon=1e-6):
    mean = sum(rewards) / len(rewards)
    if kind == "rloo":
        return [r - (sum(rewards) - r) / (len(rewards) - 1) for r in rewards]
    if kind == "grpo":
        deviation = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
        return [(r - mean) / (deviation + epsilon) for r in rewards]
    return [r - mean for r in rewards]


def clip_loss(l, old, advantage, low, high):
    r = math.exp(l - old)
    free, held = -advantage * r, -advantage * min(max(r, 1 - low), 1 + high)
    return (free, free) if free >= held else (held, 0.0)


def loss_of(batch, low, high):
    algorithm, trunks, mask = batch["algorithm"], batch["trunks"], batch["mask"]
    advantages = [0.0] * len(mask)
    for group in set(batch["groups"]):
        rows = [i for i, g in enumerate(batch["groups"]) if g == group]
        for row, a in zip(rows, group_advantages([batch["rewards"][i] for i in rows], algorithm["name"])):
            advantages[row] = a
    by_tree = algorithm.get("branch_credit", "tree") == "tree"
    local = algorithm.get("branch_local", 0.0)
    places = [[i for i, m in enumerate(row) if m] for row in mask]
    # Parts of trees: (rows that have it, their places, advantage).
    parts = []
    for row, trunk in enumerate(trunks):
        members = [i for i, t in enumerate(trunks) if trunk is not None and t is not None and t[0] == trunk[0]]
        if not by_tree or len(members) < 2:
            parts.append(([row], [places[row]], advantages[row]))
            continue
        mean = sum(advantages[i] for i in members) / len(members)
        if row == members[0]:
            parts.append((members, [places[i][: trunk[1]] for i in members], mean))
        parts.append(([row], [places[row][trunk[1] :]], advantages[row] + local * (advantages[row] - mean)))
    aggregation = algorithm.get("aggregation", "token_mean")
    length_of = [sum(len(p[m.index(row)]) / len(m) for m, p, _ in parts if row in m) for row in range(len(mask))]
    sequences = sum(length > 0 for length in length_of)
    scales = {
        "token_mean": lambda row: 1 / sum(length_of),
        "seq_mean_token_mean": lambda row: 1 / (sequences * length_of[row]) if length_of[row] else 0,
        "seq_mean_token_sum": lambda row: 1 / sequences,
        "sum_over_length": lambda row: 1 / (algorithm.get("aggregation_length", 1) * len(mask)),
    }
    scale = scales[aggregation]
    loss, gradients = 0.0, [[0.0] * len(row) for row in mask]
    of_tokens = [[0.0] * len(row) for row in mask]
    for members, where, advantage in parts:
        for k in range(len(where[0])):
            l, old = batch["logprobs"][members[0]][where[0][k]], batch["old_logprobs"][members[0]][where[0][k]]
            value, slope = clip_loss(l, old, advantage, low, high)
            for row, at in zip(members, where):
                loss += scale(row) * value / len(members)
                gradients[row][at[k]] = scale(row) * slope / len(members)
                of_tokens[row][at[k]] = advantage
    return {"loss": loss, "grad_logprobs": gradients, "advantages": of_tokens}


def batch_of(draw, algorithm, families):
    """families: of one group the sizes of its families; 1: a sample by itself."""
    length = 9
    batch = {"algorithm": algorithm, "logprobs": [], "old_logprobs": [], "mask": [], "rewards": [], "groups": [], "trunks": []}
    number = 0
    for group, sizes in enumerate(families):
        for size in sizes:
            shared = draw.randrange(1, 4)
            common = [round(-math.exp(draw.gauss(0, 1)), 4) for _ in range(shared)]
            before = [round(l + draw.gauss(0, 0.3), 4) for l in common]
            for _ in range(size):
                own = draw.randrange(0, 4)
                row = common + [round(-math.exp(draw.gauss(0, 1)), 4) for _ in range(own)]
                old = before + [round(l + draw.gauss(0, 0.3), 4) for l in row[shared:]]
                # Tokens that do not count lie before, between and behind; where they are differs by row.
                places = sorted(draw.sample(range(length), len(row)))
                mask, logprobs, olds = [0] * length, [-1.0] * length, [-1.0] * length
                for place, l, o in zip(places, row, old):
                    mask[place], logprobs[place], olds[place] = 1, l, o
                batch["mask"].append(mask)
                batch["logprobs"].append(logprobs)
                batch["old_logprobs"].append(olds)
                batch["rewards"].append(draw.choice([0.0, 1.0, 0.25]))
                batch["groups"].append(group)
                batch["trunks"].append([number, shared] if size > 1 else None)
            number += 1
    return batch


def main():
    draw = random.Random(20)
    clips = {"dr_grpo": (0.2, 0.2), "grpo": (0.2, 0.2), "rloo": (0.2, 0.2)}
    lines = []
    for name in clips:
        for aggregation in ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "sum_over_length"]:
            for extra in [{}, {"branch_local": 0.5}, {"branch_local": 1.0}, {"branch_credit": "none"}]:
                algorithm = {"name": name, "aggregation": aggregation, **extra}
                if aggregation == "sum_over_length":
                    algorithm["aggregation_length"] = 7
                families = draw.choice([[[2, 2]], [[4], [1, 3]], [[3, 1, 1], [2]], [[1, 1], [2, 4]]])
                batch = batch_of(draw, algorithm, families)
                lines.append(json.dumps({"batch": batch, "expected": loss_of(batch, *clips[name])}))
    (pathlib.Path(__file__).parent / "branches.jsonl").write_text("\n".join(lines) + "\n")


main()
