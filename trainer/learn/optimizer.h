// The optimizer: updates weights by their gradients, and keeps moments between steps.
//
// AdamW for all of them; or Muon for the matrices between hidden layers, each as the checkpoint knows it (queries, keys
// and values apart, an expert's gate and up apart), and AdamW for embedding, head, routers, norms and biases. Muon's
// updates have the size of AdamW's (Liu et al. 2025), so one learning rate serves both. The formulas are in
// kernels/optimizer.h and kernels/muon.h.
//
// A step is a function of masters, moments and gradients: the same bits with any number of threads.
//
// Thread safety: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/stream.h"
#include "model/parameters.h"
#include "trainer/learn/batch_updates.h"
#include "trainer/learn/buffers.h"
#include "trainer/learn/learning_rate.h"
#include "trainer/learn/low_rank.h"
#include "trainer/learn/ranks.h"

namespace tandem::trainer {

enum class OptimizerKind : uint8_t { kAdamW, kMuon };
inline constexpr std::array<const char*, 2> kOptimizerNames = {"adamw", "muon"};
enum class Moments : uint8_t { kFp32, kBf16 };
inline constexpr std::array<const char*, 2> kMomentNames = {"fp32", "bf16"};
// kInvalid for an unknown name.
Result<OptimizerKind> optimizer_named(std::string_view name);
Result<Moments> moments_named(std::string_view name);

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kAdamW;
  Moments moments = Moments::kFp32;  // AdamW's; Muon's momentum is fp32
  LearningRate learning_rate;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  double momentum = 0.95;      // Muon's
  double max_grad_norm = 1;    // 0: no clipping
  double skip_spikes = 0;      // an update is left out whose norm is above this many medians of those before; 0: never
  LowRankSettings low_rank;    // the factors that learn; of rank 0: all weights learn
  int max_pass_tokens = 1024;  // rows of one forward and backward pass; bounds the memory
  int slots = 8;               // virtual slots that gradients are summed in (slots.h); a power of two
  BatchUpdates updates;        // of a step by reinforcement
  // Logit scale of policy, reference and teacher: kernels::logit_scale_at the temperature of the samples.
  float logit_scale = 1;
};

// kInvalid names the wrong setting.
Status check(const OptimizerSettings& settings);

// Whether each of several ranks keeps a part of masters and moments. LoRA's factors are few, and Muon moves whole
// matrices: there each rank has all of them, and moves them alike.
bool are_sharded(const OptimizerSettings& settings, int ranks);

class Optimizer {
 public:
  // All moments are zero. Of a `shard` only these elements of the layout, which the slices of a step are then of; AdamW
  // alone can be shared out. kInvalid as `check` gives it.
  static Result<Optimizer> create(const model::ParameterLayout& layout, const OptimizerSettings& settings,
                                  std::optional<Piece> shard = {});
  // For parameters outside of a model, such as LoRA's factors. AdamW only.
  static Result<Optimizer> create(size_t elements, const OptimizerSettings& settings);

  // Bytes of all that an optimizer made with the same arguments holds, without making it.
  static Result<size_t> bytes_of(const model::ParameterLayout& layout, const OptimizerSettings& settings,
                                 std::optional<Piece> shard = {});
  static Result<size_t> bytes_of(size_t elements, const OptimizerSettings& settings);
  size_t bytes() const;

  struct Step {
    ConstSlice gradients;  // fp32 [elements], as masters
    Slice masters;
    Slice weights;  // bf16 [elements]: the masters rounded, afterwards
    float grad_scale = 1;
    float learning_rate = 0;
    int64_t number = 1;  // counts from 1
  };
  // Split parameters (model::Parameter) are not updated.
  Status step(kernels::Stream& stream, const Step& step);

  // The slices that a checkpoint stores: first_moments, second_moments and, with Muon, momentum, fp32 or bf16. A load
  // writes to them.
  std::vector<Slice> state() { return state_.all(); }
  // Moments of the whole that lie before those of the shard.
  size_t moments_before() const { return moments_before_; }
  // For example "muon, fp32 moments". Optimizers with equal descriptions and models have the same layout of state().
  std::string description() const;

 private:
  struct Matrix {
    size_t begin = 0;
    int rows = 0, columns = 0;
  };
  struct Range {  // of AdamW
    size_t begin = 0, end = 0;
    size_t moments = 0;  // where its moments begin
    size_t size() const { return end - begin; }
  };

  explicit Optimizer(const OptimizerSettings& settings) : settings_(settings) {}
  static Result<Optimizer> lay_out(const model::ParameterLayout& layout, const OptimizerSettings& settings,
                                   std::optional<Piece> shard);
  static Result<Optimizer> lay_out(size_t elements, const OptimizerSettings& settings);
  void divide(const model::ParameterLayout& layout);
  void keep(const Piece& shard);
  struct Specs {
    std::vector<SliceSpec> state, workspace;
    size_t bytes() const { return trainer::bytes_of(state) + trainer::bytes_of(workspace); }
  };
  Specs specs() const;
  void allocate();
  template <typename Moment>
  Status adamw(kernels::Stream& stream, const Step& step);
  Status muon(kernels::Stream& stream, const Step& step);

  OptimizerSettings settings_;
  std::vector<Range> ranges_;
  std::vector<Matrix> matrices_;
  size_t moments_before_ = 0;
  Buffers state_;  // moments by ranges, momentum by matrices, one behind the other
  Buffers workspace_;
};

}  // namespace tandem::trainer
