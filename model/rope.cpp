#include "model/rope.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "model/config_reader.h"

namespace tandem::model {

namespace {

constexpr std::array<std::string_view, 5> kRopeNames = {"default", "linear", "dynamic", "llama3", "yarn"};

Status read_llama3(const ConfigReader& reader, const char* key, int max_positions, RopeConfig& rope) {
  rope.low_frequency_factor = TRY(reader.number("low_freq_factor"));
  rope.high_frequency_factor = TRY(reader.number("high_freq_factor"));
  rope.original_max_positions = TRY(reader.size("original_max_position_embeddings", max_positions));
  if (!(rope.low_frequency_factor < rope.high_frequency_factor)) {
    return Status::invalid(fmt::format("{}: low_freq_factor is not below high_freq_factor", key));
  }
  return {};
}

Status read_yarn(const Json& scaling, const ConfigReader& reader, const char* key, int max_positions,
                 RopeConfig& rope) {
  rope.original_max_positions = TRY(reader.size("original_max_position_embeddings", max_positions));
  rope.beta_fast = TRY(reader.number("beta_fast", 32));
  rope.beta_slow = TRY(reader.number("beta_slow", 1));
  // Kimi-K2 has them equal: the ramp is then one step wide.
  if (rope.beta_slow > rope.beta_fast) {
    return Status::invalid(fmt::format("{}: beta_slow is above beta_fast", key));
  }
  if (!(rope.theta > 1)) return Status::invalid(fmt::format("{}: rope_theta {} is not above 1", key, rope.theta));
  rope.truncate = TRY(reader.flag("truncate", true));
  if (has(scaling, "attention_factor")) rope.attention_factor = TRY(reader.number("attention_factor"));
  if (has(scaling, "mscale")) rope.mscale = TRY(reader.number("mscale"));
  if (has(scaling, "mscale_all_dim")) rope.mscale_all_dim = TRY(reader.number("mscale_all_dim"));
  return {};
}

// 0 below `low`, 1 above `high`, a line between.
double ramp(double x, double low, double high) { return std::clamp((x - low) / (high - low), 0.0, 1.0); }

double llama3_frequency(const RopeConfig& rope, double frequency) {
  const double turns = rope.original_max_positions * frequency / (2 * std::numbers::pi);
  const double kept = ramp(turns, rope.low_frequency_factor, rope.high_frequency_factor);
  return (1 - kept) * frequency / rope.factor + kept * frequency;
}

// The dimension, as a real number, whose pair turns `turns` times within the original context.
double yarn_dimension(const RopeConfig& rope, int rope_dim, double turns) {
  return rope_dim * std::log(rope.original_max_positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
}

double yarn_frequency(const RopeConfig& rope, int rope_dim, int pair, double frequency) {
  double low = yarn_dimension(rope, rope_dim, rope.beta_fast), high = yarn_dimension(rope, rope_dim, rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, rope_dim - 1.0);
  if (low == high) high += 0.001;
  const double stretched = ramp(pair, low, high);
  return stretched * frequency / rope.factor + (1 - stretched) * frequency;
}

double yarn_scale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

}  // namespace

Result<RopeConfig> read_rope(const Json& config, int max_positions, std::optional<double> partial) {
  RopeConfig rope;
  rope.partial = TRY(ConfigReader(config).number("partial_rotary_factor", partial.value_or(1)));
  rope.theta = TRY(ConfigReader(config).number("rope_theta", 10000));
  // As in transformers 5, the older key goes before the newer one where it says anything.
  const bool older = has(config, "rope_scaling") && !config["rope_scaling"].empty();
  const char* key = older || !has(config, "rope_parameters") ? "rope_scaling" : "rope_parameters";
  Json scaling = has(config, key) ? config[key] : Json::object();
  if (!scaling.is_object()) return fail(Status::invalid(fmt::format("{} is not an object", key)));
  for (const auto& [name, value] : scaling.items()) {
    if (value.is_object())
      return fail(
          Status::invalid(fmt::format("{}.{}: RoPE that differs between kinds of layers is not supported", key, name)));
  }
  // As in transformers, the number beside the scaling goes before the one inside.
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (has(config, kOriginal)) scaling[kOriginal] = config[kOriginal];
  const ConfigReader reader(scaling);
  rope.theta = TRY(reader.number("rope_theta", rope.theta));
  const std::string name = TRY(reader.text("rope_type", TRY(reader.text("type", "default"))));
  const auto kind = std::find(kRopeNames.begin(), kRopeNames.end(), name);
  if (kind == kRopeNames.end()) {
    return fail(
        Status::invalid(fmt::format("{}.rope_type \"{}\" is not one of {}", key, name, fmt::join(kRopeNames, ", "))));
  }
  rope.kind = static_cast<RopeKind>(kind - kRopeNames.begin());
  rope.partial = TRY(reader.number("partial_rotary_factor", rope.partial));
  if (!partial && rope.partial != 1) return fail(Status::invalid("partial_rotary_factor is not 1"));
  if (rope.partial > 1) return fail(Status::invalid(fmt::format("partial_rotary_factor {} is above 1", rope.partial)));
  if (rope.kind == RopeKind::kDefault) return rope;
  rope.factor = TRY(reader.number("factor"));
  if (rope.kind == RopeKind::kLlama3) TRY(read_llama3(reader, key, max_positions, rope));
  if (rope.kind == RopeKind::kYarn) TRY(read_yarn(scaling, reader, key, max_positions, rope));
  return rope;
}

void put_rope(const RopeConfig& rope, Json& config) {
  config["rope_theta"] = rope.theta;
  config["rope_scaling"] = nullptr;
  if (rope.kind == RopeKind::kDefault) return;
  Json scaling = {{"rope_type", kRopeNames[static_cast<size_t>(rope.kind)]}, {"factor", rope.factor}};
  if (rope.kind == RopeKind::kLlama3) {
    scaling["low_freq_factor"] = rope.low_frequency_factor;
    scaling["high_freq_factor"] = rope.high_frequency_factor;
  }
  if (rope.kind == RopeKind::kLlama3 || rope.kind == RopeKind::kYarn) {
    scaling["original_max_position_embeddings"] = rope.original_max_positions;
  }
  if (rope.kind == RopeKind::kYarn) {
    scaling["beta_fast"] = rope.beta_fast;
    scaling["beta_slow"] = rope.beta_slow;
    scaling["truncate"] = rope.truncate;
    if (rope.attention_factor) scaling["attention_factor"] = *rope.attention_factor;
    if (rope.mscale) scaling["mscale"] = *rope.mscale;
    if (rope.mscale_all_dim) scaling["mscale_all_dim"] = *rope.mscale_all_dim;
  }
  config["rope_scaling"] = scaling;
}

std::vector<float> rope_frequencies(const RopeConfig& rope, int rope_dim) {
  // Rounded before the angle is taken, as transformers does.
  std::vector<float> frequencies(rope_dim / 2);
  for (int pair = 0; pair < rope_dim / 2; ++pair) {
    double frequency = 1.0 / std::pow(rope.theta, 2.0 * pair / rope_dim);
    if (rope.kind == RopeKind::kLinear) frequency /= rope.factor;
    if (rope.kind == RopeKind::kLlama3) frequency = llama3_frequency(rope, frequency);
    if (rope.kind == RopeKind::kYarn) frequency = yarn_frequency(rope, rope_dim, pair, frequency);
    frequencies[pair] = static_cast<float>(frequency);
  }
  return frequencies;
}

double rope_magnitude(const RopeConfig& rope) {
  if (rope.kind != RopeKind::kYarn) return 1;
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale && rope.mscale_all_dim) {
    return yarn_scale(rope.factor, *rope.mscale) / yarn_scale(rope.factor, *rope.mscale_all_dim);
  }
  return yarn_scale(rope.factor, 1);
}

double rope_score_factor(const RopeConfig& rope) {
  if (rope.kind != RopeKind::kYarn || !rope.mscale_all_dim) return 1;
  const double scale = yarn_scale(rope.factor, *rope.mscale_all_dim);
  return scale * scale;
}

}  // namespace tandem::model
