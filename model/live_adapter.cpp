#include "model/live_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "kernels/gemm.h"

namespace tandem::model {

namespace {

// Parameters that the transformer multiplies by `linear` and `linear_onto`.
std::set<int> linear_parameters(const ParameterLayout& layout) {
  std::set<int> found;
  for (const LayerParameters& layer : layout.layers) {
    found.insert({layer.qkv, layer.output, layer.shared_gate_up, layer.shared_down});
    if (layer.router < 0) found.insert({layer.gate_up, layer.down});
  }
  return found;
}

template <typename T>
T rounded(float value) {
  if constexpr (sizeof(T) == sizeof(float))
    return value;
  else
    return kernels::to_bf16(value);
}

bool is_finite(float value) { return std::isfinite(value); }
bool is_finite(kernels::bf16 value) { return std::isfinite(kernels::to_float(value)); }

template <typename T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<std::pair<int, int>> shapes_of(const ParameterLayout& layout) {
  std::vector<std::pair<int, int>> shapes;
  for (const Parameter& p : layout.parameters) shapes.emplace_back(p.rows, p.columns);
  return shapes;
}

}  // namespace

template <>
const LiveAdapter::Parts<kernels::bf16>& LiveAdapter::parts() const {
  return bf16_;
}
template <>
const LiveAdapter::Parts<float>& LiveAdapter::parts() const {
  return float32_;
}

template <typename T>
Status LiveAdapter::take(kernels::Stream& stream, const Adapter& adapter, const ParameterLayout& layout,
                         Parts<T>& parts) {
  const auto linear = linear_parameters(layout);
  const auto rank = static_cast<size_t>(adapter.rank), even = static_cast<size_t>(rank_);
  parts.resize(layout.parameters.size());
  std::string contents;  // a line for each matrix, of which the digest is
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    for (const ParameterPart& part : layout.parameters[i].parts) {
      const auto found = adapter.factors.find(part.checkpoint_name);
      if (found == adapter.factors.end()) continue;
      if (!linear.contains(static_cast<int>(i))) {
        return Status::invalid(fmt::format("an adapter of {} cannot be live", part.checkpoint_name))
            .hint("merge it into the model: tandem import --adapter, or leave out --live");
      }
      const auto rows = static_cast<size_t>(part.rows), columns = static_cast<size_t>(found->second.columns);
      std::vector<T> a(even * columns), b(rows * even);
      for (size_t k = 0; k < rank * columns; ++k) a[k] = rounded<T>(found->second.a[k]);
      for (size_t row = 0; row < rows; ++row) {
        for (size_t r = 0; r < rank; ++r)
          b[row * even + r] = rounded<T>(adapter.scale() * found->second.b[row * rank + r]);
      }
      const auto finite = [](T value) { return is_finite(value); };
      if (!std::ranges::all_of(a, finite) || !std::ranges::all_of(b, finite)) {
        return Status::invalid(
            fmt::format("the factors of {} hold NaN or a number that is too large", part.checkpoint_name));
      }
      contents +=
          fmt::format("{} {} {} {}\n", i, part.first_row, digest_of(bytes_of(a)).hex(), digest_of(bytes_of(b)).hex());
      Part<T> packed{.first_row = part.first_row, .rows = part.rows};
      packed.a = Buffer<T>(kernels::packed_size(rank_, found->second.columns));
      packed.b = Buffer<T>(kernels::packed_size(part.rows, rank_));
      TRY(kernels::pack(stream, a.data(), rank_, found->second.columns, packed.a.data()));
      TRY(kernels::pack(stream, b.data(), part.rows, rank_, packed.b.data()));
      parts[i].push_back(std::move(packed));
    }
  }
  digest_ = digest_of(contents);
  return {};
}

Result<std::shared_ptr<const LiveAdapter>> LiveAdapter::create(kernels::Stream& stream, const Adapter& adapter,
                                                               const Weights& weights) {
  return create(stream, adapter, weights.layout(), weights.format());
}

Result<std::shared_ptr<const LiveAdapter>> LiveAdapter::create(kernels::Stream& stream, const Adapter& adapter,
                                                               const ParameterLayout& layout, WeightFormat format) {
  TRY(check_fits(adapter, matrices_of(layout)));
  auto live = std::make_shared<LiveAdapter>();
  live->rank_ = (adapter.rank + 1) / 2 * 2;
  live->float32_format_ = format == WeightFormat::kFloat32;
  live->shapes_ = shapes_of(layout);
  if (live->float32_format_)
    TRY(live->take(stream, adapter, layout, live->float32_));
  else
    TRY(live->take(stream, adapter, layout, live->bf16_));
  return std::shared_ptr<const LiveAdapter>(std::move(live));
}

bool LiveAdapter::fits(const ParameterLayout& layout, WeightFormat format) const {
  return float32_format_ == (format == WeightFormat::kFloat32) && shapes_ == shapes_of(layout);
}

size_t LiveAdapter::bytes() const {
  size_t bytes = 0;
  const auto count = [&](const auto& all) {
    for (const auto& of_parameter : all) {
      for (const auto& part : of_parameter) bytes += (part.a.size() + part.b.size()) * sizeof(*part.a.data());
    }
  };
  count(bf16_);
  count(float32_);
  return bytes;
}

Result<std::shared_ptr<const LiveAdapter>> LiveAdapter::read(kernels::Stream& stream, const fs::path& directory,
                                                             const Weights& weights) {
  const Adapter adapter = TRY(read_adapter(directory));
  auto live = create(stream, adapter, weights);
  if (!live) return fail(std::move(live).error().at((directory / kAdapterFactorsFile).string()));
  return live;
}

template <typename T>
Status LiveAdapter::add(kernels::Stream& stream, int parameter, const BasicTensor<T>& x, const BasicTensor<T>& out,
                        std::vector<T>& low) const {
  for (const Part<T>& part : parts<T>()[static_cast<size_t>(parameter)]) {
    const auto rank = static_cast<size_t>(rank_);
    if (low.size() < static_cast<size_t>(x.rows) * rank) low.resize(static_cast<size_t>(x.rows) * rank);
    TRY(kernels::gemm(stream, kernels::BasicGemm<T>{.a = x.data,
                                                    .a_stride = static_cast<size_t>(x.columns),
                                                    .b = part.a.data(),
                                                    .out = low.data(),
                                                    .out_stride = rank,
                                                    .m = x.rows,
                                                    .n = rank_,
                                                    .k = x.columns}));
    T* const target = out.data + part.first_row;
    TRY(kernels::gemm(stream, kernels::BasicGemm<T>{.a = low.data(),
                                                    .a_stride = rank,
                                                    .b = part.b.data(),
                                                    .residual = target,
                                                    .out = target,
                                                    .out_stride = static_cast<size_t>(out.columns),
                                                    .m = x.rows,
                                                    .n = part.rows,
                                                    .k = rank_}));
  }
  return {};
}

template Status LiveAdapter::add(kernels::Stream&, int, const Tensor&, const Tensor&,
                                 std::vector<kernels::bf16>&) const;
template Status LiveAdapter::add(kernels::Stream&, int, const BasicTensor<float>&, const BasicTensor<float>&,
                                 std::vector<float>&) const;

}  // namespace tandem::model
