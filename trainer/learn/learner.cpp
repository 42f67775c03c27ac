#include "trainer/learn/learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "kernels/optimizer.h"

namespace tandem::trainer {

using kernels::bf16;

namespace {

constexpr const char *kFactorGradients = "factor_gradients", *kFactorsRounded = "factors_rounded";

// Untouched parts of a buffer take no memory.
size_t learned_elements(const model::ParameterLayout& layout, const LowRank* low_rank) {
  if (low_rank == nullptr) return layout.elements;
  const std::vector<uint8_t> learned = low_rank->learned(layout);
  size_t elements = 0;
  for (size_t i = 0; i < learned.size(); ++i) elements += learned[i] != 0 ? layout.parameters[i].elements() : 0;
  return elements;
}

}  // namespace

std::vector<SliceSpec> Learner::specs_of(const model::ParameterLayout& layout, const LowRank* low_rank,
                                         const std::optional<Piece>& shard) {
  const size_t masters = shard ? shard->count : layout.elements;
  std::vector<SliceSpec> specs = {
      {.name = kMasters, .elements = low_rank ? low_rank->elements() : masters},
      {.name = kGradients, .elements = layout.elements, .touched = learned_elements(layout, low_rank)}};
  if (low_rank == nullptr) return specs;
  specs.push_back({.name = kFactorGradients, .elements = low_rank->elements()});
  // AdamW's bf16 output for the factors; unused.
  specs.push_back({.name = kFactorsRounded, .elements = low_rank->elements(), .dtype = model::DType::kBF16});
  return specs;
}

std::vector<Learner::StateSlice> Learner::state() {
  std::vector<StateSlice> slices = {{masters(), shard_ ? shard_->begin : 0}};
  for (const Slice& slice : optimizer_.state()) slices.push_back({slice, optimizer_.moments_before()});
  if (critic_) {
    for (const Slice& slice : critic_->state()) slices.push_back({slice, 0, true});
  }
  return slices;
}

Learner::Learner(model::Weights weights, kernels::Stream stream, std::unique_ptr<LowRank> low_rank, Optimizer optimizer,
                 const OptimizerSettings& settings, Ranks ranks, std::optional<Piece> shard)
    : weights_(std::make_unique<model::Weights>(std::move(weights))),
      tape_(std::make_unique<Tape>(weights_->config(), weights_->config().max_positions)),
      stream_(std::move(stream)),
      settings_(settings),
      ranks_(std::move(ranks)),
      shard_(shard),
      low_rank_(std::move(low_rank)),
      optimizer_(std::move(optimizer)) {}

Result<Learner> Learner::create(model::Weights weights, kernels::Stream stream, const OptimizerSettings& settings,
                                Ranks ranks) {
  return create(std::move(weights), std::move(stream), nullptr, settings, std::move(ranks));
}

Result<Learner> Learner::create(model::Weights weights, const model::Place& place, const OptimizerSettings& settings,
                                Ranks ranks) {
  std::unique_ptr<Tape> tape;
  if (!place.device.on_cpu()) tape = TRY(Tape::on_device(place.device, weights, weights.config().max_positions));
  auto learner = TRY(create(std::move(weights), TRY(place.host_stream()), std::move(tape), settings, std::move(ranks)));
  learner.device_ = place.device;
  return learner;
}

Result<Learner> Learner::create(model::Weights weights, kernels::Stream stream, std::unique_ptr<Tape> tape,
                                const OptimizerSettings& settings, Ranks ranks) {
  if (!weights.for_training()) return fail(Status::internal("a learner needs weights for training"));
  TRY(check(settings));
  TRY(check_ranks(ranks.count(), settings.slots));
  std::unique_ptr<LowRank> low_rank;
  if (settings.low_rank.rank > 0)
    low_rank = std::make_unique<LowRank>(TRY(LowRank::create(weights, settings.low_rank)));
  std::optional<Piece> shard;
  if (are_sharded(settings, ranks.count()))
    shard = shards_of(weights.layout().elements, ranks.count())[static_cast<size_t>(ranks.rank())];
  auto optimizer = low_rank ? TRY(Optimizer::create(low_rank->elements(), settings))
                            : TRY(Optimizer::create(weights.layout(), settings, shard));
  Learner learner(std::move(weights), std::move(stream), std::move(low_rank), std::move(optimizer), settings,
                  std::move(ranks), shard);
  if (tape) {
    learner.tape_ = std::move(tape);
    learner.on_device_ = true;
  }
  TRY(learner.take_masters());
  return learner;
}

void Learner::give_back_device() {
  if (!on_device_) return;
  slot_sum_.reset();
  tape_.reset();
  teacher_tape_.reset();
}

Status Learner::take_device() {
  tape_ = TRY(Tape::on_device(device_, *weights_, weights_->config().max_positions));
  if (teacher_) teacher_tape_ = TRY(Tape::on_device(device_, *teacher_, teacher_->config().max_positions));
  return {};
}

Status Learner::take_masters() {
  buffers_ = Buffers(specs_of(weights_->layout(), low_rank_.get(), shard_));
  if (low_rank_) {
    learned_ = low_rank_->learned(weights_->layout());
    TRY(low_rank_->initialise(masters()));
  } else {
    std::ranges::transform(own(weights_->slice()).host<bf16>(), masters().host<float>().begin(),
                           [](bf16 w) { return kernels::to_float(w); });
  }
  return rebuild_weights();
}

Status Learner::export_model(const fs::path& directory, const fs::path& source) const {
  TRY(model::save_weights(*weights_, directory, source));
  if (gives_rewards()) {
    const auto numbers = critic_->numbers();
    TRY(model::write_reward_head({.weight = {numbers.begin(), numbers.end()}, .notes = reward_notes_}, directory));
  } else if (critic_) {
    TRY(critic_->write(directory));
  }
  if (!low_rank_) return {};
  return model::write_adapter(low_rank_->adapter(masters()), directory / "adapter", source.string());
}

std::string Learner::description() const {
  std::string text = optimizer_.description();
  if (low_rank_) text += ", " + low_rank_->description();
  if (critic_) text += gives_rewards() ? ", a reward head" : ", a critic";
  return text;
}

Status Learner::rebuild_weights() {
  if (low_rank_) {
    TRY(low_rank_->merge(stream_, masters(), *weights_));
  } else {
    std::ranges::transform(masters().host<float>(), own(weights_->slice()).host<bf16>().begin(),
                           [](float value) { return kernels::to_bf16(value); });
    TRY(gather_weights());
  }
  return ready();
}

std::string Learner::numerics_id() const {
  const std::string_view format = model::to_string(weights_->format());
  if (device_.on_cpu()) return stream_.numerics_id(format);
  return kernels::numerics_id(device_, format).value_or("unknown");  // it is there: passes run on it
}

Status Learner::ready() { return on_device_ ? weights_->encode(stream_) : weights_->pack(stream_); }

Status Learner::copy_weights(std::unique_ptr<model::Weights>& copy) {
  if (!copy)
    copy = std::make_unique<model::Weights>(TRY(model::Weights::create(weights_->config(), false, weights_->format())));
  if (on_device_) {
    std::ranges::copy(weights_->wire(), copy->wire().begin());
    copy->mark_received();
    return {};
  }
  return copy->pack_received(stream_, weights_->wire());
}

Status Learner::keep_reference() { return copy_weights(reference_); }

Status Learner::prepare(const Algorithm& algorithm) {
  if (any_part(algorithm, needs_reference)) TRY(keep_reference());
  // One critic serves all parts, whose keys of it are the same.
  for (size_t part = 0; part <= algorithm.parts.size() && !critic_; ++part) {
    const Algorithm& of_part = part_of(algorithm, part);
    if (needs_critic(of_part)) critic_ = TRY(ValueHead::create(weights_->config().width, of_part.critic.learning_rate));
  }
  return {};
}

std::span<const Sample> without_demonstrations(std::span<const Sample> samples) {
  size_t count = samples.size();
  while (count > 0 && samples[count - 1].part == kDemonstrationPart) --count;
  return samples.first(count);
}

double trained_tokens(std::span<const Sample> samples) {
  double tokens = 0;
  for (const Sample& sample : samples) {
    if (!sample.trained.empty())
      tokens += static_cast<double>(std::count(sample.trained.begin() + 1, sample.trained.end(), 1));
  }
  return tokens;
}

std::vector<SlotGroup> groups_of(std::span<const Sample> samples) {
  std::vector<SlotGroup> groups;
  for (size_t i = 0; i < samples.size(); ++i) {
    const bool same = i > 0 && samples[i].group && samples[i].group == samples[i - 1].group;
    if (!same) groups.push_back({.begin = i, .end = i});
    groups.back().end = i + 1;
    groups.back().tokens += samples[i].tokens.size();
  }
  return groups;
}

std::vector<int> Learner::owners_of(std::span<const Sample> samples) const {
  const auto groups = groups_of(samples);
  const auto dealt = deal(groups, settings_.slots);
  const size_t own_slots = dealt.size() / static_cast<size_t>(ranks_.count());
  std::vector<int> owners(samples.size());
  for (size_t slot = 0; slot < dealt.size(); ++slot) {
    for (const size_t group : dealt[slot])
      std::fill(owners.begin() + static_cast<ptrdiff_t>(groups[group].begin),
                owners.begin() + static_cast<ptrdiff_t>(groups[group].end), static_cast<int>(slot / own_slots));
  }
  return owners;
}

// Counts are added slot by slot, and what became of samples by the callers in the order of the batch: neither depends
// on who computes what.
Result<std::vector<Learner::Outcome>> Learner::accumulate(std::span<const Sample> samples,
                                                          const SampleGradients& gradients_of, StepMetrics& metrics,
                                                          Asked asked) {
  const auto groups = groups_of(samples);
  const auto dealt = deal(groups, settings_.slots);
  const size_t own_slots = dealt.size() / static_cast<size_t>(ranks_.count());
  const size_t first = own_slots * static_cast<size_t>(ranks_.rank());
  std::vector<std::vector<size_t>> places(dealt.size());
  std::vector<bool> used(own_slots);
  std::vector<int> owners_of_slots(dealt.size());
  const std::vector<int> owners_of_samples = owners_of(samples);
  for (size_t slot = 0; slot < dealt.size(); ++slot) {
    owners_of_slots[slot] = static_cast<int>(slot / own_slots);
    for (const size_t group : dealt[slot]) {
      for (size_t i = groups[group].begin; i < groups[group].end; ++i) places[slot].push_back(i);
    }
    if (owners_of_slots[slot] == ranks_.rank()) used[slot - first] = !places[slot].empty();
  }
  if (!tape_) TRY(ranks_.agree(take_device()));
  if (!slot_sum_) {
    const auto& layout = weights_->layout();
    const size_t bytes = SlotSum::bytes_of(layout, learned_, static_cast<int>(own_slots), true);
    slot_sum_.emplace(layout, learned_, tape_->slot_memory(bytes));
  }
  std::vector<PassCounts> counts(dealt.size());
  std::vector<Outcome> outcomes(samples.size());
  const size_t head_elements = value_pass_ ? critic_->elements() : 0;
  std::vector<double> head_gradients(dealt.size() * head_elements, 0);
  const auto added =
      slot_sum_->add(buffers_.at(kGradients), used, [&](size_t place, const Slice& into) -> Result<bool> {
        const size_t slot = first + place;
        counts[slot] = TRY(run_slot(samples, places[slot], gradients_of, into, outcomes,
                                    std::span(head_gradients).subspan(slot * head_elements, head_elements), asked));
        return counts[slot].any;
      });
  TRY(ranks_.agree(added ? Status() : added.error()));
  TRY(ranks_.exchange(std::span(counts), owners_of_slots));
  TRY(ranks_.exchange(std::span(outcomes), owners_of_samples));
  if (value_pass_) TRY(sum_of_slots(head_gradients, owners_of_slots));
  PassCounts sum;
  for (const PassCounts& of_slot : counts) {
    sum.trained_tokens += of_slot.trained_tokens;
    sum.sample_tokens += of_slot.sample_tokens;
    sum.tree_tokens += of_slot.tree_tokens;
    sum.routes_taken += of_slot.routes_taken;
    sum.routes_changed += of_slot.routes_changed;
    sum.kept_of += of_slot.kept_of;
    sum.truncated += of_slot.truncated;
    sum.kept += of_slot.kept;
    sum.any = sum.any || of_slot.any;
  }
  metrics.trained_tokens += sum.trained_tokens;
  metrics.sample_tokens += sum.sample_tokens;
  metrics.tree_tokens += sum.tree_tokens;
  metrics.routes_taken += sum.routes_taken;
  metrics.routes_changed += sum.routes_changed;
  metrics.kept_of += sum.kept_of;
  metrics.truncated += sum.truncated;
  metrics.kept += sum.kept;
  double entropy = 0;
  int64_t entropy_tokens = 0;
  const size_t drawn = without_demonstrations(samples).size();  // the entropy is that of the policy's own samples
  for (const Outcome& outcome : std::span(outcomes).first(drawn)) {
    entropy += outcome.entropy;
    entropy_tokens += outcome.entropy_tokens;
    metrics.max_abs_logprob_diff = std::max(metrics.max_abs_logprob_diff, outcome.max_abs_logprob_diff);
    metrics.compared_tokens += outcome.compared_tokens;
  }
  metrics.entropy = entropy_tokens > 0 ? entropy / static_cast<double>(entropy_tokens) : 0;
  TRY(sum_over_ranks(*added, sum.any));
  return outcomes;
}

Status Learner::apply(StepMetrics& metrics) {
  TRY(update(metrics));
  ++steps_;
  return {};
}

Status Learner::update(StepMetrics& metrics) {
  if (low_rank_) {
    TRY(low_rank_->pass_on(stream_, masters(), buffers_.at(kGradients), buffers_.at(kFactorGradients)));
  }
  const Slice gradients = low_rank_ ? buffers_.at(kFactorGradients) : own(buffers_.at(kGradients));
  metrics.grad_norm = TRY(norm_of(gradients));
  if (!std::isfinite(metrics.grad_norm)) {
    return Status::corrupt(
        fmt::format("the gradient of step {} is not finite; the weights were left as they are", steps_ + 1));
  }
  const bool spike = settings_.skip_spikes > 0 && norms_.is_spike(metrics.grad_norm, settings_.skip_spikes);
  if (settings_.skip_spikes > 0) norms_.add(metrics.grad_norm);
  if (spike) {
    metrics.learning_rate = settings_.learning_rate.at(steps_ + 1);
    ++metrics.skipped_spikes;
    forget_gradients();
    return {};
  }
  const bool clip = settings_.max_grad_norm > 0 && metrics.grad_norm > settings_.max_grad_norm;
  ++updates_;
  metrics.learning_rate = settings_.learning_rate.at(steps_ + 1);
  TRY(optimizer_.step(stream_,
                      {.gradients = gradients,
                       .masters = masters(),
                       .weights = low_rank_ ? buffers_.at(kFactorsRounded) : own(weights_->slice()),
                       .grad_scale = clip ? static_cast<float>(settings_.max_grad_norm / metrics.grad_norm) : 1.0f,
                       .learning_rate = static_cast<float>(metrics.learning_rate),
                       .number = updates_}));
  forget_gradients();
  if (low_rank_) TRY(low_rank_->merge(stream_, masters(), *weights_));
  TRY(gather_weights());
  return ready();
}

// Untouched parts of a Buffer take no memory, so those that nothing was added to are left alone.
void Learner::forget_gradients() {
  const auto& parameters = weights_->layout().parameters;
  const Slice gradients = buffers_.at(kGradients);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (learned_.empty() || learned_[i] != 0)
      std::ranges::fill(gradients.part(parameters[i].offset, parameters[i].elements()).host<float>(), 0.0f);
  }
}

Result<StepMetrics> Learner::imitate(std::span<const Sample> samples) {
  StepMetrics metrics;
  int64_t tokens = 0;
  for (const Sample& sample : samples) tokens += std::count(sample.trained.begin(), sample.trained.end(), 1);
  if (tokens == 0) return fail(Status::invalid("no token of the batch is to be learned from"));
  const auto outcomes = TRY(accumulate(
      samples,
      [&](size_t, const TokenLogprobs& at, std::vector<double>& gradients, Outcome& outcome) {
        for (const double logprob : at.logprobs) outcome.loss -= logprob;
        std::fill(gradients.begin(), gradients.end(), -1.0 / static_cast<double>(tokens));
      },
      metrics));
  for (const Outcome& outcome : outcomes) metrics.loss += outcome.loss;
  metrics.loss /= static_cast<double>(tokens);
  TRY(apply(metrics));
  return metrics;
}

Result<double> Learner::evaluate(std::span<const Sample> samples) {
  const auto sums = TRY(sums_of_logprobs(samples));
  const double tokens = trained_tokens(samples);
  return tokens > 0 ? -std::accumulate(sums.begin(), sums.end(), 0.0) / tokens : 0.0;
}

}  // namespace tandem::trainer
