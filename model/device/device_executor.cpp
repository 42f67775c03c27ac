// The executor of a device: a plan is put on a stream when it is submitted; tokens that it draws are those of the next
// plan's rows without the host having seen them. Only tokens, logprobs and what was asked for come back. Plans
// go on the stream as graphs, but for arguments, masks and answers.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <optional>

#include "kernels/cuda/library.h"
#include "model/device/device_ops.h"
#include "model/device/plan_graphs.h"
#include "model/device/plan_packet.h"
#include "model/device/staged_weights.h"
#include "model/executor.h"
#include "model/host_draw.h"
#include "model/plan_check.h"
#include "model/routes.h"

namespace tandem::model {

namespace {

using kernels::address, kernels::beyond, kernels::OnDevice;
using Clock = std::chrono::steady_clock;

// Rows whose logits lie in memory at once.
constexpr int kLogitRows = 64;
constexpr int kDepth = 2;

template <typename T>
class DeviceExecutor final : public Executor {
 public:
  static Result<std::unique_ptr<Executor>> create(const Weights& like, kernels::DeviceStream opened,
                                                  const ExecutorSettings& settings) {
    auto made = std::unique_ptr<DeviceExecutor>(new DeviceExecutor(like, std::move(opened), settings.pages));
    made->weights_ = std::make_shared<DeviceWeights>(TRY(DeviceWeights::create(made->stream_, like)));
    TRY(made->weights_->upload(made->stream_, like.wire()));
    TRY(made->wake());
    made->page_bytes_ = made->pages_->page_bytes();
    made->ops_.emplace(TRY(DeviceOps<T>::create(made->stream_, like, settings.max_positions)));
    return made;
  }

  const ModelConfig& config() const override { return config_; }
  WeightFormat format() const override { return format_; }
  std::string numerics_id() const override { return stream_.numerics_id(to_string(format_)); }
  int max_positions() const override { return ops_->max_positions(); }
  int depth() const override { return kDepth; }

  int pages() const override { return own_pages_; }
  Status clear(std::span<const int> pages) override { return check_pages(pages, own_pages_); }
  Status copy(int from, int to) override {
    TRY(check_pages(std::array{from, to}, own_pages_));
    TRY(check_awake());
    return pages_->copy(stream_, from, to);
  }
  size_t page_bytes() const override { return page_bytes_; }
  Status save(std::span<const int> pages, std::span<std::byte> host) override {
    TRY(check_host_pages(pages, own_pages_, host.size(), page_bytes()));
    TRY(check_awake());
    for (size_t i = 0; i < pages.size(); ++i)
      TRY(pages_->save(stream_, pages[i], host.subspan(i * page_bytes(), page_bytes())));
    return stream_.wait();
  }
  Status load(std::span<const std::byte> host, std::span<const int> pages) override {
    TRY(check_host_pages(pages, own_pages_, host.size(), page_bytes()));
    TRY(check_awake());
    for (size_t i = 0; i < pages.size(); ++i)
      TRY(pages_->load(stream_, host.subspan(i * page_bytes(), page_bytes()), pages[i]));
    return stream_.wait();
  }

  Result<AdapterId> attach(std::shared_ptr<const LiveAdapter>) override {
    return fail(Status::unfit(fmt::format("{} computes with no adapters beside the weights", numerics_id()))
                    .hint("merge it into the weights, or compute on the CPU"));
  }
  Status detach(AdapterId adapter) override {
    return Status::invalid(fmt::format("no adapter {} is attached", adapter));
  }

  Result<Ticket> submit(Plan plan) override {
    TRY(check_awake());
    TRY(check_plan(plan, config_.vocabulary, own_pages_, max_positions()));
    if (plan.routes && !route_shape(config_).any())
      return fail(Status::invalid("a plan asks for routes, and the model has no experts"));
    for (const auto& [row, token] : plan.later) {
      const auto found = works_.find(token.ticket);
      if (found == works_.end() || token.draw < 0 ||
          static_cast<size_t>(token.draw) >= found->second->plan.draws.size())
        return fail(Status::invalid(fmt::format("plan {} has no draw {} to wait for", token.ticket, token.draw)));
    }
    if (plan.before_flip && !before_) return fail(Status::invalid("the weights before the last flip are gone"));
    computing_ = plan.before_flip ? before_ : weights_;
    auto work = idle_.empty() ? std::make_unique<Work>() : std::move(idle_.back());
    if (!idle_.empty()) idle_.pop_back();
    work->plan = std::move(plan);
    work->started = Clock::now();
    work->answer = {};
    TRY(start(*work));
    work->done.emplace(TRY(stream_.mark()));
    computing_.reset();
    works_.emplace(++last_ticket_, std::move(work));
    return last_ticket_;
  }

