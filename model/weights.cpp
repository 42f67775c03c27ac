#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

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
  if (format_ == WeightFormat::kFloat32) return std::as_writable_bytes(flat<float>());
  return {wire_.data(), wire_.size()};
}

Weights::WirePlace Weights::wire_place(int parameter) const {
  const Parameter& p = layout_.parameters[parameter];
  if (wire_at_.empty()) return {.values = p.offset * element_bytes()};
  return {.values = wire_at_[parameter], .scales = wire_at_[parameter] + p.elements()};
}

Status Weights::encode(kernels::Stream& stream) {
  mark_received();
  return is_quantised(format_) ? quantize(stream) : Status();
}

Status Weights::pack(kernels::Stream& stream) {
  TRY(encode(stream));
  return format_ == WeightFormat::kFloat32 ? build_panels<float>(stream) : build_panels<bf16>(stream);
}

Status Weights::pack_received(kernels::Stream& stream) {
  mark_received();
  for (size_t i = 0; i < wire_at_.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    if (!quantized_[i]) std::memcpy(flat().data() + p.offset, wire_.data() + wire_at_[i], p.elements() * sizeof(bf16));
  }
  return format_ == WeightFormat::kFloat32 ? build_panels<float>(stream) : build_panels<bf16>(stream);
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

// False, and no panels, where some matrix of the parameter cannot be had as codes.
Result<bool> Weights::build_code_panels(kernels::Stream& stream, size_t parameter) {
  const Parameter& p = layout_.parameters[parameter];
  const size_t group = kernels::packed_codes_size(p.group_rows(), p.columns);
  Buffer<std::byte>& packed = packed_codes_[parameter];
  if (packed.empty()) packed = Buffer<std::byte>(panels_of(parameter).codes);
  for (int g = 0; g < p.groups; ++g) {
    const bool done = TRY(kernels::pack_codes(stream, {.codes = codes(parameter, g),
                                                       .scales = scales(parameter, g),
                                                       .packed = packed.data() + g * group,
                                                       .n = p.group_rows(),
                                                       .k = p.columns,
                                                       .block = block_columns(format_),
                                                       .block_rows = block_rows(format_)}));
    if (done) continue;
    packed = {};
    return false;
  }
  return true;
}

std::pair<size_t, size_t> Weights::split_sizes(size_t parameter) const {
  const Parameter& p = layout_.parameters[parameter];
  return {kernels::packed_size(p.columns, p.absorbed_rows),
          kernels::packed_size(p.group_rows() - p.absorbed_rows, p.columns)};
}

std::pair<size_t, size_t> Weights::transposed_split_sizes(size_t parameter) const {
  const Parameter& p = layout_.parameters[parameter];
  return {kernels::packed_size(p.absorbed_rows, p.columns),
          kernels::packed_size(p.columns, p.group_rows() - p.absorbed_rows)};
}

template <typename T>
Status Weights::build_split_panels(kernels::Stream& stream, size_t parameter) {
  const Parameter& p = layout_.parameters[parameter];
  const int absorbed = p.absorbed_rows, rest = p.group_rows() - absorbed, columns = p.columns;
  const auto [absorbed_size, rest_size] = split_sizes(parameter);
  const auto [absorbed_back_size, rest_back_size] = transposed_split_sizes(parameter);
  Buffer<T>& packed = in<T>().packed[parameter];
  if (packed.empty()) packed = Buffer<T>(panels_of(parameter).elements);
  Buffer<bf16>& packed_back = transposed_[parameter];
  if (packed_back.empty()) packed_back = Buffer<bf16>(panels_of(parameter).transposed);
  std::vector<T> transpose(static_cast<size_t>(absorbed) * columns);
  const T* rows = flat<T>().data() + p.offset;
  for (int g = 0; g < p.groups; ++g, rows += static_cast<size_t>(p.group_rows()) * columns) {
    for (int row = 0; row < absorbed; ++row) {
      for (int i = 0; i < columns; ++i)
        transpose[static_cast<size_t>(i) * absorbed + row] = rows[static_cast<size_t>(row) * columns + i];
    }
    const T* const rest_rows = rows + transpose.size();
    T* const to = packed.data() + g * (absorbed_size + rest_size);
    TRY(kernels::pack(stream, transpose.data(), columns, absorbed, to));
    TRY(kernels::pack(stream, rest_rows, rest, columns, to + absorbed_size));
    if constexpr (std::is_same_v<T, bf16>) {
      if (!for_training_) continue;
      bf16* const back = packed_back.data() + g * (absorbed_back_size + rest_back_size);
      TRY(kernels::pack(stream, rows, absorbed, columns, back));
      TRY(kernels::pack_transposed(stream, rest_rows, rest, columns, back + absorbed_back_size));
    }
  }
  return {};
}

template <typename T>
Status Weights::build_panels(kernels::Stream& stream) {
  std::vector<bf16> expanded;
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    const Panels panels = panels_of(i);
    if (panels.elements + panels.codes == 0) continue;
    if (p.absorbed_rows > 0) {
      TRY(build_split_panels<T>(stream, i));
      continue;
    }
    if (quantized_[i] && !for_training_ && TRY(build_code_panels(stream, i))) continue;
    const int rows = p.group_rows();
    const size_t elements = static_cast<size_t>(rows) * p.columns;
    const size_t group = kernels::packed_size(rows, p.columns), transposed = kernels::packed_size(p.columns, rows);
    Buffer<T>& packed = in<T>().packed[i];
    if (packed.empty()) packed = Buffer<T>(p.groups * group);
    if (transposed_[i].empty()) transposed_[i] = Buffer<bf16>(panels.transposed);
    if (quantized_[i] && expanded.size() < elements) expanded.resize(elements);
    for (int g = 0; g < p.groups; ++g) {
      const T* values = flat<T>().data() + p.offset + g * elements;
      if constexpr (std::is_same_v<T, bf16>) {
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
        if (for_training_)
          TRY(kernels::pack_transposed(stream, values, rows, p.columns, transposed_[i].data() + g * transposed));
      }
      TRY(kernels::pack(stream, values, rows, p.columns, packed.data() + g * group));
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
