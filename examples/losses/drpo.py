"""Divergence regularized policy optimization, after Yao 2026 (arXiv 2606.09821): the advantage's gain less a quadratic term in
how far the token's probability moved,

    -A r + |A| p (r - 1)^2 / (2 delta),   r = pi / p, p the sampler's probability.

A token's gradient has the weight A (1 - sign(A) (pi - p) / delta) r: it fades as the probability moves the way that A wants it,
is 0 where it moved by delta, and pulls back beyond. Where `dppo` drops a token, this corrects it. `delta` of 1 or more never
pulls a token back that A pushes up.
"""
import torch
from torch import Tensor
from typing import Dict, Tuple


def loss(logprobs: Tensor, rollout_logprobs: Tensor, advantages: Tensor, mask: Tensor,
         delta: float = 0.2) -> Tuple[Tensor, Dict[str, Tensor]]:
    before = torch.exp(rollout_logprobs)
    ratio = torch.exp(torch.clamp(logprobs - rollout_logprobs, -20, 20))
    shift = before * (ratio - 1)
    pulled_back = shift * torch.sign(advantages) > delta
    count = mask.sum().clamp(min=1).to(logprobs.dtype)
    return -advantages * ratio + advantages.abs() * shift * (ratio - 1) / (2 * delta), {
        "shift": (shift.abs() * mask).sum() / count, "pulled_back": (pulled_back & mask).sum() / count}
