// A version of the weights on its way into the executor of a device. Private to it.
//
// Thread safety: as StagedWeights has it.
#pragma once

#include "model/device/device_weights.h"
#include "model/executor.h"

namespace tandem::model {

class DeviceStagedWeights final : public StagedWeights {
 public:
  DeviceStagedWeights(kernels::DeviceStream stream, std::shared_ptr<DeviceWeights> weights)
      : stream_(std::move(stream)), weights_(std::move(weights)) {}

  Status prepare(std::span<const std::byte> wire) override {
    TRY(weights_->upload(stream_, wire));
    prepared_ = true;
    return {};
  }
  Status verify(std::span<const std::byte> wire) override { return weights_->verify(stream_, wire); }
  bool prepared() const { return prepared_; }
  std::shared_ptr<DeviceWeights> take() { return std::move(weights_); }

 private:
  kernels::DeviceStream stream_;  // of its own: the executor's goes on
  std::shared_ptr<DeviceWeights> weights_;
  bool prepared_ = false;
};

}  // namespace tandem::model
