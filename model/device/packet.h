// Many small arrays for a device in one copy. The memory of the device is the caller's: packets that follow each other
// on a stream can have the same.
//
// Thread safety: none.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "kernels/device_stream.h"

namespace tandem::model {

class Packet {
 public:
  // Where the array begins, for `sent`.
  template <typename T>
  size_t add(std::span<const T> values) {
    const size_t at = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(at + values.size_bytes());
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size_bytes());
    return at;
  }
  template <typename T>
  size_t add(const std::vector<T>& values) {
    return add(std::span<const T>(values));
  }
  // Puts a copy to `memory`, which grows, on the stream. What was sent before must have been read from the host.
  Status send(kernels::DeviceStream& stream, kernels::DeviceBuffer<std::byte>& memory) {
    if (staged_.size() < bytes_.size()) {
      TRY(stream.wait());
      staged_ = TRY(stream.stage<std::byte>(2 * bytes_.size(), "arguments"));
    }
    if (memory.size() < bytes_.size()) {
      TRY(stream.wait());
      memory = {};
      memory = TRY(stream.allocate<std::byte>(2 * bytes_.size(), "arguments"));
    }
    std::ranges::copy(bytes_, staged_.span().begin());
    TRY(stream.upload(memory.data(), std::span<const std::byte>(staged_.span().first(bytes_.size()))));
    bytes_.clear();
    return {};
  }

 private:
  std::vector<std::byte> bytes_;
  kernels::StagingBuffer<std::byte> staged_;
};

// An array of a packet that was sent.
template <typename T>
kernels::OnDevice<T>* sent(const kernels::DeviceBuffer<std::byte>& memory, size_t at) {
  return kernels::as<T>(kernels::beyond(memory.data(), at));
}

// An array that a device writes and the host reads later.
template <typename T>
class Returned {
 public:
  // Room for `count`; what was asked for before must have been read.
  Result<kernels::OnDevice<T>*> room(kernels::DeviceStream& stream, size_t count) {
    count_ = count;
    if (memory_.size() < count) {
      TRY(stream.wait());
      memory_ = {};
      memory_ = TRY(stream.allocate<T>(2 * count, "answers"));
      host_ = TRY(stream.stage<T>(2 * count, "answers"));
    }
    return memory_.data();
  }
  kernels::OnDevice<T>* data() const { return memory_.data(); }
  Status fetch(kernels::DeviceStream& stream) { return stream.download(host_.span().first(count_), memory_.data()); }
  // Once the stream has passed.
  std::span<const T> values() const { return host_.span().first(count_); }

 private:
  kernels::DeviceBuffer<T> memory_;
  kernels::StagingBuffer<T> host_;
  size_t count_ = 0;
};

}  // namespace tandem::model
