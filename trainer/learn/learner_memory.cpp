// How much memory a learner holds: beforehand, and when it is there.
#include <algorithm>

#include "trainer/learn/learner.h"

namespace tandem::trainer {

namespace {

// Memory of weights that were copied to be read.
size_t of_copy(const model::Weights::Memory& memory) { return memory.all() - memory.returned; }

// With LoRA the targets as they were are kept, too.
size_t with_base(size_t bytes, const LowRank* low_rank) {
  return low_rank ? bytes + sizeof(kernels::bf16) * low_rank->base_elements() : bytes;
}

}  // namespace

Result<Learner::Memory> Learner::memory_of(const model::ModelConfig& config, model::WeightFormat format,
                                           const OptimizerSettings& settings, bool with_reference, int ranks,
                                           const model::ModelConfig* teacher, bool on_device) {
  const auto layout = TRY(model::parameter_layout(config));
  Memory memory;
  memory.weights = TRY(model::Weights::memory_of(config, true, format));
  memory.previous = of_copy(TRY(model::Weights::memory_of(config, false, format)));
  memory.reference = with_reference ? memory.previous : 0;
  if (teacher != nullptr) memory.teacher = of_copy(TRY(model::Weights::memory_of(*teacher, false, format)));
  std::optional<LowRank> low_rank;
  std::vector<uint8_t> learned;
  if (settings.low_rank.rank > 0) {
    low_rank = TRY(LowRank::plan(layout, settings.low_rank));
    learned = low_rank->learned(layout);
  }
  TRY(check_ranks(ranks, settings.slots));
  std::optional<Piece> shard;
  if (are_sharded(settings, ranks)) {
    const auto shards = shards_of(layout.elements, ranks);
    shard = *std::ranges::max_element(shards, {}, &Piece::count);
  }
  const LowRank* const factors = low_rank ? &*low_rank : nullptr;
  memory.optimizer = factors ? TRY(Optimizer::bytes_of(factors->elements(), settings))
                             : TRY(Optimizer::bytes_of(layout, settings, shard));
  memory.masters_and_gradients = with_base(bytes_of(specs_of(layout, factors, shard)), factors);
  memory.slots = SlotSum::bytes_of(layout, learned, settings.slots / ranks, on_device);
  return memory;
}

Learner::Memory Learner::memory() const {
  Memory memory;
  memory.weights = weights_->memory();
  memory.previous = previous_ ? of_copy(previous_->memory()) : 0;
  memory.reference = reference_ ? of_copy(reference_->memory()) : 0;
  memory.teacher = teacher_ ? of_copy(teacher_->memory()) : 0;
  memory.optimizer = optimizer_.bytes();
  memory.slots = slot_sum_ ? slot_sum_->bytes() : 0;
  memory.masters_and_gradients = with_base(buffers_.bytes(), low_rank_.get());
  return memory;
}

}  // namespace tandem::trainer
