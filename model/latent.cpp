#include "model/latent.h"

#include <algorithm>
#include <type_traits>

#include "kernels/transformer_ops.h"
#include "model/panels.h"

namespace tandem::model {

namespace {

// RMS norm of columns of a matrix, in place.
template <typename T>
Status norm_columns(kernels::Stream& stream, const Weights& weights, int weight, T* x, size_t stride, int rows) {
  return kernels::head_norm(stream, {.x = x,
                                     .stride = stride,
                                     .weight = Panels(weights).values<T>(weight),
                                     .epsilon = kLatentNormEpsilon,
                                     .rows = rows,
                                     .heads = 1,
                                     .head_size = weights.layout().parameters[weight].columns});
}

// The queries of all heads, of their latents.
template <typename T>
Status make_queries(kernels::Stream& stream, const Weights& weights, const LayerParameters& layer,
                    const BasicTensor<T>& compressed, QuantizedActivations& activations, LatentQueries<T>& latents) {
  const int rank = weights.config().latent.query_rank, rows = compressed.rows;
  const int queries = weights.layout().parameters[layer.query_up].rows;
  latents.normed.resize(static_cast<size_t>(rows) * rank);
  latents.queries.resize(static_cast<size_t>(rows) * queries);
  T* normed = latents.normed.data();
  for (int row = 0; row < rows; ++row) {
    std::copy_n(compressed.data + static_cast<size_t>(row) * compressed.columns, rank,
                normed + static_cast<size_t>(row) * rank);
  }
  TRY(norm_columns(stream, weights, layer.query_norm, normed, static_cast<size_t>(rank), rows));
  const T* multiplied = normed;
  if constexpr (std::is_same_v<T, kernels::bf16>)
    multiplied = TRY(activations.of(stream, weights.format_of(layer.query_up), normed, rows, rank));
  return kernels::gemm(stream, {.a = multiplied,
                                .a_stride = static_cast<size_t>(rank),
                                .b = Panels(weights).packed<T>(layer.query_up),
                                .out = latents.queries.data(),
                                .out_stride = static_cast<size_t>(queries),
                                .m = rows,
                                .n = queries,
                                .k = rank});
}

}  // namespace

template <typename T>
Status expand_latents(kernels::Stream& stream, const Weights& weights, int layer, const BasicTensor<T>& compressed,
                      QuantizedActivations& activations, LatentQueries<T>& latents, const BasicTensor<T>& out) {
  const ModelConfig& config = weights.config();
  const LatentConfig& latent = config.latent;
  const LayerParameters& parameters = weights.layout().layers[layer];
  const int rows = compressed.rows, width = attention_shape(config).head_size,
            positioned = latent.rank + latent.rope_dim;
  const T* queries = compressed.data;
  size_t query_stride = compressed.columns;
  if (latent.query_rank > 0) {
    TRY(make_queries(stream, weights, parameters, compressed, activations, latents));
    queries = latents.queries.data();
    query_stride = static_cast<size_t>(config.heads) * config.head_size;
  }
  for (int row = 0; row < rows; ++row) {
    T* target = out.data + static_cast<size_t>(row) * out.columns;
    const T* query = queries + row * query_stride;
    for (int head = 0; head < config.heads; ++head, target += width, query += config.head_size) {
      std::copy_n(query + latent.plain, latent.rope_dim, target + latent.rank);
      std::fill(target + positioned, target + width, T{});
    }
    std::copy_n(compressed.data + static_cast<size_t>(row) * compressed.columns + query_columns(config), positioned,
                target);
    std::fill(target + positioned, target + width, T{});
  }
  const size_t stride = out.columns;
  TRY(norm_columns(stream, weights, parameters.key_norm, out.data + static_cast<size_t>(config.heads) * width, stride,
                   rows));
  const auto panels = Panels(weights).split<T>(parameters.key_value_up);
  return kernels::batched_gemm(stream, {.a = queries,
                                        .a_stride = query_stride,
                                        .a_group = static_cast<size_t>(config.head_size),
                                        .b = panels.absorbed,
                                        .b_group = panels.stride,
                                        .out = out.data,
                                        .out_stride = stride,
                                        .out_group = static_cast<size_t>(width),
                                        .groups = config.heads,
                                        .m = rows,
                                        .n = latent.rank,
                                        .k = latent.plain});
}

template <typename T>
Status project_values(kernels::Stream& stream, const Weights& weights, int layer, const BasicTensor<T>& gathered,
                      const BasicTensor<T>& out) {
  const ModelConfig& config = weights.config();
  const auto panels = Panels(weights).split<T>(weights.layout().layers[layer].key_value_up);
  return kernels::batched_gemm(stream, {.a = gathered.data,
                                        .a_stride = static_cast<size_t>(gathered.columns),
                                        .a_group = static_cast<size_t>(attention_shape(config).values()),
                                        .b = panels.rest,
                                        .b_group = panels.stride,
                                        .out = out.data,
                                        .out_stride = static_cast<size_t>(out.columns),
                                        .out_group = static_cast<size_t>(config.latent.value),
                                        .groups = config.heads,
                                        .m = gathered.rows,
                                        .n = config.latent.value,
                                        .k = config.latent.rank});
}

template Status expand_latents(kernels::Stream&, const Weights&, int, const BasicTensor<kernels::bf16>&,
                               QuantizedActivations&, LatentQueries<kernels::bf16>&, const BasicTensor<kernels::bf16>&);
template Status expand_latents(kernels::Stream&, const Weights&, int, const BasicTensor<float>&, QuantizedActivations&,
                               LatentQueries<float>&, const BasicTensor<float>&);
template Status project_values(kernels::Stream&, const Weights&, int, const BasicTensor<kernels::bf16>&,
                               const BasicTensor<kernels::bf16>&);
template Status project_values(kernels::Stream&, const Weights&, int, const BasicTensor<float>&,
                               const BasicTensor<float>&);

}  // namespace tandem::model