  Result<Answer> collect(Ticket ticket) override {
    const auto found = works_.find(ticket);
    if (found == works_.end()) return fail(Status::invalid(fmt::format("no plan {} is to be collected", ticket)));
    auto work = std::move(found->second);
    works_.erase(found);
    TRY(work->done->wait());
    Answer answer = read(*work);
    const auto now = Clock::now();
    answer.forward_seconds = std::chrono::duration<double>(now - std::max(work->started, last_done_)).count();
    last_done_ = now;
    idle_.push_back(std::move(work));
    return answer;
  }

  GraphCounters graphs() const override { return graphs_.counters(); }

  Result<std::unique_ptr<StagedWeights>> stage() override {
    TRY(stream_.wait());  // plans that still read the version before
    auto room = std::exchange(before_, nullptr);
    if (!room) room = std::make_shared<DeviceWeights>(TRY(weights_->another(stream_)));
    return std::make_unique<DeviceStagedWeights>(TRY(stream_.another()), std::move(room));
  }
  Status flip(std::unique_ptr<StagedWeights> staged) override {
    auto* const own = dynamic_cast<DeviceStagedWeights*>(staged.get());
    if (own == nullptr || !own->prepared()) return Status::invalid("the weights to flip to are not prepared");
    before_ = std::exchange(weights_, own->take());
    return {};
  }
  Status roll_back() override {
    if (!before_) return Status::not_found("the weights before are gone");
    weights_ = std::exchange(before_, nullptr);
    return {};
  }

  Status sleep() override {
    if (!works_.empty()) return Status::invalid("a plan is under way, and the executor cannot sleep");
    TRY(stream_.wait());
    pages_.reset();
    before_.reset();
    return {};
  }
  Status wake() override {
    if (!pages_) pages_.emplace(TRY(DevicePages<T>::create(stream_, config_, own_pages_ + 1)));
    return {};
  }

 private:
  using Tensor = typename DeviceOps<T>::Tensor;

  Status check_awake() const { return pages_ ? Status() : Status::invalid("the executor sleeps, and has no pages"); }

  // A plan on its way, and the memory of the host for its arguments and answers, which outlives it.
  struct Work {
    Plan plan;
    Clock::time_point started;
    Packet arguments, masks;
    kernels::DeviceBuffer<int32_t> tokens;   // that it drew, for plans after it
    kernels::StagingBuffer<int32_t> drawn;   // tokens, logprobs and sampling logprobs: `size.draws` of each
    kernels::StagingBuffer<int32_t> routes;  // [layers with experts][rows][top_k]
    kernels::StagingBuffer<uint64_t> kept;   // [draws][words], where a draw asks for it
    Returned<float> picks;
    Returned<int32_t> likeliest;  // of `scored`
    PlanSize size;
    std::vector<int> scored;
    Answer answer;  // what the host computed itself
    std::optional<kernels::DeviceEvent> done;
  };

  DeviceExecutor(const Weights& like, kernels::DeviceStream stream, int pages)
      : stream_(std::move(stream)),
        config_(like.config()),
        head_(like.layout().head),
        format_(like.format()),
        own_pages_(pages) {}

