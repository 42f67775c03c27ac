// What kernels read of weights, made of the bytes that are sent.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "kernels/threads.h"
#include "model/weights.h"

namespace tandem::model {

using kernels::bf16;

const kernels::e4m3* Weights::codes(const std::byte* wire, size_t parameter, int group) const {
  const Parameter& p = layout_.parameters[parameter];
  return reinterpret_cast<const kernels::e4m3*>(wire + wire_at_[parameter]) +
         static_cast<size_t>(group) * p.group_rows() * p.columns;
}

const kernels::e8m0* Weights::scales(const std::byte* wire, size_t parameter, int group) const {
  const Parameter& p = layout_.parameters[parameter];
  return reinterpret_cast<const kernels::e8m0*>(wire + wire_at_[parameter] + p.elements()) + group * scales_of_group(p);
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

// False, and no panels, where some matrix of the parameter cannot be had as codes.
Result<bool> Weights::build_codes(kernels::Stream& stream, std::span<const std::byte> wire, size_t parameter,
                                  Buffer<std::byte>& to) const {
  const Parameter& p = layout_.parameters[parameter];
  const size_t group = kernels::packed_codes_size(p.group_rows(), p.columns);
  if (to.empty()) to = Buffer<std::byte>(panels_of(parameter).codes);
  for (int g = 0; g < p.groups; ++g) {
    const bool done = TRY(kernels::pack_codes(stream, {.codes = codes(wire.data(), parameter, g),
                                                       .scales = scales(wire.data(), parameter, g),
                                                       .packed = to.data() + g * group,
                                                       .n = p.group_rows(),
                                                       .k = p.columns,
                                                       .block = block_columns(format_),
                                                       .block_rows = block_rows(format_)}));
    if (done) continue;
    to = {};
    return false;
  }
  return true;
}

template <typename T>
Status Weights::build_split(kernels::Stream& stream, const T* rows, size_t parameter, Built<T>& to) const {
  const Parameter& p = layout_.parameters[parameter];
  const int absorbed = p.absorbed_rows, rest = p.group_rows() - absorbed, columns = p.columns;
  const auto [absorbed_size, rest_size] = split_sizes(parameter);
  const auto [absorbed_back_size, rest_back_size] = transposed_split_sizes(parameter);
  if (to.packed.empty()) to.packed = Buffer<T>(panels_of(parameter).elements);
  if (to.transposed.empty()) to.transposed = Buffer<bf16>(panels_of(parameter).transposed);
  std::vector<T> transpose(static_cast<size_t>(absorbed) * columns);
  for (int g = 0; g < p.groups; ++g, rows += static_cast<size_t>(p.group_rows()) * columns) {
    for (int row = 0; row < absorbed; ++row) {
      for (int i = 0; i < columns; ++i)
        transpose[static_cast<size_t>(i) * absorbed + row] = rows[static_cast<size_t>(row) * columns + i];
    }
    const T* const rest_rows = rows + transpose.size();
    T* const packed = to.packed.data() + g * (absorbed_size + rest_size);
    TRY(kernels::pack(stream, transpose.data(), columns, absorbed, packed));
    TRY(kernels::pack(stream, rest_rows, rest, columns, packed + absorbed_size));
    if constexpr (std::is_same_v<T, bf16>) {
      if (!for_training_) continue;
      bf16* const back = to.transposed.data() + g * (absorbed_back_size + rest_back_size);
      TRY(kernels::pack(stream, rows, absorbed, columns, back));
      TRY(kernels::pack_transposed(stream, rest_rows, rest, columns, back + absorbed_back_size));
    }
  }
  return {};
}

template <typename T>
Status Weights::build(kernels::Stream& stream, std::span<const std::byte> wire, size_t parameter, Built<T>& to) const {
  const Parameter& p = layout_.parameters[parameter];
  const Panels panels = panels_of(parameter);
  if (panels.elements + panels.codes == 0) return {};
  const T* const all = reinterpret_cast<const T*>(wire.data() + wire_place(static_cast<int>(parameter)).values);
  if (p.absorbed_rows > 0) return build_split(stream, all, parameter, to);
  const bool quantised = quantized_[parameter];
  if (quantised && !for_training_ && TRY(build_codes(stream, wire, parameter, to.codes))) {
    to.packed = {};  // what an earlier version could not be had as codes for
    return {};
  }
  const int rows = p.group_rows();
  const size_t elements = static_cast<size_t>(rows) * p.columns;
  const size_t group = kernels::packed_size(rows, p.columns), transposed = kernels::packed_size(p.columns, rows);
  if (to.packed.empty()) to.packed = Buffer<T>(p.groups * group);
  if (to.transposed.empty()) to.transposed = Buffer<bf16>(panels.transposed);
  std::vector<bf16> expanded(quantised ? elements : 0);
  for (int g = 0; g < p.groups; ++g) {
    const T* values = all + g * elements;
    if constexpr (std::is_same_v<T, bf16>) {
      if (quantised) {
        TRY(kernels::expand(stream, {.codes = codes(wire.data(), parameter, g),
                                     .scales = scales(wire.data(), parameter, g),
                                     .out = expanded.data(),
                                     .rows = rows,
                                     .columns = p.columns,
                                     .block = block_columns(format_),
                                     .block_rows = block_rows(format_)}));
        values = expanded.data();
      }
      if (for_training_)
        TRY(kernels::pack_transposed(stream, values, rows, p.columns, to.transposed.data() + g * transposed));
    }
    TRY(kernels::pack(stream, values, rows, p.columns, to.packed.data() + g * group));
  }
  return {};
}

template <typename T>
Status Weights::build_panels(kernels::Stream& stream, std::span<const std::byte> wire) {
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    Built<T> built{.packed = std::move(in<T>().packed[i]),
                   .transposed = std::move(transposed_[i]),
                   .codes = std::move(packed_codes_[i])};
    const Status status = build(stream, wire, i, built);
    in<T>().packed[i] = std::move(built.packed);
    transposed_[i] = std::move(built.transposed);
    packed_codes_[i] = std::move(built.codes);
    TRY(Status(status));
  }
  return {};
}

Status Weights::pack(kernels::Stream& stream) {
  TRY(encode(stream));
  return format_ == WeightFormat::kFloat32 ? build_panels<float>(stream, wire()) : build_panels<bf16>(stream, wire());
}

Status Weights::pack_received(kernels::Stream& stream, std::span<const std::byte> wire) {
  const auto own = this->wire();
  if (wire.size() != own.size())
    return Status::invalid(fmt::format("{} bytes of weights, expected {}", wire.size(), own.size()));
  mark_received();
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    if (quantized_[i] || (is_given_back(i) && !for_training_)) continue;
    std::byte* const to = format_ == WeightFormat::kFloat32
                              ? std::as_writable_bytes(flat<float>().subspan(p.offset)).data()
                              : std::as_writable_bytes(flat().subspan(p.offset)).data();
    const std::byte* const from = wire.data() + wire_place(static_cast<int>(i)).values;
    if (to != from) std::memcpy(to, from, p.elements() * element_bytes());
  }
  return format_ == WeightFormat::kFloat32 ? build_panels<float>(stream, wire) : build_panels<bf16>(stream, wire);
}

