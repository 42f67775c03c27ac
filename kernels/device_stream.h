// Work and memory of a device that is not the host: a GPU, or an emulated one.
//
// A DeviceStream is a queue: what is put on it is done in order, later than the call. Two streams know nothing of each
// other but what `wait` shows. Memory belongs to a DeviceBuffer. A pointer into it is an OnDevice<T>*, which the host
// cannot read: OnDevice is never defined, so that code that tries does not compile.
//
// Errors: kInvalid for arguments that an operation refuses, kExhausted where the device has no memory left, with who
// holds how much of it, else kUnavailable: the device failed or was lost, and its stream is fit for nothing more.
// Thread safety: a stream and its buffers belong to one thread at a time; streams of a device to different threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "kernels/cuda/operations.h"
#include "kernels/device.h"
#include "kernels/formats/bf16.h"
#include "kernels/formats/e4m3.h"
#include "kernels/formats/e8m0.h"

namespace tandem::kernels {

namespace cuda {
struct Functions;
}

template <typename T>
struct OnDevice;  // an element in a device's memory; not defined

// An element of the C interface (tandem_cuda.h), which has no types for formats.
template <typename T>
using DeviceElement =
    std::conditional_t<std::is_same_v<T, bf16>, uint16_t,
                       std::conditional_t<std::is_same_v<T, e4m3> || std::is_same_v<T, e8m0>, uint8_t, T>>;

// For arguments of operations, which the host does not read either.
template <typename T>
DeviceElement<T>* address(OnDevice<T>* pointer) {
  return reinterpret_cast<DeviceElement<T>*>(pointer);
}
template <typename T>
OnDevice<T>* beyond(OnDevice<T>* pointer, size_t elements) {
  return reinterpret_cast<OnDevice<T>*>(reinterpret_cast<T*>(pointer) + elements);
}
template <typename T, typename Other>
OnDevice<T>* as(OnDevice<Other>* pointer) {
  return reinterpret_cast<OnDevice<T>*>(pointer);
}

class DeviceStream;

namespace detail {
struct DeviceState;
// Owned memory of a device, or of the host, through which copies go without waiting.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  DeviceBytes(std::shared_ptr<DeviceState> state, void* memory, size_t bytes, bool host, std::string purpose);
  ~DeviceBytes();
  DeviceBytes(DeviceBytes&& other) noexcept;
  DeviceBytes& operator=(DeviceBytes&& other) noexcept;
  void* memory() const { return memory_; }

 private:
  std::shared_ptr<DeviceState> state_;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
  bool host_ = false;
  std::string purpose_;
};
}  // namespace detail

template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  OnDevice<T>* data() const { return static_cast<OnDevice<T>*>(bytes_.memory()); }
  size_t size() const { return size_; }

 private:
  friend class DeviceStream;
  DeviceBuffer(detail::DeviceBytes bytes, size_t size) : bytes_(std::move(bytes)), size_(size) {}
  detail::DeviceBytes bytes_;
  size_t size_ = 0;
};

// Memory of the host for copies.
template <typename T>
class StagingBuffer {
 public:
  StagingBuffer() = default;
  std::span<T> span() const { return {static_cast<T*>(bytes_.memory()), size_}; }
  size_t size() const { return size_; }

 private:
  friend class DeviceStream;
  StagingBuffer(detail::DeviceBytes bytes, size_t size) : bytes_(std::move(bytes)), size_(size) {}
  detail::DeviceBytes bytes_;
  size_t size_ = 0;
};

// A mark in a stream's work: what a later wait is for.
class DeviceEvent {
 public:
  // Whether the work before it is done.
  Result<bool> done() const;
  // Until it is. kUnavailable after `patience`, too.
  Status wait(std::chrono::seconds patience = std::chrono::seconds(600)) const;

