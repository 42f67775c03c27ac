// The executor of a CPU: a plan is computed when it is submitted, on the threads of a stream.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>

#include "model/executor.h"
#include "model/forward.h"
#include "model/host_draw.h"
#include "model/live_adapter.h"
#include "model/plan_check.h"
#include "model/routes.h"

namespace tandem::model {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class CpuStagedWeights final : public StagedWeights {
 public:
  CpuStagedWeights(std::shared_ptr<Weights> weights, int threads, kernels::Isa isa)
      : weights_(std::move(weights)), threads_(threads), isa_(isa) {}

  // On threads of its own: those of the executor are sampling.
  Status prepare(std::span<const std::byte> wire) override {
    if (!stream_) stream_.emplace(TRY(kernels::Stream::cpu(threads_, isa_)));
    TRY(weights_->pack_received(*stream_, wire));
    prepared_ = true;
    return {};
  }
  Status verify(std::span<const std::byte> wire) override {
    if (!prepared_) return Status::invalid("the weights to verify are not prepared");
    return weights_->verify(*stream_, wire);
  }
  bool prepared() const { return prepared_; }
  std::shared_ptr<const Weights> take() { return std::move(weights_); }

 private:
  std::shared_ptr<Weights> weights_;
  const int threads_;
  const kernels::Isa isa_;
  std::optional<kernels::Stream> stream_;
  bool prepared_ = false;
};

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(std::shared_ptr<const Weights> weights, kernels::Stream stream, KvPool pool, int max_positions)
      : weights_(std::move(weights)),
        stream_(std::move(stream)),
        pool_(std::move(pool)),
        forward_(weights_->config(), max_positions, weights_->format()) {}

  const ModelConfig& config() const override { return weights_->config(); }
  WeightFormat format() const override { return weights_->format(); }
  std::string numerics_id() const override { return stream_.numerics_id(to_string(format())); }
  int max_positions() const override { return forward_.max_positions(); }
  int depth() const override { return 1; }

  int pages() const override { return pool_.pages(); }
  Status clear(std::span<const int> pages) override {
    TRY(check_pages(pages, pool_.pages()));
    for (const int page : pages) pool_.clear(page);
    return {};
  }
  Status copy(int from, int to) override {
    TRY(check_pages(std::array{from, to}, pool_.pages()));
    pool_.copy(from, to);
    return {};
  }
  size_t page_bytes() const override { return pool_.page_bytes(); }
  Status save(std::span<const int> pages, std::span<std::byte> host) override {
    TRY(check_host_pages(pages, pool_.pages(), host.size(), page_bytes()));
    for (size_t i = 0; i < pages.size(); ++i)
      std::ranges::copy(pool_.bytes(pages[i]), host.subspan(i * page_bytes(), page_bytes()).begin());
    return {};
  }
  Status load(std::span<const std::byte> host, std::span<const int> pages) override {
    TRY(check_host_pages(pages, pool_.pages(), host.size(), page_bytes()));
    for (size_t i = 0; i < pages.size(); ++i)
      std::ranges::copy(host.subspan(i * page_bytes(), page_bytes()), pool_.bytes(pages[i]).begin());
    return {};
  }

  Result<AdapterId> attach(std::shared_ptr<const LiveAdapter> adapter) override {
    if (weights_->live_adapter() != nullptr)
      return fail(Status::invalid("the weights have an adapter of their own, which all rows are computed with"));
    if (!adapter->fits(weights_->layout(), format()))
      return fail(Status::invalid("the adapter was made for a model of another shape or number format"));
    if (adapters_.size() >= kMostAdapters)
      return fail(Status::exhausted(fmt::format("{} adapters are attached already", adapters_.size())));
    adapters_.emplace(++last_adapter_, std::move(adapter));
    return last_adapter_;
  }
  Status detach(AdapterId adapter) override {
    if (adapters_.erase(adapter) > 0) return {};
    return Status::invalid(fmt::format("no adapter {} is attached", adapter));
  }

