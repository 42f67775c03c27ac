"""Writes policy_losses.jsonl: batches with their loss, gradient and advantages for the losses that came after make_losses.py.

The formulas are those of verl (sapo, gmpo, clip_cov, kl_cov, opo) and SkyRL (maxrl), written down again in float64; the gradient is
taken by the complex step, which rounds nothing off. Needs Python alone.  python3 tests/golden/make_policy_losses.py
"""

import cmath
import json
import math
import pathlib
import random

STEP = 1e-30
MASK32 = 0xFFFFFFFF


def philox(seed, position):
    """Philox4x32-10 (Salmon et al. 2011): a number in [0, 1) for (seed, position)."""
    x = [position & MASK32, position >> 32, 0, 0]
    k0, k1 = seed & MASK32, seed >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(p1 >> 32) ^ x[1] ^ k0, p1 & MASK32, (p0 >> 32) ^ x[3] ^ k1, p0 & MASK32]
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return ((x[1] << 32 | x[0]) >> 11) * 2.0**-53


def counted(batch):
    return [(r, c) for r, row in enumerate(batch["mask"]) for c, m in enumerate(row) if m]


def advantages_of(batch, kind, epsilon):
    """A number a row."""
    rewards, groups, lengths = batch["rewards"], batch["groups"], [sum(row) for row in batch["mask"]]
    result = []
    for row, reward in enumerate(rewards):
        others = [i for i, group in enumerate(groups) if group == groups[row]]
        scores = [rewards[i] for i in others]
        mean = math.fsum(scores) / len(scores)
        if len(others) == 1:
            result.append(reward)
        elif kind == "opo":
            result.append(reward - math.fsum(lengths[i] * rewards[i] for i in others) / sum(lengths[i] for i in others))
        elif kind == "maxrl":
            result.append((reward - mean) / (mean + epsilon))
        else:
            deviation = math.sqrt(math.fsum((s - mean) ** 2 for s in scores) / (len(scores) - 1))
            result.append((reward - mean) / (deviation + epsilon))
    return result


def covariances(batch, a):
    places = counted(batch)
    mean_a = math.fsum(a[r] for r, _ in places) / len(places)
    mean_l = math.fsum(batch["logprobs"][r][c] for r, c in places) / len(places)
    return {(r, c): (a[r] - mean_a) * (batch["logprobs"][r][c] - mean_l) for r, c in places}


def clip(ratio, advantage, low, high):
    free, held = -advantage * ratio, -advantage * min(max(ratio.real, 1 - low), 1 + high)
    return (held + 0j, True) if held > free.real else (free, False)


def loss_of(batch, logprobs, a):
    """The loss of complex logprobs."""
    algorithm = batch["algorithm"]
    name, places = algorithm["name"], counted(batch)
    log_ratio = {(r, c): logprobs[r][c] - batch["old_logprobs"][r][c] for r, c in places}
    losses = {}
    if name in ("opo", "maxrl"):
        for r, c in places:
            losses[r, c] = clip(cmath.exp(log_ratio[r, c]), a[r], 0.2, 0.2)[0]
    elif name == "sapo":
        tau = algorithm.get("sapo", {})
        for r, c in places:
            t = tau.get("tau_positive", 1.0) if a[r] > 0 else tau.get("tau_negative", 1.05)
            losses[r, c] = -a[r] * 4 / t / (1 + cmath.exp(-t * (cmath.exp(log_ratio[r, c]) - 1)))
    elif name == "gmpo":
        low, high = algorithm.get("clip_low", 0.4), algorithm.get("clip_high", 0.4)
        for row in range(len(a)):
            own = [place for place in places if place[0] == row]
            if not own:
                continue
            total = 0
            for place in own:
                x = log_ratio[place]
                if a[row] > 0 and x.real > high:
                    x = high
                if a[row] < 0 and x.real < -low:
                    x = -low
                total += x
            for place in own:  # seq_mean_token_mean takes the mean of what is the same for all
                losses[place] = -a[row] * cmath.exp(total / len(own))
    elif name == "clip_cov":
        key = algorithm.get("clip_cov", {})
        covariance, columns = covariances(batch, a), len(batch["mask"][0])
        low, high = algorithm.get("clip_low", 0.2), algorithm.get("clip_high", 0.2)
        held = {place: clip(cmath.exp(log_ratio[place]), a[place[0]], low, high) for place in places}
        band = [place for place in places
                if key.get("low", 1) < covariance[place] < key.get("high", 5) and not held[place][1]]
        band.sort(key=lambda place: philox(1, place[0] * columns + place[1]))
        drawn = set(band[: max(1, int(key.get("share", 2e-4) * len(places)))])
        for place in places:
            losses[place] = 0j if place in drawn else held[place][0]
    elif name == "kl_cov":
        key = algorithm.get("kl_cov", {})
        covariance = covariances(batch, a)
        largest = sorted(places, key=lambda place: -covariance[place])[: max(1, int(key.get("share", 2e-4) * len(places)))]
        for place in places:
            x = log_ratio[place]
            losses[place] = -a[place[0]] * cmath.exp(x)
            if place in largest:
                losses[place] += key.get("coefficient", 1) * (x if x.real > 0 else -x)
    if algorithm.get("aggregation") or name in ("sapo", "gmpo"):
        rows = [row for row in range(len(a)) if any(place[0] == row for place in places)]
        return sum(sum(losses[p] for p in places if p[0] == row) / sum(batch["mask"][row]) for row in rows) / len(rows)
    return sum(losses[place] for place in places) / len(places)


