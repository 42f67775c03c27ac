// A LoRA adapter beside weights that stay as they are: y = x W, then y + (x A^T) (s B)^T for its matrices.
// It is attached to all rows (Weights::attach), or to those of some sequences of a batch (model/executor.h): a row has
// the same bits either way, whatever the adapters of other rows.
//
// For weights that cannot take a sum without loss (fp8), or that are shared. Factors are in the number format of the
// activations, s B rounded to it once; x A^T is rounded to it, and the sum with y once more, so a token has other bits
// than with the adapter merged (adapter.h), but the same in engine and trainer, in any batch. Nothing is trained so.
//
// The factors A of the matrices that make one parameter (queries, keys and values) lie together, so that one product
// reads a row once.
//
// Thread safety: const methods from any thread.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/digest.h"
#include "kernels/gemm.h"
#include "model/adapter.h"
#include "model/batch.h"
#include "model/transformer.h"

namespace tandem::model {

class LiveAdapter {
 public:
  // An adapter in the format of `weights`, which it does not keep. kInvalid where the model has no such matrix, where a
  // factor is no finite number, and of experts, routers, the head and the inner matrices of latent attention: those can
  // only be merged.
  static Result<std::shared_ptr<const LiveAdapter>> create(kernels::Stream& stream, const Adapter& adapter,
                                                           const Weights& weights);

  // The same of any weights of that layout and format.
  static Result<std::shared_ptr<const LiveAdapter>> create(kernels::Stream& stream, const Adapter& adapter,
                                                           const ParameterLayout& layout, WeightFormat format);

  // Reads an adapter and prepares it; an error names the file.
  static Result<std::shared_ptr<const LiveAdapter>> read(kernels::Stream& stream, const fs::path& directory,
                                                         const Weights& weights);

  // Whether it was made for such weights. All formats but float32 have the same factors.
  bool fits(const ParameterLayout& layout, WeightFormat format) const;
  int rank() const { return rank_; }  // of the adapter, or one more where that is odd
  size_t bytes() const;               // of the factors
  // A digest of the packed factors and their matrices: equal digests give equal products.
  const Digest& digest() const { return digest_; }

  // The factors of one parameter.
  template <typename T>
  struct Part {
    int first_row = 0, rows = 0;
    Buffer<T> b;  // packed [rows][rank]
  };
  template <typename T>
  struct OfParameter {
    Buffer<T> a;  // packed [parts * rank][inputs]
    std::vector<Part<T>> parts;
  };
  template <typename T>
  const OfParameter<T>& of(int parameter) const {
    return all<T>()[static_cast<size_t>(parameter)];
  }

 private:
  // By parameter; without parts where it has none of it. The rank is filled up to an even number with zeros.
  template <typename T>
  using All = std::vector<OfParameter<T>>;
  template <typename T>
  const All<T>& all() const;
  template <typename T>
  Status take(kernels::Stream& stream, const Adapter& adapter, const ParameterLayout& layout, All<T>& all);

  int rank_ = 0;  // even
  bool float32_format_ = false;
  std::vector<std::pair<int, int>> shapes_;  // of all parameters
  Digest digest_;
  All<kernels::bf16> bf16_;
  All<float> float32_;
};

// Adds to `out`, the products [rows][outputs] of `x` [rows][inputs] with a parameter, what each of `adapted` makes of
// its rows of `x`. The work of all adapters is divided among the threads together, since that of one is small.
// Thread safety: none; buffers are kept and grow.
template <typename T>
class AdapterProducts {
 public:
  Status add(kernels::Stream& stream, int parameter, const BasicTensor<T>& x, const BasicTensor<T>& out,
             std::span<const AdaptedRows> adapted);

 private:
  Status run(kernels::Stream& stream);

  std::vector<kernels::Stream> streams_;  // of one thread each: those that a thread's tasks are computed by
  std::vector<kernels::BasicGemm<T>> tasks_;
  std::vector<T> low_;  // x A^T of all rows, one behind the other
};

}  // namespace tandem::model
