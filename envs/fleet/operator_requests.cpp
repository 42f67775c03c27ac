#include "envs/fleet/operator_requests.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

namespace tandem::envs {

bool QuestionBudget::take(Time now) {
  if (begun_) left_ = std::min(kAtOnce, left_ + kPerSecond * to_seconds(now - last_));
  begun_ = true;
  last_ = now;
  if (left_ < 1) return false;
  left_ -= 1;
  return true;
}

OperatorRequests::OperatorRequests(WatchedBackend& fleet, const Clock& clock)
    : fleet_(fleet), clock_(clock), queue_(kThreads, kMostWaiting) {}

OperatorRequests::~OperatorRequests() { stop_.request_stop(); }

void OperatorRequests::ask(Result<FleetQuery> query, const std::function<LoopFigures()>& loop, Answer answer) {
  if (!budget_.take(clock_.now()))
    return answer(fail(Status::exhausted("operators ask this environment server too many questions a second")));
  if (!query) return answer(fail(query.error()));
  if (const auto* kill = std::get_if<KillQuery>(&*query)) {
    auto before = fleet_.kill(kill->sandbox);
    if (!before) return answer(fail(before.error()));
    spdlog::warn("an operator ended sandbox {}, which was {}", before->id, to_string(before->state));
    return answer(FleetAnswer(Killed{std::move(*before)}));
  }
  if (const auto* rows = std::get_if<RowsQuery>(&*query)) {
    return later(
        [this, rows = *rows, leases = loop().lease_seconds]() -> Result<FleetAnswer> {
          RowsPage page{.rows = fleet_.rows(rows.after, rows.most), .total = static_cast<uint32_t>(fleet_.size())};
          for (auto& row : page.rows) {
            if (const auto left = leases.find(row.holder.lease); left != leases.end()) row.lease_seconds = left->second;
          }
          return FleetAnswer(std::move(page));
        },
        std::move(answer), false);
  }
  if (const auto* events = std::get_if<EventsQuery>(&*query)) {
    return later(
        [this, events = *events]() -> Result<FleetAnswer> {
          return FleetAnswer(TRY(events.last ? fleet_.last_events(events.most, events.sandbox)
                                             : fleet_.events(events.after, events.sandbox, events.most)));
        },
        std::move(answer), false);
  }
  if (const auto* exec = std::get_if<ExecQuery>(&*query)) {
    if (execs_ >= kMostExecs)
      return answer(fail(Status::exhausted(fmt::format(
          "{} programs of operators are running in sandboxes of this server; try again when one is done", execs_))));
    return later(
        [this, exec = *exec, token = stop_.get_token()]() -> Result<FleetAnswer> {
          return FleetAnswer(TRY(fleet_.exec(exec.sandbox, exec.request, token)));
        },
        std::move(answer), true);
  }
  const LoopFigures own = loop();
  later(
      [this,
       figures =
           ServerFigures{{}, own.episodes, own.waiting, own.queue, own.failed, own.reads.lookups, own.reads.hits, {}}]()
          -> Result<FleetAnswer> {
        ServerFigures all = figures;
        all.fleet = fleet_.figures();
        all.pressure = read_pressure();
        return FleetAnswer(std::move(all));
      },
      std::move(answer), false);
}

void OperatorRequests::later(std::function<Result<FleetAnswer>()> work, Answer answer, bool is_exec) {
  const bool taken = queue_.submit([this, work = std::move(work), answer, is_exec]() -> WorkQueue::Completion {
    return [this, answer, is_exec, outcome = work()] {
      execs_ -= is_exec ? 1 : 0;
      answer(outcome);
    };
  });
  if (taken) {
    execs_ += is_exec ? 1 : 0;
    return;
  }
  answer(fail(Status::exhausted("too many questions of operators are waiting")));
}

}  // namespace tandem::envs
