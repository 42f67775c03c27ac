// One version of the weights in a device's memory, as Weights::wire has them: nothing is packed.
//
// Thread safety: as a DeviceStream's memory. The host reads none of it.
#pragma once

#include <span>
#include <vector>

#include "kernels/device_stream.h"
#include "model/weights.h"

namespace tandem::model {

class DeviceWeights {
 public:
  // Room for weights of the model and format of `like`.
  static Result<DeviceWeights> create(kernels::DeviceStream& stream, const Weights& like);
  // Room for another version of these.
  Result<DeviceWeights> another(kernels::DeviceStream& stream) const;

  size_t bytes() const { return wire_.size(); }
  // Copies a version and waits until it is there.
  Status upload(kernels::DeviceStream& stream, std::span<const std::byte> wire);
  // Reads them back: kCorrupt where they are not these.
  Status verify(kernels::DeviceStream& stream, std::span<const std::byte> wire) const;

  // [rows][columns]; of a parameter that is not quantised. T is bf16, or float in float32.
  template <typename T>
  kernels::OnDevice<T>* values(int parameter) const {
    return kernels::as<T>(kernels::beyond(wire_.data(), places_[parameter].values));
  }
  // Null codes where the parameter is not quantised.
  TandemCudaCodes codes(int parameter) const;
  // The fp32 numbers of a parameter that is split into three.
  kernels::OnDevice<float>* split_values(int parameter) const;

 private:
  Status check_size(std::span<const std::byte> wire) const;
  // The numbers of the parameters that are split, by `wire`.
  std::vector<float> splits_of(std::span<const std::byte> wire) const;
  Status take_memory(kernels::DeviceStream& stream, size_t bytes);
  struct Split {
    size_t from = 0, count = 0, at = 0;  // bytes in wire, numbers, and the first in `splits_`
  };
  WeightFormat format_ = WeightFormat::kBf16;
  std::vector<Weights::WirePlace> places_;  // by parameter
  std::vector<bool> quantised_;
  std::vector<Split> split_;  // by parameter; of none where it is not split
  size_t split_count_ = 0;
  kernels::DeviceBuffer<std::byte> wire_;
  kernels::DeviceBuffer<float> splits_;
};

}  // namespace tandem::model
