"""Writes distill.jsonl: batches with a teacher's logprobs; their loss, gradient and advantages.

On-policy distillation as prime-rl, slime and Tinker's cookbook have it: the advantage of a token gets weight x (teacher's logprob -
sampler's logprob), held constant, after all that is made of rewards. Written out in float64, sharing nothing with ours; the gradient is
also compared with differences of the loss.  python3 tests/golden/make_distill.py   (Needs Python alone.)
"""

import json
import math
import pathlib
import random


def from_rewards(batch):
    algorithm, mask = batch["algorithm"], batch["mask"]
    kind = algorithm.get("advantage", "dr_grpo")
    if kind == "distill":
        return [[0.0] * len(row) for row in mask]
    result = []
    for row, (reward, group) in enumerate(zip(batch["rewards"], batch["groups"])):
        members = [r for r, g in zip(batch["rewards"], batch["groups"]) if g == group]
        mean = math.fsum(members) / len(members)
        if kind == "grpo":
            deviation = math.sqrt(math.fsum((r - mean) ** 2 for r in members) / (len(members) - 1)) + 1e-6
        else:
            deviation = 1
        result.append([(reward - mean) / deviation * counts for counts in mask[row]])
    if algorithm.get("whiten_advantages"):
        counted = [a for row, counts in zip(result, mask) for a, c in zip(row, counts) if c]
        mean = math.fsum(counted) / len(counted)
        deviation = math.sqrt(math.fsum((a - mean) ** 2 for a in counted) / (len(counted) - 1) + 1e-8)
        result = [[(a - mean) / deviation * c for a, c in zip(row, counts)] for row, counts in zip(result, mask)]
    return result


def advantages(batch):
    teacher = batch["algorithm"].get("teacher", {})
    weight, clamp = teacher.get("weight", 1.0), teacher.get("clamp", 0)
    sampler = batch.get("rollout_logprobs") or batch.get("old_logprobs") or batch["logprobs"]
    result = from_rewards(batch)
    for i, counts in enumerate(batch["mask"]):
        for j, counted in enumerate(counts):
            reverse_kl = sampler[i][j] - batch["teacher_logprobs"][i][j]
            if clamp:
                reverse_kl = max(-clamp, min(clamp, reverse_kl))
            result[i][j] = result[i][j] - weight * reverse_kl if counted else 0.0
    return result


def loss_of(batch, credit):
    base = batch.get("old_logprobs") or batch.get("rollout_logprobs") or batch["logprobs"]
    n = sum(map(sum, batch["mask"]))
    loss, gradient = 0.0, [[0.0] * len(row) for row in batch["mask"]]
    for i, counts in enumerate(batch["mask"]):
        for j, counted in enumerate(counts):
            if not counted:
                continue
            ratio, a = math.exp(batch["logprobs"][i][j] - base[i][j]), credit[i][j]
            held = min(max(ratio, 0.8), 1.2)
            free, clipped = -a * ratio, -a * held
            loss += max(free, clipped) / n
            gradient[i][j] = 0.0 if clipped > free else free / n
    return loss, gradient


def check_gradient(batch, credit, gradient):
    if not (batch.get("old_logprobs") or batch.get("rollout_logprobs")):
        return  # the ratio would move with the logprob
    for i, row in enumerate(gradient):
        for j, found in enumerate(row):
            moved = []
            for step in (1e-6, -1e-6):
                changed = json.loads(json.dumps(batch))
                changed["logprobs"][i][j] += step
                moved.append(loss_of(changed, credit)[0])
            assert abs((moved[0] - moved[1]) / 2e-6 - found) < 1e-6, (i, j, found)


def case(batch):
    credit = advantages(batch)
    loss, gradient = loss_of(batch, credit)
    check_gradient(batch, credit, gradient)
    return {"batch": batch, "expected": {"loss": loss, "grad_logprobs": gradient, "advantages": credit}}


def main():
    draw = random.Random(41)
    # By hand: A = 1 x (-0.5 - -1) = 0.5 and -2 - -0.25 = -1.75; ratios are 1, so the loss is the mean of -A.
    by_hand = case({"algorithm": {"advantage": "distill"}, "logprobs": [[-1.0, -0.25]], "rollout_logprobs": [[-1.0, -0.25]],
                    "teacher_logprobs": [[-0.5, -2.0]], "mask": [[1, 1]]})
    assert by_hand["expected"] == {"loss": 0.625, "grad_logprobs": [[-0.25, 0.875]], "advantages": [[0.5, -1.75]]}
    cases = [by_hand]
    for algorithm in ({"advantage": "distill"}, {"advantage": "distill", "teacher": {"weight": 0.3}},
                      {"advantage": "distill", "teacher": {"weight": 2.0, "clamp": 0.5}}, {"name": "dr_grpo"},
                      {"name": "grpo", "advantage": "grpo", "teacher": {"weight": 0.1}},
                      {"name": "dr_grpo", "whiten_advantages": True, "teacher": {"weight": 0.5, "clamp": 2.0}},
                      {"name": "grpo", "advantage": "distill", "teacher": {"weight": 0.0}}):
        for given in ((), ("rollout_logprobs",), ("old_logprobs",), ("old_logprobs", "rollout_logprobs")):
            rows, length = 6, 5
            logprobs = [[round(-math.exp(draw.gauss(-0.5, 1)), 4) for _ in range(length)] for _ in range(rows)]
            near = lambda width: [[round(l + draw.gauss(0, width), 4) for l in row] for row in logprobs]
            mask = [[int(draw.random() < 0.8) for _ in range(length)] for _ in range(rows)]
            mask[0][0] = 1
            batch = {"algorithm": algorithm, "logprobs": logprobs, "mask": mask, "teacher_logprobs": near(1.0),
                     "rewards": [float(draw.random() < 0.5) for _ in range(rows)], "groups": [0, 0, 0, 1, 1, 1]}
            batch["rewards"][0], batch["rewards"][1] = 1.0, 0.0
            for key in given:
                batch[key] = near(0.2)
            cases.append(case(batch))
    path = pathlib.Path(__file__).with_name("distill.jsonl")
    path.write_text("".join(json.dumps(c) + "\n" for c in cases))


main()
