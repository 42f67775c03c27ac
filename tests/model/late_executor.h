// An executor that computes nothing before it is asked for the answer, and then the rows of a plan from the last to the
// first: what a device may do that runs behind its host.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "model/config.h"
#include "model/executor.h"

namespace tandem::model {

class LateExecutor final : public Executor {
 public:
  // `seconds`: what a plan says that it took, where it is not to be measured.
  LateExecutor(std::unique_ptr<Executor> inner, int depth, std::optional<double> seconds = std::nullopt)
      : inner_(std::move(inner)), depth_(depth), seconds_(seconds) {}

  const ModelConfig& config() const override { return inner_->config(); }
  WeightFormat format() const override { return inner_->format(); }
  std::string numerics_id() const override { return inner_->numerics_id(); }
  int max_positions() const override { return inner_->max_positions(); }
  int depth() const override { return depth_; }
  int pages() const override { return inner_->pages(); }

  Status clear(std::span<const int> pages) override {
    work_.push_back([this, pages = std::vector<int>(pages.begin(), pages.end())] { return inner_->clear(pages); });
    return {};
  }
  Status copy(int from, int to) override {
    work_.push_back([this, from, to] { return inner_->copy(from, to); });
    return {};
  }
  size_t page_bytes() const override { return inner_->page_bytes(); }
  Status save(std::span<const int> pages, std::span<std::byte> host) override {
    while (!work_.empty()) TRY(next());
    return inner_->save(pages, host);
  }
  Status load(std::span<const std::byte> host, std::span<const int> pages) override {
    work_.push_back([this, host = std::vector<std::byte>(host.begin(), host.end()),
                     pages = std::vector<int>(pages.begin(), pages.end())] { return inner_->load(host, pages); });
    return {};
  }
  Result<AdapterId> attach(std::shared_ptr<const LiveAdapter> adapter) override {
    return inner_->attach(std::move(adapter));
  }
  Status detach(AdapterId adapter) override {
    work_.push_back([this, adapter] { return inner_->detach(adapter); });
    return {};
  }
  Result<Ticket> submit(Plan plan) override {
    const Ticket ticket = ++last_;
    work_.push_back([this, ticket, plan = std::move(plan)] { return run(ticket, plan); });
    return ticket;
  }
  Result<Answer> collect(Ticket ticket) override {
    while (!answers_.contains(ticket)) {
      if (work_.empty()) return fail(Status::invalid("no such plan"));
      TRY(next());
    }
    return std::move(answers_.extract(ticket).mapped());
  }
  Result<std::unique_ptr<StagedWeights>> stage() override {
    while (!work_.empty()) TRY(next());  // plans that still read the version before
    return inner_->stage();
  }
  Status flip(std::unique_ptr<StagedWeights> staged) override {
    const auto shared = std::make_shared<std::unique_ptr<StagedWeights>>(std::move(staged));
    work_.push_back([this, shared] { return inner_->flip(std::move(*shared)); });
    return {};
  }
  Status roll_back() override {
    work_.push_back([this] { return inner_->roll_back(); });
    return {};
  }

 private:
  Status next() {
    const auto work = std::move(work_.front());
    work_.pop_front();
    return work();
  }
  Status run(Ticket ticket, const Plan& plan) {
    std::vector<int32_t> tokens = plan.batch.tokens;
    for (const auto& [row, token] : plan.later) tokens[row] = drawn_.at({token.ticket, token.draw});
    Plan reversed;
    reversed.before_flip = plan.before_flip;
    reversed.routes = plan.routes;
    std::vector<int> row_of(tokens.size());
    for (auto r = plan.batch.runs.rbegin(); r != plan.batch.runs.rend(); ++r) {
      for (int i = 0; i < r->rows; ++i) row_of[r->row + i] = static_cast<int>(reversed.batch.tokens.size()) + i;
      reversed.batch.add(std::span(tokens).subspan(r->row, r->rows), r->position, plan.batch.pages_of(*r), r->adapter);
    }
    for (auto d = plan.draws.rbegin(); d != plan.draws.rend(); ++d) {
      reversed.draws.push_back(*d);
      reversed.draws.back().row = row_of[d->row];
    }
    for (auto t = plan.tops.rbegin(); t != plan.tops.rend(); ++t) reversed.tops.push_back({row_of[t->row], t->count});
    for (auto l = plan.likeliest.rbegin(); l != plan.likeliest.rend(); ++l) reversed.likeliest.push_back(row_of[*l]);
    // Picks stand in the order of their rows.
    std::vector<size_t> order(plan.picks.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t i) { return row_of[plan.picks[i].row]; });
    for (const size_t i : order) reversed.picks.push_back({row_of[plan.picks[i].row], plan.picks[i].token});
    Answer answer = TRY(inner_->collect(TRY(inner_->submit(std::move(reversed)))));
    if (seconds_) {
      answer.forward_seconds = *seconds_;
      answer.sample_seconds = 0;
    }
    std::ranges::reverse(answer.draws);
    std::ranges::reverse(answer.kept);
    std::ranges::reverse(answer.tops);
    std::ranges::reverse(answer.likeliest);
    if (plan.routes) {
      const auto routes = answer.routes;
      const size_t width = routes.size() / tokens.size();
      for (size_t row = 0; row < tokens.size(); ++row)
        std::copy_n(routes.begin() + static_cast<ptrdiff_t>(row_of[row] * width), width,
                    answer.routes.begin() + static_cast<ptrdiff_t>(row * width));
    }
    const auto picks = answer.picks;
    for (size_t i = 0; i < order.size(); ++i) answer.picks[order[i]] = picks[i];
    for (size_t i = 0; i < answer.draws.size(); ++i)
      drawn_[{ticket, static_cast<int>(i)}] = std::max(answer.draws[i].token, 0);
    answers_.emplace(ticket, std::move(answer));
    return {};
  }

  std::unique_ptr<Executor> inner_;
  const int depth_;
  const std::optional<double> seconds_;
  Ticket last_ = 0;
  std::deque<std::function<Status()>> work_;
  std::map<Ticket, Answer> answers_;
  std::map<std::pair<Ticket, int>, int32_t> drawn_;
};

}  // namespace tandem::model
