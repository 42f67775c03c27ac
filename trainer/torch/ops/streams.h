// Execution contexts for operators, which PyTorch calls with nothing but tensors. Private to trainer/torch/ops/.
//
// An operator takes an idle stream of as many threads as torch.get_num_threads() says and gives it back; operators that
// run at once have streams of their own. Idle ones are kept for the process, at most kIdleStreams. A forked child makes
// new ones, since threads do not survive a fork.
//
// Thread safety: any thread.
#pragma once

#include <memory>

#include "kernels/stream.h"

namespace tandem::torch_ops {

constexpr size_t kIdleStreams = 4;

class BorrowedStream {
 public:
  // Throws where this machine has no instruction set that the kernels are for.
  BorrowedStream();
  ~BorrowedStream();
  BorrowedStream(const BorrowedStream&) = delete;
  BorrowedStream& operator=(const BorrowedStream&) = delete;

  kernels::Stream& operator*() { return *stream_; }

 private:
  std::unique_ptr<kernels::Stream> stream_;
};

}  // namespace tandem::torch_ops
