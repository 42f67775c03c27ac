// Devices that are emulated: a GPU's rules on a machine without one, stricter than a GPU's own.
//
// What is put on a stream is done later: when somebody waits, or, by a seed, at random moments in any order that
// streams allow. Copies read and write host memory then, not when they are called. Memory is memory.h's.
//
// Work of a stream that captures is collected in a graph instead. The thread that captures may not call what a GPU
// refuses then: the call fails, and the end of the capture too.
//
// Thread safety: calls of any threads; a lock lets one in at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "kernels/cuda/warps.cuh"
#include "kernels/emulated/memory.h"
#include "kernels/emulated/settings.h"
#include "kernels/threads.h"

namespace tandem::kernels::emulated {

// Codes of this library beyond kTandemCudaRuntime, where a GPU's would be.
enum Trouble {
  kNoMemory = kTandemCudaRuntime + 2,
  kNoDevice = kTandemCudaRuntime + 100,
  kLost,
  kRefused,
  kSettings,
  kCaptures
};

class Device;

// A captured graph; shared with its launches.
struct Graph {
  std::vector<std::function<void()>> work;
  uint64_t kernels = 0;  // of the work
};

struct Stream {
  Device& device;
  bool tensor;  // kTandemCudaTensor
  std::deque<std::function<void()>> work = {};
  std::shared_ptr<Graph> captured = {};  // while it captures
  bool spoilt = false;                   // by a call that is refused then
};

// A place in a stream's work. Recorded `recorded` times, of which work has passed `passed`.
struct Event {
  Stream* stream = nullptr;  // that it was last recorded on
  std::shared_ptr<uint64_t> passed = std::make_shared<uint64_t>(0);
  uint64_t recorded = 0;
};

class Device {
 public:
  Device(int index, const Settings& settings);

  Stream* open(bool tensor);
  void close(Stream* stream);
  int allocate(size_t bytes, void** memory);
  int free(void* memory);
  int copy(Stream& stream, void* to, const void* from, size_t bytes);
  int wait(Stream& stream);
  int done(Stream& stream, int* done);
  int record(Stream& stream, Event& event);
  int passed(Event& event, int* passed);
  int wait_for(Stream& stream, const Event& event);
  int room(size_t* free, size_t* all);
  int begin_capture(Stream& stream);
  // Ends it whatever happens. Nothing where it failed.
  int end_capture(Stream& stream, std::shared_ptr<Graph>* graph);
  int launch(Stream& stream, const std::shared_ptr<Graph>& graph);
  // kCaptures for a thread that captures, and spoils what it does.
  int check_captures();

  // Runs blocks of a kernel, a value of execution.cuh, on this device.
  template <typename Kernel>
  int launch(Stream& stream, const Kernel& kernel, int64_t blocks) {
    const std::lock_guard lock(mutex_);
    if (stream.captured) {
      ++stream.captured->kernels;
    } else if (const int code = count_kernel()) {
      return code;
    }
    return put(stream, [this, kernel, blocks] { run(kernel, blocks); });
  }

 private:
  template <typename Kernel>
  void run(const Kernel& kernel, int64_t blocks) {
    const bool descending = settings_.seed && random_() % 2 == 0;
    const int parts = static_cast<int>(std::min<int64_t>(blocks, 4 * threads_.threads()));
    threads_.run(parts, [&](int part) {
      const auto shared = std::make_unique<typename Kernel::Shared>();
      constexpr int kWorkers = cuda::workers_of<Kernel>();
      std::vector<typename Kernel::Private> own(kWorkers);
      for (int64_t block = blocks * part / parts; block < blocks * (part + 1) / parts; ++block) {
        bool more = true;
        for (int phase = 0; more; ++phase) {
          for (int i = 0; i < kWorkers; ++i) {
            const int worker = descending ? kWorkers - 1 - i : i;
            more = kernel.run(block, phase, worker, *shared, own[worker]);
          }
        }
      }
    });
  }
  int count_kernel();
  bool captures();
  int put(Stream& stream, std::function<void()> work);
  void step(Stream& stream);
  bool known(const Stream* stream) const;

  const Settings settings_;
  std::mutex mutex_;
  Memory memory_;
  ThreadPool threads_;
  std::mt19937_64 random_;
  std::list<std::unique_ptr<Stream>> streams_;
  std::map<std::thread::id, Stream*> capturing_;
  std::vector<std::weak_ptr<Graph>> graphs_;  // that live, as far as settings_ asks
  uint64_t kernels_ = 0;
  bool lost_ = false;
};

}  // namespace tandem::kernels::emulated
