#include "trainer/tape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/transformer_ops.h"
#include "model/transformer.h"

namespace tandem::trainer {

using kernels::bf16;
using model::Tensor;

namespace {

// Memory that is handed out front to back and taken back all at once.
class Arena {
 public:
  bf16* take(size_t count) {
    count = (count + 31) / 32 * 32;
    while (chunk_ < chunks_.size() && used_ + count > chunks_[chunk_].size()) {
      ++chunk_;
      used_ = 0;
    }
    if (chunk_ == chunks_.size()) chunks_.emplace_back(std::max<size_t>(count, size_t{1} << 24));
    bf16* memory = chunks_[chunk_].data() + used_;
    used_ += count;
    return memory;
  }
  void reset() { chunk_ = used_ = 0; }

 private:
  std::vector<Buffer<bf16>> chunks_;
  size_t chunk_ = 0, used_ = 0;
};

template <typename T>
T* grown(std::vector<T>& buffer, size_t count) {
  if (buffer.size() < count) buffer.resize(count);
  return buffer.data();
}

}  // namespace

class Tape::TapeOps final : public model::Ops {
 public:
  TapeOps(const model::ModelConfig& config, int max_positions)
      : config_(config),
        shape_(model::attention_shape(config)),
        max_positions_(max_positions),
        rope_(kernels::rope_table(max_positions, config.head_size, config.rope.theta)) {}

  Result<std::vector<float>> forward(kernels::Stream& stream, const model::Weights& weights, const TokenTree& tree,
                                     std::span<const TokenPick> picks) {
    stream_ = &stream;
    weights_ = &weights;
    tree_ = &tree;
    rows_ = static_cast<int>(tree.tokens.size());
    records_.clear();
    arena_.reset();
    log_sums_.clear();
    lay_out_pages();
    hidden_ = TRY(hidden_states(*this, layout()));
    return head(picks);
  }

  Status backward(std::span<const float> grad_logprobs, std::span<float> grads, std::vector<float>* entropies) {
    if (!weights_->for_training()) return Status::internal("backward needs weights for training");
    grads_ = grads.data();
    TRY(head_backward(grad_logprobs, entropies));
    for (size_t i = records_.size(); i-- > 0;) TRY(backward(records_[i]));
    return {};
  }

  Result<std::vector<int32_t>> argmax(std::span<const int> rows) {
    const bf16* states = gather(rows);
    std::vector<float> log_sum(rows.size());
    std::vector<int32_t> tokens(rows.size());
    TRY(kernels::lm_head(*stream_,
                         {.hidden = states,
                          .head = weights_->packed(layout().head),
                          .rows = static_cast<int>(rows.size()),
                          .width = config_.width,
                          .vocabulary = config_.vocabulary,
                          .log_sum = log_sum.data(),
                          .argmax = tokens.data()},
                         {}, {}));
    return tokens;
  }

  Result<Tensor> embed() override {
    Tensor x = record({.kind = kEmbed, .weight = layout().embedding}, config_.width, true);
    TRY(kernels::embed(*stream_, weights_->values(layout().embedding), config_.vocabulary, config_.width, tree_->tokens,
                       x.data));
    return x;
  }
  Result<Tensor> norm(const Tensor& x, int weight) override {
    const Tensor out = record({.kind = kNorm, .weight = weight, .in = x}, x.columns, false);
    TRY(recompute(records_.back(), out.data));
    return out;
  }
  Result<Tensor> linear(const Tensor& x, int weight) override {
    const Tensor out = record({.kind = kLinear, .weight = weight, .in = x}, layout().parameters[weight].rows, true);
    TRY(multiply(x, weight, nullptr, out));
    return out;
  }
  Result<Tensor> linear_onto(const Tensor& x, int weight, const Tensor& residual) override {
    const Tensor out = record({.kind = kLinearOnto, .weight = weight, .in = x}, layout().parameters[weight].rows, true);
    TRY(multiply(x, weight, residual.data, out));
    return out;
  }
  Result<Tensor> attention(const Tensor& qkv, int layer) override {
    const int query = shape_.heads * shape_.head_size, key = shape_.kv_heads * shape_.head_size;
    const size_t stride = static_cast<size_t>(qkv.columns);
    TRY(kernels::rope(*stream_, qkv.data, stride, rows_, shape_.heads + shape_.kv_heads, shape_.head_size,
                      tree_->positions, rope_.data(), max_positions_));
    log_sums_.resize(layer + 1);
    const Tensor out = record({.kind = kAttention, .layer = layer, .in = qkv}, query, true);
    for (const NodePages& node : pages_of_node_) {
      const TreeNode& run = tree_->nodes[node.node];
      if (node.copied_from >= 0) copy_page(node.copied_from, node.pages[node.own_from]);
      const bf16* start = qkv.data + run.row * stride;
      TRY(kernels::write_pages(*stream_, shape_, start + query, stride, start + query + key, stride, run.rows,
                               run.position, node.pointers));
    }
    TRY(kernels::attention(*stream_, shape_, qkv.data, stride, runs_, out.data, static_cast<size_t>(query),
                           grown(log_sums_[layer], static_cast<size_t>(rows_) * shape_.heads)));
    return out;
  }
  Result<Tensor> swiglu(const Tensor& gate_up) override {
    const Tensor out = record({.kind = kSwiglu, .in = gate_up}, gate_up.columns / 2, false);
    TRY(recompute(records_.back(), out.data));
    return out;
  }