  Result<Ticket> submit(Plan plan) override {
    TRY(check_plan(plan, config().vocabulary, pool_.pages(), max_positions(), adapters_));
    if (plan.routes && !route_shape(config()).any())
      return fail(Status::invalid("a plan asks for routes, and the model has no experts"));
    for (const auto& [row, token] : plan.later) {
      const auto answer = answers_.find(token.ticket);
      if (answer == answers_.end() || static_cast<size_t>(token.draw) >= answer->second.draws.size())
        return fail(Status::invalid(fmt::format("plan {} has no draw {} to wait for", token.ticket, token.draw)));
      const int32_t drawn = answer->second.draws[token.draw].token;
      if (drawn < 0)
        return fail(Status::invalid(fmt::format("draw {} of plan {} drew nothing", token.draw, token.ticket)));
      plan.batch.tokens[row] = drawn;
    }
    if (plan.before_flip && !before_) return fail(Status::invalid("the weights before the last flip are gone"));
    Answer answer;
    const auto start = std::chrono::steady_clock::now();
    TRY(forward_.run(stream_, plan.before_flip ? *before_ : *weights_, pool_, plan.batch, adapted_rows(plan.batch),
                     plan.routes ? &answer.routes : nullptr));
    answer.forward_seconds = seconds_since(start);
    const auto ran = std::chrono::steady_clock::now();
    TRY(draw(plan, answer));
    TRY(score(plan, answer));
    TRY(rank(plan, answer));
    answer.sample_seconds = seconds_since(ran);
    answers_.emplace(++last_ticket_, std::move(answer));
    return last_ticket_;
  }
  Result<Answer> collect(Ticket ticket) override {
    const auto found = answers_.find(ticket);
    if (found == answers_.end()) return fail(Status::invalid(fmt::format("no plan {} is to be collected", ticket)));
    Answer answer = std::move(found->second);
    answers_.erase(found);
    return answer;
  }

