// The executor of a device: a plan is put on a stream when it is submitted; tokens that it draws are those of the next
// plan's rows without the host having seen them. Only tokens, logprobs and what was asked for come back.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>

#include "kernels/cuda/library.h"
#include "model/device/device_ops.h"
#include "model/device/packet.h"
#include "model/device/staged_weights.h"
#include "model/executor.h"
#include "model/host_draw.h"
#include "model/plan_check.h"

namespace tandem::model {

namespace {

using kernels::address, kernels::beyond, kernels::OnDevice;
using Clock = std::chrono::steady_clock;

// Rows whose logits lie in memory at once.
constexpr int kLogitRows = 64;
// Rows of which the head computes logprobs at once, without logits.
constexpr int kScoredRows = 1024;
constexpr int kDepth = 2;

template <typename T>
class DeviceExecutor final : public Executor {
 public:
  static Result<std::unique_ptr<Executor>> create(const Weights& like, kernels::DeviceStream opened,
                                                  const ExecutorSettings& settings) {
    auto made = std::unique_ptr<DeviceExecutor>(new DeviceExecutor(like, std::move(opened)));
    made->weights_ = std::make_shared<DeviceWeights>(TRY(DeviceWeights::create(made->stream_, like)));
    TRY(made->weights_->upload(made->stream_, like.wire()));
    made->pages_.emplace(TRY(DevicePages<T>::create(made->stream_, made->config_, settings.pages)));
    made->ops_.emplace(TRY(DeviceOps<T>::create(made->stream_, like, settings.max_positions)));
    return made;
  }

  const ModelConfig& config() const override { return config_; }
  WeightFormat format() const override { return format_; }
  std::string numerics_id() const override { return stream_.numerics_id(to_string(format_)); }
  int max_positions() const override { return ops_->max_positions(); }
  int depth() const override { return kDepth; }

