// A LoRA adapter beside weights that stay as they are: y = x W, then y + (x A^T) (s B)^T for its matrices.
//
// For weights that cannot take a sum without loss (fp8), or that are shared. Factors are in the number format of the
// activations, s B rounded to it once; x A^T is rounded to it, and the sum with y once more, so a token has other bits
// than with the adapter merged (adapter.h), but the same in engine and trainer, in any batch. Nothing is trained so.
//
// Thread safety: const methods from any thread.
#pragma once

#include <memory>
#include <vector>

#include "base/buffer.h"
#include "model/adapter.h"
#include "model/transformer.h"

namespace tandem::model {

class LiveAdapter {
 public:
  // Of the format of `weights`, which it does not keep. kInvalid where the model has no such matrix, and of experts,
  // routers, the head and the inner matrices of latent attention: those can only be merged.
  static Result<std::shared_ptr<const LiveAdapter>> create(kernels::Stream& stream, const Adapter& adapter,
                                                           const Weights& weights);

  // What `read_adapter` and it do; an error names the file.
  static Result<std::shared_ptr<const LiveAdapter>> read(kernels::Stream& stream, const fs::path& directory,
                                                         const Weights& weights);

  // Adds to `out`, the products [rows][outputs] of `x` [rows][inputs] with a parameter, what the factors make of `x`.
  // `low` is for what lies between.
  template <typename T>
  Status add(kernels::Stream& stream, int parameter, const BasicTensor<T>& x, const BasicTensor<T>& out,
             std::vector<T>& low) const;

 private:
  // Of some rows of a parameter. The rank is filled up to an even number with zeros.
  template <typename T>
  struct Part {
    int first_row = 0, rows = 0;
    Buffer<T> a, b;  // packed [rank][inputs], [rows][rank]
  };
  template <typename T>
  using Parts = std::vector<std::vector<Part<T>>>;  // by parameter
  template <typename T>
  const Parts<T>& parts() const;
  template <typename T>
  Status take(kernels::Stream& stream, const Adapter& adapter, const ParameterLayout& layout, Parts<T>& parts);

  int rank_ = 0;  // even
  Parts<kernels::bf16> bf16_;
  Parts<float> float32_;
};

}  // namespace tandem::model
