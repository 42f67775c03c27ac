#include "model/device/device_layer_ops.h"

#include "model/latent.h"

namespace tandem::model {

using kernels::address, kernels::beyond, kernels::DeviceStream, kernels::OnDevice;

template <typename T>
DeviceLayerOps<T>::DeviceLayerOps(DeviceStream& stream, const Weights& like, int max_positions)
    : stream_(&stream),
      config_(like.config()),
      layout_(like.layout()),
      format_(like.format()),
      shape_(attention_shape(config_)),
      columns_(attention_columns(config_)),
      rotation_(config_, max_positions) {}

template <typename T>
Status DeviceLayerOps<T>::prepare() {
  turns_ = TRY(stream_->allocate<float>(rotation_.table().size(), "rotations"));
  TRY(stream_->upload(turns_.data(), rotation_.table()));
  return stream_->wait();
}

template <typename T>
Status DeviceLayerOps<T>::embed_rows(OnDevice<int32_t>* tokens, const Tensor& out) {
  return stream_->run(DeviceArguments<T, TandemCudaEmbed, TandemCudaEmbedFloat>{
      .table = address(weights_->values<T>(layout_.embedding)),
      .ids = address(tokens),
      .out = address(out.data),
      .rows = out.rows,
      .vocabulary = config_.vocabulary,
      .width = config_.width});
}

// What an embedding does whose table is x.
template <typename T>
Status DeviceLayerOps<T>::pick_rows(const Tensor& x, OnDevice<int32_t>* ids, const Tensor& out) {
  return stream_->run(DeviceArguments<T, TandemCudaEmbed, TandemCudaEmbedFloat>{.table = address(x.data),
                                                                                .ids = address(ids),
                                                                                .out = address(out.data),
                                                                                .rows = out.rows,
                                                                                .vocabulary = x.rows,
                                                                                .width = x.columns});
}

template <typename T>
Status DeviceLayerOps<T>::norm_rows(const Tensor& x, Element* in, int weight, Element* out) {
  return stream_->run(
      DeviceArguments<T, TandemCudaRmsNorm, TandemCudaRmsNormFloat>{.x = address(in),
                                                                    .weight = address(weights_->values<T>(weight)),
                                                                    .out = address(out),
                                                                    .epsilon = static_cast<float>(config_.norm_epsilon),
                                                                    .rows = x.rows,
                                                                    .width = x.columns});
}

template <typename T>
Status DeviceLayerOps<T>::gate_rows(const Tensor& gate_up, Element* in, Element* out) {
  return stream_->run(DeviceArguments<T, TandemCudaSwiglu, TandemCudaSwigluFloat>{
      .gate_up = address(in), .out = address(out), .rows = gate_up.rows, .width = gate_up.columns / 2});
}

template <typename T>
Status DeviceLayerOps<T>::add(Element* x, Element* y, size_t count) {
  return stream_->run(DeviceArguments<T, TandemCudaAdd, TandemCudaAddFloat>{
      .x = address(x), .y = address(y), .count = static_cast<int64_t>(count)});
}

template <typename T>
auto DeviceLayerOps<T>::multiplied_by(int weight, const Tensor& x) -> Result<Element*> {
  if constexpr (std::is_same_v<T, kernels::bf16>) {
    if (weights_->codes(weight).codes != nullptr) {
      Element* const out = TRY(grown(*stream_, rounded_, static_cast<size_t>(x.rows) * x.columns));
      TRY(stream_->run(TandemCudaRoundToCodes{.x = address(x.data),
                                              .out = address(out),
                                              .rows = x.rows,
                                              .columns = x.columns,
                                              .block = block_columns(format_)}));
      return out;
    }
  }
  return x.data;
}

template <typename T>
Status DeviceLayerOps<T>::multiply(const Tensor& x, int weight, int bias, Element* residual, const Tensor& out) {
  const TandemCudaCodes codes = weights_->codes(weight);
  return stream_->run(DeviceArguments<T, TandemCudaGemm, TandemCudaGemmFloat>{
      .a = address(TRY(multiplied_by(weight, x))),
      .a_row_stride = x.columns,
      .a_k_stride = 1,
      .b = codes.codes ? nullptr : address(weights_->values<T>(weight)),
      .b_row_stride = x.columns,
      .b_k_stride = 1,
      .b_codes = codes,
      .bias = bias < 0 ? nullptr : address(weights_->values<T>(bias)),
      .residual = residual ? address(residual) : nullptr,
      .out = address(out.data),
      .out_stride = out.columns,
      .m = x.rows,
      .n = out.columns,
      .k = x.columns});
}

template <typename T>
Status DeviceLayerOps<T>::norm_some(Element* x, size_t stride, int weight, float epsilon, int rows, int heads,
                                    int head_size) {
  return stream_->run(
      DeviceArguments<T, TandemCudaHeadNorm, TandemCudaHeadNormFloat>{.x = address(x),
                                                                      .stride = static_cast<int64_t>(stride),
                                                                      .weight = address(weights_->values<T>(weight)),
                                                                      .epsilon = epsilon,
                                                                      .rows = rows,
                                                                      .heads = heads,
                                                                      .head_size = head_size});
}

template <typename T>
Status DeviceLayerOps<T>::norm_heads(const Tensor& qkv, int query_weight, int key_weight) {
  const auto epsilon = static_cast<float>(config_.norm_epsilon);
  const size_t stride = qkv.columns, queries = static_cast<size_t>(config_.heads) * config_.head_size;
  TRY(norm_some(qkv.data, stride, query_weight, epsilon, qkv.rows, config_.heads, config_.head_size));
  return norm_some(beyond(qkv.data, queries), stride, key_weight, epsilon, qkv.rows, config_.kv_heads,
                   config_.head_size);
}

template <typename T>
Status DeviceLayerOps<T>::turn(Element* qkv, int64_t stride, OnDevice<int32_t>* positions, int rows, bool inverse) {
  return stream_->run(
      DeviceArguments<T, TandemCudaRope, TandemCudaRopeFloat>{.x = address(beyond(qkv, rotation_.first())),
                                                              .stride = stride,
                                                              .positions = address(positions),
                                                              .table = address(turns_.data()),
                                                              .rows = rows,
                                                              .heads = rotation_.heads(),
                                                              .head_size = rotation_.head_size(),
                                                              .table_positions = rotation_.max_positions(),
                                                              .inverse = inverse,
                                                              .rope_dim = rotation_.dim(),
                                                              .interleaved = rotation_.interleaved()});
}

namespace {
template <typename T>
auto pages_of(const DevicePages<T>& pages, int slot, const DevicePlaces& places) {
  return DeviceArguments<T, TandemCudaPages, TandemCudaPagesFloat>{.keys = address(pages.keys(slot)),
                                                                   .values = address(pages.values(slot)),
                                                                   .table = address(places.pages),
                                                                   .first = address(places.first_page),
                                                                   .positions = address(places.positions)};
}
}  // namespace

template <typename T>
Status DeviceLayerOps<T>::write_pages(const DevicePages<T>& pages, int slot, Element* qkv, int64_t stride, int rows,
                                      const DevicePlaces& places) {
  return stream_->run(DeviceArguments<T, TandemCudaWritePages, TandemCudaWritePagesFloat>{
      .keys = address(beyond(qkv, columns_.keys)),
      .key_stride = stride,
      .values = address(beyond(qkv, columns_.values)),
      .value_stride = stride,
      .pages = pages_of(pages, slot, places),
      .rows = rows,
      .kv_heads = shape_.kv_heads,
      .head_size = shape_.head_size,
      .value_size = shape_.values()});
}

template <typename T>
Status DeviceLayerOps<T>::attend(const DevicePages<T>& pages, int slot, int layer, const Tensor& qkv,
                                 const DevicePlaces& places, const Tensor& out, OnDevice<float>* log_sum) {
  const kernels::AttentionShape shape = attention_shape(config_, layer);
  return stream_->run(
      DeviceArguments<T, TandemCudaAttention, TandemCudaAttentionFloat>{.queries = address(qkv.data),
                                                                        .query_stride = qkv.columns,
                                                                        .pages = pages_of(pages, slot, places),
                                                                        .out = address(out.data),
                                                                        .out_stride = out.columns,
                                                                        .log_sum = log_sum ? address(log_sum) : nullptr,
                                                                        .rows = qkv.rows,
                                                                        .heads = shape.heads,
                                                                        .kv_heads = shape.kv_heads,
                                                                        .head_size = shape.head_size,
                                                                        .scale = shape.scale,
                                                                        .window = shape.window,
                                                                        .value_size = shape.values()});
}

// As model/latent.cpp has it for the CPU.
template <typename T>
Status DeviceLayerOps<T>::expand(const Tensor& compressed, int layer, DeviceLatentQueries<T>& latents,
                                 const Tensor& out) {
  using Place = DeviceArguments<T, TandemCudaPlaceColumns, TandemCudaPlaceColumnsFloat>;
  const LatentConfig& latent = config_.latent;
  const LayerParameters& parameters = layout_.layers[layer];
  const int rows = compressed.rows, width = shape_.head_size, positioned = latent.rank + latent.rope_dim;
  Tensor queries = compressed;
  if (latent.query_rank > 0) {
    const int rank = latent.query_rank;
    const Tensor normed{TRY(grown(*stream_, latents.normed, static_cast<size_t>(rows) * rank)), rows, rank, 0};
    TRY(stream_->run(Place{.x = address(compressed.data),
                           .stride = compressed.columns,
                           .out = address(normed.data),
                           .out_stride = rank,
                           .rows = rows,
                           .groups = 1,
                           .columns = rank,
                           .width = rank}));
    TRY(norm_some(normed.data, rank, parameters.query_norm, kLatentNormEpsilon, rows, 1, rank));
    const int columns = layout_.parameters[parameters.query_up].rows;
    queries = {TRY(grown(*stream_, latents.queries, static_cast<size_t>(rows) * columns)), rows, columns, 0};
    TRY(multiply(normed, parameters.query_up, -1, nullptr, queries));
  }
  TRY(stream_->run(Place{.x = address(beyond(queries.data, latent.plain)),
                         .stride = queries.columns,
                         .group = config_.head_size,
                         .out = address(beyond(out.data, latent.rank)),
                         .out_stride = out.columns,
                         .out_group = width,
                         .rows = rows,
                         .groups = config_.heads,
                         .columns = latent.rope_dim,
                         .width = width - latent.rank}));
  Element* const keys = beyond(out.data, columns_.keys);
  TRY(stream_->run(Place{.x = address(beyond(compressed.data, query_columns(config_))),
                         .stride = compressed.columns,
                         .out = address(keys),
                         .out_stride = out.columns,
                         .rows = rows,
                         .groups = 1,
                         .columns = positioned,
                         .width = width}));
  TRY(norm_some(keys, out.columns, parameters.key_norm, kLatentNormEpsilon, rows, 1,
                layout_.parameters[parameters.key_norm].columns));
  const Parameter& up = layout_.parameters[parameters.key_value_up];
  return stream_->run(DeviceArguments<T, TandemCudaBatchedGemm, TandemCudaBatchedGemmFloat>{
      .a = address(queries.data),
      .a_stride = queries.columns,
      .a_group = config_.head_size,
      .b = address(weights_->values<T>(parameters.key_value_up)),
      .b_row_stride = 1,
      .b_k_stride = up.columns,
      .b_group = int64_t{up.group_rows()} * up.columns,
      .out = address(out.data),
      .out_stride = out.columns,
      .out_group = width,
      .groups = config_.heads,
      .m = rows,
      .n = latent.rank,
      .k = latent.plain});
}

template <typename T>
Status DeviceLayerOps<T>::project(const Tensor& gathered, int layer, const Tensor& out) {
  const LatentConfig& latent = config_.latent;
  const int weight = layout_.layers[layer].key_value_up;
  const Parameter& up = layout_.parameters[weight];
  return stream_->run(DeviceArguments<T, TandemCudaBatchedGemm, TandemCudaBatchedGemmFloat>{
      .a = address(gathered.data),
      .a_stride = gathered.columns,
      .a_group = shape_.values(),
      .b = address(beyond(weights_->values<T>(weight), static_cast<size_t>(latent.plain) * up.columns)),
      .b_row_stride = up.columns,
      .b_k_stride = 1,
      .b_group = int64_t{up.group_rows()} * up.columns,
      .out = address(out.data),
      .out_stride = out.columns,
      .out_group = latent.value,
      .groups = config_.heads,
      .m = gathered.rows,
      .n = latent.value,
      .k = latent.rank});
}

template <typename T>
Status DeviceLayerOps<T>::choose(const Tensor& x, int router, int router_bias, DeviceRoutes& routes,
                                 const DeviceGivenRoutes& given) {
  const ExpertsConfig& experts = config_.experts;
  const size_t rows = x.rows, pairs = rows * experts.top_k;
  routes.rows = x.rows;
  OnDevice<float>* const logits = TRY(grown(*stream_, routes.logits, rows * experts.count, "routes"));
  TRY(grown(*stream_, routes.weights, pairs, "routes"));
  TRY(grown(*stream_, routes.ids, pairs, "routes"));
  TRY(grown(*stream_, routes.places, pairs, "routes"));
  TRY(grown(*stream_, routes.offsets, static_cast<size_t>(experts.count) + 1, "routes"));
  TRY(stream_->run(DeviceArguments<T, TandemCudaGemm, TandemCudaGemmFloat>{.a = address(x.data),
                                                                           .a_row_stride = x.columns,
                                                                           .a_k_stride = 1,
                                                                           .b = address(weights_->values<T>(router)),
                                                                           .b_row_stride = x.columns,
                                                                           .b_k_stride = 1,
                                                                           .out_float = address(logits),
                                                                           .out_stride = experts.count,
                                                                           .m = x.rows,
                                                                           .n = experts.count,
                                                                           .k = x.columns}));
  TRY(stream_->run(TandemCudaRoute{.logits = address(logits),
                                   .ids = address(routes.ids.data()),
                                   .weights = address(routes.weights.data()),
                                   .bias = router_bias < 0 ? nullptr : address(weights_->split_values(router_bias)),
                                   .scale = static_cast<float>(experts.scale),
                                   .sigmoid = experts.sigmoid,
                                   .normalise = experts.normalise,
                                   .rows = x.rows,
                                   .experts = experts.count,
                                   .top_k = experts.top_k,
                                   .groups = experts.groups,
                                   .top_k_groups = experts.top_k_groups,
                                   .given = given.ids ? address(given.ids) : nullptr,
                                   .changed = given.ids ? address(given.changed) : nullptr}));
  return stream_->run(TandemCudaGroupByExpert{.ids = address(routes.ids.data()),
                                              .offsets = address(routes.offsets.data()),
                                              .places = address(routes.places.data()),
                                              .rows = x.rows,
                                              .experts = experts.count,
                                              .top_k = experts.top_k});
}

template <typename T>
Status DeviceLayerOps<T>::send(const DeviceRoutes& routes, const Tensor& x, Element* in, Element* out) {
  return stream_->run(
      DeviceArguments<T, TandemCudaPermute, TandemCudaPermuteFloat>{.x = address(in),
                                                                    .places = address(routes.places.data()),
                                                                    .out = address(out),
                                                                    .rows = x.rows,
                                                                    .top_k = config_.experts.top_k,
                                                                    .width = x.columns});
}

template <typename T>
Status DeviceLayerOps<T>::multiply_groups(const DeviceRoutes& routes, int weight, const Tensor& x, const Tensor& out) {
  const TandemCudaCodes codes = weights_->codes(weight);
  return stream_->run(DeviceArguments<T, TandemCudaGroupedGemm, TandemCudaGroupedGemmFloat>{
      .a = address(TRY(multiplied_by(weight, x))),
      .a_stride = x.columns,
      .offsets = address(routes.offsets.data()),
      .b = codes.codes ? nullptr : address(weights_->values<T>(weight)),
      .b_codes = codes,
      .out = address(out.data),
      .out_stride = out.columns,
      .groups = config_.experts.count,
      .m = x.rows,
      .n = out.columns,
      .k = x.columns});
}

template <typename T>
Status DeviceLayerOps<T>::gather_routes(const DeviceRoutes& routes, const Tensor& y, const Tensor& residual,
                                        const Tensor& out) {
  return stream_->run(
      DeviceArguments<T, TandemCudaCombine, TandemCudaCombineFloat>{.y = address(y.data),
                                                                    .places = address(routes.places.data()),
                                                                    .weights = address(routes.weights.data()),
                                                                    .residual = address(residual.data),
                                                                    .out = address(out.data),
                                                                    .rows = residual.rows,
                                                                    .top_k = config_.experts.top_k,
                                                                    .width = y.columns});
}

template class DeviceLayerOps<kernels::bf16>;
template class DeviceLayerOps<float>;

}  // namespace tandem::model
