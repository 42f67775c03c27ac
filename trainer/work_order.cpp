#include "trainer/work_order.h"

#include <fmt/format.h>

#include <utility>

#include "base/overloaded.h"

namespace tandem::trainer {

namespace {

constexpr size_t kKeptReports = 8;

}  // namespace

std::vector<WorkOrder::Action> WorkOrder::step(Event event, Time now) {
  std::vector<Action> actions;
  if (quit_) return actions;
  take(std::move(event), now, actions);
  proceed(now, actions);
  return actions;
}

void WorkOrder::take(Event event, Time now, std::vector<Action>& actions) {
  const auto report_all = [&] {
    for (const auto& [step, report] : reports_) actions.push_back(ReportStep{step, report});
    actions.push_back(ReportCheckpoint{saved_});
  };
  std::visit(Overloaded{[&](Ordered& ordered) {
                          if (ordered.batch.step <= version_ || ordered.batch.step > plan_.steps) return;
                          batches_[ordered.batch.step] = std::move(ordered.batch);
                        },
                        [&](Finish) {
                          finishing_ = true;
                          announced_save_ = false;
                        },
                        [&](Stop) {
                          quit_ = true;
                          actions.push_back(Quit{});
                        },
                        [&](Leave) { finishing_ = leaving_ = true; },
                        [&](Introduced) {
                          batches_.clear();
                          report_all();
                        },
                        [&](Trained& trained) {
                          end(now);
                          batches_.erase(++version_);
                          reports_[version_] = std::move(trained.report);
                          while (reports_.size() > kKeptReports) reports_.erase(reports_.begin());
                          actions.push_back(ReportStep{version_, reports_[version_]});
                          actions.push_back(AnnounceWeights{});
                          const bool is_measured = plan_.measured_every > 0 && version_ % plan_.measured_every == 0;
                          if (version_ % plan_.checkpoint_every == 0 || is_measured || version_ == plan_.steps)
                            save(now, actions);
                        },
                        [&](GivenUp) { end(now); },
                        [&](Saved) {
                          end(now);
                          saved_ = version_;
                          if (!finishing_) actions.push_back(ReportCheckpoint{saved_});
                        },
                        [&](Turn turn) { coordinator_known_ = turn.coordinator_known; }},
             event);
}

void WorkOrder::proceed(Time now, std::vector<Action>& actions) {
  if (busy_ || quit_) return;
  if (finishing_) {
    if (saved_ != version_) return save(now, actions);
    if (!std::exchange(announced_save_, true)) actions.push_back(ReportCheckpoint{saved_});
    if (leaving_ || !coordinator_known_) {
      quit_ = true;
      actions.push_back(Quit{});
    }
    return;
  }
  const auto next = batches_.find(version_ + 1);
  if (next == batches_.end()) return;
  begin(fmt::format("training step {}", next->first), now);
  actions.push_back(Train{next->second});
}

void WorkOrder::begin(std::string what, Time now) {
  busy_ = true;
  working_on_ = std::move(what);
  work_started_ = now;
  idle_seconds_ += to_seconds(work_started_ - work_ended_);
}

void WorkOrder::end(Time now) {
  busy_ = false;
  work_ended_ = now;
}

void WorkOrder::save(Time now, std::vector<Action>& actions) {
  begin(fmt::format("saving checkpoint {}", version_), now);
  actions.push_back(Save{version_});
}

std::string WorkOrder::doing(Time now) const {
  if (busy_) return fmt::format("{} for {:.1f} s", working_on_, to_seconds(now - work_started_));
  return finishing_ ? "saved, waiting for stop" : fmt::format("waiting for batch {}", version_ + 1);
}

}  // namespace tandem::trainer
