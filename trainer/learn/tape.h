// The transformer for training: a forward pass through the engine's kernels, recorded, and its backward pass.
//
// The model is one chain of operations (model/transformer.cpp). The tape is the list of them; the backward pass reads
// it from the end, with one gradient buffer for the residual stream and two for its branches. Outputs of norms and of
// SwiGLU are not kept; a weight gradient that needs one recomputes it with the same bits.
//
// Where products are quantised (model/weight_format.h) gradients pass through the rounding as if it were not there: a
// product's two gradients are taken at the values that it multiplied, in bf16.
//
// Thread safety: none. Buffers grow to the largest batch and stay.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "kernels/lm_head.h"
#include "model/slice.h"
#include "model/weights.h"
#include "trainer/learn/head_rows.h"
#include "trainer/learn/routed_views.h"
#include "trainer/learn/slots.h"
#include "trainer/learn/token_tree.h"

namespace tandem::trainer {

// The logprob of the token after a row: `row` is the row of the token before it.
using kernels::TokenPick;

class Tape {
 public:
  // `format` is that of the weights.
  Tape(const model::ModelConfig& config, int max_positions, model::WeightFormat format = model::WeightFormat::kBf16);
  ~Tape();
  // On a device that is not the host, for weights like these, of which passes read `wire` alone. The bits of its
  // `exact` kernels are those of AVX2. kUnfit for float32, whose passes run on the CPU alone.
  static Result<std::unique_ptr<Tape>> on_device(const kernels::Device& device, const model::Weights& like,
                                                 int max_positions);

  // Runs the tree forward and gives the logprob of each pick (sorted by row), of the policy whose logits are the
  // model's times `logit_scale`: 1 / T at temperature T. Forgets the pass before. `routes`, where given, are the
  // experts that rows take in place of their routers' choice; routers learn by the weights of those. They must live
  // until the way back. kInvalid where they are not of the model or of the tree. `kept`, where given, has for each pick
  // the tokens that it was drawn from (HeadRows): its logprob is that among these, and no other token's logit learns.
  Result<std::vector<float>> forward(kernels::Stream& stream, const model::Weights& weights, const TokenTree& tree,
                                     std::span<const TokenPick> picks, const TreeRoutes* routes = nullptr,
                                     float logit_scale = 1, std::span<const KeptTokens> kept = {});
  // In the last forward pass: rows times layers whose experts were given, and those whose router would choose others.
  struct GivenRoutes {
    int64_t given = 0, changed = 0;
  };
  GivenRoutes given_routes() const;
  // Adds dLoss/dparameter to `gradients`, fp32, laid out as the weights, of the host or of this tape's slot_memory(),
  // given dLoss/dlogprob of each pick of the last forward pass. Weights must be for training, so not float32, and
  // unchanged since. `entropies`, when given, gets one entry a row of the head (head_row_of). `learned` says by
  // parameter whose gradient is wanted (empty: all); others cost no products, and their place in `gradients` is not
  // touched. `grad_states` (empty: none) is dLoss/dstate of what else reads states().
  Status backward(std::span<const float> grad_logprobs, const model::Slice& gradients,
                  std::vector<float>* entropies = nullptr, std::span<const uint8_t> learned = {},
                  std::span<const float> grad_states = {});

  // Where passes of this tape add up gradients without copying them: a device's memory, where `bytes`
  // (SlotSum::bytes_of) are half of what is free there at most, else the host's. It must not outlive the tape.
  std::unique_ptr<SlotMemory> slot_memory(size_t bytes);

  // The states that the head reads, [rows of the head, width]; only after a forward pass.
  Result<std::vector<float>> states();

  // Bytes that a forward pass keeps of a row until the backward pass, about; and what the last pass has kept of all.
  static Result<size_t> row_bytes_of(const model::ModelConfig& config);
  size_t kept_bytes() const;

  // The likeliest token after each row of `rows` (ascending); only after a forward pass.
  Result<std::vector<int32_t>> argmax(std::span<const int> rows);

 private:
  class Pass;
  template <typename T>
  class TapeOps;
  class DevicePass;
  explicit Tape(std::unique_ptr<Pass> pass);
  std::unique_ptr<Pass> pass_;
};

}  // namespace tandem::trainer
