"""Dr.GRPO with an entropy that is held in a band: confident tokens of good episodes learn less where the policy has grown
too sure, and unsure ones where it has not.

The sampled token's -logprob stands for the entropy. Its mean over the batch is compared with the band from `low` to
`high` nats: below, a bonus of `strength` pushes it up; above, the same pushes it down; inside there is none.
"""
import torch
from torch import Tensor
from typing import Dict, Tuple


def loss(logprobs: Tensor, rollout_logprobs: Tensor, advantages: Tensor, mask: Tensor,
         clip_low: float = 0.2, clip_high: float = 0.28, low: float = 0.2, high: float = 1.0,
         strength: float = 0.01) -> Tuple[Tensor, Dict[str, float]]:
    ratio = torch.exp(torch.clamp(logprobs - rollout_logprobs, -20, 20))
    policy = torch.maximum(-advantages * ratio, -advantages * torch.clamp(ratio, 1 - clip_low, 1 + clip_high))
    entropy = float((-logprobs * mask).sum() / mask.sum().clamp(min=1))
    push = 0.0
    if entropy < low:
        push = strength
    if entropy > high:
        push = -strength
    return policy + push * logprobs, {"entropy_estimate": entropy, "push": push}
