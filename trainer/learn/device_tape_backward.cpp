// The tape of a device read from the end: as tape_backward.cpp, whose buffers have the same names.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "kernels/cuda/tree_runs.h"
#include "trainer/learn/device_tape.h"

namespace tandem::trainer {

using kernels::address, kernels::beyond, kernels::OnDevice;
using model::grown;

namespace {

OnDevice<float>* float_of(const Slice& slice) { return reinterpret_cast<OnDevice<float>*>(slice.bytes.data()); }
Slice slice_on_device(const std::string& name, OnDevice<float>* values, size_t elements) {
  return {name,
          {static_cast<int64_t>(elements)},
          model::DType::kF32,
          model::Device::kGpu,
          {reinterpret_cast<std::byte*>(values), elements * sizeof(float)}};
}

}  // namespace

Status Tape::DevicePass::backward(std::span<const float> grad_logprobs, const model::Slice& gradients,
                                  std::vector<float>* entropies, std::span<const uint8_t> learned) {
  learned_ = learned;
  const bool is_here = gradients.device == model::Device::kGpu;
  const std::span<float> host = is_here ? std::span<float>() : gradients.host<float>();
  if (is_here) {
    gradients_ = float_of(gradients);
  } else {
    gradients_ = TRY(grown(*stream_, grads_, layout_.elements, "gradients"));
    TRY(stream_->upload(gradients_, std::span<const float>(host)));
  }
  TRY(send_runs());
  TRY(head_backward(grad_logprobs, entropies));
  for (size_t i = records_.size(); i-- > 0;) TRY(backward(records_[i]));
  if (!is_here) TRY(stream_->download(host, gradients_));
  return stream_->wait();
}

// Sum and levels are cleared when they are asked for.
class Tape::DevicePass::DeviceSlotMemory final : public SlotMemory {
 public:
  explicit DeviceSlotMemory(DevicePass& pass) : pass_(pass) {}

  Result<Slice> begin_sum(const Slice& into) override { return zeros(into.elements(), into.name); }
  Status end_sum(const Slice& into, std::span<const Piece> ranges) override {
    const auto host = into.host<float>();
    OnDevice<float>* const sum = buffers_.at(into.name).data();
    for (const Piece& range : ranges)
      TRY(pass_.stream_->download(host.subspan(range.begin, range.count), beyond(sum, range.begin)));
    return pass_.stream_->wait();
  }
  Result<Slice> level(const SliceSpec& spec) override { return zeros(spec.elements, spec.name); }
  Status add(const Slice& into, const Slice& terms, std::span<const Piece> ranges) override {
    for (const Piece& range : ranges) {
      TRY(pass_.stream_->run(TandemCudaAddFloat{.x = address(beyond(float_of(into), range.begin)),
                                                .y = address(beyond(float_of(terms), range.begin)),
                                                .count = static_cast<int64_t>(range.count)}));
    }
    return {};
  }
  void forget() override {}
  size_t bytes() const override {
    size_t elements = 0;
    for (const auto& [name, buffer] : buffers_) elements += buffer.size();
    return elements * sizeof(float);
  }

 private:
  Result<Slice> zeros(size_t elements, const std::string& name) {
    const auto values = grown(*pass_.stream_, buffers_[name], elements, "gradients");
    if (!values) {
      Status lacking = values.error();
      if (lacking.code() != Code::kExhausted) return fail(std::move(lacking));
      return fail(std::move(lacking).hint("lower trainer.slots: the sum of 2^n slots takes n + 1 gradients there"));
    }
    constexpr size_t kLine = 1 << 20;
    if (elements >= kLine) TRY(pass_.clear(*values, static_cast<int>(elements / kLine), kLine));
    if (const size_t rest = elements % kLine; rest > 0)
      TRY(pass_.clear(beyond(*values, elements - rest), 1, static_cast<int>(rest)));
    return slice_on_device(name, *values, elements);
  }

