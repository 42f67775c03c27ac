// Where kernels read weights: pointers to values and panels, by parameter. Private to model/.
//
// Other folders name a parameter or a layer and call an operation (layer_ops.h, gradients.h, latent.h, routes.h), so
// that weights may lie on any device.
//
// Thread safety: as the weights'. Valid until they are written.
#pragma once

#include "model/weights.h"

namespace tandem::model {

class Panels {
 public:
  explicit Panels(const Weights& weights) : weights_(weights) {}

  // In float32 of float, else of bf16; empty in the other.
  template <typename T = kernels::bf16>
  const T* values(int parameter) const {
    return weights_.flat<T>().data() + weights_.layout().parameters[parameter].offset;
  }
  // The panels of a parameter's matrix; of experts those of one after the other. Codes where the parameter is
  // quantised, unless for_training(), or pack_codes() cannot represent it.
  template <typename T = kernels::bf16>
  kernels::RightSide<T> packed(int parameter) const {
    if (const Buffer<std::byte>& codes = weights_.packed_codes_[parameter]; !codes.empty())
      return kernels::RightSide<T>(codes.data());
    return weights_.in<T>().packed[parameter].data();
  }
  const kernels::bf16* packed_transposed(int parameter) const { return weights_.transposed_[parameter].data(); }

  // The panels of a group of a parameter with `absorbed_rows`: those of the transpose of these rows, then those of the
  // rest. The next group's begin `stride` elements behind them.
  template <typename T>
  struct Split {
    const T* absorbed = nullptr;
    const T* rest = nullptr;
    size_t stride = 0;
  };
  template <typename T>
  Split<T> split(int parameter) const {
    const auto [absorbed, rest] = weights_.split_sizes(parameter);
    const T* const panels = weights_.in<T>().packed[parameter].data();
    return {panels, panels + absorbed, absorbed + rest};
  }
  // For the backward pass: the panels of these rows themselves, then those of the transpose of the rest.
  Split<kernels::bf16> split_transposed(int parameter) const {
    const auto [absorbed, rest] = weights_.transposed_split_sizes(parameter);
    const kernels::bf16* const panels = weights_.transposed_[parameter].data();
    return {panels, panels + absorbed, absorbed + rest};
  }

 private:
  const Weights& weights_;
};

}  // namespace tandem::model
