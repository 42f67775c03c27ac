#include "trainer/learn/low_rank.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/random.h"
#include "base/text.h"
#include "kernels/gemm.h"

namespace tandem::trainer {

namespace {

std::set<std::string> names_of(const model::ParameterLayout& layout, const std::vector<int>& parameters) {
  std::set<std::string> names;
  for (const int parameter : parameters) {
    if (parameter < 0) continue;
    for (const auto& part : layout.parameters[static_cast<size_t>(parameter)].parts) names.insert(part.checkpoint_name);
  }
  return names;
}

// Names of the matrices of the layers, without routers.
std::set<std::string> candidates_of(const model::ParameterLayout& layout) {
  std::set<std::string> names;
  for (const auto& l : layout.layers) {
    names.merge(names_of(
        layout, {l.qkv, l.query_up, l.key_value_up, l.output, l.shared_gate_up, l.shared_down, l.gate_up, l.down}));
  }
  return names;
}

Status check_targets(const std::vector<std::string>& targets, const std::set<std::string>& candidates) {
  std::set<std::string> known;
  for (const auto& name : candidates) known.insert(model::module_of(name));
  const std::vector<std::string_view> modules(known.begin(), known.end());
  for (const auto& target : targets) {
    if (known.contains(target)) continue;
    const auto near = nearest(target, modules);
    return Status::invalid(fmt::format("lora.targets: the layers of the model have no matrix {}{}", target,
                                       near.empty() ? "" : fmt::format("; did you mean {}?", near)))
        .hint(fmt::format("they have {}", fmt::join(modules, ", ")));
  }
  return {};
}

}  // namespace

Result<LowRank> LowRank::plan(const model::ParameterLayout& layout, const LowRankSettings& settings) {
  if (settings.rank < 1) return fail(Status::invalid(fmt::format("lora.rank is {}", settings.rank)));
  if (!(settings.alpha > 0)) return fail(Status::invalid(fmt::format("lora.alpha is {}", settings.alpha)));
  const auto candidates = candidates_of(layout);
  TRY(check_targets(settings.targets, candidates));
  LowRank low_rank(settings);
  const auto rank = static_cast<size_t>(settings.rank);
  size_t base = 0;
  for (const auto& [name, matrix] : model::matrices_of(layout)) {
    if (!candidates.contains(name)) continue;
    if (!settings.targets.empty() &&
        std::ranges::find(settings.targets, model::module_of(name)) == settings.targets.end())
      continue;
    if (settings.rank > std::min(matrix.rows, matrix.columns)) {
      return fail(Status::invalid(
          fmt::format("lora.rank is {}, and {} is [{}, {}]", settings.rank, name, matrix.rows, matrix.columns)));
    }
    const size_t a = low_rank.elements_, b = a + rank * static_cast<size_t>(matrix.columns);
    low_rank.targets_.push_back({.name = name, .matrix = matrix, .base = base, .a = a, .b = b});
    low_rank.elements_ = b + static_cast<size_t>(matrix.rows) * rank;
    base += matrix.elements();
  }
  low_rank.base_elements_ = base;
  return low_rank;
}

Status LowRank::check(const model::ParameterLayout& layout, const LowRankSettings& settings) {
  const auto low_rank = TRY(plan(layout, settings));
  if (settings.start.empty()) return {};
  return low_rank.check_fits(TRY(model::read_adapter(settings.start))).at(settings.start);
}

Result<LowRank> LowRank::create(const model::Weights& weights, const LowRankSettings& settings) {
  if (weights.format() == model::WeightFormat::kFloat32) return fail(Status::invalid("LoRA is not trained in float32"));
  auto low_rank = TRY(plan(weights.layout(), settings));
  size_t base = 0, packed = 0, transposed = 0;
  for (const auto& [name, matrix, begin, a, b] : low_rank.targets_) {
    base = begin + matrix.elements();
    packed = std::max({packed, kernels::packed_size(matrix.columns, matrix.rows),
                       kernels::packed_size(settings.rank, matrix.columns)});
    transposed = std::max(transposed, static_cast<size_t>(settings.rank) * static_cast<size_t>(matrix.rows));
  }
  low_rank.base_ = Buffer<kernels::bf16>(base);
  for (const Target& t : low_rank.targets_)
    std::ranges::copy(weights.slice().part(t.matrix.offset, t.matrix.elements()).host<kernels::bf16>(),
                      low_rank.base_.data() + t.base);
  low_rank.packed_ = Buffer<float>(packed);
  low_rank.transposed_ = Buffer<float>(transposed);
  return low_rank;
}

float LowRank::scale() const {
  return model::Adapter{
      .rank = settings_.rank, .alpha = settings_.alpha, .use_rslora = settings_.use_rslora, .factors = {}}
      .scale();
}

std::string LowRank::description() const {
  std::set<std::string> modules;
  for (const Target& target : targets_) modules.insert(model::module_of(target.name));
  return fmt::format("LoRA of rank {}, alpha {}{}, on {}", settings_.rank, settings_.alpha,
                     settings_.use_rslora ? " by the root of the rank" : "", fmt::join(modules, ", "));
}

std::vector<uint8_t> LowRank::learned(const model::ParameterLayout& layout) const {
  std::vector<uint8_t> learned(layout.parameters.size(), 0);
  for (size_t i = 0; i < learned.size(); ++i) {
    const auto& parameter = layout.parameters[i];
    learned[i] = std::ranges::any_of(targets_, [&](const Target& target) {
      return target.matrix.offset >= parameter.offset && target.matrix.offset < parameter.offset + parameter.elements();
    });
  }
  return learned;
}

Status LowRank::check_fits(const model::Adapter& adapter) const {
  if (adapter.rank != settings_.rank || adapter.alpha != settings_.alpha ||
      adapter.use_rslora != settings_.use_rslora) {
    return Status::invalid(fmt::format("has rank {}, alpha {} and use_rslora {}, and lora says {}, {} and {}",
                                       adapter.rank, adapter.alpha, adapter.use_rslora, settings_.rank, settings_.alpha,
                                       settings_.use_rslora));
  }
  for (const Target& target : targets_) {
    const auto found = adapter.factors.find(target.name);
    if (found == adapter.factors.end())
      return Status::invalid(fmt::format("has no factors of {}, which is among lora.targets", target.name));
    const int rows = found->second.rows, columns = found->second.columns;
    if (rows != target.matrix.rows || columns != target.matrix.columns)
      return Status::invalid(fmt::format("is of another model: its factors of {} are of a matrix of [{}, {}]",
                                         target.name, rows, columns));
  }
  if (adapter.factors.size() != targets_.size())
    return Status::invalid(
        fmt::format("has factors of {} matrices, and lora.targets names {}", adapter.factors.size(), targets_.size()));
  return {};
}

Status LowRank::initialise(const model::Slice& slice) const {
  const auto factors = slice.host<float>();
  if (!settings_.start.empty()) {
    const auto adapter = TRY(model::read_adapter(settings_.start));
    TRY(check_fits(adapter).at(settings_.start));
    for (const Target& target : targets_) {
      const auto& [rows, columns, a, b] = adapter.factors.at(target.name);
      std::ranges::copy(a, factors.begin() + static_cast<std::ptrdiff_t>(target.a));
      std::ranges::copy(b, factors.begin() + static_cast<std::ptrdiff_t>(target.b));
    }
    return {};
  }
  Random random(settings_.seed);
  for (const Target& target : targets_) {
    const double bound = 1 / std::sqrt(static_cast<double>(target.matrix.columns));
    for (size_t i = target.a; i < target.b; ++i) factors[i] = static_cast<float>((2 * random.uniform() - 1) * bound);
    std::fill_n(factors.begin() + static_cast<std::ptrdiff_t>(target.b),
                static_cast<size_t>(target.matrix.rows) * static_cast<size_t>(settings_.rank), 0.0f);
  }
  return {};
}

Status LowRank::pass_on(kernels::Stream& stream, const model::ConstSlice& factors,
                        const model::ConstSlice& weight_grads, const model::Slice& grads) {
  const auto values = factors.host<float>(), of_weights = weight_grads.host<float>();
  const auto out = grads.host<float>();
  const int rank = settings_.rank;
  for (const Target& target : targets_) {
    const auto& [offset, rows, columns] = target.matrix;
    const float* const grad = of_weights.data() + offset;
    const float *const a = values.data() + target.a, *const b = values.data() + target.b;
    // dB = dW A^T
    TRY(kernels::pack(stream, a, rank, columns, packed_.data()));
    TRY(kernels::gemm(stream, kernels::BasicGemm<float>{.a = grad,
                                                        .a_stride = static_cast<size_t>(columns),
                                                        .b = packed_.data(),
                                                        .out_float = out.data() + target.b,
                                                        .out_stride = static_cast<size_t>(rank),
                                                        .m = rows,
                                                        .n = rank,
                                                        .k = columns}));
    // dA = B^T dW
    for (int row = 0; row < rows; ++row) {
      for (int r = 0; r < rank; ++r)
        transposed_[static_cast<size_t>(r) * static_cast<size_t>(rows) + static_cast<size_t>(row)] =
            b[static_cast<size_t>(row) * static_cast<size_t>(rank) + static_cast<size_t>(r)];
    }
    TRY(kernels::pack_transposed(stream, grad, rows, columns, packed_.data()));
    TRY(kernels::gemm(stream, kernels::BasicGemm<float>{.a = transposed_.data(),
                                                        .a_stride = static_cast<size_t>(rows),
                                                        .b = packed_.data(),
                                                        .out_float = out.data() + target.a,
                                                        .out_stride = static_cast<size_t>(columns),
                                                        .m = rank,
                                                        .n = columns,
                                                        .k = rows}));
  }
  const float s = scale();
  for (float& grad : out) grad *= s;
  return {};
}

Status LowRank::merge(kernels::Stream& stream, const model::ConstSlice& slice, model::Weights& weights) const {
  const auto factors = slice.host<float>();
  const auto values = weights.slice().host<kernels::bf16>();
  for (const Target& target : targets_) {
    TRY(model::add_low_rank(stream, model::LowRankSum<kernels::bf16>{.shape = target.matrix,
                                                                     .rank = settings_.rank,
                                                                     .scale = scale(),
                                                                     .a = factors.data() + target.a,
                                                                     .b = factors.data() + target.b,
                                                                     .base = base_.data() + target.base,
                                                                     .out = values.data() + target.matrix.offset}));
  }
  return {};
}

model::Adapter LowRank::adapter(const model::ConstSlice& slice) const {
  const auto factors = slice.host<float>();
  model::Adapter adapter{
      .rank = settings_.rank, .alpha = settings_.alpha, .use_rslora = settings_.use_rslora, .factors = {}};
  for (const Target& target : targets_) {
    const auto part = [&](size_t first, int rows, int columns) {
      const auto values = factors.subspan(first, static_cast<size_t>(rows) * static_cast<size_t>(columns));
      return std::vector<float>(values.begin(), values.end());
    };
    adapter.factors[target.name] = {.rows = target.matrix.rows,
                                    .columns = target.matrix.columns,
                                    .a = part(target.a, settings_.rank, target.matrix.columns),
                                    .b = part(target.b, target.matrix.rows, settings_.rank)};
  }
  return adapter;
}

}  // namespace tandem::trainer
