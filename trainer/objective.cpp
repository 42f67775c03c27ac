#include "trainer/objective.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/text.h"

namespace tandem::trainer {

namespace {

template <typename Enum, size_t N>
struct Names {
  std::array<std::pair<std::string_view, Enum>, N> entries;

  std::string_view name_of(Enum value) const {
    for (const auto& [name, entry] : entries) {
      if (entry == value) return name;
    }
    return "";
  }
  Result<Enum> find(std::string_view what, std::string_view wanted) const {
    std::vector<std::string_view> names;
    for (const auto& [name, entry] : entries) {
      if (name == wanted) return entry;
      names.push_back(name);
    }
    return fail(Status::invalid(fmt::format("{} \"{}\" is not known{}", what, wanted, did_you_mean(wanted, names))));
  }
};

constexpr Names<Aggregation, 4> kAggregations{{{{"token_mean", Aggregation::kTokenMean},
                                                {"seq_mean_token_mean", Aggregation::kSeqMeanTokenMean},
                                                {"seq_mean_token_sum", Aggregation::kSeqMeanTokenSum},
                                                {"sum_over_length", Aggregation::kSumOverLength}}}};

}  // namespace

Result<Algorithm> algorithm_named(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kNames = {"grpo", "dr_grpo", "dapo", "rloo"};
  Algorithm a;
  a.name = name;
  if (name == "dr_grpo") return a;
  if (name == "grpo") {
    a.advantage = rollout::AdvantageKind::kGrpo;
    return a;
  }
  if (name == "dapo") {
    a.advantage = rollout::AdvantageKind::kGrpo;
    a.clip_high = 0.28;
    return a;
  }
  if (name == "rloo") {
    a.advantage = rollout::AdvantageKind::kRloo;
    return a;
  }
  return fail(Status::invalid(fmt::format("algorithm \"{}\" is not known{}", name, did_you_mean(name, kNames))));
}

Result<Algorithm> algorithm_from_json(const Json& json) {
  TRY(check_keys(json, {"name", "advantage", "std_epsilon", "clip_low", "clip_high", "dual_clip", "aggregation",
                        "aggregation_length"}));
  try {
    Algorithm a = TRY(algorithm_named(json.value("name", std::string("dr_grpo"))));
    if (json.contains("advantage")) a.advantage = TRY(rollout::advantage_kind(json["advantage"].get<std::string>()));
    if (json.contains("aggregation"))
      a.aggregation = TRY(kAggregations.find("aggregation", json["aggregation"].get<std::string>()));
    a.std_epsilon = json.value("std_epsilon", a.std_epsilon);
    a.clip_low = json.value("clip_low", a.clip_low);
    a.clip_high = json.value("clip_high", a.clip_high);
    if (json.contains("dual_clip") && !json["dual_clip"].is_null()) a.dual_clip = json["dual_clip"].get<double>();
    a.aggregation_length = json.value("aggregation_length", a.aggregation_length);
    if (a.aggregation == Aggregation::kSumOverLength && !(a.aggregation_length > 0)) {
      return fail(Status::invalid("aggregation sum_over_length needs aggregation_length above 0"));
    }
    return a;
  } catch (const Json::exception& error) {
    return fail(Status::invalid(fmt::format("algorithm: {}", error.what())));
  }
}

Json to_json(const Algorithm& a) {
  return {{"name", a.name},
          {"advantage", rollout::to_string(a.advantage)},
          {"std_epsilon", a.std_epsilon},
          {"clip_low", a.clip_low},
          {"clip_high", a.clip_high},
          {"dual_clip", a.dual_clip > 0 ? Json(a.dual_clip) : Json()},
          {"aggregation", kAggregations.name_of(a.aggregation)},
          {"aggregation_length", a.aggregation_length}};
}

TokenLoss token_loss(double logprob, double old_logprob, double advantage, const Algorithm& algorithm) {
  const double ratio = std::exp(std::clamp(logprob - old_logprob, -20.0, 20.0));
  const double bounded = std::clamp(ratio, 1 - algorithm.clip_low, 1 + algorithm.clip_high);
  const double free_loss = -advantage * ratio, clipped_loss = -advantage * bounded;
  const bool clipped = clipped_loss > free_loss;
  TokenLoss result{
      .loss = std::max(free_loss, clipped_loss), .slope = clipped ? 0 : free_loss, .ratio = ratio, .clipped = clipped};
  if (advantage < 0 && algorithm.dual_clip > 0 && result.loss > -advantage * algorithm.dual_clip) {
    return {.loss = -advantage * algorithm.dual_clip, .slope = 0, .ratio = ratio, .clipped = true};
  }
  return result;
}

std::vector<double> sequence_weights(std::span<const int> lengths, const Algorithm& algorithm) {
  const double tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  const auto sequences =
      static_cast<double>(std::count_if(lengths.begin(), lengths.end(), [](int n) { return n > 0; }));
  std::vector<double> weights(lengths.size(), 0);
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0) continue;
    switch (algorithm.aggregation) {
      case Aggregation::kTokenMean:
        weights[i] = 1 / tokens;
        break;
      case Aggregation::kSeqMeanTokenMean:
        weights[i] = 1 / (sequences * lengths[i]);
        break;
      case Aggregation::kSeqMeanTokenSum:
        weights[i] = 1 / sequences;
        break;
      case Aggregation::kSumOverLength:
        weights[i] = 1 / (algorithm.aggregation_length * static_cast<double>(lengths.size()));
        break;
    }
  }
  return weights;
}

}  // namespace tandem::trainer