 private:
  enum Kind { kEmbed, kNorm, kLinear, kLinearOnto, kAttention, kSwiglu };
  struct Record {
    Kind kind{};
    int weight = 0;
    int layer = 0;
    Tensor in = {};
    Tensor out = {};
    bool kept = true;  // false: `out` lives in scratch and is computed again when it is needed
  };
  // The pages that a node's path lies in: whole pages of its ancestors, then its own.
  struct NodePages {
    int node = 0;
    int copied_from = -1;  // the ancestors' last page, where the node starts in its middle
    size_t own_from = 0;
    std::vector<int> pages = {};
    std::vector<kernels::KeyValuePage> pointers = {};
  };

  const model::ParameterLayout& layout() const { return weights_->layout(); }

  Tensor record(Record entry, int columns, bool kept) {
    const size_t count = static_cast<size_t>(rows_) * columns;
    entry.kept = kept;
    entry.out = {kept ? arena_.take(count) : grown(scratch_, count), rows_, columns, static_cast<int>(records_.size())};
    records_.push_back(entry);
    return entry.out;
  }

  Status recompute(const Record& record, bf16* out) {
    if (record.kind == kNorm) {
      return kernels::rms_norm(*stream_, record.in.data, weights_->values(record.weight),
                               static_cast<float>(config_.norm_epsilon), rows_, record.in.columns, out);
    }
    return kernels::swiglu(*stream_, record.in.data, rows_, record.in.columns / 2, out);
  }

  Status multiply(const Tensor& x, int weight, const bf16* residual, const Tensor& out) {
    const bf16* values = TRY(activations_.of(*stream_, weights_->format_of(weight), x.data, rows_, x.columns));
    return kernels::gemm(*stream_, {.a = values,
                                    .a_stride = static_cast<size_t>(x.columns),
                                    .b = weights_->packed(weight),
                                    .residual = residual,
                                    .out_bf16 = out.data,
                                    .out_stride = static_cast<size_t>(out.columns),
                                    .m = rows_,
                                    .n = out.columns,
                                    .k = x.columns});
  }

  // Which page holds which positions of which path; the same for all layers, so the memory is used again by each.
  void lay_out_pages() {
    pages_of_node_.clear();
    runs_.clear();
    int used = 0;
    for (size_t n = 0; n < tree_->nodes.size(); ++n) {
      const TreeNode& node = tree_->nodes[n];
      NodePages layout{.node = static_cast<int>(n)};
      const int whole = node.position / kernels::kPageTokens;
      if (node.parent >= 0) {
        const auto& parent = pages_of_node_[node.parent].pages;
        layout.pages.assign(parent.begin(), parent.begin() + whole);
        if (node.position % kernels::kPageTokens != 0) layout.copied_from = parent[whole];
      }
      layout.own_from = whole;
      const int needed = (node.position + node.rows + kernels::kPageTokens - 1) / kernels::kPageTokens;
      while (static_cast<int>(layout.pages.size()) < needed) layout.pages.push_back(used++);
      pages_of_node_.push_back(std::move(layout));
    }
    const size_t elements = kernels::page_elements(shape_);
    // Slots that no token fills must be finite; they are hidden, so stale numbers of another layer do no harm.
    grown(page_memory_, used * 2 * elements);
    for (NodePages& node : pages_of_node_) {
      for (const int page : node.pages) node.pointers.push_back(page_at(page));
    }
    for (const NodePages& node : pages_of_node_) {
      const TreeNode& run = tree_->nodes[node.node];
      runs_.push_back({run.row, run.rows, run.position, node.pointers});
    }
  }
  kernels::KeyValuePage page_at(int page) {
    const size_t elements = kernels::page_elements(shape_);
    bf16* keys = page_memory_.data() + page * 2 * elements;
    return {keys, keys + elements};
  }
  void copy_page(int from, int to) {
    std::memcpy(page_at(to).keys, page_at(from).keys, 2 * kernels::page_elements(shape_) * sizeof(bf16));
  }

