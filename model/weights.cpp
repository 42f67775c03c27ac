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

Result<Weights> Weights::lay_out(const ModelConfig& config, bool for_training, WeightFormat format) {
  if (for_training && format == WeightFormat::kFloat32) {
    return fail(Status::invalid("training in float32 is not supported").hint("train in bf16, fp8 or mxfp8"));
  }
  Weights weights;
  weights.config_ = config;
  weights.layout_ = TRY(parameter_layout(config));
  weights.for_training_ = for_training;
  const size_t parameters = weights.layout_.parameters.size();
  weights.bf16_.packed.resize(parameters);
  weights.float32_.packed.resize(parameters);
  weights.packed_codes_.resize(parameters);
  weights.transposed_.resize(parameters);
  weights.format_ = format;
  weights.quantized_.assign(parameters, false);
  if (is_quantised(format)) weights.lay_out_wire();
  return weights;
}

Result<Weights> Weights::create(const ModelConfig& config, bool for_training, WeightFormat format) {
  Weights weights = TRY(lay_out(config, for_training, format));
  if (format == WeightFormat::kFloat32)
    weights.float32_.flat = Buffer<float>(weights.layout_.elements);
  else
    weights.bf16_.flat = Buffer<bf16>(weights.layout_.elements);
  weights.wire_ = Buffer<std::byte>(weights.wire_bytes_);
  return weights;
}

Result<Weights::Memory> Weights::memory_of(const ModelConfig& config, bool for_training, WeightFormat format) {
  const Weights weights = TRY(lay_out(config, for_training, format));
  Memory memory{.flat = weights.layout_.elements * weights.element_bytes(), .wire = weights.wire_bytes_};
  for (size_t i = 0; i < weights.layout_.parameters.size(); ++i) {
    const Panels panels = weights.panels_of(i);
    memory.panels += panels.elements * weights.element_bytes() + panels.transposed * sizeof(bf16) + panels.codes;
    if (weights.is_given_back(i)) memory.returned += weights.layout_.parameters[i].elements() * weights.element_bytes();
  }
  return memory;
}

Weights::Memory Weights::memory() const {
  Memory memory{.flat = bf16_.flat.size() * sizeof(bf16) + float32_.flat.size() * sizeof(float), .wire = wire_.size()};
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    memory.panels += (bf16_.packed[i].size() + transposed_[i].size()) * sizeof(bf16) +
                     float32_.packed[i].size() * sizeof(float) + packed_codes_[i].size();
    if (is_given_back(i)) memory.returned += layout_.parameters[i].elements() * element_bytes();
  }
  return memory;
}

Weights::Panels Weights::panels_of(size_t parameter) const {
  const Parameter& p = layout_.parameters[parameter];
  // An embedding that is no head is only looked up.
  if (!p.matrix || (static_cast<int>(parameter) == layout_.embedding && layout_.head != layout_.embedding)) return {};
  if (p.absorbed_rows > 0) {
    const auto [absorbed, rest] = split_sizes(parameter);
    const auto [absorbed_back, rest_back] = transposed_split_sizes(parameter);
    return {.elements = p.groups * (absorbed + rest),
            .transposed = for_training_ ? p.groups * (absorbed_back + rest_back) : 0};
  }
  if (quantized_[parameter] && !for_training_)
    return {.codes = p.groups * kernels::packed_codes_size(p.group_rows(), p.columns)};
  return {.elements = p.groups * kernels::packed_size(p.group_rows(), p.columns),
          .transposed = for_training_ ? p.groups * kernels::packed_size(p.columns, p.group_rows()) : 0};
}

bool Weights::is_given_back(size_t parameter) const {
  return layout_.parameters[parameter].matrix && static_cast<int>(parameter) != layout_.embedding;
}

size_t Weights::scales_of_group(const Parameter& p) const {
  return kernels::scale_blocks(p.group_rows(), block_rows(format_)) *
         kernels::scale_blocks(p.columns, block_columns(format_));
}

