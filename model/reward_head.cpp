#include "model/reward_head.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "model/safetensors.h"

namespace tandem::model {

namespace {

constexpr std::array<std::string_view, 2> kRewardTensors = {"weight", "bias"};
constexpr const char* kRewardFormat = "format";  // of the file, not a note

// Appends the numbers of a tensor to `numbers`.
Status add_numbers(const Safetensors& file, std::string_view name, const std::vector<int64_t>& shape,
                   std::vector<float>& numbers) {
  const TensorView tensor = TRY(file.get(name));
  if (tensor.dtype != DType::kF32) {
    return Status::invalid(
        fmt::format("{} has the format {}, not F32, which a reward head has", name, safetensors_name(tensor.dtype)));
  }
  if (tensor.shape != shape) {
    return Status::invalid(fmt::format("{} has the shape [{}], and a reward head of this model [{}]", name,
                                       fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")))
        .hint("the head is of a model of another width: take the one that was trained with this model");
  }
  const size_t before = numbers.size(), count = tensor.bytes.size() / sizeof(float);
  numbers.resize(before + count);
  std::memcpy(numbers.data() + before, tensor.bytes.data(), tensor.bytes.size());
  for (size_t i = 0; i < count; ++i) {
    if (std::isfinite(numbers[before + i])) continue;
    return Status::invalid(fmt::format("{}[{}] is {}: a reward would be no number", name, i, numbers[before + i]))
        .hint("train the head again, or copy the file again");
  }
  return {};
}

Result<RewardHead> read(const fs::path& path, int width) {
  const auto file = TRY(Safetensors::open(path));
  for (const auto& [name, tensor] : file.tensors()) {
    if (std::ranges::find(kRewardTensors, name) == kRewardTensors.end())
      return fail(Status::invalid(
          fmt::format("has a tensor {}, and a reward head has weight and bias alone", name.substr(0, 200))));
  }
  RewardHead head;
  TRY(add_numbers(file, "weight", {1, width}, head.weight));
  TRY(add_numbers(file, "bias", {1}, head.weight));
  for (const auto& [name, value] : file.metadata()) {
    if (name != kRewardFormat) head.notes.emplace(name, value);
  }
  return head;
}

}  // namespace

double linear_value(std::span<const float> weight, std::span<const float> state) {
  double value = weight[state.size()];
  for (size_t i = 0; i < state.size(); ++i) value += static_cast<double>(weight[i]) * state[i];
  return value;
}

Result<std::optional<RewardHead>> read_reward_head(const fs::path& model, int width) {
  const fs::path path = model / kRewardHeadFile;
  std::error_code error;
  if (!fs::exists(path, error)) return std::optional<RewardHead>();
  auto head = read(path, width);
  if (head) return std::optional(std::move(*head));
  // Errors of the file itself name it already.
  Status status = std::move(head).error();
  return fail(status.to_string().find(path.string()) == std::string::npos ? std::move(status).at(path.string())
                                                                          : status);
}

Status write_reward_head(const RewardHead& head, const fs::path& model) {
  const auto bytes = std::as_bytes(std::span(head.weight));
  const size_t width = head.weight.size() - 1;
  const std::vector<NamedTensor> tensors = {
      {"weight",
       {.dtype = DType::kF32, .shape = {1, static_cast<int64_t>(width)}, .bytes = bytes.first(width * sizeof(float))}},
      {"bias", {.dtype = DType::kF32, .shape = {1}, .bytes = bytes.subspan(width * sizeof(float))}}};
  std::map<std::string, std::string> metadata = head.notes;
  metadata[kRewardFormat] = "pt";
  return write_safetensors(model / kRewardHeadFile, tensors, metadata);
}

}  // namespace tandem::model