  // The final states of some rows, dense.
  const bf16* gather(std::span<const int> rows) {
    bf16* states = grown(head_states_, rows.size() * config_.width);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(states + i * config_.width, hidden_.data + static_cast<size_t>(rows[i]) * config_.width,
                  config_.width * sizeof(bf16));
    }
    return states;
  }

  Result<std::vector<float>> head(std::span<const TokenPick> picks) {
    head_rows_.clear();
    head_picks_.clear();
    for (const TokenPick& pick : picks) {
      if (head_rows_.empty() || head_rows_.back() != pick.row) head_rows_.push_back(pick.row);
      head_picks_.push_back({static_cast<int32_t>(head_rows_.size()) - 1, pick.token});
    }
    head_log_sum_.resize(head_rows_.size());
    std::vector<float> logprobs(picks.size());
    const bf16* states = gather(head_rows_);
    if (!picks.empty()) {
      TRY(kernels::lm_head(*stream_,
                           {.hidden = states,
                            .head = weights_->packed(layout().head),
                            .rows = static_cast<int>(head_rows_.size()),
                            .width = config_.width,
                            .vocabulary = config_.vocabulary,
                            .log_sum = head_log_sum_.data()},
                           head_picks_, logprobs));
    }
    return logprobs;
  }

  Status head_backward(std::span<const float> grad_logprobs, std::vector<float>* entropies) {
    const int rows = static_cast<int>(head_rows_.size()), width = config_.width;
    std::vector<float> grad_states(static_cast<size_t>(rows) * width, 0);
    if (entropies) entropies->assign(rows, 0);
    const bf16* states = gather(head_rows_);
    TRY(kernels::lm_head_backward(*stream_,
                                  {.hidden = states,
                                   .head = weights_->packed(layout().head),
                                   .head_transposed = weights_->packed_transposed(layout().head),
                                   .log_sum = head_log_sum_.data(),
                                   .rows = rows,
                                   .width = width,
                                   .vocabulary = config_.vocabulary,
                                   .grad_hidden = grad_states.data(),
                                   .grad_head = grads_ + layout().parameters[layout().head].offset},
                                  head_picks_, grad_logprobs, entropies ? std::span(*entropies) : std::span<float>()));
    bf16* grad = grown(grad_branch_, static_cast<size_t>(rows_) * width);
    std::fill_n(grad, static_cast<size_t>(rows_) * width, bf16{});
    for (int i = 0; i < rows; ++i) {
      bf16* target = grad + static_cast<size_t>(head_rows_[i]) * width;
      for (int c = 0; c < width; ++c) target[c] = kernels::to_bf16(grad_states[static_cast<size_t>(i) * width + c]);
    }
    have_residual_grad_ = false;
    return {};
  }

  // Gradients flow in grad_residual_ (of the stream), grad_branch_ (of a norm's, attention's or SwiGLU's output) and
  // grad_wide_ (of a linear's output).
  Status backward(const Record& r) {
    const size_t rows = static_cast<size_t>(rows_);
    switch (r.kind) {
      case kEmbed:
        return kernels::embed_backward(*stream_, grad_residual_.data(), config_.width, tree_->tokens,
                                       grads_ + layout().parameters[r.weight].offset);
      case kNorm: {
        const bool accumulate = std::exchange(have_residual_grad_, true);
        return kernels::rms_norm_backward(*stream_, {.x = r.in.data,
                                                     .weight = weights_->values(r.weight),
                                                     .grad_out = grad_branch_.data(),
                                                     .grad_x = grown(grad_residual_, rows * r.in.columns),
                                                     .grad_weight = grads_ + layout().parameters[r.weight].offset,
                                                     .accumulate = accumulate,
                                                     .epsilon = static_cast<float>(config_.norm_epsilon),
                                                     .rows = rows_,
                                                     .width = r.in.columns});
      }
      case kLinear:
        return linear_backward(r, grad_wide_.data());
      case kLinearOnto:
        return linear_backward(r, grad_residual_.data());
      case kSwiglu:
        return kernels::swiglu_backward(*stream_, r.in.data, grad_branch_.data(), rows_, r.in.columns / 2,
                                        grown(grad_wide_, rows * r.in.columns));
      case kAttention:
        return attention_backward(r);
    }
    return {};
  }

