// Tensors of operators as the kernels take them: checked, dense, and by pointer. Private to trainer/torch/ops/.
//
// A violated condition is thrown as std::runtime_error "tandem::OPERATOR: ...", which PyTorch shows as RuntimeError.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <limits>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/formats/bf16.h"

namespace tandem::torch_ops {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

class Arguments {
 public:
  explicit Arguments(const char* name) : name_(name) {}

  // `words` are joined to the message where `holds` is false.
  template <typename... Words>
  void require(bool holds, const Words&... words) const {
    if (holds) return;
    std::ostringstream message;
    message << "tandem::" << name_ << ": ";
    (message << ... << words);
    throw std::runtime_error(message.str());
  }
  // Turns an error of a kernel into an exception.
  void check(const Status& status) const { require(status.ok(), status.to_string()); }

  // A dense tensor of a CPU.
  Tensor dense(const Tensor& tensor, ScalarType type, const char* argument) const {
    require(tensor.is_cpu(), argument, " is not on the CPU");
    require(tensor.scalar_type() == type, argument, " is ", torch::headeronly::toString(tensor.scalar_type()),
            ", expected ", torch::headeronly::toString(type));
    return torch::stable::contiguous(tensor);
  }
  Tensor bf16(const Tensor& tensor, const char* argument) const {
    return dense(tensor, ScalarType::BFloat16, argument);
  }
  // Kernels count in int.
  int size(int64_t size, const char* what) const {
    require(size <= std::numeric_limits<int>::max(), what, " is ", size, ", more than 2^31 - 1");
    return static_cast<int>(size);
  }
  // The last extent, and the product of all others.
  int columns(const Tensor& tensor, const char* argument) const {
    require(tensor.dim() >= 1, argument, " is a scalar");
    return size(tensor.size(tensor.dim() - 1), "the last extent");
  }
  int rows(const Tensor& tensor) const {
    int64_t rows = 1;
    for (int64_t i = 0; i + 1 < tensor.dim(); ++i) rows *= tensor.size(i);
    return size(rows, "the number of rows");
  }

 private:
  const char* name_;
};

template <typename T>
const T* in(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}
template <typename T>
T* out(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

inline std::vector<int64_t> sizes_of(const Tensor& tensor) {
  std::vector<int64_t> sizes(tensor.dim());
  for (int64_t i = 0; i < tensor.dim(); ++i) sizes[i] = tensor.size(i);
  return sizes;
}
inline Tensor made_like(const Tensor& tensor, const std::vector<int64_t>& sizes, ScalarType type) {
  return torch::stable::new_empty(tensor, {sizes.data(), sizes.size()}, type);
}

// fp32 sums as the bf16 tensor that PyTorch wants for a gradient, rounded once.
inline Tensor rounded(const Tensor& like, const std::vector<int64_t>& sizes, std::span<const float> values) {
  const Tensor result = made_like(like, sizes, ScalarType::BFloat16);
  auto* to = out<kernels::bf16>(result);
  for (size_t i = 0; i < values.size(); ++i) to[i] = kernels::to_bf16(values[i]);
  return result;
}

}  // namespace tandem::torch_ops