 private:
  friend class DeviceStream;
  struct State;
  explicit DeviceEvent(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// Work that was collected from a stream, and can be put on it as often as wanted by one call (a CUDA graph). It has the
// addresses that it was collected with.
class DeviceGraph {
 public:
  // Whether the memory that it uses is certainly there: no longer where any of the stream's was freed since.
  bool valid() const;

 private:
  friend class DeviceStream;
  struct State;
  explicit DeviceGraph(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class DeviceStream {
 public:
  // `device` as find_device gave it: not the CPU.
  static Result<DeviceStream> open(const Device& device);
  // Another one of the same device.
  Result<DeviceStream> another() const;

  const Device& device() const;
  // The id of its arithmetic; `exact` kernels have the bits of Isa::kAvx2.
  std::string numerics_id(std::string_view format) const;

  // Memory for `count` elements, at least one; `purpose` is for the words of errors and reports. Nothing is written.
  template <typename T>
  Result<DeviceBuffer<T>> allocate(size_t count, std::string purpose) {
    return DeviceBuffer<T>(TRY(take(count * sizeof(T), false, std::move(purpose))), count);
  }
  template <typename T>
  Result<StagingBuffer<T>> stage(size_t count, std::string purpose) {
    return StagingBuffer<T>(TRY(take(count * sizeof(T), true, std::move(purpose))), count);
  }
  size_t free_bytes() const;
  size_t all_bytes() const;

  // Host memory must stay, unchanged, until the stream has passed.
  template <typename T>
  Status upload(OnDevice<T>* to, std::span<const T> from) {
    return copy_in(to, from.data(), from.size_bytes());
  }
  template <typename T>
  Status download(std::span<T> to, const OnDevice<T>* from) {
    return copy_out(to.data(), from, to.size_bytes());
  }
  template <typename T>
  Status copy(OnDevice<T>* to, const OnDevice<T>* from, size_t count) {
    return copy_within(to, from, count * sizeof(T));
  }

  // After all that was put on the stream so far.
  Result<DeviceEvent> mark();
  // Until all is done that was put on the stream. kUnavailable after `patience`, too.
  Status wait(std::chrono::seconds patience = std::chrono::seconds(600));

#define TANDEM_DEVICE_OPERATION(operation, Arguments) Status run(const TandemCuda##Arguments& arguments);
  TANDEM_CUDA_OPERATIONS(TANDEM_DEVICE_OPERATION)
#undef TANDEM_DEVICE_OPERATION

  // Whether work should be put on it by graphs: not where TANDEM_DEVICE_GRAPHS=0 or TANDEM_DEVICE_TIMES is set.
  bool uses_graphs() const;
  // Collects what `put` puts on this stream, and does none of it. `put` may run operations and copy, but neither
  // allocate, free, mark nor wait: the first such call fails. kExhausted where the device has no memory for the graph;
  // then, and after any error of `put`, the stream goes on as before.
  Result<DeviceGraph> capture(const std::function<Status()>& put);
  // kInvalid: it is not valid any more, or of another stream.
  Status launch(const DeviceGraph& graph);

  // Scratch memory for operations of this stream, one after the other; grows, and then waits.
  struct Workspace {
    void* memory = nullptr;
    size_t bytes = 0;
  };
  Result<Workspace> workspace(size_t bytes);
  // Functions of the library, to ask for the scratch memory of an operation.
  const cuda::Functions& functions() const;

 private:
  explicit DeviceStream(std::shared_ptr<detail::DeviceState> state) : state_(std::move(state)) {}
  Result<detail::DeviceBytes> take(size_t bytes, bool host, std::string purpose);
  Status copy_in(void* to, const void* from, size_t bytes);
  Status copy_out(void* to, const void* from, size_t bytes);
  Status copy_within(void* to, const void* from, size_t bytes);

  std::shared_ptr<detail::DeviceState> state_;
  detail::DeviceBytes scratch_;
  size_t scratch_bytes_ = 0;
};

}  // namespace tandem::kernels
