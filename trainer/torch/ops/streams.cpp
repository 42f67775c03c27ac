#include "trainer/torch/ops/streams.h"

#include <torch/csrc/stable/ops.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <vector>

namespace tandem::torch_ops {

namespace {

struct IdleStreams {
  std::mutex mutex;
  std::vector<std::unique_ptr<kernels::Stream>> streams;
  const pid_t process = ::getpid();
};

// Never destroyed: operators may run while the process ends, and threads of a fork's parent cannot be joined.
IdleStreams& idle_streams() {
  static std::mutex making;
  static IdleStreams* idle = nullptr;
  const std::lock_guard lock(making);
  if (idle == nullptr || idle->process != ::getpid()) idle = new IdleStreams();
  return *idle;
}

}  // namespace

BorrowedStream::BorrowedStream() {
  const int threads = std::max(1, static_cast<int>(torch::stable::get_num_threads()));
  {
    IdleStreams& idle = idle_streams();
    const std::lock_guard lock(idle.mutex);
    const auto found = std::find_if(idle.streams.begin(), idle.streams.end(),
                                    [&](const auto& stream) { return stream->threads().threads() == threads; });
    if (found != idle.streams.end()) {
      stream_ = std::move(*found);
      idle.streams.erase(found);
      return;
    }
  }
  auto made = kernels::Stream::cpu(threads);
  if (!made) throw std::runtime_error("tandem: " + made.error().to_string());
  stream_ = std::make_unique<kernels::Stream>(std::move(*made));
}

BorrowedStream::~BorrowedStream() {
  IdleStreams& idle = idle_streams();
  const std::lock_guard lock(idle.mutex);
  // The oldest goes, so that a process that has changed its number of threads does not keep the former ones.
  if (idle.streams.size() >= kIdleStreams) idle.streams.erase(idle.streams.begin());
  idle.streams.push_back(std::move(stream_));
}

}  // namespace tandem::torch_ops
