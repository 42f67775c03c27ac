"""Credit by the turn: a turn's tokens share its reward and what follows it, discounted by the turn and not by the token,
against the mean of the same turn over the group. Ratios are clipped turn by turn (geometric mean of a turn's tokens).

Useful where turns are rewarded by themselves; with one reward at the end and discount 1 all turns of an episode have the
episode's advantage. `advantages` is the same credit for a built-in loss.
"""
import torch
from torch import Tensor
from typing import Dict, Tuple


def by_turn(values: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
    """[rows, turns]: the sum over the tokens of each turn."""
    turns = max(1, int(segments.max()) + 1)
    place = torch.where(mask, segments, torch.zeros_like(segments))
    return torch.zeros(values.size(0), turns, dtype=values.dtype).scatter_add(1, place, values * mask)


def credit(token_rewards: Tensor, mask: Tensor, segments: Tensor, groups: Tensor, discount: float) -> Tensor:
    """[rows, turns]: the advantage of each turn."""
    there = by_turn(torch.ones_like(token_rewards), mask, segments) > 0
    rewards = by_turn(token_rewards, mask, segments)
    returns = torch.zeros_like(rewards)
    following = torch.zeros(rewards.size(0), dtype=rewards.dtype)
    for i in range(rewards.size(1)):
        turn = rewards.size(1) - 1 - i
        following = rewards[:, turn] + discount * following
        returns[:, turn] = following
    same = (groups.unsqueeze(0) == groups.unsqueeze(1)).to(rewards.dtype)
    baseline = same.matmul(returns * there) / same.matmul(there.to(rewards.dtype)).clamp(min=1)
    return (returns - baseline) * there


def loss(logprobs: Tensor, rollout_logprobs: Tensor, token_rewards: Tensor, mask: Tensor, segments: Tensor, groups: Tensor,
         discount: float = 1.0, clip: float = 0.2) -> Tuple[Tensor, Dict[str, Tensor]]:
    advantage = credit(token_rewards, mask, segments, groups, discount)
    tokens = by_turn(torch.ones_like(token_rewards), mask, segments)
    ratio = torch.exp(by_turn(logprobs - rollout_logprobs, mask, segments) / tokens.clamp(min=1))
    value = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip, 1 + clip))
    return (value * tokens).sum() / tokens.sum().clamp(min=1), {"turns": (tokens > 0).sum().to(torch.float64)}


def advantages(token_rewards: Tensor, mask: Tensor, segments: Tensor, groups: Tensor, discount: float = 1.0) -> Tensor:
    return credit(token_rewards, mask, segments, groups, discount).gather(1, segments.clamp(min=0))
