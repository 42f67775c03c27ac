// The weights of one version of a model: one flat bf16 array, what is sent of it, and the panels that products read.
//
// `flat` is what is stored; `pack` derives all else from it. In bf16 `flat` is also what is sent. In fp8 and mxfp8 that
// is `wire`: matrices of the layers are quantised once, there, and the panels hold what their codes stand for, at the
// sender and, after `pack_received`, at the receiver alike. A Weights is written by one owner and may then be read by
// many.
#pragma once

#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/digest.h"
#include "base/file.h"
#include "kernels/gemm.h"
#include "model/parameters.h"
#include "model/weight_format.h"

namespace tandem::model {

class Weights {
 public:
  // All zeros. `for_training` also keeps the transposed panels that the backward pass reads.
  static Result<Weights> create(const ModelConfig& config, bool for_training,
                                WeightFormat format = WeightFormat::kBf16);

  const ModelConfig& config() const { return config_; }
  const ParameterLayout& layout() const { return layout_; }
  bool for_training() const { return for_training_; }
  WeightFormat format() const { return format_; }
  // Of the products with this parameter: the format of the layers' matrices, bf16 of all else.
  WeightFormat format_of(int parameter) const { return quantized_[parameter] ? format_ : WeightFormat::kBf16; }

  std::span<kernels::bf16> flat() { return {flat_.data(), flat_.size()}; }
  std::span<const kernels::bf16> flat() const { return {flat_.data(), flat_.size()}; }
  const kernels::bf16* values(int parameter) const { return flat_.data() + layout_.parameters[parameter].offset; }

  // The fp32 numbers of a parameter that is split into three.
  std::vector<float> split_values(int parameter) const;

  // What is sent: `flat`, or parameter by parameter the codes and then the scales of what is quantised (each expert
  // in blocks of its own), bf16 of the rest.
  std::span<std::byte> wire();
  std::span<const std::byte> wire() const { return const_cast<Weights*>(this)->wire(); }

  // Rebuilds `wire` and all panels from `flat`. Must follow every change of it.
  Status pack(kernels::Stream& stream);
  // Rebuilds all panels, and of `flat` what is not quantised, from `wire`.
  Status pack_received(kernels::Stream& stream);
  // Gives back the memory of values that are read as panels only. From then on flat() and digest() mean nothing, until
  // all of `flat` or `wire` has been written again.
  void give_back_flat();
  // The panels of a parameter's matrix; of experts those of one after the other.
  const kernels::bf16* packed(int parameter) const { return packed_[parameter].data(); }
  const kernels::bf16* packed_transposed(int parameter) const { return transposed_[parameter].data(); }

  Digest digest() const { return digest_of(std::as_bytes(flat())); }

 private:
  ModelConfig config_;
  ParameterLayout layout_;
  void lay_out_wire();
  Status quantize(kernels::Stream& stream);
  Status build_panels(kernels::Stream& stream);
  // Of one matrix of a parameter.
  kernels::e4m3* codes(size_t parameter, int group);
  kernels::e8m0* scales(size_t parameter, int group);
  size_t scales_of_group(const Parameter& parameter) const;

  bool for_training_ = false;
  WeightFormat format_ = WeightFormat::kBf16;
  std::vector<bool> quantized_;  // by parameter
  std::vector<size_t> wire_at_;  // of each parameter, bytes from the start; empty in bf16
  Buffer<std::byte> wire_;       // empty in bf16
  Buffer<kernels::bf16> flat_;
  std::vector<Buffer<kernels::bf16>> packed_, transposed_;
};

// Reads a Hugging Face directory; F32 and F16 tensors are rounded to bf16. All missing tensors are named at once.
Result<Weights> load_weights(const fs::path& directory, bool for_training, WeightFormat format = WeightFormat::kBf16);

// Writes config.json, generation_config.json and the tensors; the tokenizer's files are copied from `source` unchanged
// where it has them.
Status save_weights(const Weights& weights, const fs::path& directory, const fs::path& source);

// Normal draws of deviation 0.02 (norms one, biases zero), as a model is born; a function of the seed.
void randomise(Weights& weights, uint64_t seed);

}  // namespace tandem::model
