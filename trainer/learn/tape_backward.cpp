// The tape read from the end.
//
// Gradients flow in grad_residual_ (of the stream), grad_branch_ (of the output of a norm, attention or SwiGLU),
// grad_dispatched_ and grad_wide_ (of the output of a linear, of the heads' norms or of expanded latents).
#include <cstring>
#include <tuple>
#include <utility>

#include "kernels/experts.h"
#include "kernels/transformer_ops.h"
#include "model/gradients.h"
#include "trainer/learn/tape_ops.h"

namespace tandem::trainer {

template <typename T>
Status Tape::TapeOps<T>::backward(std::span<const float> grad_logprobs, const model::Slice& gradients,
                                  std::vector<float>* entropies, std::span<const uint8_t> learned) {
  if (!weights_->for_training()) return Status::internal("backward needs weights for training");
  if (weights_->live_adapter()) return Status::invalid("nothing is trained beside a live adapter; merge it");
  grads_ = gradients.host<float>().data();
  learned_ = learned;
  paths_ = TreePaths(*tree_);
  TRY(head_backward(grad_logprobs, entropies));
  for (size_t i = records_.size(); i-- > 0;) TRY(backward(records_[i]));
  return {};
}

template <typename T>
Status Tape::TapeOps<T>::head_backward(std::span<const float> grad_logprobs, std::vector<float>* entropies) {
  const int rows = static_cast<int>(head_.rows.size()), width = config_.width;
  std::vector<float> grad_states(static_cast<size_t>(rows) * width, 0);
  if (entropies) entropies->assign(rows, 0);
  const T* states = gather(hidden_, head_.rows);
  TRY(model::head_backward(*stream_, *weights_,
                           {.hidden = states,
                            .log_sum = head_log_sum_.data(),
                            .rows = rows,
                            .grad_hidden = grad_states.data(),
                            .grad_head = learns(layout().head) ? grad_of(layout().head) : nullptr,
                            .logit_scales = head_scales_.empty() ? nullptr : head_scales_.data(),
                            .kept = head_.kept.empty() ? nullptr : head_.kept.data()},
                           head_.picks, grad_logprobs, entropies ? std::span(*entropies) : std::span<float>()));
  for (size_t i = 0; i < more_grad_states_.size(); ++i) grad_states[i] += more_grad_states_[i];
  more_grad_states_ = {};
  T* grad = grown(grad_branch_, static_cast<size_t>(rows_) * width);
  std::fill_n(grad, static_cast<size_t>(rows_) * width, T{});
  for (int i = 0; i < rows; ++i) {
    float* const own = grad_states.data() + static_cast<size_t>(i) * width;
    if (i + 1 < rows && head_.rows[i + 1] == head_.rows[i]) {  // the same state with other kept tokens
      for (int c = 0; c < width; ++c) own[width + c] += own[c];
      continue;
    }
    T* target = grad + static_cast<size_t>(head_.rows[i]) * width;
    for (int c = 0; c < width; ++c) target[c] = kernels::to_bf16(own[c]);
  }
  have_residual_grad_ = false;
  return {};
}

template <typename T>
Status Tape::TapeOps<T>::backward(const Record& r) {
  switch (r.kind) {
    case kEmbed:
      if (!learns(r.weight)) return {};
      return kernels::embed_backward(*stream_, grad_residual_.data(), config_.width, tree_->tokens, grad_of(r.weight));
    case kNorm: {
      const bool accumulate = std::exchange(have_residual_grad_, true);
      T* grad_residual = grown(grad_residual_, static_cast<size_t>(r.in.rows) * r.in.columns);
      return norm_backward(r, grad_branch_.data(), grad_residual, accumulate);
    }
    case kNormOnto:
      return norm_backward(r, grad_residual_.data(), grown(grad_wide_, static_cast<size_t>(r.in.rows) * r.in.columns),
                           false);
    case kLinear:
      return linear_backward(r, grad_wide_.data());
    case kLinearOnto:
      return linear_backward(r, grad_residual_.data());
    case kHeadNorm:
      return head_norm_backward(r);
    case kAttention:
      return attention_backward(r);
    case kExpandLatents:
      return expand_latents_backward(r);
    case kProjectValues:
      return project_values_backward(r);
    case kSwiglu:
      return kernels::swiglu_backward(*stream_, r.in.data, grad_branch_.data(), r.in.rows, r.in.columns / 2,
                                      grown(grad_wide_, static_cast<size_t>(r.in.rows) * r.in.columns));
    case kDispatch:
      return dispatch_backward(r);
    case kGroupedLinear:
      return grouped_linear_backward(r);
    case kCombine:
      return combine_backward(r);
  }
  return {};
}

template <typename T>
float* Tape::TapeOps<T>::grad_of_norm(int parameter) {
  return learns(parameter) ? grad_of(parameter) : grown(unwanted_, layout().parameters[parameter].columns);
}

template <typename T>
Status Tape::TapeOps<T>::norm_backward(const Record& r, const T* grad_out, T* grad_x, bool accumulate) {
  return model::norm_backward(*stream_, *weights_, r.weight,
                              {.x = r.in.data,
                               .grad_out = grad_out,
                               .grad_x = grad_x,
                               .grad_weight = grad_of_norm(r.weight),
                               .accumulate = accumulate,
                               .epsilon = static_cast<float>(config_.norm_epsilon),
                               .rows = r.in.rows,
                               .width = r.in.columns});
}

template <typename T>
Result<const T*> Tape::TapeOps<T>::recompute(const Record& r) {
  const T* in = TRY(input_of(r));
  T* out = grown(scratch_of(r), static_cast<size_t>(r.out.rows) * r.out.columns);
  TRY(compute(r, in, out));
  return out;
}

template <typename T>
Result<const T*> Tape::TapeOps<T>::input_of(const Record& r) {
  const Record& producer = records_[r.in.id];
  if (!producer.kept) return recompute(producer);
  return r.in.data;
}

template <typename T>
Result<const T*> Tape::TapeOps<T>::multiplied_input_of(const Record& r) {
  Tensor x = r.in;
  x.data = const_cast<T*>(TRY(input_of(r)));
  return TRY(multiplied_by(r.weight, x)).data;
}

template <typename T>
Status Tape::TapeOps<T>::add_weight_gradient(int weight, const T* x, int inputs, const T* grad_out, int outputs) {
  const int even_rows = (rows_ + 1) / 2 * 2;
  T* packed_x = grown(packed_, kernels::packed_size(inputs, even_rows));
  TRY(kernels::pack_transposed(*stream_, x, rows_, inputs, packed_x));
  T* packed_grad = grown(packed_grad_, kernels::packed_size(outputs, even_rows));
  TRY(kernels::pack_transposed(*stream_, grad_out, rows_, outputs, packed_grad));
  return kernels::gemm(*stream_, {.a = packed_grad,
                                  .a_packed = true,
                                  .b = packed_x,
                                  .out_float = grad_of(weight),
                                  .out_stride = static_cast<size_t>(inputs),
                                  .accumulate = true,
                                  .m = layout().parameters[weight].rows,
                                  .n = inputs,
                                  .k = even_rows});
}

template <typename T>
Status Tape::TapeOps<T>::linear_backward(const Record& r, const T* grad_out) {
  if (r.bias >= 0 && learns(r.bias)) {
    TRY(kernels::sum_rows(*stream_, {.x = grad_out,
                                     .stride = static_cast<size_t>(r.out.columns),
                                     .out = grad_of(r.bias),
                                     .rows = rows_,
                                     .width = r.out.columns}));
  }
  if (learns(r.weight))
    TRY(add_weight_gradient(r.weight, TRY(multiplied_input_of(r)), r.in.columns, grad_out, r.out.columns));
  return model::linear_backward(*stream_, *weights_, r.weight,
                                {.a = grad_out,
                                 .a_stride = static_cast<size_t>(r.out.columns),
                                 .out = grown(grad_branch_, static_cast<size_t>(rows_) * r.in.columns),
                                 .out_stride = static_cast<size_t>(r.in.columns),
                                 .m = rows_,
                                 .n = r.in.columns,
                                 .k = r.out.columns});
}

template <typename T>
Status Tape::TapeOps<T>::head_norm_backward(const Record& r) {
  const int query = shape_.heads * shape_.head_size;
  for (const auto& [start, weight, heads] :
       {std::tuple{0, r.weight, shape_.heads}, std::tuple{query, r.second_weight, shape_.kv_heads}}) {
    TRY(model::head_norm_backward(*stream_, *weights_, weight,
                                  {.x = r.in.data + start,
                                   .grad = grad_wide_.data() + start,
                                   .stride = static_cast<size_t>(r.in.columns),
                                   .grad_weight = grad_of_norm(weight),
                                   .epsilon = static_cast<float>(config_.norm_epsilon),
                                   .rows = r.in.rows,
                                   .heads = heads,
                                   .head_size = shape_.head_size}));
  }
  return {};
}

template <typename T>
Status Tape::TapeOps<T>::combine_backward(const Record& r) {
  const model::Routes& routes = routes_[r.routes];
  return kernels::combine_backward(*stream_,
                                   {.y = r.in.data,
                                    .places = routes.places.data(),
                                    .weights = routes.weights.data(),
                                    .grad_out = grad_residual_.data(),
                                    .grad_y = grown(grad_wide_, static_cast<size_t>(r.in.rows) * r.in.columns),
                                    .grad_weights = grown(grad_weights_, routes.weights.size()),
                                    .rows = routes.rows,
                                    .top_k = routes.top_k,
                                    .width = r.in.columns});
}

template <typename T>
Status Tape::TapeOps<T>::add_grouped_gradient(const Record& r) {
  const model::Routes& routes = routes_[r.routes];
  const auto pack = [&](const T* x, int columns, std::vector<T>& packed) {
    return kernels::pack_groups(
        *stream_, {.x = x,
                   .offsets = routes.offsets.data(),
                   .packed = grown(packed, kernels::packed_groups_size(columns, r.in.rows, routes.experts)),
                   .groups = routes.experts,
                   .rows = r.in.rows,
                   .columns = columns});
  };
  TRY(pack(TRY(multiplied_input_of(r)), r.in.columns, packed_));
  TRY(pack(grad_wide_.data(), r.out.columns, packed_grad_));
  return kernels::k_grouped_gemm(*stream_, {.a = packed_grad_.data(),
                                            .b = packed_.data(),
                                            .offsets = routes.offsets.data(),
                                            .out = grad_of(r.weight),
                                            .groups = routes.experts,
                                            .rows = r.in.rows,
                                            .m = r.out.columns,
                                            .n = r.in.columns});
}

template <typename T>
Status Tape::TapeOps<T>::grouped_linear_backward(const Record& r) {
  const model::Routes& routes = routes_[r.routes];
  if (learns(r.weight)) TRY(add_grouped_gradient(r));
  // A shared expert's backward pass comes before dispatch's, and has grad_branch_ for itself.
  std::vector<T>& grad_in = records_[r.in.id].kind == kDispatch ? grad_dispatched_ : grad_branch_;
  return model::grouped_linear_backward(*stream_, *weights_, r.weight,
                                        {.a = grad_wide_.data(),
                                         .a_stride = static_cast<size_t>(r.out.columns),
                                         .offsets = routes.offsets.data(),
                                         .out = grown(grad_in, static_cast<size_t>(r.in.rows) * r.in.columns),
                                         .out_stride = static_cast<size_t>(r.in.columns),
                                         .groups = routes.experts,
                                         .m = r.in.rows,
                                         .n = r.in.columns,
                                         .k = r.out.columns});
}

// What the experts want of a row, and on top of it what a shared expert wants, and the router by the weights that
// `combine` used.
template <typename T>
Status Tape::TapeOps<T>::dispatch_backward(const Record& r) {
  const model::Routes& routes = routes_[r.routes];
  const int width = r.in.columns, even_experts = (routes.experts + 1) / 2 * 2;
  T* from_experts = grown(grad_wide_, static_cast<size_t>(rows_) * width);
  TRY(kernels::permute_backward(*stream_, {.grad_out = grad_dispatched_.data(),
                                           .places = routes.places.data(),
                                           .grad_x = from_experts,
                                           .rows = routes.rows,
                                           .top_k = routes.top_k,
                                           .width = width}));
  const bool shared = records_[r.out.id + 1].in.id == r.in.id;
  if (shared) TRY(kernels::add(*stream_, grad_branch_.data(), static_cast<size_t>(rows_) * width, from_experts));
  T* const grad_logits = grown(grad_logits_, static_cast<size_t>(rows_) * even_experts);
  TRY(kernels::route_backward(*stream_, {.logits = routes.logits.data(),
                                         .ids = routes.ids.data(),
                                         .weights = routes.weights.data(),
                                         .grad_weights = grad_weights_.data(),
                                         .grad_logits = grad_logits,
                                         .grad_stride = static_cast<size_t>(even_experts),
                                         .score = routes.score,
                                         .scale = routes.scale,
                                         .normalise = routes.normalise,
                                         .rows = routes.rows,
                                         .experts = routes.experts,
                                         .top_k = routes.top_k}));
  if (learns(r.weight)) TRY(add_weight_gradient(r.weight, TRY(input_of(r)), width, grad_logits, even_experts));
  return model::linear_backward(*stream_, *weights_, r.weight,
                                {.a = grad_logits,
                                 .a_stride = static_cast<size_t>(even_experts),
                                 .residual = from_experts,
                                 .out = grown(grad_branch_, static_cast<size_t>(rows_) * width),
                                 .out_stride = static_cast<size_t>(width),
                                 .m = rows_,
                                 .n = width,
                                 .k = even_experts});
}

template <typename T>
Status Tape::TapeOps<T>::attention_backward(const Record& r) {
  const size_t stride = static_cast<size_t>(r.in.columns);
  // Values that are columns of the keys have their gradient behind that of the keys.
  const int grad_values = columns_.keys + shape_.kv_heads * shape_.head_size;
  const size_t grad_stride = static_cast<size_t>(grad_values) + shape_.kv_heads * shape_.values();
  T* grad = grown(grad_wide_, static_cast<size_t>(rows_) * grad_stride);
  const std::vector<kernels::TreeRun>& runs = paths_.runs;
  TRY(kernels::attention_backward(*stream_, model::attention_shape(config_, r.layer),
                                  {.queries = r.in.data,
                                   .keys = r.in.data + columns_.keys,
                                   .values = r.in.data + columns_.values,
                                   .stride = stride,
                                   .out = r.out.data,
                                   .grad_out = grad_branch_.data(),
                                   .log_sum = log_sums_[r.layer].data(),
                                   .grad_queries = grad,
                                   .grad_keys = grad + columns_.keys,
                                   .grad_values = grad + grad_values,
                                   .grad_stride = grad_stride,
                                   .rows = rows_},
                                  std::span(&runs, 1)));
  return rotation_.turn(*stream_, grad, grad_stride, tree_->positions, true);
}

template class Tape::TapeOps<bf16>;

template <>
Status Tape::TapeOps<float>::backward(std::span<const float>, const model::Slice&, std::vector<float>*,
                                      std::span<const uint8_t>) {
  return Status::invalid("training in float32 is not supported");
}

}  // namespace tandem::trainer
