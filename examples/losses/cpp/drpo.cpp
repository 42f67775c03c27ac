// Divergence regularized policy optimization, after Yao 2026 (arXiv 2606.09821): -A r + |A| p (r - 1)^2 / (2 delta),
// with r = pi / p and p the sampler's probability. What it does is said in ../drpo.py, whose numbers it has.
#include "tandem_loss.h"

namespace {

tandem::LossOutput drpo(const tandem::LossInput& in) {
  const double delta = in.number("delta");
  const auto ratio = torch::exp((in.logprobs - in.rollout_logprobs).clamp(-20, 20));
  const auto shift = torch::exp(in.rollout_logprobs) * (ratio - 1);
  const auto pulled_back = shift * torch::sign(in.advantages) > delta;
  const double count = std::max<double>(1, in.mask.sum().item<double>());
  return {-in.advantages * ratio + in.advantages.abs() * shift * (ratio - 1) / (2 * delta),
          {{"shift", (shift.abs() * in.mask).sum().item<double>() / count},
           {"pulled_back", (pulled_back & in.mask).sum().item<double>() / count}}};
}

}  // namespace

TANDEM_LOSS(drpo, {"delta", 0.2})
