// Pages of keys and values in a device's memory, layer by layer, where a page is [kv_head][position][element].
//
// Which page is whose is not decided here. Pages need no clearing: a row reads of them what it sees, and no more.
// Thread safety: one executor's.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/device_stream.h"
#include "model/transformer.h"

namespace tandem::model {

template <typename T>
class DevicePages {
 public:
  static Result<DevicePages> create(kernels::DeviceStream& stream, const ModelConfig& config, int pages);

  int pages() const { return pages_; }
  size_t page_bytes() const { return static_cast<size_t>(layers_) * (keys_ + values_) * sizeof(T); }
  kernels::OnDevice<T>* keys(int layer) const { return kernels::beyond(memory_keys_.data(), layer * pages_ * keys_); }
  kernels::OnDevice<T>* values(int layer) const {
    return kernels::beyond(memory_values_.data(), layer * pages_ * values_);
  }
  Status copy(kernels::DeviceStream& stream, int from, int to);
  // `host` is `page_bytes()`, keys and values layer by layer; it must stay until the stream has passed.
  Status save(kernels::DeviceStream& stream, int page, std::span<std::byte> host) const;
  Status load(kernels::DeviceStream& stream, std::span<const std::byte> host, int page);

 private:
  int layers_ = 0, pages_ = 0;
  size_t keys_ = 0, values_ = 0;  // elements of a page of one layer
  kernels::DeviceBuffer<T> memory_keys_, memory_values_;
};

}  // namespace tandem::model
