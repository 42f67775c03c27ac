#include "trainer/learn/device_tape.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::trainer {

using kernels::address, kernels::beyond, kernels::OnDevice;
using model::grown;

Result<OnDevice<bf16>*> DeviceArena::take(kernels::DeviceStream& stream, size_t count) {
  count = (count + 127) / 128 * 128;
  while (chunk_ < chunks_.size() && used_ + count > chunks_[chunk_].size()) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size())
    chunks_.push_back(TRY(stream.allocate<bf16>(std::max<size_t>(count, size_t{1} << 23), "activations")));
  OnDevice<bf16>* const memory = beyond(chunks_[chunk_].data(), used_);
  used_ += count;
  taken_ += count;
  return memory;
}

Tape::DevicePass::DevicePass(kernels::DeviceStream stream, const model::Weights& like, int max_positions)
    : DeviceTapeStream(std::move(stream)), DeviceLayerOps<bf16>(own, like, max_positions) {}

Result<std::unique_ptr<Tape::DevicePass>> Tape::DevicePass::create(const kernels::Device& device,
                                                                   const model::Weights& like, int max_positions) {
  if (like.format() == model::WeightFormat::kFloat32)
    return fail(Status::unfit(
        fmt::format("the trainer's pass in float32 runs on the CPU alone, not on {}", kernels::to_string(device))));
  auto stream = TRY(kernels::DeviceStream::open(device));
  auto pass = std::unique_ptr<DevicePass>(new DevicePass(std::move(stream), like, max_positions));
  TRY(pass->prepare());
  return pass;
}

// The current weights, those before the last step, and those of a KL term are asked for in turn.
Result<const model::DeviceWeights*> Tape::DevicePass::on_device(const model::Weights& weights) {
  constexpr size_t kKept = 3;
  const auto known = std::ranges::find(uploaded_, weights.edition(), &Uploaded::edition);
  if (known != uploaded_.end()) {
    known->used = ++uses_;
    return known->weights.get();
  }
  if (uploaded_.size() < kKept) {
    uploaded_.push_back({});
    uploaded_.back().weights =
        std::make_unique<model::DeviceWeights>(TRY(model::DeviceWeights::create(*stream_, weights)));
  } else {
    std::ranges::sort(uploaded_, std::ranges::greater(), &Uploaded::used);
    TRY(stream_->wait());
  }
  Uploaded& slot = uploaded_.back();
  slot.edition = nullptr;
  TRY(slot.weights->upload(*stream_, weights.wire()));
  slot.edition = weights.edition();
  slot.used = ++uses_;
  return slot.weights.get();
}

// Each node writes on the pages of its path. Where it begins in the middle of a page, that page is its own and begins
// with the ancestors' last rows, which are written there once more.
Status Tape::DevicePass::send_tree(const TokenTree& tree) {
  // A device makes NaN of them, which would be told as a gradient that is not finite.
  for (const int32_t position : tree.positions) {
    if (position >= max_positions())
      return Status::invalid(fmt::format("rope: position {} is outside the table of {}", position, max_positions()));
  }
  const auto layout = model::lay_out_pages(tree.nodes);
  std::vector<int32_t> table, first_page, copied_rows, copied_positions, copied_first_page;
  tree_paths_ = TreePaths(tree);
  first_page.resize(tree.tokens.size());
  for (size_t n = 0; n < tree.nodes.size(); ++n) {
    const TreeNode& node = tree.nodes[n];
    const auto first = static_cast<int32_t>(table.size());
    table.insert(table.end(), layout.nodes[n].pages.begin(), layout.nodes[n].pages.end());
    if (layout.nodes[n].copied_from >= 0) {
      for (int p = static_cast<int>(layout.nodes[n].own_from) * kernels::kPageTokens; p < node.position; ++p) {
        copied_rows.push_back(tree_paths_.paths[n][p]);
        copied_positions.push_back(p);
        copied_first_page.push_back(first);
      }
    }
    std::fill_n(first_page.begin() + node.row, node.rows, first);
  }
  if (!pages_ || pages_->pages() < layout.pages) {
    TRY(stream_->wait());
    pages_.reset();
    model::ModelConfig one = config_;
    one.layers = 1;  // which all layers use in turn
    pages_.emplace(TRY(model::DevicePages<bf16>::create(*stream_, one, layout.pages)));
  }
  TRY(stream_->wait());  // what was sent before has been read
  TRY(tokens_.send(*stream_, tree.tokens));
  TRY(positions_.send(*stream_, tree.positions));
  TRY(pages_table_.send(*stream_, table));
  TRY(first_page_.send(*stream_, first_page));
  TRY(copied_rows_.send(*stream_, copied_rows));
  TRY(copied_positions_.send(*stream_, copied_positions));
  TRY(copied_first_page_.send(*stream_, copied_first_page));
  copied_ = static_cast<int>(copied_rows.size());
  return {};
}

