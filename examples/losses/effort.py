"""Advantages that count effort: among the episodes that earned something, each call of a tool costs a little. Baselines are
the means of the groups."""
from typing import Dict

import torch
from torch import Tensor


def advantages(rewards: Tensor, groups: Tensor, metrics: Dict[str, Tensor], cost: float = 0.05) -> Tensor:
    earned = rewards - cost * metrics["tool_calls"] * (rewards > 0).to(rewards.dtype)
    same = (groups.unsqueeze(0) == groups.unsqueeze(1)).to(rewards.dtype)
    return earned - torch.mv(same, earned) / same.sum(1)
