#include "trainer/learn/optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/muon.h"
#include "kernels/optimizer.h"
#include "trainer/learn/slots.h"

namespace tandem::trainer {
namespace {

template <typename Kind, size_t count>
Result<Kind> named(std::string_view name, const std::array<const char*, count>& names, const char* what) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<Kind>(found - names.begin());
  return fail(Status::invalid(fmt::format("\"{}\" is not {}; expected one of {}", name, what, fmt::join(names, ", "))));
}

// Matrices whose rows are no tokens and no experts: those that Muon is for.
std::vector<bool> between_hidden_layers(const model::ParameterLayout& layout) {
  std::vector<bool> chosen;
  for (const model::Parameter& p : layout.parameters) chosen.push_back(p.matrix && !p.split);
  chosen[static_cast<size_t>(layout.embedding)] = chosen[static_cast<size_t>(layout.head)] = false;
  for (const auto& layer : layout.layers) {
    if (layer.router >= 0) chosen[static_cast<size_t>(layer.router)] = false;
  }
  return chosen;
}

}  // namespace

Result<OptimizerKind> optimizer_named(std::string_view name) {
  return named<OptimizerKind>(name, kOptimizerNames, "an optimizer");
}

Result<Moments> moments_named(std::string_view name) {
  return named<Moments>(name, kMomentNames, "a format of moments");
}

Status check(const OptimizerSettings& settings) {
  if (!(settings.learning_rate.peak >= 0)) return Status::invalid("learning_rate must not be negative");
  TRY(check_slots(settings.slots));
  if (settings.max_pass_tokens < 1) return Status::invalid("max_pass_tokens must be at least 1");
  if (settings.moments == Moments::kBf16 && settings.beta2 > 0.996) {
    return Status::invalid(fmt::format("trainer.beta2 is {}: moments in bf16 need 0.996 at most", settings.beta2))
        .hint("above, a step takes less than half of a last place off, and a moment would never fall again");
  }
  if (settings.low_rank.rank > 0 && settings.kind == OptimizerKind::kMuon)
    return Status::invalid(
        "Muon moves whole matrices of a model, and LoRA's factors are none: take adamw with lora.rank");
  return {};
}

Result<Optimizer> Optimizer::lay_out(const model::ParameterLayout& layout, const OptimizerSettings& settings) {
  TRY(check(settings));
  Optimizer optimizer(settings);
  optimizer.divide(layout);
  return optimizer;
}

Result<Optimizer> Optimizer::lay_out(size_t elements, const OptimizerSettings& settings) {
  TRY(check(settings));
  Optimizer optimizer(settings);
  optimizer.ranges_.push_back({.begin = 0, .end = elements, .moments = 0});
  return optimizer;
}

Result<Optimizer> Optimizer::create(const model::ParameterLayout& layout, const OptimizerSettings& settings) {
  Optimizer optimizer = TRY(lay_out(layout, settings));
  optimizer.allocate();
  return optimizer;
}

Result<Optimizer> Optimizer::create(size_t elements, const OptimizerSettings& settings) {
  Optimizer optimizer = TRY(lay_out(elements, settings));
  optimizer.allocate();
  return optimizer;
}

Result<size_t> Optimizer::bytes_of(const model::ParameterLayout& layout, const OptimizerSettings& settings) {
  const Optimizer optimizer = TRY(lay_out(layout, settings));
  return optimizer.bytes(optimizer.sizes());
}

Result<size_t> Optimizer::bytes_of(size_t elements, const OptimizerSettings& settings) {
  const Optimizer optimizer = TRY(lay_out(elements, settings));
  return optimizer.bytes(optimizer.sizes());
}

size_t Optimizer::bytes() const {
  return bytes({.moments = std::max(first_moments_.size(), first_moments_bf16_.size()),
                .momentum = momentum_.size(),
                .workspace = workspace_.size()});
}

size_t Optimizer::bytes(const Sizes& sizes) const {
  const size_t moment = settings_.moments == Moments::kBf16 ? sizeof(kernels::bf16) : sizeof(float);
  return 2 * sizes.moments * moment + sizes.momentum * sizeof(float) + sizes.workspace;
}

Optimizer::Sizes Optimizer::sizes() const {
  Sizes sizes;
  for (const Range& range : ranges_) sizes.moments += range.size();
  for (const Matrix& m : matrices_) {
    sizes.momentum += static_cast<size_t>(m.rows) * static_cast<size_t>(m.columns);
    sizes.workspace = std::max(sizes.workspace, kernels::muon_workspace(m.rows, m.columns));
  }
  return sizes;
}