  Status start(Work& work) {
    const Plan& plan = work.plan;
    work.size = size_of(plan, max_positions());
    work.scored = scored_rows(plan);
    const PlanPlaces at = pack_plan(plan, work.size, work.scored, own_pages_, work.arguments);
    TRY(work.arguments.send(stream_, arguments_));
    for (const auto& later : at.later) {
      TRY(stream_.run(TandemCudaTakeTokens{.from = address(works_.at(later.ticket)->tokens.data()),
                                           .places = address(argument<int32_t>(later.places)),
                                           .to = address(argument<int32_t>(at.tokens)),
                                           .rows = address(argument<int32_t>(later.rows)),
                                           .count = later.count}));
    }
    TRY(room_for_draws(work));
    // The host finds masks, and draws with a bias, while the device computes the rest.
    const bool drawn = !plan.draws.empty() && std::ranges::all_of(plan.draws, [](const Draw& d) {
      return !d.mask && d.bias.empty() && !d.keeps;
    });
    const auto put = [&]() -> Result<Tensor> {
      const Tensor states = TRY(ops_->run(*computing_, *pages_,
                                          {.rows = work.size.rows,
                                           .tokens = argument<int32_t>(at.tokens),
                                           .places = {.positions = argument<int32_t>(at.positions),
                                                      .pages = argument<int32_t>(at.pages),
                                                      .first_page = argument<int32_t>(at.first_page)},
                                           .routes = plan.routes}));
      if (drawn) TRY(draw(work, at, states));
      return states;
    };
    const PlanShape shape{work.size.rows, work.size.draws, drawn, plan.routes, computing_.get()};
    const Tensor states = work.size.repeats ? TRY(graphs_.run(stream_, shape, put)) : TRY(put());
    if (!drawn) TRY(draw(work, at, states));
    TRY(fetch_draws(work));
    if (plan.routes) TRY(fetch_routes(work));
    TRY(score(work, at, states));
    return rank(work, at, states);
  }
  template <typename U>
  OnDevice<U>* argument(size_t at) const {
    return sent<U>(arguments_, at);
  }

  // Logits, sums and log-sums of `count` rows, at `rows`, into the memory that all plans share.
  Status logits_of(const Tensor& states, OnDevice<int32_t>* rows, int count, OnDevice<float>* scales = nullptr) {
    const int vocabulary = config_.vocabulary;
    const size_t padded = kernels::padded_vocabulary(vocabulary), panels = padded / kernels::kPanelColumns;
    if (logit_rows_ < count) {
      TRY(stream_.wait());
      logits_ = {};
      logits_ = TRY(stream_.allocate<float>(count * padded, "logits"));
      panel_sums_ = TRY(stream_.allocate<float>(count * panels * 2, "logits"));
      log_sums_ = TRY(stream_.allocate<float>(kScoredRows, "logits"));
      logit_rows_ = count;
    }
    const auto scratch = TRY(stream_.workspace(stream_.functions().lm_head_workspace(count, vocabulary)));
    return run_head({.hidden = address(TRY(ops_->gather(states, rows, count))),
                     .head = address(computing_->values<T>(head_)),
                     .logits = address(logits_.data()),
                     .log_sum = address(log_sums_.data()),
                     .panel_sums = address(panel_sums_.data()),
                     .logit_scales = scales ? address(scales) : nullptr,
                     .rows = count,
                     .width = config_.width,
                     .vocabulary = vocabulary,
                     .workspace = scratch.memory,
                     .workspace_bytes = scratch.bytes});
  }
  using LmHead = std::conditional_t<std::is_same_v<T, float>, TandemCudaLmHeadFloat, TandemCudaLmHead>;
  Status run_head(const LmHead& head) { return stream_.run(head); }

  // What is drawn lies in memory that all plans share, which is copied before the next one writes there.
  Status room_for_draws(Work& work) {
    const auto count = static_cast<size_t>(work.size.draws);
    if (count == 0) return {};
    if (drawn_.size() < 3 * count) TRY(grown(stream_, drawn_, 6 * count, "answers"));
    if (work.tokens.size() < count) TRY(grown(stream_, work.tokens, 2 * count, "answers"));
    if (work.drawn.size() >= 3 * count) return {};
    TRY(stream_.wait());
    work.drawn = TRY(stream_.stage<int32_t>(6 * count, "answers"));
    return {};
  }
  OnDevice<int32_t>* drawn_tokens() const { return drawn_.data(); }
  OnDevice<float>* drawn_logprobs(const Work& work) const {
    return kernels::as<float>(beyond(drawn_.data(), work.size.draws));
  }
  OnDevice<float>* drawn_sampling(const Work& work) const {
    return kernels::as<float>(beyond(drawn_.data(), 2 * size_t(work.size.draws)));
  }
  Status fetch_draws(Work& work) {
    const auto count = static_cast<size_t>(work.size.draws);
    if (count == 0) return {};
    TRY(stream_.copy(work.tokens.data(), drawn_tokens(), count));
    if (asks_for_kept(work.plan)) {
      const size_t words = count * kept_words();
      if (work.kept.size() < words) {
        TRY(stream_.wait());
        work.kept = TRY(stream_.stage<uint64_t>(2 * words, "answers"));
      }
      TRY(stream_.download(work.kept.span().first(words), kept_.data()));
    }
    return stream_.download(work.drawn.span().first(3 * count), drawn_.data());
  }

