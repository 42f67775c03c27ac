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
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/status.h"
#include "kernels/formats/bf16.h"
#include "kernels/stream.h"
#include "model/parameters.h"
#include "trainer/learn/learning_rate.h"
#include "trainer/learn/low_rank.h"

namespace tandem::trainer {

enum class OptimizerKind : uint8_t { kAdamW, kMuon };
inline constexpr std::array<const char*, 2> kOptimizerNames = {"adamw", "muon"};
enum class Moments : uint8_t { kFp32, kBf16 };
inline constexpr std::array<const char*, 2> kMomentNames = {"fp32", "bf16"};
// kInvalid for a name that is none of them.
Result<OptimizerKind> optimizer_named(std::string_view name);
Result<Moments> moments_named(std::string_view name);

struct OptimizerSettings {
  OptimizerKind kind = OptimizerKind::kAdamW;
  Moments moments = Moments::kFp32;  // AdamW's; Muon's momentum is fp32
  LearningRate learning_rate;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0;
  double momentum = 0.95;      // Muon's
  double max_grad_norm = 1;    // 0: no clipping
  LowRankSettings low_rank;    // the factors that learn; of rank 0: all weights learn
  int max_pass_tokens = 1024;  // rows of one forward and backward pass; bounds the memory
  int slots = 8;               // virtual slots that gradients are summed in (slots.h); a power of two
};

// kInvalid names the setting that cannot be.
Status check(const OptimizerSettings& settings);

class Optimizer {
 public:
  // All moments are zero. kInvalid as `check` gives it.
  static Result<Optimizer> create(const model::ParameterLayout& layout, const OptimizerSettings& settings);
  // For parameters outside of a model, such as LoRA's factors. AdamW only.
  static Result<Optimizer> create(size_t elements, const OptimizerSettings& settings);

  // Bytes of all that an optimizer made with the same arguments holds, without making it.
  static Result<size_t> bytes_of(const model::ParameterLayout& layout, const OptimizerSettings& settings);
  static Result<size_t> bytes_of(size_t elements, const OptimizerSettings& settings);
  size_t bytes() const;

  struct Step {
    std::span<const float> grads;  // [elements], as masters and weights
    std::span<float> masters;
    std::span<kernels::bf16> weights;  // the masters rounded, afterwards
    float grad_scale = 1;
    float learning_rate = 0;
    int64_t number = 1;  // counts from 1
  };
  // Split parameters (model::Parameter) are not updated.
  Status step(kernels::Stream& stream, const Step& step);

  // The state that a checkpoint keeps. `values` are fp32 or bf16, in the layout of memory; a load writes to them.
  struct Memory {
    const char* name = nullptr;
    bool bf16 = false;
    std::span<std::byte> values;
  };
  std::vector<Memory> memory();
  // Such as "muon, fp32 moments". Optimizers with equal descriptions and models have the same layout of memory().
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
  static Result<Optimizer> lay_out(const model::ParameterLayout& layout, const OptimizerSettings& settings);
  static Result<Optimizer> lay_out(size_t elements, const OptimizerSettings& settings);
  void divide(const model::ParameterLayout& layout);
  struct Sizes {
    size_t moments = 0, momentum = 0, workspace = 0;  // elements, elements, bytes
  };
  Sizes sizes() const;
  size_t bytes(const Sizes& sizes) const;
  void allocate();
  template <typename Moment>
  Status adamw(kernels::Stream& stream, const Step& step, Buffer<Moment>& first, Buffer<Moment>& second);
  Status muon(kernels::Stream& stream, const Step& step);

  OptimizerSettings settings_;
  std::vector<Range> ranges_;
  std::vector<Matrix> matrices_;
  Buffer<float> first_moments_, second_moments_;
  Buffer<kernels::bf16> first_moments_bf16_, second_moments_bf16_;
  Buffer<float> momentum_;  // of the matrices, one behind the other
  Buffer<std::byte> workspace_;
};

}  // namespace tandem::trainer
