// RoPE as checkpoints configure it: which frequencies a model turns by, stretched for contexts beyond its training.
//
// Both notations of the hub are read: `rope_theta` with `rope_scaling`, and `rope_parameters`. Values: copy, compare.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace tandem::model {

// Dynamic scaling begins behind max_position_embeddings; up to there, which is all that is computed, it is the default.
enum class RopeKind : uint8_t { kDefault, kLinear, kDynamic, kLlama3, kYarn };

struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000;
  double factor = 1;                       // all kinds but the default
  double low_frequency_factor = 1;         // llama3
  double high_frequency_factor = 4;        // llama3
  int original_max_positions = 0;          // llama3, yarn
  double beta_fast = 32;                   // yarn
  double beta_slow = 1;                    // yarn
  std::optional<double> attention_factor;  // yarn; absent: by factor, mscale and mscale_all_dim
  std::optional<double> mscale;            // yarn
  std::optional<double> mscale_all_dim;    // yarn
  bool truncate = true;                    // yarn: correction range in whole dimensions
  double partial = 1;                      // share of a head's elements that are rotated, from the first on
  bool interleaved = false;                // pairs lie side by side, not half a head apart
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// All of a config.json but `interleaved`. `partial` is the share of a head that rotates where the config does not say,
// of families that rotate a part; the others refuse another share than all of it.
Result<RopeConfig> read_rope(const Json& config, int max_positions, std::optional<double> partial);

// Puts `rope_theta` and `rope_scaling` into a config.json, in the notation that every version of transformers reads.
void put_rope(const RopeConfig& rope, Json& config);

// The angle a position that each pair of a head's first `rope_dim` elements turns by, [rope_dim / 2], rounded to fp32:
// theta^(-2 i / rope_dim) (Su et al. 2021); all divided by `factor` (linear); slow ones divided, fast ones kept,
// between them a ramp over wave lengths (llama3) or over dimensions (yarn: Peng et al. 2023), as transformers has them.
std::vector<float> rope_frequencies(const RopeConfig& rope, int rope_dim);

// The factor of cosines and sines: yarn's attention factor, else 1.
double rope_magnitude(const RopeConfig& rope);

// The factor of DeepSeek-V3 for all scores: of yarn with `mscale_all_dim` the square of (0.1 mscale_all_dim ln factor +
// 1), else 1.
double rope_score_factor(const RopeConfig& rope);

}  // namespace tandem::model