Result<std::vector<float>> Tape::DevicePass::forward(kernels::Stream&, const model::Weights& weights,
                                                     const TokenTree& tree, std::span<const TokenPick> picks,
                                                     const TreeRoutes* routes, float logit_scale,
                                                     std::span<const KeptTokens> kept) {
  begin(*TRY(on_device(weights)));
  tree_ = &tree;
  logit_scale_ = logit_scale;
  rows_ = static_cast<int>(tree.tokens.size());
  records_.clear();
  arena_.reset();
  routes_used_ = 0;
  TRY(send_tree(tree));
  TRY(send_routes(routes));
  hidden_ = TRY(hidden_states(*this, layout_));
  if (routes != nullptr) TRY(count_routes(*routes));
  return head(picks, kept);
}

Status Tape::DevicePass::send_routes(const TreeRoutes* routes) {
  given_ = {};
  counts_ = given_routes_of(routes);
  if (routes == nullptr) return {};
  given_.ids = TRY(given_ids_.send(*stream_, routes->ids));
  given_.changed = TRY(grown(*stream_, given_changed_, static_cast<size_t>(rows_) * routes->shape.layers, "routes"));
  return {};
}

Status Tape::DevicePass::count_routes(const TreeRoutes& routes) {
  std::vector<int32_t> changed(static_cast<size_t>(rows_) * routes.shape.layers);
  TRY(stream_->download(std::span(changed), given_.changed));
  TRY(stream_->wait());
  counts_.changed = std::count(changed.begin(), changed.end(), 1);
  return {};
}

Result<Tape::DevicePass::Element*> Tape::DevicePass::head_states(std::span<const int> rows) {
  const std::vector<int32_t> ids(rows.begin(), rows.end());
  TRY(stream_->wait());
  auto* const sent = TRY(head_rows_sent_.send(*stream_, ids));
  const Tensor out{TRY(grown(*stream_, head_states_, rows.size() * config_.width)), static_cast<int>(rows.size()),
                   config_.width, 0};
  TRY(pick_rows(hidden_, sent, out));
  return out.data;
}

Result<std::vector<float>> Tape::DevicePass::head(std::span<const TokenPick> picks, std::span<const KeptTokens> kept) {
  head_ = TRY(HeadRows::of(picks, kept, config_.vocabulary));
  head_picks_.clear();
  for (const TokenPick& pick : head_.picks) head_picks_.push_back({pick.row, pick.token});
  std::vector<float> logprobs(picks.size());
  if (picks.empty()) return logprobs;
  const int rows = static_cast<int>(head_.rows.size());
  Element* const states = TRY(head_states(head_.rows));
  auto* const sent = TRY(head_picks_sent_.send(*stream_, head_picks_));
  head_scales_.assign(logit_scale_ == 1 ? 0 : rows, logit_scale_);
  kernels::OnDevice<float>* const scales =
      head_scales_.empty() ? nullptr : TRY(head_scales_sent_.send(*stream_, head_scales_));
  kernels::OnDevice<uint64_t>* const kept_of_rows =
      head_.kept.empty() ? nullptr : TRY(head_kept_sent_.send(*stream_, head_.kept));
  const auto scratch = TRY(stream_->workspace(stream_->functions().lm_head_workspace(rows, config_.vocabulary)));
  TRY(stream_->run(TandemCudaLmHead{.hidden = address(states),
                                    .head = address(weights_->values<bf16>(layout_.head)),
                                    .log_sum = address(TRY(grown(*stream_, head_log_sum_, rows))),
                                    .logit_scales = scales ? address(scales) : nullptr,
                                    .picks = address(sent),
                                    .logprobs = address(TRY(grown(*stream_, head_logprobs_, picks.size()))),
                                    .pick_count = static_cast<int64_t>(picks.size()),
                                    .rows = rows,
                                    .width = config_.width,
                                    .vocabulary = config_.vocabulary,
                                    .workspace = scratch.memory,
                                    .workspace_bytes = scratch.bytes,
                                    .kept = kept_of_rows ? address(kept_of_rows) : nullptr}));
  TRY(stream_->download(std::span(logprobs), head_logprobs_.data()));
  TRY(stream_->wait());
  return logprobs;
}

