// Weights into checkpoints.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <deque>

#include "base/lfs_pointer.h"
#include "model/safetensors.h"
#include "model/weights.h"

namespace tandem::model {

using kernels::bf16;

namespace {

float number_of(bf16 number) { return kernels::to_float(number); }
float number_of(float number) { return number; }

template <typename T>
std::vector<std::byte> as_float32(std::span<const T> numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(float));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float number = number_of(numbers[i]);
    std::memcpy(bytes.data() + i * sizeof number, &number, sizeof number);
  }
  return bytes;
}

template <typename T>
std::vector<std::byte> as_bfloat16(std::span<const T> numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(bf16));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bf16 number = kernels::to_bf16(number_of(numbers[i]));
    std::memcpy(bytes.data() + i * sizeof number, &number, sizeof number);
  }
  return bytes;
}

template <typename T>
Result<std::vector<std::byte>> as_float16(std::span<const T> numbers, const std::string& name) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(uint16_t));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const float number = number_of(numbers[i]);
    const uint16_t half = float_to_f16(number);
    if (std::isfinite(number) && !std::isfinite(f16_to_float(half))) {
      return fail(Status::invalid(fmt::format("{} has the number {}, and float16 ends at 65504", name, number))
                      .hint("take bfloat16 or float32"));
    }
    std::memcpy(bytes.data() + i * sizeof half, &half, sizeof half);
  }
  return bytes;
}

template <typename T>
Result<std::vector<std::byte>> as_bytes_of(DType dtype, std::span<const T> numbers, const std::string& name) {
  if (dtype == DType::kF32) return as_float32(numbers);
  if (dtype == DType::kF16) return as_float16(numbers, name);
  return as_bfloat16(numbers);
}

template <typename T>
size_t round_numbers(Weights& weights) {
  size_t changed = 0;
  for (const Parameter& p : weights.layout().parameters) {
    if (p.split) continue;  // is written as fp32
    for (T& number : weights.flat<T>().subspan(p.offset, p.elements())) {
      const float before = number_of(number), after = f16_to_float(float_to_f16(before));
      if (!std::isfinite(before) || !std::isfinite(after) || before == after) continue;
      if constexpr (std::is_same_v<T, float>)
        number = after;
      else
        number = kernels::to_bf16(after);
      ++changed;
    }
  }
  return changed;
}

// What the model says of sampling, and what else the source says: temperature and its like.
Result<Json> generation_config_of(const ModelConfig& config, const fs::path& source) {
  Json generation = generation_config_json(config);
  if (!fs::exists(source / "generation_config.json")) return generation;
  const auto theirs = parse_json(TRY(read_file(source / "generation_config.json")));
  if (!theirs || !theirs->is_object()) return generation;
  for (const auto& [key, value] : theirs->items()) generation.emplace(key, value);
  return generation;
}

// A file that goes with the weights as it is, where it is there.
Result<std::string> read_text(const fs::path& path) {
  std::string text = TRY(read_file(path));
  if (Status status = check_not_lfs_pointer(text); !status.ok()) return fail(std::move(status).at(path.string()));
  return text;
}

}  // namespace

size_t round_to_float16(Weights& weights) {
  return weights.format() == WeightFormat::kFloat32 ? round_numbers<float>(weights) : round_numbers<bf16>(weights);
}

Status save_weights(const Weights& weights, const fs::path& directory, const fs::path& source, DType dtype) {
  const bool floats = weights.format() == WeightFormat::kFloat32;
  TRY(make_directories(directory));
  std::vector<NamedTensor> tensors;
  std::vector<std::vector<float>> joined;        // what is fp32 in every checkpoint
  std::deque<std::vector<std::byte>> converted;  // what the file has in another format than the memory
  const auto& parameters = weights.layout().parameters;
  for (const Parameter& p : parameters) {
    for (const ParameterPart& part : p.parts) {
      TensorView view{.dtype = dtype, .shape = {part.rows, p.columns}, .bytes = {}};
      if (!p.matrix) view.shape = {int64_t{part.rows} * p.columns};
      const size_t first = p.offset + static_cast<size_t>(part.first_row) * p.columns,
                   count = static_cast<size_t>(part.rows) * p.columns;
      if (p.split) {
        const auto& values = joined.emplace_back(weights.split_values(static_cast<int>(&p - parameters.data())));
        view = {.dtype = DType::kF32, .shape = {p.columns}, .bytes = std::as_bytes(std::span(values))};
      } else if (floats) {
        const std::span<const float> numbers = weights.flat<float>().subspan(first, count);
        view.bytes = dtype == DType::kF32 ? std::as_bytes(numbers)
                                          : std::span<const std::byte>(converted.emplace_back(
                                                TRY(as_bytes_of(dtype, numbers, part.checkpoint_name))));
      } else {
        const std::span<const bf16> numbers = weights.flat().subspan(first, count);
        const bool same = dtype != DType::kF32 && dtype != DType::kF16;
        view.bytes = same ? std::as_bytes(numbers)
                          : std::span<const std::byte>(
                                converted.emplace_back(TRY(as_bytes_of(dtype, numbers, part.checkpoint_name))));
      }
      tensors.push_back({part.checkpoint_name, view});
    }
  }
  TRY(write_checkpoint(directory, tensors));
  ModelConfig config = weights.config();
  config.dtype = dtype;
  TRY(write_file(directory / "config.json", to_json(config).dump(2) + "\n"));
  TRY(write_file(directory / "generation_config.json", TRY(generation_config_of(config, source)).dump(2) + "\n"));
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"}) {
    if (!fs::exists(source / name) || fs::equivalent(source, directory)) continue;
    TRY(write_file(directory / name, TRY(read_text(source / name))));
  }
  constexpr const char* kTemplates = "additional_chat_templates";
  std::error_code none;
  if (fs::is_directory(source / kTemplates, none) && !fs::equivalent(source, directory)) {
    TRY(make_directories(directory / kTemplates));
    for (const auto& entry : fs::directory_iterator(source / kTemplates, none))
      if (entry.path().extension() == ".jinja")
        TRY(write_file(directory / kTemplates / entry.path().filename(), TRY(read_text(entry.path()))));
  }
  return {};
}

}  // namespace tandem::model
