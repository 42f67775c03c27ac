// How a kernel is written so that a GPU and a plain loop on the host run the very same source.
//
// A kernel is a value with
//   kThreads                                        threads of a block
//   Shared, Private                                 what threads of a block share; what a thread keeps between phases
//   bool run(block, phase, thread, shared, own)     one phase of one thread; true where another phase follows
// All threads of a block agree on the answer. Between two phases lies a barrier; within a phase no thread reads what
// another writes. Thus any order of threads gives the same bits, which tests on the host try.
//
// An operation is a function `operate(execution, arguments)` that checks its arguments and starts one kernel after the
// other by execution.run(kernel, blocks). `Launch` (launch.cuh) puts them on a stream.
#pragma once

#include <type_traits>

#include "kernels/cuda/arithmetic.cuh"
#include "kernels/cuda/tandem_cuda.h"

namespace tandem::kernels::cuda {

struct Nothing {};

// Arguments of one operation for bf16 or for fp32.
template <typename T, typename... Any>
concept OneOf = (std::is_same_v<T, Any> || ...);

constexpr int64_t kMostBlocks = 2147483647;  // of one grid

TANDEM_HD int64_t pieces(int64_t count, int64_t size) { return (count + size - 1) / size; }

// kTandemCudaSize where one grid cannot hold the blocks; no blocks are no work.
template <typename Execution, typename Kernel>
int start(Execution& execution, const Kernel& kernel, int64_t blocks) {
  if (blocks > kMostBlocks) return kTandemCudaSize;
  return blocks > 0 ? execution.run(kernel, blocks) : static_cast<int>(kTandemCudaOk);
}

// Body(i) for each i below `count`, one thread each.
template <typename Body>
struct EachElement {
  static constexpr int kThreads = 256;
  using Shared = Nothing;
  using Private = Nothing;
  Body body;
  int64_t count;

  TANDEM_HD bool run(int64_t block, int, int thread, Shared&, Private&) const {
    const int64_t i = block * kThreads + thread;
    if (i < count) body(i);
    return false;
  }
};
template <typename Execution, typename Body>
int each_element(Execution& execution, int64_t count, const Body& body) {
  return start(execution, EachElement<Body>{body, count}, pieces(count, EachElement<Body>::kThreads));
}

// Words for a code below kTandemCudaRuntime.
inline const char* text_of_argument_error(int code) {
  switch (code) {
    case kTandemCudaOk:
      return "no error";
    case kTandemCudaNull:
      return "a pointer that must be given is null";
    case kTandemCudaSize:
      return "a size is negative, zero where it must not be, or too large for one launch";
    case kTandemCudaStride:
      return "a stride is shorter than what it strides over";
    case kTandemCudaShape:
      return "heads, head size or two arguments do not go together";
    case kTandemCudaWorkspace:
      return "the workspace is too small";
    default:
      return "not a code of this library";
  }
}

// The first code that is not 0.
template <typename... Steps>
int in_order(const Steps&... steps) {
  int code = kTandemCudaOk;
  ((code == kTandemCudaOk ? (code = steps()) : code), ...);
  return code;
}

}  // namespace tandem::kernels::cuda
