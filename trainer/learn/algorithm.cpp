#include "trainer/learn/algorithm.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/text.h"

namespace tandem::trainer {

namespace {

using rollout::AdvantageKind;

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
constexpr Names<Correction::Kind, 4> kCorrections{{{{"none", Correction::Kind::kNone},
                                                    {"tis", Correction::Kind::kTis},
                                                    {"mis", Correction::Kind::kMis},
                                                    {"icepop", Correction::Kind::kIcePop}}}};
constexpr Names<bool, 2> kLevels{{{{"token", false}, {"sequence", true}}}};
constexpr Names<Kl::Estimator, 4> kEstimators{{{{"none", Kl::Estimator::kNone},
                                                {"k1", Kl::Estimator::kK1},
                                                {"k2", Kl::Estimator::kK2},
                                                {"k3", Kl::Estimator::kK3}}}};

struct Defaults {
  std::string_view name;
  void (*set)(Algorithm&);
};
constexpr Defaults kDefaults[] = {
    {"ppo",
     [](Algorithm& a) {
       a.advantage = AdvantageKind::kGae;
       a.whiten_advantages = true;
     }},
    {"grpo", [](Algorithm& a) { a.advantage = AdvantageKind::kGrpo; }},
    {"dr_grpo", [](Algorithm&) {}},
    {"dapo",
     [](Algorithm& a) {
       a.advantage = AdvantageKind::kGrpo;
       a.clip_high = 0.28;
     }},
    {"gspo",
     [](Algorithm& a) {
       a.policy = Policy::kSequence;
       a.advantage = AdvantageKind::kGrpo;
       a.clip_low = 3e-4;
       a.clip_high = 4e-4;
       a.aggregation = Aggregation::kSeqMeanTokenMean;
     }},
    {"cispo",
     [](Algorithm& a) {
       a.policy = Policy::kWeighted;
       a.advantage = AdvantageKind::kGrpo;
       a.clip_low = 1;  // a ratio is above 0 in any case: no lower clip, as in the paper
     }},
    {"rloo", [](Algorithm& a) { a.advantage = AdvantageKind::kRloo; }},
    {"reinforce++",
     [](Algorithm& a) {
       a.advantage = AdvantageKind::kReturns;
       a.whiten_advantages = true;
     }},
    {"dppo", [](Algorithm& a) { a.policy = Policy::kMasked; }},
};

// The members of one JSON object, each checked and named in errors.
struct Section {
  const Json& json;
  std::string prefix;

  const Json* given(const char* key) const {
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }
  Status number(const char* key, double& value, double least, double most) const {
    const Json* const item = given(key);
    if (item == nullptr) return {};
    const double wanted = item->is_number() ? item->get<double>() : NAN;
    if (!(wanted >= least && wanted <= most)) {
      return Status::invalid(
          fmt::format("{}{} is {}, not a number from {} to {}", prefix, key, dump_json(*item), least, most));
    }
    value = wanted;
    return {};
  }
  Status flag(const char* key, bool& value) const {
    const Json* const item = given(key);
    if (item == nullptr) return {};
    if (!item->is_boolean()) {
      return Status::invalid(fmt::format("{}{} is {}, not true or false", prefix, key, dump_json(*item)));
    }
    value = item->get<bool>();
    return {};
  }
  Result<std::string> text(const char* key) const {
    const Json* const item = given(key);
    if (!item->is_string()) {
      return fail(Status::invalid(fmt::format("{}{} is {}, not a name", prefix, key, dump_json(*item))));
    }
    return item->get<std::string>();
  }
  template <typename Names, typename Enum>
  Status name(const char* key, const Names& names, Enum& value) const {
    if (given(key)) value = TRY(names.find(prefix + key, TRY(text(key))));
    return {};
  }
  Result<Section> section(const char* key) const {
    const Json& item = json.at(key);
    if (!item.is_object())
      return fail(Status::invalid(fmt::format("{}{} is {}, not an object", prefix, key, dump_json(item))));
    return Section{item, prefix + key + "."};
  }
};

constexpr double kMost = 1e9;

Status read_correction(const Section& s, Correction& c) {
  TRY(check_keys(s.json, {"kind", "level", "low", "high"}));
  TRY(s.name("kind", kCorrections, c.kind));
  TRY(s.name("level", kLevels, c.sequence_level));
  // IcePop's own band, as users of it have found it to work; the others bound one side only.
  if (c.kind == Correction::Kind::kIcePop) c.low = 0.5, c.high = 5;
  TRY(s.number("low", c.low, 0, kMost));
  TRY(s.number("high", c.high, 0, kMost));
  if (c.low > c.high)
    return Status::invalid(fmt::format("{}low ({}) is above {}high ({})", s.prefix, c.low, s.prefix, c.high));
  return {};
}

Status read_kl(const Section& s, Kl& kl) {
  TRY(check_keys(s.json, {"estimator", "coefficient", "clamp", "in_reward"}));
  TRY(s.name("estimator", kEstimators, kl.estimator));
  TRY(s.number("coefficient", kl.coefficient, 0, kMost));
  TRY(s.number("clamp", kl.clamp, 0, kMost));
  return s.flag("in_reward", kl.in_reward);
}

}  // namespace

Result<Algorithm> algorithm_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& defaults : kDefaults) {
    if (defaults.name == name) {
      Algorithm a;
      a.name = name;
      defaults.set(a);
      return a;
    }
    names.push_back(defaults.name);
  }
  return fail(Status::invalid(fmt::format("algorithm \"{}\" is not known{}", name, did_you_mean(name, names))));
}

