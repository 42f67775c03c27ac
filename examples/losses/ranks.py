"""Advantages by rank: the share of its group that a sample beats, less the share that beats it. Rewards of any scale, and
a single large one, weigh alike."""
from torch import Tensor


def advantages(rewards: Tensor, groups: Tensor) -> Tensor:
    same = groups.unsqueeze(0) == groups.unsqueeze(1)
    others = (same.sum(1) - 1).clamp(min=1)
    beaten = (rewards.unsqueeze(1) > rewards.unsqueeze(0)) & same
    beaten_by = (rewards.unsqueeze(1) < rewards.unsqueeze(0)) & same
    return (beaten.sum(1) - beaten_by.sum(1)) / others.to(rewards.dtype)
