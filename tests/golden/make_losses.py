"""Writes losses.jsonl: batches with their loss, gradient and advantages by torch in float64, the gradient by autograd.

Needs torch (any recent version).  python tests/golden/make_losses.py
"""

import json
import math
import pathlib

import torch

torch.set_default_dtype(torch.float64)
CLIP = {"ppo": (0.2, 0.2), "dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4), "cispo": (1.0, 0.2)}
ADVANTAGE = {"ppo": "gae", "dr_grpo": "dr_grpo", "dppo": "dr_grpo", "rloo": "rloo", "reinforce++": "reinforce++"}


def whiten(values, mask):
    mean = (values * mask).sum() / mask.sum()
    variance = ((values - mean) ** 2 * mask).sum() / (mask.sum() - 1)
    return (values - mean) * torch.rsqrt(variance + 1e-8) * mask


def advantages_of(batch, algorithm, mask, base):
    if "advantages" in batch:
        return torch.tensor(batch["advantages"]) * mask
    rewards = torch.tensor(batch["rewards"])
    if rewards.dim() == 1:
        placed = torch.zeros_like(mask)
        for row in range(len(mask)):
            placed[row, mask[row].nonzero().max()] = rewards[row]
        rewards = placed
    kl = algorithm.get("kl", {})
    if kl.get("in_reward"):
        rewards = rewards - kl["coefficient"] * kl_of(base, torch.tensor(batch["ref_logprobs"]), kl) * mask
    kind = algorithm.get("advantage", ADVANTAGE.get(algorithm["name"], "grpo"))
    gamma, lam = algorithm.get("gamma", 1.0), algorithm.get("lambda", 1.0)
    if kind == "reinforce++":
        result = torch.zeros_like(mask)
        for row in range(len(mask)):
            running = 0.0
            for t in reversed(range(mask.shape[1])):
                running = rewards[row, t] + gamma * running
                result[row, t] = running
                running = running * mask[row, t]
        result = result * mask
    elif kind == "gae":
        values, result = torch.tensor(batch["values"]), torch.zeros_like(mask)
        for row in range(len(mask)):
            kept = [t for t in range(mask.shape[1]) if mask[row, t]]
            for place, t in enumerate(kept):
                # The definition: a discounted sum of the temporal differences that follow.
                for later, u in enumerate(kept[place:]):
                    after = values[row, kept[place + later + 1]] if place + later + 1 < len(kept) else 0.0
                    result[row, t] += (gamma * lam) ** later * (rewards[row, u] + gamma * after - values[row, u])
    else:
        scores, groups = (rewards * mask).sum(1), torch.tensor(batch["groups"])
        single = torch.zeros_like(scores)
        for row in range(len(scores)):
            group = scores[groups == groups[row]]
            if len(group) == 1:
                single[row] = scores[row]
            elif kind == "rloo":
                single[row] = scores[row] - (group.sum() - scores[row]) / (len(group) - 1)
            else:
                single[row] = scores[row] - group.mean()
                if kind == "grpo":
                    single[row] = single[row] / (group.std() + algorithm.get("std_epsilon", 1e-6))
        result = single[:, None] * mask
    if algorithm.get("whiten_advantages", algorithm["name"] in ("ppo", "reinforce++")):
        result = whiten(result, mask)
    return result


def kl_of(logprobs, ref, kl):
    d = (ref - logprobs).clamp(-20, 20)
    value = {"k1": -d, "k2": d * d / 2, "k3": torch.exp(d) - d - 1}[kl["estimator"]]
    bound = kl.get("clamp")
    return value.clamp(-bound, bound) if bound else value


def weight_of(old, rollout, mask, correction):
    difference = old - rollout
    if correction.get("level", "token") == "sequence":
        difference = ((difference * mask).sum(1, keepdim=True)).expand_as(mask)
    weight = torch.exp(difference.clamp(-20, 20))
    kind = correction["kind"]
    low = correction.get("low", 0.5 if kind == "icepop" else 0.0)
    high = correction.get("high", 5.0 if kind == "icepop" else 2.0)
    if kind == "tis":
        return weight.clamp(max=high)
    return torch.where((weight >= low) & (weight <= high), weight, torch.zeros_like(weight))


def aggregate(losses, mask, algorithm):
    default = "seq_mean_token_mean" if algorithm["name"] == "gspo" else "token_mean"
    how, rows = algorithm.get("aggregation", default), (mask.sum(1) > 0).sum()
    losses = losses * mask
    if how == "token_mean":
        return losses.sum() / mask.sum()
    if how == "sum_over_length":
        return losses.sum() / (len(mask) * algorithm["aggregation_length"])
    sums = losses.sum(1)
    return (sums / mask.sum(1).clamp(min=1) if how == "seq_mean_token_mean" else sums).sum() / rows


def expected(batch):
    algorithm = batch["algorithm"]
    name = algorithm["name"]
    mask = torch.tensor(batch["mask"], dtype=torch.float64)
    logprobs = torch.tensor(batch["logprobs"], requires_grad=True)
    rollout = torch.tensor(batch["rollout_logprobs"]) if "rollout_logprobs" in batch else None
    old = torch.tensor(batch["old_logprobs"]) if "old_logprobs" in batch else rollout
    if old is None:
        old = logprobs.detach()
    base = rollout if name == "dppo" and rollout is not None else old
    a = advantages_of(batch, algorithm, mask, base)
    low, high = CLIP.get(name, (0.2, 0.2))
    low, high = algorithm.get("clip_low", low), algorithm.get("clip_high", high)
    difference = logprobs - base
    if name == "gspo":
        mean = (difference * mask).sum(1) / mask.sum(1)
        difference = (mean.detach()[:, None] + logprobs - logprobs.detach()).clamp(max=10)
    if name == "dppo":
        moved = torch.exp(logprobs) - torch.exp(base)
        drop = ((a > 0) & (moved > algorithm.get("mask_high", 0.2))) | ((a < 0) & (moved < -algorithm.get("mask_low", 0.2)))
        losses = algorithm.get("penalty", 1e-3) * difference**2 - (~drop).detach() * a * torch.exp(difference)
    else:
        ratio = torch.exp(difference.clamp(-20, 20))
        clipped = ratio.clamp(1 - low, 1 + high)
        if name == "cispo":
            losses = -clipped.detach() * a * logprobs
        else:
            losses = torch.maximum(-a * ratio, -a * clipped)
            if algorithm.get("dual_clip"):
                losses = torch.where(a < 0, torch.minimum(losses, -a * algorithm["dual_clip"]), losses)
    if "correction" in algorithm:
        losses = losses * weight_of(old, rollout, mask, algorithm["correction"])
    kl = algorithm.get("kl")
    if kl and not kl.get("in_reward"):
        losses = losses + kl["coefficient"] * kl_of(logprobs, torch.tensor(batch["ref_logprobs"]), kl)
    losses = losses + algorithm.get("entropy", {}).get("coefficient", 0.0) * logprobs
    loss = aggregate(losses, mask, algorithm)
    loss.backward()
    return {"loss": loss.item(), "grad_logprobs": logprobs.grad.tolist(), "advantages": a.tolist()}


def batch_of(algorithm, generator, spread, **changes):
    rows, length = 5, 7

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    logprobs = -torch.exp(draw(rows, length))
    mask = (torch.rand(rows, length, generator=generator) < 0.7).long()
    mask[:, 4] = 1
    mask[1, 6:] = 0
    batch = {
        "algorithm": algorithm,
        "logprobs": logprobs,
        "old_logprobs": logprobs + spread * draw(rows, length),
        "rollout_logprobs": logprobs + spread * draw(rows, length),
        "ref_logprobs": logprobs + 2 * spread * draw(rows, length),
        "values": draw(rows, length),
        "mask": mask,
        "rewards": draw(rows),
        "groups": [7, 7, 7, 2, 5],
    }
    for key, value in changes.items():
        batch[key] = {"token rewards": draw(rows, length), "token advantages": draw(rows, length)}.get(value, value)
        if value is None:
            del batch[key]
    if "advantages" in batch:
        del batch["rewards"]
    for key, value in batch.items():
        if isinstance(value, torch.Tensor):
            batch[key] = (value.round(decimals=4) if value.is_floating_point() else value).tolist()
    return batch


def cases():
    for name in ("ppo", "grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "reinforce++", "dppo"):
        yield {"name": name}, {}
        yield {"name": name}, {"rewards": "token rewards"}
        yield {"name": name, "clip_low": 0.05, "clip_high": 0.6}, {"advantages": "token advantages"}
        yield {"name": name, "kl": {"estimator": "k3", "coefficient": 0.1}}, {"old_logprobs": None}
        yield {"name": name}, {"old_logprobs": None, "rollout_logprobs": None}
        for how in ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum"):
            yield {"name": name, "aggregation": how, "entropy": {"coefficient": 0.01}}, {}
        yield {"name": name, "aggregation": "sum_over_length", "aggregation_length": 32}, {}
        if name != "dppo":
            for kind, level in (("tis", "token"), ("mis", "token"), ("icepop", "token"), ("tis", "sequence"), ("mis", "sequence")):
                yield {"name": name, "correction": {"kind": kind, "level": level}}, {}
            yield {"name": name, "correction": {"kind": "mis", "low": 0.8, "high": 1.3}}, {}
    for kind in ("grpo", "dr_grpo", "rloo", "reinforce++", "gae"):
        for whitened in (False, True):
            yield {"name": "grpo", "advantage": kind, "whiten_advantages": whitened, "gamma": 0.9, "lambda": 0.8}, {}
    for estimator in ("k1", "k2", "k3"):
        for extra in ({}, {"clamp": 0.3}, {"in_reward": True}):
            yield {"name": "grpo", "kl": {"estimator": estimator, "coefficient": 0.05, **extra}}, {}
    yield {"name": "ppo", "dual_clip": 1.2}, {}
    yield {"name": "grpo", "std_epsilon": 1e-4, "dual_clip": 3.0}, {}
    yield {"name": "dppo", "mask_low": 0.02, "mask_high": 0.03, "penalty": 0.1}, {}


def main():
    generator = torch.Generator().manual_seed(1)
    path = pathlib.Path(__file__).with_name("losses.jsonl")
    with path.open("w") as out:
        for algorithm, changes in cases():
            for spread in (0.02, 0.5):
                batch = batch_of(algorithm, generator, spread, **changes)
                result = expected(batch)
                assert math.isfinite(result["loss"])
                out.write(json.dumps({"batch": batch, "expected": result}) + "\n")


main()
