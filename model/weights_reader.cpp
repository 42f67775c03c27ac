// Checkpoints into weights.
#include <fmt/format.h>

#include <cstring>
#include <type_traits>

#include "model/safetensors.h"
#include "model/weights.h"

namespace tandem::model {

using kernels::bf16;

namespace {

void assign(bf16& target, float value) { target = kernels::to_bf16(value); }
void assign(float& target, float value) { target = value; }

// `Element` is how the numbers lie in the file, `to_float` what they are.
template <typename Element, typename T, typename ToFloat>
void convert(std::span<const std::byte> bytes, std::span<T> target, const ToFloat& to_float) {
  for (size_t i = 0; i < target.size(); ++i) {
    Element element;
    std::memcpy(&element, bytes.data() + i * sizeof element, sizeof element);
    assign(target[i], to_float(element));
  }
}

template <typename T>
Status copy_numbers(const TensorView& tensor, const std::string& name, std::span<T> target) {
  if (tensor.elements() != static_cast<int64_t>(target.size())) {
    return Status::invalid(
        fmt::format("tensor {} has {} elements, expected {}", name, tensor.elements(), target.size()));
  }
  switch (tensor.dtype) {
    case DType::kBF16:
      if constexpr (std::is_same_v<T, bf16>)
        std::memcpy(target.data(), tensor.bytes.data(), target.size_bytes());
      else
        convert<bf16>(tensor.bytes, target, [](bf16 value) { return kernels::to_float(value); });
      return {};
    case DType::kF32:
      convert<float>(tensor.bytes, target, [](float value) { return value; });
      return {};
    case DType::kF16:
      convert<_Float16>(tensor.bytes, target, [](_Float16 value) { return static_cast<float>(value); });
      return {};
    default:
      return Status::invalid(
          fmt::format("tensor {} is {}; bf16, f16 and f32 are read", name, safetensors_name(tensor.dtype)));
  }
}

// An fp32 number as three bf16 whose sum it is: each takes what those before it left.
void split_floats(std::span<const float> values, std::span<bf16> target) {
  for (size_t i = 0; i < values.size(); ++i) {
    float left = values[i];
    for (size_t row = 0; row < 3; ++row) {
      target[row * values.size() + i] = kernels::to_bf16(left);
      left -= kernels::to_float(target[row * values.size() + i]);
    }
  }
}

Status copy_split(const TensorView& tensor, const std::string& name, std::span<bf16> target) {
  std::vector<float> values(target.size() / 3);
  TRY(copy_numbers<float>(tensor, name, values));
  split_floats(values, target);
  return {};
}
// The first of the three rows holds all of it.
Status copy_split(const TensorView& tensor, const std::string& name, std::span<float> target) {
  return copy_numbers(tensor, name, target.first(target.size() / 3));
}

template <typename T>
Status read_parameters(const Safetensors& checkpoint, Weights& weights) {
  for (const Parameter& p : weights.layout().parameters) {
    for (const ParameterPart& part : p.parts) {
      const TensorView tensor = TRY(checkpoint.get(part.checkpoint_name));
      const auto target = weights.flat<T>().subspan(p.offset + static_cast<size_t>(part.first_row) * p.columns,
                                                    static_cast<size_t>(part.rows) * p.columns);
      TRY(p.split ? copy_split(tensor, part.checkpoint_name, target)
                  : copy_numbers(tensor, part.checkpoint_name, target));
    }
  }
  return {};
}

}  // namespace

Result<Weights> load_weights(const fs::path& directory, bool for_training, WeightFormat format) {
  const ModelConfig config = TRY(read_config(directory));
  auto weights = TRY(Weights::create(config, for_training, format));
  const auto checkpoint = TRY(Safetensors::open(directory));
  std::vector<std::string> names;
  for (const Parameter& p : weights.layout().parameters) {
    for (const ParameterPart& part : p.parts) names.push_back(part.checkpoint_name);
  }
  TRY(checkpoint.require(names));
  TRY(format == WeightFormat::kFloat32 ? read_parameters<float>(checkpoint, weights)
                                       : read_parameters<bf16>(checkpoint, weights));
  return weights;
}

}  // namespace tandem::model