Result<std::vector<float>> Tape::DevicePass::states() {
  const size_t count = head_.rows.size() * static_cast<size_t>(config_.width);
  std::vector<float> states(count);
  if (count == 0) return states;
  const Element* const on_device = TRY(head_states(head_.rows));
  std::vector<bf16> rounded(count);
  TRY(stream_->download(std::span(rounded), on_device));
  TRY(stream_->wait());
  std::ranges::transform(rounded, states.begin(), [](bf16 value) { return kernels::to_float(value); });
  return states;
}

Result<std::vector<int32_t>> Tape::DevicePass::argmax(std::span<const int> rows) {
  std::vector<int32_t> tokens(rows.size());
  if (rows.empty()) return tokens;
  const int count = static_cast<int>(rows.size());
  Element* const states = TRY(head_states(rows));
  kernels::DeviceBuffer<float> log_sum;
  const auto scratch = TRY(stream_->workspace(stream_->functions().lm_head_workspace(count, config_.vocabulary)));
  TRY(stream_->run(TandemCudaLmHead{.hidden = address(states),
                                    .head = address(weights_->values<bf16>(layout_.head)),
                                    .log_sum = address(TRY(grown(*stream_, log_sum, rows.size()))),
                                    .argmax = address(TRY(grown(*stream_, head_argmax_, rows.size()))),
                                    .rows = count,
                                    .width = config_.width,
                                    .vocabulary = config_.vocabulary,
                                    .workspace = scratch.memory,
                                    .workspace_bytes = scratch.bytes}));
  TRY(stream_->download(std::span(tokens), head_argmax_.data()));
  TRY(stream_->wait());
  return tokens;
}

size_t Tape::DevicePass::kept_bytes() const {
  size_t bytes = arena_.taken() * sizeof(bf16);
  for (const auto& sums : log_sums_) bytes += sums.size() * sizeof(float);
  for (const auto& latents : latents_) bytes += (latents.normed.size() + latents.queries.size()) * sizeof(bf16);
  return bytes;
}

auto Tape::DevicePass::record(Record entry, int rows, int columns) -> Result<Tensor> {
  const size_t count = static_cast<size_t>(rows) * columns;
  entry.out = {entry.kept ? TRY(arena_.take(*stream_, count)) : TRY(grown(*stream_, scratch_of(entry), count)), rows,
               columns, static_cast<int>(records_.size())};
  records_.push_back(entry);
  return entry.out;
}

Status Tape::DevicePass::compute(const Record& r, Element* in, Element* out) {
  if (r.kind == kNorm || r.kind == kNormOnto) return norm_rows(r.in, in, r.weight, out);
  if (r.kind == kDispatch) return send(routes_[r.routes], r.in, in, out);
  return gate_rows(r.in, in, out);
}

auto Tape::DevicePass::embed() -> Result<Tensor> {
  const Tensor x = TRY(record({.kind = kEmbed, .weight = layout_.embedding}, rows_, config_.width));
  TRY(embed_rows(tokens_.data(), x));
  return x;
}

auto Tape::DevicePass::norm(const Tensor& x, int weight) -> Result<Tensor> {
  const Tensor out = TRY(record({.kind = kNorm, .weight = weight, .in = x, .kept = false}, x.rows, x.columns));
  TRY(compute(records_.back(), x.data, out.data));
  return out;
}

auto Tape::DevicePass::linear(const Tensor& x, int weight, int bias) -> Result<Tensor> {
  const Tensor out =
      TRY(record({.kind = kLinear, .weight = weight, .bias = bias, .in = x}, x.rows, layout_.parameters[weight].rows));
  TRY(multiply(x, weight, bias, nullptr, out));
  return out;
}

auto Tape::DevicePass::linear_onto(const Tensor& x, int weight, int bias, const Tensor& residual) -> Result<Tensor> {
  const Tensor out = TRY(
      record({.kind = kLinearOnto, .weight = weight, .bias = bias, .in = x}, x.rows, layout_.parameters[weight].rows));
  TRY(multiply(x, weight, bias, residual.data, out));
  return out;
}

auto Tape::DevicePass::norm_onto(const Tensor& x, int weight, const Tensor& residual) -> Result<Tensor> {
  const Tensor out = TRY(record({.kind = kNormOnto, .weight = weight, .in = x}, x.rows, x.columns));
  const size_t count = static_cast<size_t>(x.rows) * x.columns;
  Element* const normed = TRY(grown(*stream_, scratch_, count));
  TRY(compute(records_.back(), x.data, normed));
  TRY(stream_->copy(out.data, residual.data, count));
  TRY(add(out.data, normed, count));
  return out;
}

