#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "model/safetensors.h"

namespace tandem::model {

using kernels::bf16;

namespace {
constexpr size_t kWireAlignment = 64;
}

Result<Weights> Weights::create(const ModelConfig& config, bool for_training, WeightFormat format) {
  Weights weights;
  weights.config_ = config;
  weights.layout_ = TRY(parameter_layout(config));
  weights.for_training_ = for_training;
  weights.flat_ = Buffer<bf16>(weights.layout_.elements);
  weights.packed_.resize(weights.layout_.parameters.size());
  weights.transposed_.resize(weights.layout_.parameters.size());
  weights.format_ = format;
  weights.quantized_.assign(weights.layout_.parameters.size(), false);
  if (format != WeightFormat::kBf16) weights.lay_out_wire();
  return weights;
}

size_t Weights::scales_of_group(const Parameter& p) const {
  return kernels::scale_blocks(p.group_rows(), block_rows(format_)) *
         kernels::scale_blocks(p.columns, block_columns(format_));
}

void Weights::lay_out_wire() {
  for (const LayerParameters& layer : layout_.layers) {
    for (const int parameter :
         {layer.qkv, layer.output, layer.gate_up, layer.down, layer.shared_gate_up, layer.shared_down}) {
      if (parameter >= 0) quantized_[parameter] = true;
    }
  }
  size_t bytes = 0;
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    wire_at_.push_back(bytes);
    const size_t size = quantized_[i] ? p.elements() + p.groups * scales_of_group(p) : p.elements() * sizeof(bf16);
    bytes += (size + kWireAlignment - 1) / kWireAlignment * kWireAlignment;
  }
  wire_ = Buffer<std::byte>(bytes);
}

kernels::e4m3* Weights::codes(size_t parameter, int group) {
  const Parameter& p = layout_.parameters[parameter];
  return reinterpret_cast<kernels::e4m3*>(wire_.data() + wire_at_[parameter]) +
         static_cast<size_t>(group) * p.group_rows() * p.columns;
}

kernels::e8m0* Weights::scales(size_t parameter, int group) {
  const Parameter& p = layout_.parameters[parameter];
  return reinterpret_cast<kernels::e8m0*>(wire_.data() + wire_at_[parameter] + p.elements()) +
         group * scales_of_group(p);
}

std::span<std::byte> Weights::wire() {
  if (format_ == WeightFormat::kBf16) return std::as_writable_bytes(flat());
  return {wire_.data(), wire_.size()};
}

Status Weights::pack(kernels::Stream& stream) {
  if (format_ != WeightFormat::kBf16) TRY(quantize(stream));
  return build_panels(stream);
}

Status Weights::pack_received(kernels::Stream& stream) {
  for (size_t i = 0; i < wire_at_.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    if (!quantized_[i]) std::memcpy(flat_.data() + p.offset, wire_.data() + wire_at_[i], p.elements() * sizeof(bf16));
  }
  return build_panels(stream);
}

Status Weights::quantize(kernels::Stream& stream) {
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    const bf16* values = flat_.data() + p.offset;
    if (!quantized_[i]) {
      std::memcpy(wire_.data() + wire_at_[i], values, p.elements() * sizeof(bf16));
      continue;
    }
    const int rows = p.group_rows();
    for (int g = 0; g < p.groups; ++g, values += static_cast<size_t>(rows) * p.columns) {
      if (format_ == WeightFormat::kFp8) {
        TRY(kernels::quantize_weight(stream, values, rows, p.columns, codes(i, g), scales(i, g)));
      } else {
        TRY(kernels::quantize(stream, {.x = values,
                                       .stride = static_cast<size_t>(p.columns),
                                       .by_row = codes(i, g),
                                       .row_scales = scales(i, g),
                                       .rows = rows,
                                       .columns = p.columns,
                                       .block = kernels::kMicroscaleBlock}));
      }
    }
  }
  return {};
}

Status Weights::build_panels(kernels::Stream& stream) {
  std::vector<bf16> expanded;
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    // An embedding that is no head is only looked up.
    if (!p.matrix || (static_cast<int>(i) == layout_.embedding && layout_.head != layout_.embedding)) continue;
    const int rows = p.group_rows();
    const size_t elements = static_cast<size_t>(rows) * p.columns;
    const size_t group = kernels::packed_size(rows, p.columns), turned = kernels::packed_size(p.columns, rows);
    if (packed_[i].empty()) packed_[i] = Buffer<bf16>(p.groups * group);
    if (for_training_ && transposed_[i].empty()) transposed_[i] = Buffer<bf16>(p.groups * turned);
    if (quantized_[i] && expanded.size() < elements) expanded.resize(elements);
    for (int g = 0; g < p.groups; ++g) {
      const bf16* values = flat_.data() + p.offset + g * elements;
      if (quantized_[i]) {
        TRY(kernels::expand(stream, {.codes = codes(i, g),
                                     .scales = scales(i, g),
                                     .out = expanded.data(),
                                     .rows = rows,
                                     .columns = p.columns,
                                     .block = block_columns(format_),
                                     .block_rows = block_rows(format_)}));
        values = expanded.data();
      }
      TRY(kernels::pack(stream, values, rows, p.columns, packed_[i].data() + g * group));
      if (!for_training_) continue;
      TRY(kernels::pack_transposed(stream, values, rows, p.columns, transposed_[i].data() + g * turned));
    }
  }
  return {};
}

