#include "trainer/learn/preference_loss.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

namespace tandem::trainer {

namespace {

// ln(1 + e^x) without overflow.
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

struct OfDifference {
  double loss = 0, gradient = 0;  // by h
};

OfDifference loss_of(double h, const PreferenceLoss& loss) {
  const double eps = loss.label_smoothing, beta = loss.beta, scaled = beta * h;
  switch (loss.kind) {
    case PreferenceLoss::Kind::kHinge:
      return {std::max(0.0, 1 - scaled), scaled < 1 ? -beta : 0};
    case PreferenceLoss::Kind::kIpo: {
      const double off = h - 1 / (2 * beta);
      return {off * off, 2 * off};
    }
    case PreferenceLoss::Kind::kSigmoid:
      break;
  }
  return {(1 - eps) * softplus(-scaled) + eps * softplus(scaled),
          beta * (eps * sigmoid(scaled) - (1 - eps) * sigmoid(-scaled))};
}

}  // namespace

Result<PreferenceLoss::Kind> preference_kind(std::string_view name) {
  if (name == "sigmoid") return PreferenceLoss::Kind::kSigmoid;
  if (name == "ipo") return PreferenceLoss::Kind::kIpo;
  if (name == "hinge") return PreferenceLoss::Kind::kHinge;
  return fail(Status::invalid(fmt::format("\"{}\" is no loss of preferences; there are sigmoid, ipo and hinge", name)));
}

PairLosses preference_loss(std::span<const double> sums, std::span<const double> reference,
                           std::span<const double> tokens, const PreferenceLoss& loss) {
  PairLosses result;
  result.gradients.assign(sums.size(), 0);
  const auto pairs = static_cast<double>(sums.size() / 2);
  for (size_t chosen = 0; chosen + 1 < sums.size(); chosen += 2) {
    const size_t rejected = chosen + 1;
    // What a difference of sums is divided by.
    const auto length = [&](size_t i) { return loss.kind == PreferenceLoss::Kind::kIpo ? tokens[i] : 1; };
    const auto moved = [&](size_t i) { return (sums[i] - reference[i]) / length(i); };
    const OfDifference of = loss_of(moved(chosen) - moved(rejected), loss);
    result.loss += of.loss - loss.sft * sums[chosen] / tokens[chosen];
    result.gradients[chosen] = (of.gradient / length(chosen) - loss.sft / tokens[chosen]) / pairs;
    result.gradients[rejected] = -of.gradient / length(rejected) / pairs;
    const double chosen_reward = loss.beta * moved(chosen), rejected_reward = loss.beta * moved(rejected);
    result.chosen_reward += chosen_reward / pairs;
    result.rejected_reward += rejected_reward / pairs;
    result.accuracy += (chosen_reward > rejected_reward ? 1 : chosen_reward == rejected_reward ? 0.5 : 0) / pairs;
  }
  result.loss /= pairs;
  result.margin = result.chosen_reward - result.rejected_reward;
  return result;
}

}  // namespace tandem::trainer
