// Dr.GRPO with an entropy that is held in a band. What it does is said in ../entropy_band.py, whose numbers it has.
#include "tandem_loss.h"

namespace {

tandem::LossOutput entropy_band(const tandem::LossInput& in) {
  const auto ratio = torch::exp((in.logprobs - in.rollout_logprobs).clamp(-20, 20));
  const auto clipped = ratio.clamp(1 - in.number("clip_low"), 1 + in.number("clip_high"));
  const auto policy = torch::maximum(-in.advantages * ratio, -in.advantages * clipped);
  const double entropy = ((-in.logprobs * in.mask).sum() / in.mask.sum().clamp_min(1)).item<double>();
  double push = 0;
  if (entropy < in.number("low")) push = in.number("strength");
  if (entropy > in.number("high")) push = -in.number("strength");
  return {policy + push * in.logprobs, {{"entropy_estimate", entropy}, {"push", push}}};
}

}  // namespace

TANDEM_LOSS(entropy_band, {"clip_low", 0.2}, {"clip_high", 0.28}, {"low", 0.2}, {"high", 1.0}, {"strength", 0.01})
