#include "trainer/torch/plugin/eager_model.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "trainer/torch/plugin/rotation.h"

namespace tandem::torch_plugin {

namespace {

constexpr int64_t kScaleBlock = 128;         // rows and columns of an E4M3 matrix that share a scale
constexpr int64_t kRowsAtOnce = 256;         // of queries and of logits, so that long texts fit into memory
constexpr double kLatentNormEpsilon = 1e-6;  // transformers' class has it whatever the config says
constexpr double kSmallestSum = 1e-20;       // which it adds to the sum of sigmoids before it divides
constexpr int64_t kBestOfGroup = 2;          // experts that speak for their group

c10::ScalarType dtype_of(const TandemTorchTensor& tensor) {
  switch (tensor.dtype) {
    case TANDEM_TORCH_F32:
      return at::kFloat;
    case TANDEM_TORCH_BF16:
      return at::kBFloat16;
    case TANDEM_TORCH_F16:
      return at::kHalf;
    case TANDEM_TORCH_F8_E4M3:
      return at::kFloat8_e4m3fn;
  }
  throw std::runtime_error(std::string("tensor ") + tensor.name + " has an unknown dtype");
}

// [positions, heads * size] to [heads, positions, size].
at::Tensor by_head(const at::Tensor& x, int64_t heads) {
  return x.unflatten(-1, {heads, x.size(-1) / heads}).transpose(0, 1);
}

// Causal; `window` 0 sees all. queries and the result are [heads, positions, size], keys and values [kv_heads, ...].
at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values, double scale,
                  int64_t window) {
  const int64_t positions = queries.size(1), shared_by = queries.size(0) / keys.size(0);
  const at::Tensor all_keys = keys.repeat_interleave(shared_by, 0), all_values = values.repeat_interleave(shared_by, 0);
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < positions; first += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, positions - first), seen = first + rows;
    at::Tensor scores = at::matmul(queries.narrow(1, first, rows), all_keys.narrow(1, 0, seen).transpose(1, 2)) * scale;
    const at::Tensor from = at::arange(first, seen).unsqueeze(1), to = at::arange(seen);
    at::Tensor hidden = to > from;
    if (window > 0) hidden = hidden | (to <= from - window);
    scores.masked_fill_(hidden, -std::numeric_limits<float>::infinity());
    parts.push_back(at::matmul(at::softmax(scores, -1), all_values.narrow(1, 0, seen)));
  }
  return at::cat(parts, 1);
}

}  // namespace

EagerModel::EagerModel(const TandemTorchShape& shape, const TandemTorchTensor* tensors, size_t count) : shape_(shape) {
  if (shape.sliding != nullptr) sliding_.assign(shape.sliding, shape.sliding + shape.layers);
  shape_.sliding = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const TandemTorchTensor& tensor = tensors[i];
    const at::IntArrayRef sizes(tensor.shape, static_cast<size_t>(tensor.dims));
    tensors_[tensor.name] = at::from_blob(const_cast<void*>(tensor.data), sizes, dtype_of(tensor));
  }
}

const at::Tensor& EagerModel::stored(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw std::runtime_error("there is no tensor " + name);
  return found->second;
}

at::Tensor EagerModel::weight(const std::string& name) const {
  const at::Tensor& codes = stored(name);
  at::Tensor values = codes.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  if (codes.scalar_type() == at::kFloat8_e4m3fn) {
    const at::Tensor scales = stored(name + "_scale_inv").to(at::kFloat);
    values.mul_(scales.repeat_interleave(kScaleBlock, 0)
                    .repeat_interleave(kScaleBlock, 1)
                    .narrow(0, 0, values.size(0))
                    .narrow(1, 0, values.size(1)));
  }
  if (has(name + ".lora_a"))
    values.add_(at::matmul(stored(name + ".lora_b"), stored(name + ".lora_a")), shape_.lora_scale);
  return values;
}

at::Tensor EagerModel::linear(const at::Tensor& x, const std::string& name) const {
  const std::string bias = name + ".bias";
  return at::linear(x, weight(name + ".weight"), has(bias) ? std::optional(weight(bias)) : std::nullopt);
}