  static bool asks_for_kept(const Plan& plan) { return std::ranges::any_of(plan.draws, &Draw::keeps); }
  size_t kept_words() const { return (static_cast<size_t>(config_.vocabulary) + 63) / 64; }
  std::vector<std::vector<int32_t>> kept_of(const Work& work) const {
    std::vector<std::vector<int32_t>> kept(work.plan.draws.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      const Draw& d = work.plan.draws[i];
      if (!d.keeps || !d.sampling.cuts()) continue;
      for (size_t w = 0; w < kept_words(); ++w) {
        for (uint64_t word = work.kept.span()[i * kept_words() + w]; word != 0; word &= word - 1)
          kept[i].push_back(static_cast<int32_t>(w * 64) + std::countr_zero(word));
      }
      if (kept[i].size() == static_cast<size_t>(config_.vocabulary)) kept[i].clear();
    }
    return kept;
  }

  // The memory that they lie in is that of the next plan, too, which comes behind the copy.
  Status fetch_routes(Work& work) {
    const size_t count = route_shape(config_).choices() * static_cast<size_t>(work.size.rows);
    if (work.routes.size() < count) {
      TRY(stream_.wait());
      work.routes = TRY(stream_.stage<int32_t>(2 * count, "answers"));
    }
    return stream_.download(work.routes.span().first(count), ops_->recorded_routes());
  }
  // Rows of all layers one behind the other.
  std::vector<uint8_t> routes_of(const Work& work) const {
    const RouteShape shape = route_shape(config_);
    const size_t rows = work.plan.batch.tokens.size(), all = static_cast<size_t>(work.size.rows), top_k = shape.top_k;
    std::vector<uint8_t> routes(rows * shape.row_bytes());
    const auto ids = work.routes.span();
    for (size_t row = 0; row < rows; ++row) {
      const auto to = std::span(routes).subspan(row * shape.row_bytes(), shape.row_bytes());
      for (size_t i = 0; i < shape.choices(); ++i)
        shape.set(to, i, static_cast<uint32_t>(ids[(i / top_k * all + row) * top_k + i % top_k]));
    }
    return routes;
  }

  // Puts the masks of the draws on the device. Null where there are none.
  Result<OnDevice<uint64_t>*> send_masks(Work& work) {
    const size_t words = (static_cast<size_t>(config_.vocabulary) + 63) / 64;
    std::vector<uint64_t> masks;
    std::vector<uint64_t> one(config_.vocabulary / 64 + 1);
    for (const Draw& d : work.plan.draws) {
      if (!d.mask || !d.bias.empty()) continue;
      std::ranges::fill(one, 0);
      d.mask(one);
      masks.insert(masks.end(), one.begin(), one.begin() + static_cast<long>(words));
    }
    if (masks.empty()) return nullptr;
    const size_t at = work.masks.add(masks);
    TRY(work.masks.send(stream_, masks_));
    return sent<uint64_t>(masks_, at);
  }

