#include "model/device/device_pages.h"

#include "kernels/attention.h"

namespace tandem::model {

template <typename T>
Result<DevicePages<T>> DevicePages<T>::create(kernels::DeviceStream& stream, const ModelConfig& config, int pages) {
  DevicePages made;
  const kernels::AttentionShape shape = attention_shape(config);
  made.layers_ = config.layers;
  made.pages_ = pages;
  made.keys_ = size_t{kernels::kPageTokens} * shape.kv_heads * shape.head_size;
  made.values_ = size_t{kernels::kPageTokens} * shape.kv_heads * shape.values();
  const size_t all = static_cast<size_t>(made.layers_) * pages;
  made.memory_keys_ = TRY(stream.allocate<T>(all * made.keys_, "keys and values"));
  made.memory_values_ = TRY(stream.allocate<T>(all * made.values_, "keys and values"));
  return made;
}

template <typename T>
Status DevicePages<T>::copy(kernels::DeviceStream& stream, int from, int to) {
  for (int layer = 0; layer < layers_; ++layer) {
    TRY(stream.copy(kernels::beyond(keys(layer), to * keys_), kernels::beyond(keys(layer), from * keys_), keys_));
    TRY(stream.copy(kernels::beyond(values(layer), to * values_), kernels::beyond(values(layer), from * values_),
                    values_));
  }
  return {};
}

template <typename T>
Status DevicePages<T>::save(kernels::DeviceStream& stream, int page, std::span<std::byte> host) const {
  auto* at = reinterpret_cast<T*>(host.data());
  for (int layer = 0; layer < layers_; ++layer) {
    TRY(stream.download(std::span(at, keys_), kernels::beyond(keys(layer), page * keys_)));
    TRY(stream.download(std::span(at + keys_, values_), kernels::beyond(values(layer), page * values_)));
    at += keys_ + values_;
  }
  return {};
}

template <typename T>
Status DevicePages<T>::load(kernels::DeviceStream& stream, std::span<const std::byte> host, int page) {
  const auto* at = reinterpret_cast<const T*>(host.data());
  for (int layer = 0; layer < layers_; ++layer) {
    TRY(stream.upload(kernels::beyond(keys(layer), page * keys_), std::span(at, keys_)));
    TRY(stream.upload(kernels::beyond(values(layer), page * values_), std::span(at + keys_, values_)));
    at += keys_ + values_;
  }
  return {};
}

template class DevicePages<kernels::bf16>;
template class DevicePages<float>;

}  // namespace tandem::model