at::Tensor EagerModel::norm(const at::Tensor& x, const std::string& name, double epsilon) const {
  return at::rms_norm(x, {x.size(-1)}, weight(name + ".weight"), epsilon);
}

at::Tensor EagerModel::attention(const at::Tensor& x, const std::string& layer, int64_t window,
                                 const Rotation& rotation) const {
  at::Tensor queries = by_head(linear(x, layer + "q_proj"), shape_.heads);
  at::Tensor keys = by_head(linear(x, layer + "k_proj"), shape_.kv_heads);
  const at::Tensor values = by_head(linear(x, layer + "v_proj"), shape_.kv_heads);
  if (has(layer + "q_norm.weight")) {
    queries = norm(queries, layer + "q_norm", shape_.norm_epsilon);
    keys = norm(keys, layer + "k_norm", shape_.norm_epsilon);
  }
  const double scale = 1 / std::sqrt(static_cast<double>(shape_.head_size));
  const at::Tensor out = attend(rotation.turn(queries), rotation.turn(keys), values, scale, window);
  return linear(out.transpose(0, 1).flatten(1), layer + "o_proj");
}

at::Tensor EagerModel::latent_attention(const at::Tensor& x, const std::string& layer, const Rotation& rotation) const {
  const int64_t plain = shape_.latent_plain, turned = shape_.rope.dim;
  at::Tensor queries;
  if (has(layer + "q_a_proj.weight")) {
    const at::Tensor latent = norm(linear(x, layer + "q_a_proj"), layer + "q_a_layernorm", kLatentNormEpsilon);
    queries = by_head(linear(latent, layer + "q_b_proj"), shape_.heads);
  } else {
    queries = by_head(linear(x, layer + "q_proj"), shape_.heads);
  }
  const at::Tensor compressed = linear(x, layer + "kv_a_proj_with_mqa");
  const int64_t rank = compressed.size(-1) - turned;
  const at::Tensor latent = norm(compressed.narrow(-1, 0, rank), layer + "kv_a_layernorm", kLatentNormEpsilon);
  const at::Tensor expanded = by_head(linear(latent, layer + "kv_b_proj"), shape_.heads);
  // The key's rotated elements are the same for all heads.
  const at::Tensor shared = rotation.turn(compressed.narrow(-1, rank, turned).unsqueeze(0));
  const at::Tensor keys =
      at::cat({expanded.narrow(-1, 0, plain), shared.expand({shape_.heads, x.size(0), turned})}, -1);
  queries = at::cat({queries.narrow(-1, 0, plain), rotation.turn(queries.narrow(-1, plain, turned))}, -1);
  const double scale = score_factor(shape_.rope) / std::sqrt(static_cast<double>(shape_.head_size));
  const at::Tensor out = attend(queries, keys, expanded.narrow(-1, plain, shape_.latent_value), scale, 0);
  return linear(out.transpose(0, 1).flatten(1), layer + "o_proj");
}

at::Tensor EagerModel::mlp(const at::Tensor& x, const std::string& name) const {
  at::Tensor gate, up;
  if (has(name + "gate_up_proj.weight")) {
    const at::Tensor both = linear(x, name + "gate_up_proj");
    gate = both.narrow(-1, 0, both.size(-1) / 2);
    up = both.narrow(-1, both.size(-1) / 2, both.size(-1) / 2);
  } else {
    gate = linear(x, name + "gate_proj");
    up = linear(x, name + "up_proj");
  }
  return linear(at::silu(gate) * up, name + "down_proj");
}