// Some rows at a time, so that what is made again stays in the cache. What is rare is made again whole.
template <typename T>
Result<bool> Weights::verify_panels(kernels::Stream& stream, std::span<const std::byte> wire, size_t parameter,
                                    std::vector<std::byte>& scratch) const {
  constexpr int kMostRows = 1024;  // a multiple of the rows of a panel and of a block
  const Parameter& p = layout_.parameters[parameter];
  const Buffer<T>& packed = in<T>().packed[parameter];
  const Buffer<std::byte>& packed_codes = packed_codes_[parameter];
  const bool as_codes = !packed_codes.empty();
  if (packed.empty() && !as_codes) return true;
  const auto same = [&](const void* there, size_t bytes) {
    std::atomic<bool> all = true;
    constexpr size_t kPiece = size_t{1} << 18;
    stream.threads().run(static_cast<int>((bytes + kPiece - 1) / kPiece), [&](int piece) {
      const size_t begin = piece * kPiece;
      const auto* const from = static_cast<const std::byte*>(there) + begin;
      if (std::memcmp(from, scratch.data() + begin, std::min(kPiece, bytes - begin)) != 0) all = false;
    });
    return all.load();
  };
  if (p.absorbed_rows > 0 || for_training_ || (quantized_[parameter] && !as_codes)) {
    Built<T> again;
    TRY(build(stream, wire, parameter, again));
    const auto equal = [](const auto& a, const auto& b) {
      return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(*a.data())) == 0);
    };
    return equal(again.packed, packed) && equal(again.transposed, transposed_[parameter]) &&
           equal(again.codes, packed_codes);
  }
  const int rows = p.group_rows(), k = p.columns;
  const auto bytes_of = [&](int n) {
    return as_codes ? kernels::packed_codes_size(n, k) : kernels::packed_size(n, k) * sizeof(T);
  };
  scratch.resize(std::max(scratch.size(), bytes_of(std::min(rows, kMostRows))));
  const T* const values = reinterpret_cast<const T*>(wire.data() + wire_place(static_cast<int>(parameter)).values);
  const std::byte* there = as_codes ? packed_codes.data() : reinterpret_cast<const std::byte*>(packed.data());
  for (int g = 0; g < p.groups; ++g) {
    for (int first = 0; first < rows; first += kMostRows) {
      const int n = std::min(kMostRows, rows - first);
      const size_t before = static_cast<size_t>(first) * k;
      if (as_codes) {
        const size_t scales_before =
            static_cast<size_t>(first / block_rows(format_)) * kernels::scale_blocks(k, block_columns(format_));
        if (!TRY(kernels::pack_codes(stream, {.codes = codes(wire.data(), parameter, g) + before,
                                              .scales = scales(wire.data(), parameter, g) + scales_before,
                                              .packed = scratch.data(),
                                              .n = n,
                                              .k = k,
                                              .block = block_columns(format_),
                                              .block_rows = block_rows(format_)})))
          return false;
      } else {
        TRY(kernels::pack(stream, values + static_cast<size_t>(g) * rows * k + before, n, k,
                          reinterpret_cast<T*>(scratch.data())));
      }
      if (!same(there, bytes_of(n))) return false;
      there += bytes_of(n);
    }
  }
  return true;
}

template <typename T>
Status Weights::verify_as(kernels::Stream& stream, std::span<const std::byte> wire) const {
  std::vector<std::byte> scratch;
  for (size_t i = 0; i < layout_.parameters.size(); ++i) {
    const Parameter& p = layout_.parameters[i];
    const std::byte* const values = wire.data() + wire_place(static_cast<int>(i)).values;
    const bool values_differ = !quantized_[i] && !is_given_back(i) &&
                               std::memcmp(flat<T>().data() + p.offset, values, p.elements() * sizeof(T)) != 0;
    if (values_differ || !TRY(verify_panels<T>(stream, wire, i, scratch)))
      return Status::corrupt(fmt::format("{}: what is read is not what was received", p.name));
  }
  return {};
}

Status Weights::verify(kernels::Stream& stream, std::span<const std::byte> wire) const {
  if (wire.size() != this->wire().size())
    return Status::invalid(fmt::format("{} bytes of weights, expected {}", wire.size(), this->wire().size()));
  return format_ == WeightFormat::kFloat32 ? verify_as<float>(stream, wire) : verify_as<bf16>(stream, wire);
}

}  // namespace tandem::model