  Result<std::unique_ptr<StagedWeights>> stage() override {
    std::shared_ptr<Weights> room;
    if (before_ && before_.use_count() == 1) {
      room = std::const_pointer_cast<Weights>(std::exchange(before_, nullptr));
      room->attach(nullptr);
    } else {
      before_.reset();
      room = std::make_shared<Weights>(TRY(Weights::create(config(), false, format())));
    }
    return std::make_unique<CpuStagedWeights>(std::move(room), stream_.threads().threads(), stream_.isa());
  }
  Status flip(std::unique_ptr<StagedWeights> staged) override {
    auto* const own = dynamic_cast<CpuStagedWeights*>(staged.get());
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
  // Neighbours of one adapter go into one product.
  std::span<const AdaptedRows> adapted_rows(const Batch& batch) {
    adapted_.clear();
    AdapterId before = 0;
    for (const Batch::Run& run : batch.runs) {
      if (run.adapter != 0 && run.adapter == before)
        adapted_.back().rows += run.rows;
      else if (run.adapter != 0)
        adapted_.push_back({adapters_.at(run.adapter).get(), run.row, run.rows});
      before = run.adapter;
    }
    return adapted_;
  }

  Status draw(const Plan& plan, Answer& answer) {
    const size_t count = plan.draws.size();
    if (count == 0) return {};
    const int vocabulary = config().vocabulary;
    const size_t padded = kernels::padded_vocabulary(vocabulary), panels = padded / kernels::kPanelColumns;
    std::vector<int> rows;
    std::vector<float> scales;
    bool scaled = false;
    for (const Draw& d : plan.draws) {
      rows.push_back(d.row);
      scales.push_back(d.logit_scale);
      scaled = scaled || d.logit_scale != 1;
    }
    std::vector<float> log_sum(count);
    logits_.resize(std::max(logits_.size(), count * padded));
    panel_sums_.resize(count * panels);
    TRY(forward_.head(rows,
                      {.logits = logits_.data(),
                       .log_sum = log_sum.data(),
                       .panel_sums = panel_sums_.data(),
                       .logit_scales = scaled ? scales.data() : nullptr},
                      {}, {}));
    answer.draws.resize(count);
    if (std::ranges::any_of(plan.draws, &Draw::keeps)) answer.kept.resize(count);
    std::vector<Status> failed(answer.kept.size());
    stream_.threads().run(static_cast<int>(count), [&](int i) {
      const Draw& d = plan.draws[i];
      const auto logits = std::span(logits_).subspan(i * padded, vocabulary);
      const auto sums = std::span(panel_sums_).subspan(i * panels, panels);
      if (d.keeps) {
        auto& kept = answer.kept[i];
        kernels::Sampled& drawn = answer.draws[i];
        drawn = kernels::sample_kept(logits, sums, log_sum[i], d.sampling, d.seed, d.position, kept);
        if (kept.empty()) return;
        if (const auto of_kept = kernels::kept_log_sum(stream_, logits, kept))
          drawn.logprob = logits[drawn.token] - *of_kept;
        else
          failed[i] = of_kept.error();
        return;
      }
      answer.draws[i] = d.mask || !d.bias.empty()
                            ? draw_allowed(d, logits, log_sum[i])
                            : kernels::sample(logits, sums, log_sum[i], d.sampling, d.seed, d.position);
    });
    for (Status& status : failed) TRY(std::move(status));
    return {};
  }

  // The likeliest tokens of rows, a few rows at a time: the logits of a long prompt would fill the memory.
  Status rank(const Plan& plan, Answer& answer) {
    constexpr size_t kRowsAtOnce = 16;
    const int vocabulary = config().vocabulary;
    const size_t padded = kernels::padded_vocabulary(vocabulary);
    answer.tops.resize(plan.tops.size());
    for (size_t first = 0; first < plan.tops.size(); first += kRowsAtOnce) {
      const auto asked = std::span(plan.tops).subspan(first, std::min(kRowsAtOnce, plan.tops.size() - first));
      std::vector<int> rows;
      for (const auto& top : asked) rows.push_back(top.row);
      std::vector<float> log_sum(rows.size());
      logits_.resize(std::max(logits_.size(), rows.size() * padded));
      TRY(forward_.head(rows, {.logits = logits_.data(), .log_sum = log_sum.data()}, {}, {}));
      stream_.threads().run(static_cast<int>(rows.size()), [&](int i) {
        const auto logits = std::span(logits_).subspan(i * padded, vocabulary);
        answer.tops[first + i] = likeliest_of(logits, log_sum[i], asked[i].count);
      });
    }
    return {};
  }

  // Logprobs of given tokens and the likeliest ones, without logits.
  Status score(const Plan& plan, Answer& answer) {
    std::vector<int> rows = plan.likeliest;
    for (const auto& pick : plan.picks) rows.push_back(pick.row);
    std::ranges::sort(rows);
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    if (rows.empty()) return {};
    const auto place = [&](int row) {
      return static_cast<int32_t>(std::ranges::lower_bound(rows, row) - rows.begin());
    };
    std::vector<kernels::TokenPick> picks;
    for (const auto& pick : plan.picks) picks.push_back({place(pick.row), pick.token});
    answer.picks.resize(picks.size());
    std::vector<float> log_sum(rows.size());
    std::vector<int32_t> argmax(rows.size());
    TRY(forward_.head(rows, {.log_sum = log_sum.data(), .argmax = argmax.data()}, picks, answer.picks));
    for (const int row : plan.likeliest) answer.likeliest.push_back(argmax[place(row)]);
    return {};
  }

  std::shared_ptr<const Weights> weights_, before_;  // the live ones, and those before the last flip
  kernels::Stream stream_;
  KvPool pool_;
  Forward forward_;
  AdapterTable adapters_;
  AdapterId last_adapter_ = 0;
  std::vector<AdaptedRows> adapted_;  // of the plan at hand
  std::map<Ticket, Answer> answers_;
  Ticket last_ticket_ = 0;
  std::vector<float> logits_;
  std::vector<kernels::RunningSum> panel_sums_;
};

}  // namespace

Result<std::unique_ptr<Executor>> make_cpu_executor(std::shared_ptr<const Weights> weights, kernels::Stream stream,
                                                    const ExecutorSettings& settings) {
  auto pool = TRY(KvPool::create(weights->config(), settings.pages, weights->format()));
  return std::unique_ptr<Executor>(
      std::make_unique<CpuExecutor>(std::move(weights), std::move(stream), std::move(pool), settings.max_positions));
}

}  // namespace tandem::model
