// The head of a reward model: the reward of a conversation, r = w . h + b, of the state that the language model's head
// reads at the last token of the answer.
//
// It lies beside the model, in reward_head.safetensors: weight [1, width] and bias [1], fp32. The header of the file
// keeps how conversations were written for it, so that whoever asks for a reward writes them alike.
//
// Thread safety: as any value.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace tandem::model {

inline constexpr const char* kRewardHeadFile = "reward_head.safetensors";

// w . state + b, in double, from the first product to the last. `weight` has one number more than `state`: b.
double linear_value(std::span<const float> weight, std::span<const float> state);

struct RewardHead {
  std::vector<float> weight;                 // w, then b
  std::map<std::string, std::string> notes;  // how conversations are written: names and values of the trainer's

  double reward(std::span<const float> state) const { return linear_value(weight, state); }
};

// Of a model directory; nothing where it has none. kInvalid names the file and what is wrong: tensors that are missing
// or not known, another shape than `width` asks for, another format than fp32, numbers that are NaN or infinite.
Result<std::optional<RewardHead>> read_reward_head(const fs::path& model, int width);

// Replaces the file whole or not at all.
Status write_reward_head(const RewardHead& head, const fs::path& model);

}  // namespace tandem::model
