"""GRPO as a loss of one's own: a place to begin. It gives the loss and the gradient of `algorithm.name: grpo`."""
import torch
from torch import Tensor
from typing import Dict, Tuple


def loss(logprobs: Tensor, rollout_logprobs: Tensor, advantages: Tensor, mask: Tensor,
         clip_low: float = 0.2, clip_high: float = 0.2) -> Tuple[Tensor, Dict[str, Tensor]]:
    ratio = torch.exp(logprobs - rollout_logprobs)
    free = -advantages * ratio
    clipped = -advantages * torch.clamp(ratio, 1 - clip_low, 1 + clip_high)
    metrics = {"clipped": (clipped > free).masked_select(mask).to(torch.float64).mean()}
    return torch.maximum(free, clipped), metrics