Result<Algorithm> algorithm_from_json(const Json& json) {
  if (!json.is_object()) return fail(Status::invalid("algorithm is not an object"));
  TRY(check_keys(json, {"name", "advantage", "std_epsilon", "gamma", "lambda", "whiten_advantages", "clip_low",
                        "clip_high", "dual_clip", "mask_low", "mask_high", "penalty", "aggregation",
                        "aggregation_length", "correction", "kl", "entropy"}));
  const Section s{json, "algorithm."};
  Algorithm a = TRY(algorithm_named(s.given("name") ? TRY(s.text("name")) : "dr_grpo"));
  if (s.given("advantage")) a.advantage = TRY(rollout::advantage_kind(TRY(s.text("advantage"))));
  TRY(s.name("aggregation", kAggregations, a.aggregation));
  TRY(s.number("std_epsilon", a.std_epsilon, 0, 1));
  TRY(s.number("gamma", a.gamma, 0, 1));
  TRY(s.number("lambda", a.lambda, 0, 1));
  TRY(s.flag("whiten_advantages", a.whiten_advantages));
  TRY(s.number("clip_low", a.clip_low, 0, kMost));
  TRY(s.number("clip_high", a.clip_high, 0, kMost));
  TRY(s.number("dual_clip", a.dual_clip, 0, kMost));
  TRY(s.number("mask_low", a.mask_low, 0, 1));
  TRY(s.number("mask_high", a.mask_high, 0, 1));
  TRY(s.number("penalty", a.penalty, 0, kMost));
  TRY(s.number("aggregation_length", a.aggregation_length, 0, kMost));
  if (s.given("correction")) TRY(read_correction(TRY(s.section("correction")), a.correction));
  if (s.given("kl")) TRY(read_kl(TRY(s.section("kl")), a.kl));
  if (s.given("entropy")) {
    const Section entropy = TRY(s.section("entropy"));
    TRY(check_keys(entropy.json, {"coefficient"}));
    TRY(entropy.number("coefficient", a.entropy, 0, kMost));
  }
  if (a.aggregation == Aggregation::kSumOverLength && !(a.aggregation_length > 0)) {
    return fail(Status::invalid("aggregation sum_over_length needs aggregation_length above 0"));
  }
  return a;
}

Json to_json(const Algorithm& a) {
  Json json = {{"name", a.name},
               {"advantage", rollout::to_string(a.advantage)},
               {"std_epsilon", a.std_epsilon},
               {"gamma", a.gamma},
               {"lambda", a.lambda},
               {"whiten_advantages", a.whiten_advantages},
               {"clip_low", a.clip_low},
               {"clip_high", a.clip_high},
               {"dual_clip", a.dual_clip > 0 ? Json(a.dual_clip) : Json()},
               {"mask_low", a.mask_low},
               {"mask_high", a.mask_high},
               {"penalty", a.penalty},
               {"aggregation", kAggregations.name_of(a.aggregation)},
               {"aggregation_length", a.aggregation_length}};
  json["correction"] = {{"kind", kCorrections.name_of(a.correction.kind)},
                        {"level", kLevels.name_of(a.correction.sequence_level)},
                        {"low", a.correction.low},
                        {"high", a.correction.high}};
  json["kl"] = {{"estimator", kEstimators.name_of(a.kl.estimator)},
                {"coefficient", a.kl.coefficient},
                {"clamp", a.kl.clamp > 0 ? Json(a.kl.clamp) : Json()},
                {"in_reward", a.kl.in_reward}};
  json["entropy"] = {{"coefficient", a.entropy}};
  return json;
}

}  // namespace tandem::trainer