// What went in is kept beside what came out: the norm's gradient needs it.
auto Tape::DevicePass::head_norm(const Tensor& qkv, int query_weight, int key_weight) -> Result<Tensor> {
  const Tensor out = TRY(record({.kind = kHeadNorm, .weight = query_weight, .second_weight = key_weight, .in = qkv},
                                qkv.rows, qkv.columns));
  TRY(stream_->copy(out.data, qkv.data, static_cast<size_t>(qkv.rows) * qkv.columns));
  TRY(norm_heads(out, query_weight, key_weight));
  return out;
}

auto Tape::DevicePass::attention(const Tensor& qkv, int layer) -> Result<Tensor> {
  const model::DevicePlaces places{
      .positions = positions_.data(), .pages = pages_table_.data(), .first_page = first_page_.data()};
  TRY(turn(qkv.data, qkv.columns, positions_.data(), qkv.rows));
  TRY(write_pages(*pages_, 0, qkv.data, qkv.columns, qkv.rows, places));
  if (copied_ > 0) {
    const Tensor copies{TRY(grown(*stream_, copied_columns_, static_cast<size_t>(copied_) * qkv.columns)), copied_,
                        qkv.columns, 0};
    TRY(pick_rows(qkv, copied_rows_.data(), copies));
    TRY(write_pages(*pages_, 0, copies.data, qkv.columns, copied_,
                    {.positions = copied_positions_.data(),
                     .pages = pages_table_.data(),
                     .first_page = copied_first_page_.data()}));
  }
  if (static_cast<int>(log_sums_.size()) <= layer) log_sums_.resize(layer + 1);
  auto* const log_sum = TRY(grown(*stream_, log_sums_[layer], static_cast<size_t>(rows_) * shape_.heads));
  const Tensor out = TRY(record({.kind = kAttention, .layer = layer, .in = qkv}, rows_, columns_.out));
  TRY(attend(*pages_, 0, layer, qkv, places, out, log_sum));
  return out;
}

auto Tape::DevicePass::expand_latents(const Tensor& compressed, int layer) -> Result<Tensor> {
  const Tensor out = TRY(record({.kind = kExpandLatents, .layer = layer, .in = compressed}, compressed.rows,
                                columns_.keys + shape_.head_size));
  latents_.resize(config_.layers);
  TRY(expand(compressed, layer, latents_[layer], out));
  return out;
}

auto Tape::DevicePass::project_values(const Tensor& gathered, int layer) -> Result<Tensor> {
  const Tensor out = TRY(record({.kind = kProjectValues, .layer = layer, .in = gathered}, gathered.rows,
                                config_.heads * config_.latent.value));
  TRY(project(gathered, layer, out));
  return out;
}

auto Tape::DevicePass::swiglu(const Tensor& gate_up) -> Result<Tensor> {
  const Tensor out = TRY(record({.kind = kSwiglu, .in = gate_up, .kept = false}, gate_up.rows, gate_up.columns / 2));
  TRY(compute(records_.back(), gate_up.data, out.data));
  return out;
}

auto Tape::DevicePass::dispatch(const Tensor& x, int router, int router_bias) -> Result<Tensor> {
  const size_t place = routes_used_++;
  if (routes_.size() < routes_used_) routes_.emplace_back();
  model::DeviceGivenRoutes given;
  if (given_.ids != nullptr) {
    given = {.ids = kernels::beyond(given_.ids, place * static_cast<size_t>(x.rows) * config_.experts.top_k),
             .changed = kernels::beyond(given_.changed, place * static_cast<size_t>(x.rows))};
  }
  TRY(choose(x, router, router_bias, routes_[place], given));
  const Tensor out = TRY(record({.kind = kDispatch, .weight = router, .routes = place, .in = x, .kept = false},
                                x.rows * config_.experts.top_k, x.columns));
  TRY(compute(records_.back(), x.data, out.data));
  return out;
}

auto Tape::DevicePass::grouped_linear(const Tensor& x, int weights) -> Result<Tensor> {
  const size_t place = routes_used_ - 1;
  const Tensor out = TRY(record({.kind = kGroupedLinear, .weight = weights, .routes = place, .in = x}, x.rows,
                                layout_.parameters[weights].group_rows()));
  TRY(multiply_groups(routes_[place], weights, x, out));
  return out;
}

auto Tape::DevicePass::combine(const Tensor& y, const Tensor& residual) -> Result<Tensor> {
  const size_t place = routes_used_ - 1;
  const Tensor out = TRY(record({.kind = kCombine, .routes = place, .in = y}, residual.rows, residual.columns));
  TRY(gather_routes(routes_[place], y, residual, out));
  return out;
}

}  // namespace tandem::trainer