void Weights::lay_out_wire() {
  for (const LayerParameters& layer : layout_.layers) {
    for (const int parameter : {layer.qkv, layer.query_up, layer.output, layer.gate_up, layer.down,
                                layer.shared_gate_up, layer.shared_down}) {
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
  wire_bytes_ = bytes;
}

std::span<std::byte> Weights::wire() {
  if (format_ == WeightFormat::kBf16) return std::as_writable_bytes(flat());
  if (format_ == WeightFormat::kFloat32) return std::as_writable_bytes(flat<float>());
  return {wire_.data(), wire_.size()};
}

Weights::WirePlace Weights::wire_place(int parameter) const {
  const Parameter& p = layout_.parameters[parameter];
  if (wire_at_.empty()) return {.values = p.offset * element_bytes()};
  return {.values = wire_at_[parameter], .scales = wire_at_[parameter] + p.elements()};
}

std::vector<Weights::WirePart> Weights::wire_parts() const {
  std::vector<WirePart> parts;
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    const WirePlace place = wire_place(static_cast<int>(i));
    const auto width = static_cast<uint32_t>(quantized_[i] ? 1 : element_bytes());
    parts.push_back({.name = p.name, .begin = place.values, .bytes = p.elements() * width, .element_bytes = width});
    if (quantized_[i])
      parts.push_back({.name = p.name + " scales",
                       .begin = place.scales,
                       .bytes = p.groups * scales_of_group(p),
                       .element_bytes = 1});
  }
  return parts;
}

Status Weights::encode(kernels::Stream& stream) {
  mark_received();
  return is_quantised(format_) ? quantize(stream) : Status();
}

Status Weights::quantize(kernels::Stream& stream) {
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    const bf16* values = flat().data() + p.offset;
    if (!quantized_[i]) {
      std::memcpy(wire_.data() + wire_at_[i], values, p.elements() * sizeof(bf16));
      continue;
    }
    const int rows = p.group_rows();
    const auto codes_of = [&](int g) { return const_cast<kernels::e4m3*>(codes(wire_.data(), i, g)); };
    const auto scales_of = [&](int g) { return const_cast<kernels::e8m0*>(scales(wire_.data(), i, g)); };
    for (int g = 0; g < p.groups; ++g, values += static_cast<size_t>(rows) * p.columns) {
      if (format_ == WeightFormat::kFp8) {
        TRY(kernels::quantize_weight(stream, values, rows, p.columns, codes_of(g), scales_of(g)));
      } else {
        TRY(kernels::quantize(stream, {.x = values,
                                       .stride = static_cast<size_t>(p.columns),
                                       .by_row = codes_of(g),
                                       .row_scales = scales_of(g),
                                       .rows = rows,
                                       .columns = p.columns,
                                       .block = kernels::kMicroscaleBlock}));
      }
    }
  }
  return {};
}

Slice Weights::slice() {
  constexpr const char* kName = "weights";
  return format_ == WeightFormat::kFloat32 ? slice_of(kName, flat<float>()) : slice_of(kName, flat());
}

std::vector<float> Weights::split_values(int parameter) const {
  const size_t count = layout_.parameters[parameter].columns;
  const size_t offset = layout_.parameters[parameter].offset;
  if (format_ == WeightFormat::kFloat32) {
    const auto values = flat<float>().subspan(offset, count);
    return {values.begin(), values.end()};
  }
  const auto rows = flat().subspan(offset, 3 * count);
  std::vector<float> sums(count);
  for (size_t i = 0; i < count; ++i) {
    sums[i] = kernels::to_float(rows[i]) + kernels::to_float(rows[count + i]) + kernels::to_float(rows[2 * count + i]);
  }
  return sums;
}

void Weights::give_back_flat() {
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    if (!is_given_back(i)) continue;
    if (format_ == WeightFormat::kFloat32)
      float32_.flat.give_back(p.offset, p.elements());
    else
      bf16_.flat.give_back(p.offset, p.elements());
  }
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
