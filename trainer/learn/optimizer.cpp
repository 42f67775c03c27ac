#include "trainer/learn/optimizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/muon.h"
#include "kernels/optimizer.h"
#include "trainer/learn/slots.h"

namespace tandem::trainer {
namespace {

constexpr const char *kFirstMoments = "first_moments", *kSecondMoments = "second_moments", *kMomentum = "momentum",
                     *kWorkspace = "workspace";

template <typename Kind, size_t count>
Result<Kind> named(std::string_view name, const std::array<const char*, count>& names, const char* what) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<Kind>(found - names.begin());
  return fail(Status::invalid(fmt::format("\"{}\" is not {}; expected one of {}", name, what, fmt::join(names, ", "))));
}

// Matrices whose rows are no tokens and no experts: those that Muon is for.
std::vector<bool> between_hidden_layers(const model::ParameterLayout& layout) {
  std::vector<bool> hidden;
  for (const model::Parameter& p : layout.parameters) hidden.push_back(p.matrix && !p.split);
  hidden[static_cast<size_t>(layout.embedding)] = hidden[static_cast<size_t>(layout.head)] = false;
  for (const auto& layer : layout.layers) {
    if (layer.router >= 0) hidden[static_cast<size_t>(layer.router)] = false;
  }
  return hidden;
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
  TRY(check(settings.updates));
  // At 1 the corrections of the first steps divide by 0.
  for (const auto& [name, value] : {std::pair{"beta1", settings.beta1}, {"beta2", settings.beta2}}) {
    if (!(value >= 0 && value < 1))
      return Status::invalid(fmt::format("trainer.{} is {}: it must be below 1", name, value));
  }
  if (!(settings.momentum >= 0 && settings.momentum < 1))
    return Status::invalid(fmt::format("trainer.momentum is {}: it must be below 1", settings.momentum));
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

bool are_sharded(const OptimizerSettings& settings, int ranks) {
  return ranks > 1 && settings.kind == OptimizerKind::kAdamW && settings.low_rank.rank == 0;
}

Result<Optimizer> Optimizer::lay_out(const model::ParameterLayout& layout, const OptimizerSettings& settings,
                                     std::optional<Piece> shard) {
  TRY(check(settings));
  Optimizer optimizer(settings);
  optimizer.divide(layout);
  if (!shard) return optimizer;
  if (settings.kind != OptimizerKind::kAdamW) return fail(Status::invalid("Muon moves whole matrices, and no shards"));
  optimizer.keep(*shard);
  return optimizer;
}

Result<Optimizer> Optimizer::lay_out(size_t elements, const OptimizerSettings& settings) {
  TRY(check(settings));
  Optimizer optimizer(settings);
  optimizer.ranges_.push_back({.begin = 0, .end = elements, .moments = 0});
  return optimizer;
}

Result<Optimizer> Optimizer::create(const model::ParameterLayout& layout, const OptimizerSettings& settings,
                                    std::optional<Piece> shard) {
  Optimizer optimizer = TRY(lay_out(layout, settings, shard));
  optimizer.allocate();
  return optimizer;
}

Result<Optimizer> Optimizer::create(size_t elements, const OptimizerSettings& settings) {
  Optimizer optimizer = TRY(lay_out(elements, settings));
  optimizer.allocate();
  return optimizer;
}

Result<size_t> Optimizer::bytes_of(const model::ParameterLayout& layout, const OptimizerSettings& settings,
                                   std::optional<Piece> shard) {
  return TRY(lay_out(layout, settings, shard)).specs().bytes();
}

Result<size_t> Optimizer::bytes_of(size_t elements, const OptimizerSettings& settings) {
  return TRY(lay_out(elements, settings)).specs().bytes();
}

size_t Optimizer::bytes() const { return state_.bytes() + workspace_.bytes(); }

Optimizer::Specs Optimizer::specs() const {
  size_t moments = 0, momentum = 0, workspace = 0;
  for (const Range& range : ranges_) moments += range.size();
  for (const Matrix& m : matrices_) {
    momentum += static_cast<size_t>(m.rows) * static_cast<size_t>(m.columns);
    workspace = std::max(workspace, kernels::muon_workspace(m.rows, m.columns));
  }
  const auto dtype = settings_.moments == Moments::kBf16 ? model::DType::kBF16 : model::DType::kF32;
  Specs specs{.state = {{.name = kFirstMoments, .elements = moments, .dtype = dtype},
                        {.name = kSecondMoments, .elements = moments, .dtype = dtype}},
              .workspace = {}};
  if (momentum == 0) return specs;
  specs.state.push_back({.name = kMomentum, .elements = momentum});
  specs.workspace.push_back({.name = kWorkspace, .elements = workspace, .dtype = model::DType::kU8});
  return specs;
}

void Optimizer::allocate() {
  const Specs specs = this->specs();
  state_ = Buffers(specs.state);
  workspace_ = Buffers(specs.workspace);
}

void Optimizer::divide(const model::ParameterLayout& layout) {
  size_t begin = 0, moments = 0;
  const auto end_range = [&](const model::Parameter& p) {
    if (p.offset > begin) ranges_.push_back({.begin = begin, .end = p.offset, .moments = moments});
    moments += p.offset - begin;
    begin = p.offset + p.elements();
  };
  const auto hidden = between_hidden_layers(layout);
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const model::Parameter& p = layout.parameters[i];
    const bool is_muons = settings_.kind == OptimizerKind::kMuon && hidden[i];
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

// Ranges count from the shard's beginning, and their moments from those before it.
void Optimizer::keep(const Piece& shard) {
  const size_t end = shard.begin + shard.count;
  std::vector<Range> kept;
  size_t moments = 0;
  for (const Range& range : ranges_) {
    const size_t first = std::max(range.begin, shard.begin), last = std::min(range.end, end);
    if (range.begin < shard.begin) moments_before_ += std::min(range.end, shard.begin) - range.begin;
    if (first >= last) continue;
    kept.push_back({.begin = first - shard.begin, .end = last - shard.begin, .moments = moments});
    moments += last - first;
  }
  ranges_ = std::move(kept);
}

Status Optimizer::step(kernels::Stream& stream, const Step& step) {
  if (!matrices_.empty()) TRY(muon(stream, step));
  return settings_.moments == Moments::kBf16 ? adamw<kernels::bf16>(stream, step) : adamw<float>(stream, step);
}

template <typename Moment>
Status Optimizer::adamw(kernels::Stream& stream, const Step& step) {
  const auto first = state_.at(kFirstMoments).host<Moment>(), second = state_.at(kSecondMoments).host<Moment>();
  for (const Range& range : ranges_) {
    kernels::BasicAdamW<Moment> arguments;
    arguments.grad = step.gradients.host<float>().data() + range.begin;
    arguments.master = step.masters.host<float>().data() + range.begin;
    arguments.first_moment = first.data() + range.moments;
    arguments.second_moment = second.data() + range.moments;
    arguments.weight = step.weights.host<kernels::bf16>().data() + range.begin;
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
  const auto momentum = state_.at(kMomentum).host<float>();
  size_t at = 0;
  for (const Matrix& matrix : matrices_) {
    kernels::Muon arguments;
    arguments.grad = step.gradients.host<float>().data() + matrix.begin;
    arguments.master = step.masters.host<float>().data() + matrix.begin;
    arguments.momentum = momentum.data() + at;
    arguments.weight = step.weights.host<kernels::bf16>().data() + matrix.begin;
    arguments.rows = matrix.rows;
    arguments.columns = matrix.columns;
    arguments.grad_scale = step.grad_scale;
    arguments.learning_rate = step.learning_rate;
    arguments.beta = static_cast<float>(settings_.momentum);
    arguments.weight_decay = static_cast<float>(settings_.weight_decay);
    arguments.workspace = workspace_.at(kWorkspace).host<std::byte>().data();
    TRY(kernels::muon(stream, arguments));
    at += static_cast<size_t>(matrix.rows) * static_cast<size_t>(matrix.columns);
  }
  return {};
}

std::string Optimizer::description() const {
  return fmt::format("{}, {} moments", kOptimizerNames[static_cast<size_t>(settings_.kind)],
                     kMomentNames[static_cast<size_t>(settings_.moments)]);
}

}  // namespace tandem::trainer
