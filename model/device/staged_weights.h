// A version of the weights on its way into the executor of a device. Private to it.
//
// Thread safety: as StagedWeights has it.
#pragma once

#include "model/device/device_weights.h"
#include "model/executor.h"

namespace tandem::model {

class DeviceStagedWeights final : public StagedWeights {
 public:
  DeviceStagedWeights(kernels::DeviceStream stream, std::shared_ptr<DeviceWeights> weights,
                      kernels::StagingBuffer<std::byte> bytes)
      : stream_(std::move(stream)), weights_(std::move(weights)), bytes_(std::move(bytes)) {}

  std::span<std::byte> bytes() override { return bytes_.span(); }
  Status prepare() override {
    TRY(weights_->upload(stream_, bytes_.span()));
    prepared_ = true;
    return {};
  }
  bool prepared() const { return prepared_; }
  std::shared_ptr<DeviceWeights> take() { return std::move(weights_); }

 private:
  kernels::DeviceStream stream_;  // of its own: the executor's goes on
  std::shared_ptr<DeviceWeights> weights_;
  kernels::StagingBuffer<std::byte> bytes_;
  bool prepared_ = false;
};

}  // namespace tandem::model