  DevicePass& pass_;
  std::map<std::string, kernels::DeviceBuffer<float>> buffers_;
};

// The other half is for activations, which are taken as passes come.
std::unique_ptr<SlotMemory> Tape::DevicePass::slot_memory(size_t bytes) {
  if (bytes > stream_->free_bytes() / 2) return slot_memory_of_host();
  return std::make_unique<DeviceSlotMemory>(*this);
}

Status Tape::DevicePass::send_runs() {
  const auto flat = TRY(kernels::cuda::tree_runs(std::span(&tree_paths_.runs, 1), rows_));
  TRY(runs_.send(*stream_, flat.runs));
  TRY(row_run_.send(*stream_, flat.row_run));
  TRY(paths_.send(*stream_, flat.paths));
  return {};
}

Status Tape::DevicePass::clear(OnDevice<float>* values, int rows, int columns) {
  return stream_->run(TandemCudaPlaceColumnsFloat{.x = address(values),
                                                  .stride = columns,
                                                  .out = address(values),
                                                  .out_stride = columns,
                                                  .rows = rows,
                                                  .groups = 1,
                                                  .columns = 0,
                                                  .width = columns});
}
Status Tape::DevicePass::clear(Element* values, int rows, int columns) {
  return stream_->run(TandemCudaPlaceColumns{.x = address(values),
                                             .stride = columns,
                                             .out = address(values),
                                             .out_stride = columns,
                                             .rows = rows,
                                             .groups = 1,
                                             .columns = 0,
                                             .width = columns});
}

// On the host, where there are some at all: of samples that other versions of the weights have cut elsewhere.
Result<int> Tape::DevicePass::add_up_states() {
  const int rows = static_cast<int>(head_.rows.size());
  if (std::ranges::adjacent_find(head_.rows) == head_.rows.end()) return rows;
  const auto width = static_cast<size_t>(config_.width);
  std::vector<float> states(static_cast<size_t>(rows) * width);
  TRY(stream_->download(std::span(states), grad_states_.data()));
  TRY(stream_->wait());
  std::vector<int32_t> distinct;
  for (size_t row = 0; row < head_.rows.size(); ++row) {
    const bool again = !distinct.empty() && distinct.back() == head_.rows[row];
    if (!again) distinct.push_back(head_.rows[row]);
    float* const to = states.data() + (distinct.size() - 1) * width;
    const float* const from = states.data() + row * width;
    for (size_t i = 0; i < width; ++i) to[i] = again ? to[i] + from[i] : from[i];
  }
  TRY(stream_->upload(grad_states_.data(), std::span<const float>(states).first(distinct.size() * width)));
  TRY(head_rows_sent_.send(*stream_, distinct));
  TRY(stream_->wait());
  return static_cast<int>(distinct.size());
}

Status Tape::DevicePass::add_more_grad_states(int rows) {
  const auto more = std::exchange(more_grad_states_, {});
  if (more.empty()) return {};
  std::vector<float> states(static_cast<size_t>(rows) * config_.width);
  TRY(stream_->download(std::span(states), grad_states_.data()));
  TRY(stream_->wait());
  for (size_t i = 0; i < states.size(); ++i) states[i] += more[i];
  TRY(stream_->upload(grad_states_.data(), std::span<const float>(states)));
  return stream_->wait();
}

Status Tape::DevicePass::head_backward(std::span<const float> grad_logprobs, std::vector<float>* entropies) {
  const int rows = static_cast<int>(head_.rows.size()), width = config_.width;
  Element* const grad = TRY(grown(*stream_, grad_branch_, static_cast<size_t>(rows_) * width));
  TRY(clear(grad, rows_, width));
  have_residual_grad_ = false;
  if (entropies) entropies->assign(rows, 0);
  if (rows == 0) return {};
  Element* const states = TRY(head_states(head_.rows));
  auto* const sent = TRY(grad_logprobs_.send(*stream_, grad_logprobs));
  auto* const grad_states = TRY(grown(*stream_, grad_states_, static_cast<size_t>(rows) * width));
  TRY(clear(grad_states, rows, width));
  if (entropies) TRY(grown(*stream_, head_entropy_, rows));
  const auto scratch =
      TRY(stream_->workspace(stream_->functions().lm_head_backward_workspace(rows, config_.vocabulary)));
  TRY(stream_->run(
      TandemCudaLmHeadBackward{.hidden = address(states),
                               .head = address(weights_->values<bf16>(layout_.head)),
                               .log_sum = address(head_log_sum_.data()),
                               .picks = address(head_picks_sent_.data()),
                               .grad_logprobs = address(sent),
                               .pick_count = static_cast<int64_t>(head_picks_.size()),
                               .grad_hidden = address(grad_states),
                               .grad_head = learns(layout_.head) ? address(grad_of(layout_.head)) : nullptr,
                               .entropy = entropies ? address(head_entropy_.data()) : nullptr,
                               .logit_scales = head_scales_.empty() ? nullptr : address(head_scales_sent_.data()),
                               .rows = rows,
                               .width = width,
                               .vocabulary = config_.vocabulary,
                               .workspace = scratch.memory,
                               .workspace_bytes = scratch.bytes,
                               .kept = head_.kept.empty() ? nullptr : address(head_kept_sent_.data())}));
  TRY(add_more_grad_states(rows));
  const int distinct = TRY(add_up_states());
  TRY(stream_->run(TandemCudaPutRows{.x = address(grad_states),
                                     .rows = address(head_rows_sent_.data()),
                                     .out = address(grad),
                                     .count = distinct,
                                     .width = width}));
  return entropies ? stream_->download(std::span(*entropies), head_entropy_.data()) : Status();
}

Status Tape::DevicePass::backward(const Record& r) {
  const auto elements = [](const Tensor& x) { return static_cast<size_t>(x.rows) * x.columns; };
  switch (r.kind) {
    case kEmbed:
      if (!learns(r.weight)) return {};
      return stream_->run(TandemCudaEmbedBackward{.grad_out = address(grad_residual_.data()),
                                                  .ids = address(tokens_.data()),
                                                  .grad_table = address(grad_of(r.weight)),
                                                  .rows = rows_,
                                                  .vocabulary = config_.vocabulary,
                                                  .width = config_.width});
    case kNorm: {
      const bool accumulate = std::exchange(have_residual_grad_, true);
      Element* const grad_residual = TRY(grown(*stream_, grad_residual_, elements(r.in)));
      return norm_backward(r, grad_branch_.data(), grad_residual, accumulate);
    }
    case kNormOnto:
      return norm_backward(r, grad_residual_.data(), TRY(grown(*stream_, grad_wide_, elements(r.in))), false);
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
      return stream_->run(
          TandemCudaSwigluBackward{.gate_up = address(r.in.data),
                                   .grad_out = address(grad_branch_.data()),
                                   .grad_gate_up = address(TRY(grown(*stream_, grad_wide_, elements(r.in)))),
                                   .rows = r.in.rows,
                                   .width = r.in.columns / 2});
    case kDispatch:
      return dispatch_backward(r);
    case kGroupedLinear:
      return grouped_linear_backward(r);
    case kCombine:
      return combine_backward(r);
  }
  return {};
}

Result<OnDevice<float>*> Tape::DevicePass::grad_of_norm(int parameter) {
  if (learns(parameter)) return grad_of(parameter);
  return grown(*stream_, unwanted_, layout_.parameters[parameter].columns);
}

Status Tape::DevicePass::norm_backward(const Record& r, Element* grad_out, Element* grad_x, bool accumulate) {
  const auto scratch =
      TRY(stream_->workspace(stream_->functions().rms_norm_backward_workspace(r.in.rows, r.in.columns)));
  return stream_->run(TandemCudaRmsNormBackward{.x = address(r.in.data),
                                                .weight = address(weights_->values<bf16>(r.weight)),
                                                .grad_out = address(grad_out),
                                                .grad_x = address(grad_x),
                                                .grad_weight = address(TRY(grad_of_norm(r.weight))),
                                                .accumulate = accumulate,
                                                .epsilon = static_cast<float>(config_.norm_epsilon),
                                                .rows = r.in.rows,
                                                .width = r.in.columns,
                                                .workspace = scratch.memory,
                                                .workspace_bytes = scratch.bytes});
}

auto Tape::DevicePass::recompute(const Record& r) -> Result<Element*> {
  Element* const in = TRY(input_of(r));
  Element* const out = TRY(grown(*stream_, scratch_of(r), static_cast<size_t>(r.out.rows) * r.out.columns));
  TRY(compute(r, in, out));
  return out;
}

auto Tape::DevicePass::input_of(const Record& r) -> Result<Element*> {
  const Record& producer = records_[r.in.id];
  if (!producer.kept) return recompute(producer);
  return r.in.data;
}

auto Tape::DevicePass::multiplied_input_of(const Record& r) -> Result<Element*> {
  Tensor x = r.in;
  x.data = TRY(input_of(r));
  return multiplied_by(r.weight, x);
}

Status Tape::DevicePass::add_gradient(OnDevice<float>* target, const Columns& x, const Columns& grad_out) {
  return stream_->run(TandemCudaGemm{.a = address(grad_out.data),
                                     .a_row_stride = 1,
                                     .a_k_stride = grad_out.stride,
                                     .b = address(x.data),
                                     .b_row_stride = 1,
                                     .b_k_stride = x.stride,
                                     .out_float = address(target),
                                     .out_stride = x.count,
                                     .accumulate = 1,
                                     .m = grad_out.count,
                                     .n = x.count,
                                     .k = rows_});
}

Status Tape::DevicePass::add_weight_gradient(int weight, Element* x, int inputs, Element* grad_out, int stride) {
  return add_gradient(grad_of(weight), {x, inputs, inputs}, {grad_out, stride, layout_.parameters[weight].rows});
}

auto Tape::DevicePass::matrix_of(int parameter) -> Result<Element*> {
  const model::Parameter& p = layout_.parameters[parameter];
  TandemCudaCodes codes = weights_->codes(parameter);
  if (codes.codes == nullptr) return weights_->values<bf16>(parameter);
  Element* const out = TRY(grown(*stream_, matrix_, p.elements()));
  const auto blocks = [](int count, int size) { return static_cast<size_t>((count + size - 1) / size); };
  const int rows = p.group_rows();
  const size_t scales = blocks(rows, codes.block_rows) * blocks(p.columns, codes.block);
  for (int g = 0; g < p.groups; ++g) {
    const size_t of_group = static_cast<size_t>(g) * rows * p.columns;
    TRY(stream_->run(TandemCudaExpand{.codes = codes.codes + of_group,
                                      .scales = codes.scales + g * scales,
                                      .out = address(beyond(out, of_group)),
                                      .rows = rows,
                                      .columns = p.columns,
                                      .block = codes.block,
                                      .block_rows = codes.block_rows}));
  }
  return out;
}

// grad_out [rows][outputs] times the matrix as it lies, [outputs][inputs].
Status Tape::DevicePass::input_gradient(int weight, Element* grad_out, int stride, Element* residual,
                                        const Columns& out) {
  return stream_->run(TandemCudaGemm{.a = address(grad_out),
                                     .a_row_stride = stride,
                                     .a_k_stride = 1,
                                     .b = address(TRY(matrix_of(weight))),
                                     .b_row_stride = 1,
                                     .b_k_stride = out.count,
                                     .residual = residual ? address(residual) : nullptr,
                                     .out = address(out.data),
                                     .out_stride = out.stride,
                                     .m = rows_,
                                     .n = out.count,
                                     .k = layout_.parameters[weight].rows});
}

Status Tape::DevicePass::linear_backward(const Record& r, Element* grad_out) {
  if (r.bias >= 0 && learns(r.bias)) {
    const auto scratch = TRY(stream_->workspace(stream_->functions().sum_rows_workspace(rows_, r.out.columns)));
    TRY(stream_->run(TandemCudaSumRows{.x = address(grad_out),
                                       .stride = r.out.columns,
                                       .out = address(grad_of(r.bias)),
                                       .rows = rows_,
                                       .width = r.out.columns,
                                       .workspace = scratch.memory,
                                       .workspace_bytes = scratch.bytes}));
  }
  if (learns(r.weight))
    TRY(add_weight_gradient(r.weight, TRY(multiplied_input_of(r)), r.in.columns, grad_out, r.out.columns));
  Element* const out = TRY(grown(*stream_, grad_branch_, static_cast<size_t>(rows_) * r.in.columns));
  return input_gradient(r.weight, grad_out, r.out.columns, nullptr, {out, r.in.columns, r.in.columns});
}

Status Tape::DevicePass::head_norm_backward(int weight, Element* x, Element* grad, int64_t stride, float epsilon,
                                            int heads, int head_size) {
  const auto scratch =
      TRY(stream_->workspace(stream_->functions().head_norm_backward_workspace(rows_, heads, head_size)));
  return stream_->run(TandemCudaHeadNormBackward{.x = address(x),
                                                 .grad = address(grad),
                                                 .stride = stride,
                                                 .weight = address(weights_->values<bf16>(weight)),
                                                 .grad_weight = address(TRY(grad_of_norm(weight))),
                                                 .epsilon = epsilon,
                                                 .rows = rows_,
                                                 .heads = heads,
                                                 .head_size = head_size,
                                                 .workspace = scratch.memory,
                                                 .workspace_bytes = scratch.bytes});
}

Status Tape::DevicePass::head_norm_backward(const Record& r) {
  const int query = shape_.heads * shape_.head_size;
  for (const auto& [start, weight, heads] :
       {std::tuple{0, r.weight, shape_.heads}, std::tuple{query, r.second_weight, shape_.kv_heads}}) {
    TRY(head_norm_backward(weight, beyond(r.in.data, start), beyond(grad_wide_.data(), start), r.in.columns,
                           static_cast<float>(config_.norm_epsilon), heads, shape_.head_size));
  }
  return {};
}

Status Tape::DevicePass::attention_backward(const Record& r) {
  const kernels::AttentionShape shape = model::attention_shape(config_, r.layer);
  const int64_t stride = r.in.columns;
  // Values that are columns of the keys have their gradient behind that of the keys.
  const int grad_values = columns_.keys + shape_.kv_heads * shape_.head_size;
  const int64_t grad_stride = grad_values + int64_t{shape_.kv_heads} * shape_.values();
  Element* const grad = TRY(grown(*stream_, grad_wide_, static_cast<size_t>(rows_) * grad_stride));
  const auto scratch = TRY(stream_->workspace(stream_->functions().attention_backward_workspace(rows_, shape.heads)));
  TRY(stream_->run(TandemCudaAttentionBackward{.queries = address(r.in.data),
                                               .keys = address(beyond(r.in.data, columns_.keys)),
                                               .values = address(beyond(r.in.data, columns_.values)),
                                               .stride = stride,
                                               .out = address(r.out.data),
                                               .grad_out = address(grad_branch_.data()),
                                               .log_sum = address(log_sums_[r.layer].data()),
                                               .grad_queries = address(grad),
                                               .grad_keys = address(beyond(grad, columns_.keys)),
                                               .grad_values = address(beyond(grad, grad_values)),
                                               .grad_stride = grad_stride,
                                               .runs = address(runs_.data()),
                                               .row_run = address(row_run_.data()),
                                               .paths = address(paths_.data()),
                                               .rows = rows_,
                                               .heads = shape.heads,
                                               .kv_heads = shape.kv_heads,
                                               .head_size = shape.head_size,
                                               .scale = shape.scale,
                                               .window = shape.window,
                                               .value_size = shape.values(),
                                               .workspace = scratch.memory,
                                               .workspace_bytes = scratch.bytes}));
  return turn(grad, grad_stride, positions_.data(), rows_, true);
}

Status Tape::DevicePass::combine_backward(const Record& r) {
  const model::DeviceRoutes& routes = routes_[r.routes];
  const size_t pairs = static_cast<size_t>(routes.rows) * config_.experts.top_k;
  return stream_->run(TandemCudaCombineBackward{
      .y = address(r.in.data),
      .places = address(routes.places.data()),
      .weights = address(routes.weights.data()),
      .grad_out = address(grad_residual_.data()),
      .grad_y = address(TRY(grown(*stream_, grad_wide_, static_cast<size_t>(r.in.rows) * r.in.columns))),
      .grad_weights = address(TRY(grown(*stream_, grad_weights_, pairs))),
      .rows = routes.rows,
      .top_k = config_.experts.top_k,
      .width = r.in.columns});
}

Status Tape::DevicePass::grouped_linear_backward(const Record& r) {
  const model::DeviceRoutes& routes = routes_[r.routes];
  const int outputs = r.out.columns, inputs = r.in.columns, experts = config_.experts.count;
  if (learns(r.weight)) {
    TRY(stream_->run(TandemCudaKGroupedGemm{.a = address(grad_wide_.data()),
                                            .b = address(TRY(multiplied_input_of(r))),
                                            .offsets = address(routes.offsets.data()),
                                            .out = address(grad_of(r.weight)),
                                            .groups = experts,
                                            .rows = r.in.rows,
                                            .m = outputs,
                                            .n = inputs}));
  }
  // The transpose of each expert's matrix.
  Element* const matrices = TRY(matrix_of(r.weight));
  const size_t of_group = static_cast<size_t>(outputs) * inputs;
  Element* const transposed = TRY(grown(*stream_, transposed_, of_group * experts));
  for (int g = 0; g < experts; ++g) {
    TRY(stream_->run(TandemCudaPlaceColumns{.x = address(beyond(matrices, g * of_group)),
                                            .stride = 1,
                                            .group = inputs,
                                            .out = address(beyond(transposed, g * of_group)),
                                            .out_stride = outputs,
                                            .out_group = 1,
                                            .rows = inputs,
                                            .groups = outputs,
                                            .columns = 1,
                                            .width = 1}));
  }
  // A shared expert's backward pass comes before dispatch's, and has grad_branch_ for itself.
  auto& grad_in = records_[r.in.id].kind == kDispatch ? grad_dispatched_ : grad_branch_;
  return stream_->run(
      TandemCudaGroupedGemm{.a = address(grad_wide_.data()),
                            .a_stride = outputs,
                            .offsets = address(routes.offsets.data()),
                            .b = address(transposed),
                            .out = address(TRY(grown(*stream_, grad_in, static_cast<size_t>(r.in.rows) * inputs))),
                            .out_stride = inputs,
                            .groups = experts,
                            .m = r.in.rows,
                            .n = inputs,
                            .k = outputs});
}

// What the experts want of a row, and on top of it what a shared expert wants, and the router by the weights that
// `combine` used.
Status Tape::DevicePass::dispatch_backward(const Record& r) {
  const model::DeviceRoutes& routes = routes_[r.routes];
  const model::ExpertsConfig& experts = config_.experts;
  const int width = r.in.columns;
  const size_t count = static_cast<size_t>(rows_) * width;
  Element* const from_experts = TRY(grown(*stream_, grad_wide_, count));
  TRY(stream_->run(TandemCudaPermuteBackward{.grad_out = address(grad_dispatched_.data()),
                                             .places = address(routes.places.data()),
                                             .grad_x = address(from_experts),
                                             .rows = routes.rows,
                                             .top_k = experts.top_k,
                                             .width = width}));
  const bool shared = records_[r.out.id + 1].in.id == r.in.id;
  if (shared) TRY(add(from_experts, grad_branch_.data(), count));
  Element* const grad_logits = TRY(grown(*stream_, grad_logits_, static_cast<size_t>(rows_) * experts.count));
  TRY(stream_->run(TandemCudaRouteBackward{.logits = address(routes.logits.data()),
                                           .ids = address(routes.ids.data()),
                                           .weights = address(routes.weights.data()),
                                           .grad_weights = address(grad_weights_.data()),
                                           .grad_logits = address(grad_logits),
                                           .grad_stride = experts.count,
                                           .scale = static_cast<float>(experts.scale),
                                           .sigmoid = experts.sigmoid,
                                           .normalise = experts.normalise,
                                           .rows = routes.rows,
                                           .experts = experts.count,
                                           .top_k = experts.top_k}));
  if (learns(r.weight)) TRY(add_weight_gradient(r.weight, TRY(input_of(r)), width, grad_logits, experts.count));
  return input_gradient(r.weight, grad_logits, experts.count, from_experts,
                        {TRY(grown(*stream_, grad_branch_, count)), width, width});
}

}  // namespace tandem::trainer