void Optimizer::allocate() {
  const Sizes sizes = this->sizes();
  if (settings_.moments == Moments::kBf16) {
    first_moments_bf16_ = Buffer<kernels::bf16>(sizes.moments);
    second_moments_bf16_ = Buffer<kernels::bf16>(sizes.moments);
  } else {
    first_moments_ = Buffer<float>(sizes.moments);
    second_moments_ = Buffer<float>(sizes.moments);
  }
  momentum_ = Buffer<float>(sizes.momentum);
  workspace_ = Buffer<std::byte>(sizes.workspace);
}

void Optimizer::divide(const model::ParameterLayout& layout) {
  size_t begin = 0, moments = 0;
  const auto end_range = [&](const model::Parameter& p) {
    if (p.offset > begin) ranges_.push_back({.begin = begin, .end = p.offset, .moments = moments});
    moments += p.offset - begin;
    begin = p.offset + p.elements();
  };
  const auto chosen = between_hidden_layers(layout);
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const model::Parameter& p = layout.parameters[i];
    const bool is_muons = settings_.kind == OptimizerKind::kMuon && chosen[i];
    if (!is_muons && !p.split) continue;
    end_range(p);
    if (!is_muons) continue;
    for (const auto& part : p.parts) {
      matrices_.push_back({.begin = p.offset + static_cast<size_t>(part.first_row) * static_cast<size_t>(p.columns),
                           .rows = part.rows,
                           .columns = p.columns});
    }
  }
  if (layout.elements > begin) ranges_.push_back({.begin = begin, .end = layout.elements, .moments = moments});
}

Status Optimizer::step(kernels::Stream& stream, const Step& step) {
  TRY(muon(stream, step));
  return settings_.moments == Moments::kBf16 ? adamw(stream, step, first_moments_bf16_, second_moments_bf16_)
                                             : adamw(stream, step, first_moments_, second_moments_);
}

template <typename Moment>
Status Optimizer::adamw(kernels::Stream& stream, const Step& step, Buffer<Moment>& first, Buffer<Moment>& second) {
  for (const Range& range : ranges_) {
    kernels::BasicAdamW<Moment> arguments;
    arguments.grad = step.grads.data() + range.begin;
    arguments.master = step.masters.data() + range.begin;
    arguments.first_moment = first.data() + range.moments;
    arguments.second_moment = second.data() + range.moments;
    arguments.weight = step.weights.data() + range.begin;
    arguments.count = range.size();
    arguments.grad_scale = step.grad_scale;
    arguments.learning_rate = step.learning_rate;
    arguments.beta1 = static_cast<float>(settings_.beta1);
    arguments.beta2 = static_cast<float>(settings_.beta2);
    arguments.epsilon = static_cast<float>(settings_.epsilon);
    arguments.weight_decay = static_cast<float>(settings_.weight_decay);
    arguments.step = step.number;
    TRY(kernels::adamw(stream, arguments));
  }
  return {};
}

Status Optimizer::muon(kernels::Stream& stream, const Step& step) {
  size_t at = 0;
  for (const Matrix& matrix : matrices_) {
    kernels::Muon arguments;
    arguments.grad = step.grads.data() + matrix.begin;
    arguments.master = step.masters.data() + matrix.begin;
    arguments.momentum = momentum_.data() + at;
    arguments.weight = step.weights.data() + matrix.begin;
    arguments.rows = matrix.rows;
    arguments.columns = matrix.columns;
    arguments.grad_scale = step.grad_scale;
    arguments.learning_rate = step.learning_rate;
    arguments.beta = static_cast<float>(settings_.momentum);
    arguments.weight_decay = static_cast<float>(settings_.weight_decay);
    arguments.workspace = workspace_.data();
    TRY(kernels::muon(stream, arguments));
    at += static_cast<size_t>(matrix.rows) * static_cast<size_t>(matrix.columns);
  }
  return {};
}

std::vector<Optimizer::Memory> Optimizer::memory() {
  const auto bytes = [](auto& buffer) { return std::as_writable_bytes(std::span(buffer.data(), buffer.size())); };
  const bool bf16 = settings_.moments == Moments::kBf16;
  std::vector<Memory> memory = {
      {.name = "first_moments", .bf16 = bf16, .values = bf16 ? bytes(first_moments_bf16_) : bytes(first_moments_)},
      {.name = "second_moments", .bf16 = bf16, .values = bf16 ? bytes(second_moments_bf16_) : bytes(second_moments_)}};
  if (!momentum_.empty()) memory.push_back({.name = "momentum", .bf16 = false, .values = bytes(momentum_)});
  return memory;
}

std::string Optimizer::description() const {
  return fmt::format("{}, {} moments", kOptimizerNames[static_cast<size_t>(settings_.kind)],
                     kMomentNames[static_cast<size_t>(settings_.moments)]);
}

}  // namespace tandem::trainer