  Status linear_backward(const Record& r, const bf16* grad_out) {
    const size_t rows = static_cast<size_t>(rows_), even_rows = (rows + 1) / 2 * 2;
    const Record& producer = records_[r.in.id];
    const bf16* x = r.in.data;
    if (!producer.kept) {
      bf16* again = grown(scratch_, rows * r.in.columns);
      TRY(recompute(producer, again));
      x = again;
    }
    x = TRY(activations_.of(*stream_, weights_->format_of(r.weight), x, rows_, r.in.columns));
    bf16* packed_x = grown(packed_, kernels::packed_size(r.in.columns, static_cast<int>(even_rows)));
    TRY(kernels::pack_transposed(*stream_, x, rows_, r.in.columns, packed_x));
    bf16* packed_grad = grown(packed_grad_, kernels::packed_size(r.out.columns, static_cast<int>(even_rows)));
    TRY(kernels::pack_transposed(*stream_, grad_out, rows_, r.out.columns, packed_grad));
    TRY(kernels::gemm(*stream_, {.a = packed_grad,
                                 .a_packed = true,
                                 .b = packed_x,
                                 .out_float = grads_ + layout().parameters[r.weight].offset,
                                 .out_stride = static_cast<size_t>(r.in.columns),
                                 .accumulate = true,
                                 .m = r.out.columns,
                                 .n = r.in.columns,
                                 .k = static_cast<int>(even_rows)}));
    return kernels::gemm(*stream_, {.a = grad_out,
                                    .a_stride = static_cast<size_t>(r.out.columns),
                                    .b = weights_->packed_transposed(r.weight),
                                    .out_bf16 = grown(grad_branch_, rows * r.in.columns),
                                    .out_stride = static_cast<size_t>(r.in.columns),
                                    .m = rows_,
                                    .n = r.in.columns,
                                    .k = r.out.columns});
  }

  Status attention_backward(const Record& r) {
    const int query = shape_.heads * shape_.head_size, key = shape_.kv_heads * shape_.head_size;
    const size_t stride = static_cast<size_t>(r.in.columns);
    bf16* grad = grown(grad_wide_, static_cast<size_t>(rows_) * stride);
    const std::vector<kernels::TreeRun>& runs = tree_runs();
    TRY(kernels::attention_backward(*stream_, shape_,
                                    {.queries = r.in.data,
                                     .keys = r.in.data + query,
                                     .values = r.in.data + query + key,
                                     .stride = stride,
                                     .out = r.out.data,
                                     .grad_out = grad_branch_.data(),
                                     .log_sum = log_sums_[r.layer].data(),
                                     .grad_queries = grad,
                                     .grad_keys = grad + query,
                                     .grad_values = grad + query + key,
                                     .grad_stride = stride,
                                     .rows = rows_},
                                    std::span(&runs, 1)));
    return kernels::rope(*stream_, grad, stride, rows_, shape_.heads + shape_.kv_heads, shape_.head_size,
                         tree_->positions, rope_.data(), max_positions_, true);
  }

  const std::vector<kernels::TreeRun>& tree_runs() {
    paths_.assign(tree_->nodes.size(), {});
    tree_runs_.clear();
    for (size_t n = 0; n < tree_->nodes.size(); ++n) {
      const TreeNode& node = tree_->nodes[n];
      if (node.parent >= 0) paths_[n] = paths_[node.parent];
      for (int i = 0; i < node.rows; ++i) paths_[n].push_back(node.row + i);
      tree_runs_.push_back({node.row, node.rows, paths_[n]});
    }
    return tree_runs_;
  }

  const model::ModelConfig config_;
  const kernels::AttentionShape shape_;
  const int max_positions_;
  const std::vector<float> rope_;

  kernels::Stream* stream_ = nullptr;
  const model::Weights* weights_ = nullptr;
  const TokenTree* tree_ = nullptr;
  float* grads_ = nullptr;
  int rows_ = 0;
  bool have_residual_grad_ = false;
  Arena arena_;
  model::QuantizedActivations activations_;
  std::vector<Record> records_;
  std::vector<std::vector<float>> log_sums_;  // of each layer
  Tensor hidden_;
  std::vector<NodePages> pages_of_node_;
  std::vector<kernels::QueryRun> runs_;
  std::vector<std::vector<int>> paths_;
  std::vector<kernels::TreeRun> tree_runs_;
  std::vector<bf16> page_memory_, scratch_, packed_, packed_grad_, grad_residual_, grad_branch_, grad_wide_;
  std::vector<int> head_rows_;
  std::vector<TokenPick> head_picks_;
  std::vector<bf16> head_states_;
  std::vector<float> head_log_sum_;
};

Tape::Tape(const model::ModelConfig& config, int max_positions)
    : ops_(std::make_unique<TapeOps>(config, max_positions)) {}
Tape::~Tape() = default;

Result<std::vector<float>> Tape::forward(kernels::Stream& stream, const model::Weights& weights, const TokenTree& tree,
                                         std::span<const TokenPick> picks) {
  return ops_->forward(stream, weights, tree, picks);
}
Status Tape::backward(std::span<const float> grad_logprobs, std::span<float> grads, std::vector<float>* entropies) {
  return ops_->backward(grad_logprobs, grads, entropies);
}
Result<std::vector<int32_t>> Tape::argmax(std::span<const int> rows) { return ops_->argmax(rows); }

}  // namespace tandem::trainer