  Status draw(Work& work, const PlanPlaces& at, const Tensor& states) {
    const auto count = static_cast<size_t>(work.size.draws);
    if (count == 0) return {};
    OnDevice<uint64_t>* const masks = TRY(send_masks(work));
    const bool keeps = asks_for_kept(work.plan);
    if (keeps && kept_.size() < count * kept_words()) TRY(grown(stream_, kept_, 2 * count * kept_words(), "answers"));
    for (size_t first = 0; first < count; first += kLogitRows) {
      const int rows = static_cast<int>(std::min<size_t>(kLogitRows, count - first));
      TRY(logits_of(states, beyond(argument<int32_t>(at.draw_rows), first), rows,
                    beyond(argument<float>(at.logit_scales), first)));
      const auto scratch = TRY(stream_.workspace(stream_.functions().sample_workspace(rows, config_.vocabulary)));
      const auto part = [&]<typename U>(OnDevice<U>* all) { return address(beyond(all, first)); };
      TRY(stream_.run(TandemCudaSample{.logits = address(logits_.data()),
                                       .panel_sums = address(panel_sums_.data()),
                                       .log_sum = address(log_sums_.data()),
                                       .temperatures = part(argument<float>(at.temperatures)),
                                       .top_k = part(argument<int32_t>(at.top_k)),
                                       .top_p = part(argument<float>(at.top_p)),
                                       .min_p = part(argument<float>(at.min_p)),
                                       .masks = masks ? address(masks) : nullptr,
                                       .mask_of = masks ? part(argument<int32_t>(at.mask_of)) : nullptr,
                                       .seeds = part(argument<uint64_t>(at.seeds)),
                                       .positions = part(argument<uint64_t>(at.draw_positions)),
                                       .tokens = part(drawn_tokens()),
                                       .logprobs = part(drawn_logprobs(work)),
                                       .sampling_logprobs = part(drawn_sampling(work)),
                                       .rows = rows,
                                       .vocabulary = config_.vocabulary,
                                       .workspace = scratch.memory,
                                       .workspace_bytes = scratch.bytes,
                                       .kept = keeps ? address(beyond(kept_.data(), first * kept_words())) : nullptr}));
      TRY(draw_biased(work, first, rows));
    }
    return {};
  }

  // Draws with a bias are the host's, over logits that come back: few requests have one. What the device drew for them
  // is written over.
  Status draw_biased(Work& work, size_t first, int rows) {
    for (size_t i = first; i < std::min(first + static_cast<size_t>(rows), work.plan.draws.size()); ++i) {
      const Draw& d = work.plan.draws[i];
      if (d.bias.empty()) continue;
      TRY(fetch_logits(static_cast<int>(i - first), 1));
      const auto drawn = draw_allowed(d, std::span(host_logits_).first(config_.vocabulary), host_log_sums_[0]);
      TRY(stream_.upload(beyond(drawn_tokens(), i), std::span(&drawn.token, 1)));
      TRY(stream_.upload(beyond(drawn_logprobs(work), i), std::span(&drawn.logprob, 1)));
      TRY(stream_.upload(beyond(drawn_sampling(work), i), std::span(&drawn.sampling_logprob, 1)));
      TRY(stream_.wait());
    }
    return {};
  }
  // Fetches rows of the last `logits_of`; waits.
  Status fetch_logits(int first, int rows) {
    const size_t padded = kernels::padded_vocabulary(config_.vocabulary);
    host_logits_.resize(rows * padded);
    host_log_sums_.resize(rows);
    TRY(stream_.download(std::span(host_logits_), beyond(logits_.data(), first * padded)));
    TRY(stream_.download(std::span(host_log_sums_), beyond(log_sums_.data(), first)));
    return stream_.wait();
  }

  // Logprobs of given tokens and the likeliest ones, without logits.
  Status score(Work& work, const PlanPlaces& at, const Tensor& states) {
    if (work.scored.empty()) return {};
    OnDevice<int32_t>* const likeliest = TRY(work.likeliest.room(stream_, work.scored.size()));
    OnDevice<float>* const picked = TRY(work.picks.room(stream_, work.plan.picks.size()));
    if (log_sums_.size() < kScoredRows) log_sums_ = TRY(stream_.allocate<float>(kScoredRows, "logits"));
    size_t pick = 0;
    for (size_t first = 0; first < work.scored.size(); first += kScoredRows) {
      const int rows = static_cast<int>(std::min<size_t>(kScoredRows, work.scored.size() - first));
      size_t end = pick;
      while (end < work.plan.picks.size() && work.plan.picks[end].row <= work.scored[first + rows - 1]) ++end;
      const auto scratch = TRY(stream_.workspace(stream_.functions().lm_head_workspace(rows, config_.vocabulary)));
      TRY(run_head(
          {.hidden = address(TRY(ops_->gather(states, beyond(argument<int32_t>(at.scored_rows), first), rows))),
           .head = address(computing_->values<T>(head_)),
           .log_sum = address(log_sums_.data()),
           .argmax = address(beyond(likeliest, first)),
           .picks = address(beyond(argument<TandemCudaPick>(at.picks), pick)),
           .logprobs = address(beyond(picked, pick)),
           .pick_count = static_cast<int64_t>(end - pick),
           .rows = rows,
           .width = config_.width,
           .vocabulary = config_.vocabulary,
           .workspace = scratch.memory,
           .workspace_bytes = scratch.bytes}));
      pick = end;
    }
    TRY(work.likeliest.fetch(stream_));
    return work.picks.fetch(stream_);
  }

