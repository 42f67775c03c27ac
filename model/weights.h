// The weights of one version of a model: one flat bf16 array, and the panels that products read.
//
// `flat` is what is stored, sent and digested; `pack` derives the panels from it. A Weights is written by one owner and
// may then be read by many.
#pragma once

#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/digest.h"
#include "base/file.h"
#include "kernels/gemm.h"
#include "model/parameters.h"

namespace tandem::model {

class Weights {
 public:
  // All zeros. `for_training` also keeps the transposed panels that the backward pass reads.
  static Result<Weights> create(const ModelConfig& config, bool for_training);

  const ModelConfig& config() const { return config_; }
  const ParameterLayout& layout() const { return layout_; }
  bool for_training() const { return for_training_; }

  std::span<kernels::bf16> flat() { return {flat_.data(), flat_.size()}; }
  std::span<const kernels::bf16> flat() const { return {flat_.data(), flat_.size()}; }
  const kernels::bf16* values(int parameter) const { return flat_.data() + layout_.parameters[parameter].offset; }

  // The fp32 numbers of a parameter that is split into three.
  std::vector<float> split_values(int parameter) const;

  // Rebuilds all panels from `flat`. Must follow every change of it.
  Status pack(kernels::Stream& stream);
  // Gives back the memory of values that are read as panels only. From then on flat() and digest() mean nothing, until
  // all of it has been written again.
  void give_back_flat();
  // The panels of a parameter's matrix; of experts those of one after the other.
  const kernels::bf16* packed(int parameter) const { return packed_[parameter].data(); }
  const kernels::bf16* packed_transposed(int parameter) const { return transposed_[parameter].data(); }

  Digest digest() const { return digest_of(std::as_bytes(flat())); }

 private:
  ModelConfig config_;
  ParameterLayout layout_;
  bool for_training_ = false;
  Buffer<kernels::bf16> flat_;
  std::vector<Buffer<kernels::bf16>> packed_, transposed_;
};

// Reads a Hugging Face directory; F32 and F16 tensors are rounded to bf16. All missing tensors are named at once.
Result<Weights> load_weights(const fs::path& directory, bool for_training);

// Writes config.json, generation_config.json and the tensors; the tokenizer's files are copied from `source` unchanged
// where it has them.
Status save_weights(const Weights& weights, const fs::path& directory, const fs::path& source);

// Normal draws of deviation 0.02 (norms one, biases zero), as a model is born; a function of the seed.
void randomise(Weights& weights, uint64_t seed);

}  // namespace tandem::model