at::Tensor EagerModel::experts(const at::Tensor& x, const std::string& name) const {
  const at::Tensor logits = linear(x, name + "gate");
  const int64_t count = logits.size(-1), groups = shape_.expert_groups;
  const at::Tensor scores = shape_.sigmoid ? at::sigmoid(logits) : at::softmax(logits, -1);
  at::Tensor chosen_by = scores;
  if (shape_.sigmoid) chosen_by = scores + weight(name + "gate.e_score_correction_bias");
  if (groups > 1) {
    const at::Tensor grouped = chosen_by.unflatten(-1, {groups, count / groups});
    const at::Tensor of_group = std::get<0>(grouped.topk(kBestOfGroup, -1)).sum(-1);
    const at::Tensor best = std::get<1>(of_group.topk(shape_.top_k_groups, -1));
    const at::Tensor kept = at::zeros_like(of_group).scatter(-1, best, 1).to(at::kBool);
    chosen_by =
        grouped.masked_fill(kept.logical_not().unsqueeze(-1), -std::numeric_limits<float>::infinity()).flatten(-2);
  }
  const at::Tensor chosen = std::get<1>(chosen_by.topk(shape_.top_k, -1));
  at::Tensor weights = scores.gather(-1, chosen);
  if (shape_.normalise) weights = weights / (weights.sum(-1, true) + (shape_.sigmoid ? kSmallestSum : 0.0));
  weights = weights * shape_.expert_scale;
  at::Tensor out = has(name + "shared_experts.down_proj.weight") ? mlp(x, name + "shared_experts.") : at::zeros_like(x);
  for (int64_t expert = 0; expert < count; ++expert) {
    const at::Tensor places = (chosen == expert).nonzero();  // [rows of this expert, (row, rank)]
    if (places.size(0) == 0) continue;
    const at::Tensor rows = places.select(1, 0);
    const at::Tensor share = weights.index({rows, places.select(1, 1)}).unsqueeze(1);
    out.index_add_(0, rows, mlp(x.index_select(0, rows), name + "experts." + std::to_string(expert) + ".") * share);
  }
  return out;
}

at::Tensor EagerModel::hidden_states(const at::Tensor& tokens) const {
  const Rotation rotation(shape_.rope, tokens.size(0));
  at::Tensor x = stored("model.embed_tokens.weight").index_select(0, tokens).to(at::kFloat);
  for (int64_t layer = 0; layer < shape_.layers; ++layer) {
    const std::string name = "model.layers." + std::to_string(layer) + ".";
    const auto add = [&](at::Tensor part, const char* post_norm) {
      if (has(name + post_norm + ".weight")) part = norm(part, name + post_norm, shape_.norm_epsilon);
      x = x + part;
    };
    const at::Tensor before = norm(x, name + "input_layernorm", shape_.norm_epsilon);
    const int64_t window = !sliding_.empty() && sliding_[layer] ? shape_.window : 0;
    add(shape_.latent_value > 0 ? latent_attention(before, name + "self_attn.", rotation)
                                : attention(before, name + "self_attn.", window, rotation),
        "post_self_attn_layernorm");
    const at::Tensor between = norm(x, name + "post_attention_layernorm", shape_.norm_epsilon);
    add(has(name + "mlp.gate.weight") ? experts(between, name + "mlp.") : mlp(between, name + "mlp."),
        "post_mlp_layernorm");
  }
  return norm(x, "model.norm", shape_.norm_epsilon);
}

EagerModel::Scores EagerModel::score(const at::Tensor& tokens) const {
  const at::Tensor hidden = hidden_states(tokens);
  const at::Tensor head = weight(has("lm_head.weight") ? "lm_head.weight" : "model.embed_tokens.weight");
  const int64_t count = tokens.size(0);
  Scores scores{at::empty({count - 1}, at::kFloat), at::empty({count}, at::kLong)};
  for (int64_t first = 0; first < count; first += kRowsAtOnce) {
    const int64_t rows = std::min(kRowsAtOnce, count - first), picked = std::min(rows, count - 1 - first);
    const at::Tensor logits = at::linear(hidden.narrow(0, first, rows), head);
    scores.likeliest.narrow(0, first, rows).copy_(logits.argmax(-1));
    const at::Tensor logprobs = at::log_softmax(logits.narrow(0, 0, picked), -1);
    const at::Tensor next = tokens.narrow(0, first + 1, picked).unsqueeze(1);
    scores.logprobs.narrow(0, first, picked).copy_(logprobs.gather(1, next).squeeze(1));
  }
  return scores;
}

}  // namespace tandem::torch_plugin