def expected(batch):
    kind = {"opo": "opo", "maxrl": "maxrl"}.get(batch["algorithm"]["name"], "grpo")
    a = advantages_of(batch, kind, batch["algorithm"].get("std_epsilon", 1e-6))
    logprobs = [[complex(x) for x in row] for row in batch["logprobs"]]
    gradient = [[0.0] * len(row) for row in logprobs]
    for r, c in counted(batch):
        moved = [list(row) for row in logprobs]
        moved[r][c] += 1j * STEP
        gradient[r][c] = loss_of(batch, moved, a).imag / STEP
    return {
        "loss": loss_of(batch, logprobs, a).real,
        "grad_logprobs": gradient,
        "advantages": [[a[r] * m for m in row] for r, row in enumerate(batch["mask"])],
    }


def batch_of(algorithm, draw, spread):
    rows, length = 5, 7
    logprobs = [[round(-math.exp(draw.gauss(0, 1)), 4) for _ in range(length)] for _ in range(rows)]
    mask = [[int(draw.random() < 0.7) for _ in range(length)] for _ in range(rows)]
    for row in mask:
        row[4] = 1
    return {
        "algorithm": algorithm,
        "logprobs": logprobs,
        "old_logprobs": [[round(x + spread * draw.gauss(0, 1), 4) for x in row] for row in logprobs],
        "mask": mask,
        # Of maxrl, whose mean divides, they are successes or failures.
        "rewards": [draw.choice([0.0, 1.0]) if algorithm["name"] == "maxrl" else round(draw.gauss(0, 1), 4) for _ in range(rows)],
        "groups": [7, 7, 7, 2, 5],
    }


def cases():
    for name in ("sapo", "gmpo", "clip_cov", "kl_cov", "opo", "maxrl"):
        yield {"name": name}
        yield {"name": name, "aggregation": "seq_mean_token_mean"}
    yield {"name": "sapo", "sapo": {"tau_positive": 3.0, "tau_negative": 0.5}}
    yield {"name": "gmpo", "clip_low": 0.05, "clip_high": 0.1}
    yield {"name": "clip_cov", "clip_cov": {"share": 0.2, "low": 0.01, "high": 3.0}, "clip_high": 0.5}
    yield {"name": "clip_cov", "clip_cov": {"share": 1.0, "low": 0.0, "high": 100.0}}
    yield {"name": "kl_cov", "kl_cov": {"share": 0.3, "coefficient": 0.5}}
    yield {"name": "maxrl", "std_epsilon": 0.01}


def main():
    draw = random.Random(1)
    with pathlib.Path(__file__).with_name("policy_losses.jsonl").open("w") as out:
        for algorithm in cases():
            for spread in (0.02, 0.5):
                batch = batch_of(algorithm, draw, spread)
                out.write(json.dumps({"batch": batch, "expected": expected(batch)}) + "\n")


main()