  int pages() const override { return pages_->pages(); }
  Status clear(std::span<const int> pages) override { return check_pages(pages, pages_->pages()); }
  Status copy(int from, int to) override {
    TRY(check_pages(std::array{from, to}, pages_->pages()));
    return pages_->copy(stream_, from, to);
  }
  size_t page_bytes() const override { return pages_->page_bytes(); }
  Status save(std::span<const int> pages, std::span<std::byte> host) override {
    TRY(check_host_pages(pages, pages_->pages(), host.size(), page_bytes()));
    for (size_t i = 0; i < pages.size(); ++i)
      TRY(pages_->save(stream_, pages[i], host.subspan(i * page_bytes(), page_bytes())));
    return stream_.wait();
  }
  Status load(std::span<const std::byte> host, std::span<const int> pages) override {
    TRY(check_host_pages(pages, pages_->pages(), host.size(), page_bytes()));
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
    TRY(check_plan(plan, config_.vocabulary, pages_->pages(), max_positions()));
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

 private:
  // A plan on its way, and the memory of its arguments and answers, which outlives it.
  struct Work {
    Plan plan;
    Clock::time_point started;
    Packet arguments, masks;
    Returned<int32_t> tokens;            // of draws
    Returned<float> logprobs, sampling;  // the same
    Returned<float> picks;
    Returned<int32_t> likeliest;  // of `scored`
    std::vector<int> scored;      // rows of picks and likeliest, each once, ascending
    Answer answer;                // what the host computed itself
    std::optional<kernels::DeviceEvent> done;
  };
  // Where the arrays of a plan lie in its packet.
  struct Places {
    size_t tokens = 0, positions = 0, first_page = 0, pages = 0;
    size_t draw_rows = 0, temperatures = 0, top_k = 0, top_p = 0, min_p = 0, seeds = 0, draw_positions = 0, mask_of = 0;
    size_t scored_rows = 0, picks = 0, top_rows = 0;
    struct Later {
      Ticket ticket = 0;
      size_t places = 0, rows = 0;
      int count = 0;
    };
    std::vector<Later> later;
  };

  DeviceExecutor(const Weights& like, kernels::DeviceStream stream)
      : stream_(std::move(stream)), config_(like.config()), head_(like.layout().head), format_(like.format()) {}

  Status start(Work& work) {
    const Places at = pack(work);
    TRY(work.arguments.send(stream_));
    const auto ints = [&](size_t place) { return work.arguments.template on_device<int32_t>(place); };
    for (const auto& later : at.later) {
      TRY(stream_.run(TandemCudaTakeTokens{.from = address(works_.at(later.ticket)->tokens.data()),
                                           .places = address(ints(later.places)),
                                           .to = address(ints(at.tokens)),
                                           .rows = address(ints(later.rows)),
                                           .count = later.count}));
    }
    TRY(ops_->run(
        *computing_, *pages_,
        {.rows = static_cast<int>(work.plan.batch.tokens.size()),
         .tokens = ints(at.tokens),
         .places = {.positions = ints(at.positions), .pages = ints(at.pages), .first_page = ints(at.first_page)}}));
    TRY(draw(work, at));
    TRY(score(work, at));
    return rank(work, at);
  }

  Places pack(Work& work) {
    const Plan& plan = work.plan;
    const Batch& batch = plan.batch;
    Packet& packet = work.arguments;
    Places at;
    at.tokens = packet.add(batch.tokens);
    at.positions = packet.add(batch.positions);
    std::vector<int32_t> first_page;
    for (const auto& run : batch.runs) first_page.insert(first_page.end(), run.rows, run.first_page);
    at.first_page = packet.add(first_page);
    at.pages = packet.add(batch.pages);
    std::map<Ticket, std::pair<std::vector<int32_t>, std::vector<int32_t>>> later;
    for (const auto& [row, token] : plan.later) {
      later[token.ticket].first.push_back(token.draw);
      later[token.ticket].second.push_back(row);
    }
    for (const auto& [ticket, taken] : later)
      at.later.push_back(
          {ticket, packet.add(taken.first), packet.add(taken.second), static_cast<int>(taken.first.size())});
    std::vector<int32_t> rows, top_k, mask_of;
    std::vector<float> temperatures, top_p, min_p;
    std::vector<uint64_t> seeds, positions;
    int32_t masks = 0;
    for (const Draw& d : plan.draws) {
      rows.push_back(d.row);
      temperatures.push_back(d.sampling.temperature);
      top_k.push_back(d.sampling.top_k);
      top_p.push_back(d.sampling.top_p);
      min_p.push_back(d.sampling.min_p);
      seeds.push_back(d.seed);
      positions.push_back(d.position);
      mask_of.push_back(d.mask && d.bias.empty() ? masks++ : -1);
    }
    at.draw_rows = packet.add(rows);
    at.temperatures = packet.add(temperatures);
    at.top_k = packet.add(top_k);
    at.top_p = packet.add(top_p);
    at.min_p = packet.add(min_p);
    at.seeds = packet.add(seeds);
    at.draw_positions = packet.add(positions);
    at.mask_of = packet.add(mask_of);
    work.scored = plan.likeliest;
    for (const auto& pick : plan.picks) work.scored.push_back(pick.row);
    std::ranges::sort(work.scored);
    work.scored.erase(std::unique(work.scored.begin(), work.scored.end()), work.scored.end());
    at.scored_rows = packet.add(work.scored);
    std::vector<TandemCudaPick> picks;  // of rows within their chunk
    for (const auto& pick : plan.picks) picks.push_back({place_of(work, pick.row) % kScoredRows, pick.token});
    at.picks = packet.add(picks);
    std::vector<int32_t> top_rows;
    for (const auto& top : plan.tops) top_rows.push_back(top.row);
    at.top_rows = packet.add(top_rows);
    return at;
  }
  static int32_t place_of(const Work& work, int row) {
    return static_cast<int32_t>(std::ranges::lower_bound(work.scored, row) - work.scored.begin());
  }

  // Logits, sums and log-sums of `count` rows, at `rows`, into the memory that all plans share.
  Status logits_of(OnDevice<int32_t>* rows, int count) {
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
    return run_head({.hidden = address(TRY(ops_->gather(rows, count))),
                     .head = address(computing_->values<T>(head_)),
                     .logits = address(logits_.data()),
                     .log_sum = address(log_sums_.data()),
                     .panel_sums = address(panel_sums_.data()),
                     .rows = count,
                     .width = config_.width,
                     .vocabulary = vocabulary,
                     .workspace = scratch.memory,
                     .workspace_bytes = scratch.bytes});
  }
  using LmHead = std::conditional_t<std::is_same_v<T, float>, TandemCudaLmHeadFloat, TandemCudaLmHead>;
  Status run_head(const LmHead& head) { return stream_.run(head); }

  Status draw(Work& work, const Places& at) {
    const auto& draws = work.plan.draws;
    if (draws.empty()) return {};
    const size_t count = draws.size(), words = (static_cast<size_t>(config_.vocabulary) + 63) / 64;
    // The host finds masks while the device computes what was put on the stream so far.
    std::vector<uint64_t> masks;
    std::vector<uint64_t> one(config_.vocabulary / 64 + 1);
    for (const Draw& d : draws) {
      if (!d.mask || !d.bias.empty()) continue;
      std::ranges::fill(one, 0);
      d.mask(one);
      masks.insert(masks.end(), one.begin(), one.begin() + static_cast<long>(words));
    }
    const bool masked = !masks.empty();
    const size_t masks_at = work.masks.add(masks);
    if (masked) TRY(work.masks.send(stream_));
    OnDevice<int32_t>* const tokens = TRY(work.tokens.room(stream_, count));
    OnDevice<float>* const logprobs = TRY(work.logprobs.room(stream_, count));
    OnDevice<float>* const sampling = TRY(work.sampling.room(stream_, count));
    const Packet& packet = work.arguments;
    for (size_t first = 0; first < count; first += kLogitRows) {
      const int rows = static_cast<int>(std::min<size_t>(kLogitRows, count - first));
      TRY(logits_of(beyond(packet.on_device<int32_t>(at.draw_rows), first), rows));
      const auto scratch = TRY(stream_.workspace(stream_.functions().sample_workspace(rows, config_.vocabulary)));
      const auto part = [&]<typename U>(OnDevice<U>* all) { return address(beyond(all, first)); };
      TRY(stream_.run(
          TandemCudaSample{.logits = address(logits_.data()),
                           .panel_sums = address(panel_sums_.data()),
                           .log_sum = address(log_sums_.data()),
                           .temperatures = part(packet.on_device<float>(at.temperatures)),
                           .top_k = part(packet.on_device<int32_t>(at.top_k)),
                           .top_p = part(packet.on_device<float>(at.top_p)),
                           .min_p = part(packet.on_device<float>(at.min_p)),
                           .masks = masked ? address(work.masks.template on_device<uint64_t>(masks_at)) : nullptr,
                           .mask_of = masked ? part(packet.on_device<int32_t>(at.mask_of)) : nullptr,
                           .seeds = part(packet.on_device<uint64_t>(at.seeds)),
                           .positions = part(packet.on_device<uint64_t>(at.draw_positions)),
                           .tokens = part(tokens),
                           .logprobs = part(logprobs),
                           .sampling_logprobs = part(sampling),
                           .rows = rows,
                           .vocabulary = config_.vocabulary,
                           .workspace = scratch.memory,
                           .workspace_bytes = scratch.bytes}));
      TRY(draw_biased(work, first, rows));
    }
    TRY(work.tokens.fetch(stream_));
    TRY(work.logprobs.fetch(stream_));
    return work.sampling.fetch(stream_);
  }

  // Draws with a bias are the host's, over logits that come back: few requests have one. What the device drew for them
  // is written over.
  Status draw_biased(Work& work, size_t first, int rows) {
    for (size_t i = first; i < first + static_cast<size_t>(rows); ++i) {
      const Draw& d = work.plan.draws[i];
      if (d.bias.empty()) continue;
      TRY(fetch_logits(static_cast<int>(i - first), 1));
      const auto drawn = draw_allowed(d, std::span(host_logits_).first(config_.vocabulary), host_log_sums_[0]);
      TRY(stream_.upload(beyond(work.tokens.data(), i), std::span(&drawn.token, 1)));
      TRY(stream_.upload(beyond(work.logprobs.data(), i), std::span(&drawn.logprob, 1)));
      TRY(stream_.upload(beyond(work.sampling.data(), i), std::span(&drawn.sampling_logprob, 1)));
      TRY(stream_.wait());
    }
    return {};
  }
  // Of rows of the last `logits_of`; waits.
  Status fetch_logits(int first, int rows) {
    const size_t padded = kernels::padded_vocabulary(config_.vocabulary);
    host_logits_.resize(rows * padded);
    host_log_sums_.resize(rows);
    TRY(stream_.download(std::span(host_logits_), beyond(logits_.data(), first * padded)));
    TRY(stream_.download(std::span(host_log_sums_), beyond(log_sums_.data(), first)));
    return stream_.wait();
  }

  // Logprobs of given tokens and the likeliest ones, without logits.
  Status score(Work& work, const Places& at) {
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
      TRY(run_head({.hidden = address(TRY(
                        ops_->gather(beyond(work.arguments.template on_device<int32_t>(at.scored_rows), first), rows))),
                    .head = address(computing_->values<T>(head_)),
                    .log_sum = address(log_sums_.data()),
                    .argmax = address(beyond(likeliest, first)),
                    .picks = address(beyond(work.arguments.template on_device<TandemCudaPick>(at.picks), pick)),
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
  Status rank(Work& work, const Places& at) {
    const auto& tops = work.plan.tops;
    const size_t padded = kernels::padded_vocabulary(config_.vocabulary);
    for (size_t first = 0; first < tops.size(); first += kLogitRows) {
      const int rows = static_cast<int>(std::min<size_t>(kLogitRows, tops.size() - first));
      TRY(logits_of(beyond(work.arguments.template on_device<int32_t>(at.top_rows), first), rows));
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
    for (size_t i = 0; i < work.plan.draws.size(); ++i)
      answer.draws.push_back({work.tokens.values()[i], work.logprobs.values()[i], work.sampling.values()[i]});
    if (!work.scored.empty()) {
      for (size_t i = 0; i < work.plan.picks.size(); ++i) answer.picks.push_back(work.picks.values()[i]);
      for (const int row : work.plan.likeliest)
        answer.likeliest.push_back(work.likeliest.values()[place_of(work, row)]);
    }
    return answer;
  }

  kernels::DeviceStream stream_;
  const ModelConfig config_;
  const int head_;  // the parameter
  const WeightFormat format_;
  std::shared_ptr<DeviceWeights> weights_, before_;  // the live ones, and those before the last flip
  std::shared_ptr<DeviceWeights> computing_;         // of the plan that is being submitted
  std::optional<DevicePages<T>> pages_;
  std::optional<DeviceOps<T>> ops_;
  std::map<Ticket, std::unique_ptr<Work>> works_;
  std::vector<std::unique_ptr<Work>> idle_;
  Ticket last_ticket_ = 0;
  Clock::time_point last_done_;
  int logit_rows_ = 0;
  kernels::DeviceBuffer<float> logits_, panel_sums_, log_sums_;
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
