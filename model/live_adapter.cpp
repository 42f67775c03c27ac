#include "model/live_adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

namespace tandem::model {

namespace {

// Rows that a thread takes at a time: few enough to divide a prompt.
constexpr int kRowsOfTask = 64;

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

std::vector<std::pair<int, int>> shapes_of(const ParameterLayout& layout) {
  std::vector<std::pair<int, int>> shapes;
  for (const Parameter& p : layout.parameters) shapes.emplace_back(p.rows, p.columns);
  return shapes;
}

}  // namespace

template <>
const LiveAdapter::All<kernels::bf16>& LiveAdapter::all() const {
  return bf16_;
}
template <>
const LiveAdapter::All<float>& LiveAdapter::all() const {
  return float32_;
}

template <typename T>
Status LiveAdapter::take(kernels::Stream& stream, const Adapter& adapter, const ParameterLayout& layout, All<T>& all) {
  const auto linear = linear_parameters(layout);
  const auto rank = static_cast<size_t>(adapter.rank), even = static_cast<size_t>(rank_);
  const auto finite = [](T value) { return is_finite(value); };
  all.resize(layout.parameters.size());
  std::string contents;  // a line for each matrix, of which the digest is
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const auto columns = static_cast<size_t>(layout.parameters[i].columns);
    std::vector<T> a;  // of all parts
    for (const ParameterPart& part : layout.parameters[i].parts) {
      const auto found = adapter.factors.find(part.checkpoint_name);
      if (found == adapter.factors.end()) continue;
      if (!linear.contains(static_cast<int>(i))) {
        return Status::invalid(fmt::format("an adapter of {} cannot be live", part.checkpoint_name))
            .hint("merge it into the model: tandem import --adapter");
      }
      const auto rows = static_cast<size_t>(part.rows), first = a.size();
      a.resize(first + even * columns);
      for (size_t k = 0; k < rank * columns; ++k) a[first + k] = rounded<T>(found->second.a[k]);
      std::vector<T> b(rows * even);
      for (size_t row = 0; row < rows; ++row) {
        for (size_t r = 0; r < rank; ++r)
          b[row * even + r] = rounded<T>(adapter.scale() * found->second.b[row * rank + r]);
      }
      const auto own = std::span<const T>(a).subspan(first);
      if (!std::ranges::all_of(own, finite) || !std::ranges::all_of(b, finite)) {
        return Status::invalid(
            fmt::format("the factors of {} hold NaN or a number that is too large", part.checkpoint_name));
      }
      contents += fmt::format("{} {} {} {}\n", i, part.first_row, digest_of(std::as_bytes(own)).hex(),
                              digest_of(std::as_bytes(std::span<const T>(b))).hex());
      Part<T> packed{.first_row = part.first_row, .rows = part.rows};
      packed.b = Buffer<T>(kernels::packed_size(part.rows, rank_));
      TRY(kernels::pack(stream, b.data(), part.rows, rank_, packed.b.data()));
      all[i].parts.push_back(std::move(packed));
    }
    if (a.empty()) continue;
    const int low = rank_ * static_cast<int>(all[i].parts.size()), inputs = layout.parameters[i].columns;
    all[i].a = Buffer<T>(kernels::packed_size(low, inputs));
    TRY(kernels::pack(stream, a.data(), low, inputs, all[i].a.data()));
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
      bytes += of_parameter.a.size() * sizeof(*of_parameter.a.data());
      for (const auto& part : of_parameter.parts) bytes += part.b.size() * sizeof(*part.b.data());
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
Status AdapterProducts<T>::add(kernels::Stream& stream, int parameter, const BasicTensor<T>& x,
                               const BasicTensor<T>& out, std::span<const AdaptedRows> adapted) {
  const auto columns = static_cast<size_t>(x.columns), outputs = static_cast<size_t>(out.columns);
  // Which rows of `low_` are whose.
  size_t needed = 0;
  const auto low_columns = [&](const LiveAdapter& adapter) {
    return adapter.of<T>(parameter).parts.size() * static_cast<size_t>(adapter.rank());
  };
  for (const AdaptedRows& some : adapted) needed += static_cast<size_t>(some.rows) * low_columns(*some.adapter);
  if (needed == 0) return {};
  if (low_.size() < needed) low_.resize(needed);
  // Calls `task` for each piece of a few rows, with where its rows of `low_` begin.
  const auto by_rows = [&](const auto& task) {
    size_t at = 0;
    for (const AdaptedRows& some : adapted) {
      const size_t width = low_columns(*some.adapter);
      for (int row = 0; width > 0 && row < some.rows; row += kRowsOfTask) {
        const int rows = std::min(kRowsOfTask, some.rows - row);
        task(*some.adapter, some.row + row, rows, low_.data() + at, width);
        at += static_cast<size_t>(rows) * width;
      }
    }
  };
  tasks_.clear();
  by_rows([&](const LiveAdapter& adapter, int row, int rows, T* low, size_t width) {
    tasks_.push_back({.a = x.data + row * columns,
                      .a_stride = columns,
                      .b = adapter.of<T>(parameter).a.data(),
                      .out = low,
                      .out_stride = width,
                      .m = rows,
                      .n = static_cast<int>(width),
                      .k = x.columns});
  });
  TRY(run(stream));
  tasks_.clear();
  by_rows([&](const LiveAdapter& adapter, int row, int rows, T* low, size_t width) {
    for (const auto& part : adapter.of<T>(parameter).parts) {
      T* const target = out.data + row * outputs + part.first_row;
      tasks_.push_back({.a = low,
                        .a_stride = width,
                        .b = part.b.data(),
                        .residual = target,
                        .out = target,
                        .out_stride = outputs,
                        .m = rows,
                        .n = part.rows,
                        .k = adapter.rank()});
      low += adapter.rank();
    }
  });
  return run(stream);
}

template <typename T>
Status AdapterProducts<T>::run(kernels::Stream& stream) {
  const int count = static_cast<int>(tasks_.size()), workers = std::min(count, stream.threads().threads());
  while (static_cast<int>(streams_.size()) < workers)
    streams_.push_back(kernels::Stream::over(stream.operations(), stream.isa(), 1));
  std::vector<Status> statuses(static_cast<size_t>(workers));
  stream.threads().run(workers, [&](int worker) {
    for (int i = worker; i < count && statuses[worker].ok(); i += workers)
      statuses[worker] = kernels::gemm(streams_[worker], tasks_[i]);
  });
  for (Status& status : statuses) TRY(std::move(status));
  return {};
}

template class AdapterProducts<kernels::bf16>;
template class AdapterProducts<float>;

}  // namespace tandem::model