std::vector<float> Weights::split_values(int parameter) const {
  const size_t count = layout_.parameters[parameter].columns;
  const bf16* rows = values(parameter);
  std::vector<float> sums(count);
  for (size_t i = 0; i < count; ++i) {
    sums[i] = kernels::to_float(rows[i]) + kernels::to_float(rows[count + i]) + kernels::to_float(rows[2 * count + i]);
  }
  return sums;
}

void Weights::give_back_flat() {
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    if (p.matrix && static_cast<int>(i) != layout_.embedding)
      flat_.give_back(p.offset, static_cast<size_t>(p.rows) * p.columns);
  }
}

namespace {

Status copy_as_bf16(const TensorView& tensor, const std::string& name, std::span<bf16> target) {
  if (tensor.elements() != static_cast<int64_t>(target.size())) {
    return Status::invalid(
        fmt::format("tensor {} has {} elements, expected {}", name, tensor.elements(), target.size()));
  }
  switch (tensor.dtype) {
    case DType::kBF16:
      std::memcpy(target.data(), tensor.bytes.data(), target.size_bytes());
      return {};
    case DType::kF32:
      for (size_t i = 0; i < target.size(); ++i) {
        float value;
        std::memcpy(&value, tensor.bytes.data() + i * sizeof value, sizeof value);
        target[i] = kernels::to_bf16(value);
      }
      return {};
    case DType::kF16:
      for (size_t i = 0; i < target.size(); ++i) {
        _Float16 value;
        std::memcpy(&value, tensor.bytes.data() + i * sizeof value, sizeof value);
        target[i] = kernels::to_bf16(static_cast<float>(value));
      }
      return {};
    default:
      return Status::invalid(
          fmt::format("tensor {} is {}; bf16, f16 and f32 are read", name, safetensors_name(tensor.dtype)));
  }
}

}  // namespace

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
  if (tensor.dtype == DType::kF32 && tensor.bytes.size() == values.size() * sizeof(float)) {
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  } else {
    std::vector<bf16> rounded(values.size());
    TRY(copy_as_bf16(tensor, name, rounded));
    std::transform(rounded.begin(), rounded.end(), values.begin(), [](bf16 value) { return kernels::to_float(value); });
  }
  split_floats(values, target);
  return {};
}

Result<Weights> load_weights(const fs::path& directory, bool for_training, WeightFormat format) {
  const ModelConfig config = TRY(read_config(directory));
  auto weights = TRY(Weights::create(config, for_training, format));
  const auto checkpoint = TRY(Safetensors::open(directory));
  std::vector<std::string> names;
  for (const Parameter& p : weights.layout().parameters) {
    for (const ParameterPart& part : p.parts) names.push_back(part.checkpoint_name);
  }
  TRY(checkpoint.require(names));
  for (const Parameter& p : weights.layout().parameters) {
    for (const ParameterPart& part : p.parts) {
      const TensorView tensor = TRY(checkpoint.get(part.checkpoint_name));
      const auto target = weights.flat().subspan(p.offset + static_cast<size_t>(part.first_row) * p.columns,
                                                 static_cast<size_t>(part.rows) * p.columns);
      TRY(p.split ? copy_split(tensor, part.checkpoint_name, target)
                  : copy_as_bf16(tensor, part.checkpoint_name, target));
    }
  }
  return weights;
}

Status save_weights(const Weights& weights, const fs::path& directory, const fs::path& source) {
  TRY(make_directories(directory));
  std::vector<NamedTensor> tensors;
  std::vector<std::vector<float>> joined;  // what of them is not bf16
  const auto& parameters = weights.layout().parameters;
  for (const Parameter& p : parameters) {
    for (const ParameterPart& part : p.parts) {
      TensorView view{.dtype = DType::kBF16, .shape = {part.rows, p.columns}, .bytes = {}};
      if (!p.matrix) view.shape = {int64_t{part.rows} * p.columns};
      view.bytes = std::as_bytes(weights.flat().subspan(p.offset + static_cast<size_t>(part.first_row) * p.columns,
                                                        static_cast<size_t>(part.rows) * p.columns));
      if (p.split) {
        const auto& values = joined.emplace_back(weights.split_values(static_cast<int>(&p - parameters.data())));
        view = {.dtype = DType::kF32, .shape = {p.columns}, .bytes = std::as_bytes(std::span(values))};
      }
      tensors.push_back({part.checkpoint_name, view});
    }
  }
  TRY(write_checkpoint(directory, tensors));
  ModelConfig config = weights.config();
  config.dtype = DType::kBF16;
  TRY(write_file(directory / "config.json", to_json(config).dump(2) + "\n"));
  TRY(write_file(directory / "generation_config.json", generation_config_json(config).dump(2) + "\n"));
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"}) {
    if (!fs::exists(source / name) || fs::equivalent(source, directory)) continue;
    TRY(write_file(directory / name, TRY(read_file(source / name))));
  }
  return {};
}

void randomise(Weights& weights, uint64_t seed) {
  for (const Parameter& p : weights.layout().parameters) {
    Random random(derive_seed(seed, p.name));
    for (bf16& value : weights.flat().subspan(p.offset, p.elements())) {
      value = kernels::to_bf16(p.matrix            ? static_cast<float>(random.normal()) * 0.02f
                               : p.bias || p.split ? 0.0f
                                                   : 1.0f);
    }
  }
}

}  // namespace tandem::model
