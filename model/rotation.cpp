#include "model/rotation.h"

#include "model/transformer.h"

namespace tandem::model {

Rotation::Rotation(const ModelConfig& config, int max_positions)
    : heads_(config.heads + attention_shape(config).kv_heads),
      head_size_(attention_shape(config).head_size),
      first_(config.latent.rank),
      rope_dim_(rope_dim(config)),
      interleaved_(config.rope.interleaved),
      max_positions_(max_positions),
      table_(
          kernels::rope_table(max_positions, rope_frequencies(config.rope, rope_dim_), rope_magnitude(config.rope))) {}

template <typename T>
Status Rotation::turn(kernels::Stream& stream, T* qkv, size_t stride, std::span<const int32_t> positions,
                      bool inverse) const {
  return kernels::rope(stream, {.x = qkv + first_,
                                .stride = stride,
                                .positions = positions,
                                .table = table_.data(),
                                .table_positions = max_positions_,
                                .rows = static_cast<int>(positions.size()),
                                .heads = heads_,
                                .head_size = head_size_,
                                .rope_dim = rope_dim_,
                                .interleaved = interleaved_,
                                .inverse = inverse});
}

template Status Rotation::turn(kernels::Stream&, kernels::bf16*, size_t, std::span<const int32_t>, bool) const;
template Status Rotation::turn(kernels::Stream&, float*, size_t, std::span<const int32_t>, bool) const;

}  // namespace tandem::model
