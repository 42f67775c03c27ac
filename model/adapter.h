// LoRA adapters (Hu et al. 2021) in PEFT's format: read, written, and added to the weights that they were made for.
//
// A matrix W becomes W + scale * B A; scale is alpha / rank, or alpha / sqrt(rank) with use_rslora. B A is a product of
// fp32 (kernels/gemm.h, sums over the rank in order); scale times it is added to W in fp32 and rounded once, to what W
// is. So an adapter that is trained, written, read and merged again gives the same bits on every machine.
//
// Thread safety: none.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "kernels/stream.h"
#include "model/weights.h"

namespace tandem::model {

// The factors of one matrix.
struct Factors {
  int rows = 0, columns = 0;
  std::vector<float> a;  // [rank][columns]
  std::vector<float> b;  // [rows][rank]
};

// The files of an adapter's directory.
inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterFactorsFile = "adapter_model.safetensors";

struct Adapter {
  int rank = 0;
  double alpha = 0;
  bool use_rslora = false;
  std::map<std::string, Factors>
      factors;  // by the matrix's name in the checkpoint, "model.layers.0.mlp.down_proj.weight"

  float scale() const;
};

// Reads adapter_config.json and adapter_model.safetensors (bf16, f16, f32) of a directory. What would change the
// computation and is not implemented (DoRA, biases, modules saved whole, ranks by pattern) is refused by name.
Result<Adapter> read_adapter(const fs::path& directory);

// Writes both, factors in f32, for PEFT, vLLM and `read_adapter`. `base_model` is what the adapter says it is for.
Status write_adapter(const Adapter& adapter, const fs::path& directory, const std::string& base_model);

// Adds the adapter to weights, bf16 or float32, which are to be packed after it. Gives how many matrices changed.
// kInvalid where the model has no such matrix or one of another shape; nothing is changed then.
Result<int> merge(kernels::Stream& stream, const Adapter& adapter, Weights& weights);
// Reads an adapter and merges it; an error names the file.
Result<int> merge_adapter(kernels::Stream& stream, const fs::path& directory, Weights& weights);

// A matrix as the checkpoint knows it: where it begins in the flat array, and its shape.
struct Matrix {
  size_t offset = 0;
  int rows = 0, columns = 0;
  size_t elements() const { return static_cast<size_t>(rows) * static_cast<size_t>(columns); }
};

// kInvalid where the model that these are of has no such matrix or one of another shape.
Status check_fits(const Adapter& adapter, const std::map<std::string, Matrix>& matrices);

// Pieces of `merge` for who has factors in memory of their own: out = base + scale * b a. `base` may be `out`.
template <typename T>
struct LowRankSum {
  Matrix shape;
  int rank = 0;
  float scale = 1;
  const float* a = nullptr;
  const float* b = nullptr;
  const T* base = nullptr;
  T* out = nullptr;
};
Status add_low_rank(kernels::Stream& stream, const LowRankSum<kernels::bf16>& arguments);
Status add_low_rank(kernels::Stream& stream, const LowRankSum<float>& arguments);

// PEFT's name for the matrix of a checkpoint's tensor: "q_proj" of "model.layers.0.self_attn.q_proj.weight".
std::string module_of(std::string_view name);

// All matrices that an adapter can change, by their names in the checkpoint.
std::map<std::string, Matrix> matrices_of(const ParameterLayout& layout);

}  // namespace tandem::model
