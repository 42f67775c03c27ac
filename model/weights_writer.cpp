// Weights into checkpoints.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <deque>

#include "model/safetensors.h"
#include "model/weights.h"

namespace tandem::model {

using kernels::bf16;

namespace {

std::vector<std::byte> as_float32(std::span<const bf16> numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(float));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float number = kernels::to_float(numbers[i]);
    std::memcpy(bytes.data() + i * sizeof number, &number, sizeof number);
  }
  return bytes;
}

Result<std::vector<std::byte>> as_float16(std::span<const bf16> numbers, const std::string& name) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(uint16_t));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float number = kernels::to_float(numbers[i]);
    const uint16_t half = float_to_f16(number);
    if (std::isfinite(number) && !std::isfinite(f16_to_float(half))) {
      return fail(Status::invalid(fmt::format("{} has the number {}, and float16 ends at 65504", name, number))
                      .hint("take bfloat16 or float32"));
    }
    std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
  }
  return bytes;
}

}  // namespace

size_t round_to_float16(Weights& weights) {
  size_t changed = 0;
  const auto& parameters = weights.layout().parameters;
  for (const Parameter& p : parameters) {
    if (p.split) continue;  // is written as fp32
    for (bf16& number : weights.flat().subspan(p.offset, p.elements())) {
      const float before = kernels::to_float(number), after = f16_to_float(float_to_f16(before));
      if (!std::isfinite(before) || !std::isfinite(after) || before == after) continue;
      number = kernels::to_bf16(after);
      ++changed;
    }
  }
  return changed;
}

Status save_weights(const Weights& weights, const fs::path& directory, const fs::path& source, DType dtype) {
  if (weights.format() == WeightFormat::kFloat32)
    return Status::invalid("checkpoints are written of bf16 weights, not of float32");
  TRY(make_directories(directory));
  std::vector<NamedTensor> tensors;
  std::vector<std::vector<float>> joined;        // what is fp32 in every checkpoint
  std::deque<std::vector<std::byte>> converted;  // what the file has in another format than the memory
  const auto& parameters = weights.layout().parameters;
  for (const Parameter& p : parameters) {
    for (const ParameterPart& part : p.parts) {
      TensorView view{.dtype = dtype, .shape = {part.rows, p.columns}, .bytes = {}};
      if (!p.matrix) view.shape = {int64_t{part.rows} * p.columns};
      const auto numbers = weights.flat().subspan(p.offset + static_cast<size_t>(part.first_row) * p.columns,
                                                  static_cast<size_t>(part.rows) * p.columns);
      if (p.split) {
        const auto& values = joined.emplace_back(weights.split_values(static_cast<int>(&p - parameters.data())));
        view = {.dtype = DType::kF32, .shape = {p.columns}, .bytes = std::as_bytes(std::span(values))};
      } else if (dtype == DType::kF32) {
        view.bytes = converted.emplace_back(as_float32(numbers));
      } else if (dtype == DType::kF16) {
        view.bytes = converted.emplace_back(TRY(as_float16(numbers, part.checkpoint_name)));
      } else {
        view.bytes = std::as_bytes(numbers);
      }
      tensors.push_back({part.checkpoint_name, view});
    }
  }
  TRY(write_checkpoint(directory, tensors));
  ModelConfig config = weights.config();
  config.dtype = dtype;
  TRY(write_file(directory / "config.json", to_json(config).dump(2) + "\n"));
  TRY(write_file(directory / "generation_config.json", generation_config_json(config).dump(2) + "\n"));
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"}) {
    if (!fs::exists(source / name) || fs::equivalent(source, directory)) continue;
    TRY(write_file(directory / name, TRY(read_file(source / name))));
  }
  return {};
}

}  // namespace tandem::model