  // The likeliest tokens of rows, a few rows at a time: the logits of a long prompt would fill the memory. The host
  // ranks them.
  Status rank(Work& work, const PlanPlaces& at, const Tensor& states) {
    const auto& tops = work.plan.tops;
    const size_t padded = kernels::padded_vocabulary(config_.vocabulary);
    for (size_t first = 0; first < tops.size(); first += kLogitRows) {
      const int rows = static_cast<int>(std::min<size_t>(kLogitRows, tops.size() - first));
      TRY(logits_of(states, beyond(argument<int32_t>(at.top_rows), first), rows));
      TRY(fetch_logits(0, rows));
      for (int i = 0; i < rows; ++i) {
        const auto logits = std::span(host_logits_).subspan(i * padded, config_.vocabulary);
        work.answer.tops.push_back(likeliest_of(logits, host_log_sums_[i], tops[first + i].count));
      }
    }
    return {};
  }

  Answer read(Work& work) const {
    Answer answer = std::move(work.answer);
    const auto drawn = work.drawn.span();
    for (size_t i = 0, count = work.size.draws; i < work.plan.draws.size(); ++i)
      answer.draws.push_back(
          {drawn[i], std::bit_cast<float>(drawn[count + i]), std::bit_cast<float>(drawn[2 * count + i])});
    if (work.plan.routes) answer.routes = routes_of(work);
    if (asks_for_kept(work.plan)) answer.kept = kept_of(work);
    if (!work.scored.empty()) {
      for (size_t i = 0; i < work.plan.picks.size(); ++i) answer.picks.push_back(work.picks.values()[i]);
      for (const int row : work.plan.likeliest)
        answer.likeliest.push_back(work.likeliest.values()[place_of(work.scored, row)]);
    }
    return answer;
  }

  kernels::DeviceStream stream_;
  const ModelConfig config_;
  const int head_;  // the parameter
  const WeightFormat format_;
  std::shared_ptr<DeviceWeights> weights_, before_;  // the live ones, and those before the last flip
  std::shared_ptr<DeviceWeights> computing_;         // of the plan that is being submitted
  const int own_pages_;                              // that plans may name
  std::optional<DevicePages<T>> pages_;              // and one more, of rows of nobody; none while asleep
  size_t page_bytes_ = 0;
  std::optional<DeviceOps<T>> ops_;
  std::map<Ticket, std::unique_ptr<Work>> works_;
  std::vector<std::unique_ptr<Work>> idle_;
  Ticket last_ticket_ = 0;
  Clock::time_point last_done_;
  // All plans share what follows: the stream does one after the other.
  kernels::DeviceBuffer<std::byte> arguments_, masks_;
  kernels::DeviceBuffer<uint64_t> kept_;
  kernels::DeviceBuffer<int32_t> drawn_;  // tokens, then logprobs, then sampling logprobs
  int logit_rows_ = 0;
  kernels::DeviceBuffer<float> logits_, panel_sums_, log_sums_;
  PlanGraphs<Tensor> graphs_;
  std::vector<float> host_logits_, host_log_sums_;
};

}  // namespace

Result<std::unique_ptr<Executor>> make_device_executor(const Weights& weights, const kernels::Device& device,
                                                       const ExecutorSettings& settings) {
  if (weights.live_adapter() != nullptr) {
    return fail(Status::unfit(fmt::format("{} cannot hold an adapter beside the weights", kernels::to_string(device)))
                    .hint("merge it into the weights, or compute on the CPU"));
  }
  auto stream = TRY(kernels::DeviceStream::open(device));
  if (weights.format() == WeightFormat::kFloat32)
    return DeviceExecutor<float>::create(weights, std::move(stream), settings);
  return DeviceExecutor<kernels::bf16>::create(weights, std::move(stream), settings);
}

}  // namespace tandem::model
