// RoPE as a model turns its queries and keys: the same call for engine and trainer.
//
// Thread safety: immutable once made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/transformer_ops.h"
#include "model/config.h"

namespace tandem::model {

class Rotation {
 public:
  Rotation(const ModelConfig& config, int max_positions);

  int max_positions() const { return max_positions_; }
  // For another device: elements [first, first + dim) of each head turn, by cosines and sines [max_positions][dim / 2].
  int heads() const { return heads_; }
  int head_size() const { return head_size_; }
  int first() const { return first_; }
  int dim() const { return rope_dim_; }
  bool interleaved() const { return interleaved_; }
  std::span<const float> table() const { return table_; }
  // In place: rows of [queries | keys | ...] as attention takes them, `stride` elements from row to row. `inverse`
  // turns back.
  template <typename T>
  Status turn(kernels::Stream& stream, T* qkv, size_t stride, std::span<const int32_t> positions,
              bool inverse = false) const;

 private:
  int heads_, head_size_, first_, rope_dim_;  // elements [first_, first_ + rope_dim_) of each head
  bool interleaved_;
  int max_positions_;
  std::vector<float> table_;
};

}  // namespace tandem::model
