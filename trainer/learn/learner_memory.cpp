// How much memory a learner holds: beforehand, and when it is there.
#include "trainer/learn/learner.h"

namespace tandem::trainer {

namespace {

// Untouched parts of a Buffer take no memory.
size_t learned_elements(const model::ParameterLayout& layout, std::span<const uint8_t> learned) {
  if (learned.empty()) return layout.elements;
  size_t elements = 0;
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    if (learned[i] != 0) elements += layout.parameters[i].elements();
  }
  return elements;
}

// Of weights that were copied to be read.
size_t of_copy(const model::Weights::Memory& memory) { return memory.all() - memory.returned; }

// With LoRA: factors, their gradients and rounded values beside the gradients of the targets, and the targets as they
// were.
size_t of_masters(size_t learned, size_t factors, size_t base) {
  if (factors == 0) return 2 * sizeof(float) * learned;
  return sizeof(float) * learned + (2 * sizeof(float) + sizeof(kernels::bf16)) * factors + sizeof(kernels::bf16) * base;
}

}  // namespace

Result<Learner::Memory> Learner::memory_of(const model::ModelConfig& config, model::WeightFormat format,
                                           const OptimizerSettings& settings, bool with_reference) {
  const auto layout = TRY(model::parameter_layout(config));
  Memory memory;
  memory.weights = TRY(model::Weights::memory_of(config, true, format));
  memory.previous = of_copy(TRY(model::Weights::memory_of(config, false, format)));
  memory.reference = with_reference ? memory.previous : 0;
  std::vector<uint8_t> learned;
  if (settings.low_rank.rank > 0) {
    const auto low_rank = TRY(LowRank::plan(layout, settings.low_rank));
    learned = low_rank.learned(layout);
    memory.optimizer = TRY(Optimizer::bytes_of(low_rank.elements(), settings));
    memory.masters_and_gradients =
        of_masters(learned_elements(layout, learned), low_rank.elements(), low_rank.base_elements());
  } else {
    memory.optimizer = TRY(Optimizer::bytes_of(layout, settings));
    memory.masters_and_gradients = of_masters(layout.elements, 0, 0);
  }
  memory.slots = SlotSum::bytes_of(layout, learned, settings.slots);
  return memory;
}

Learner::Memory Learner::memory() const {
  Memory memory;
  memory.weights = weights_->memory();
  memory.previous = previous_ ? of_copy(previous_->memory()) : 0;
  memory.reference = reference_ ? of_copy(reference_->memory()) : 0;
  memory.optimizer = optimizer_.bytes();
  memory.slots = slot_sum_ ? slot_sum_->bytes() : 0;
  memory.masters_and_gradients = of_masters(learned_elements(weights_->layout(), learned_), factor_grads_.size(),
                                            low_rank_ ? low_rank_->base_elements() : 0);
  return memory;
}

}  // namespace tandem::trainer
