#include "rollout/agent/agent_session.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "envs/episodes/turn.h"

namespace tandem::rollout {
namespace {

// What happens to the loop, from whatever thread.
class Inbox {
 public:
  void put(AgentEvent event) {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_one();
  }
  // The next event; TimePassed where none came before `deadline`.
  AgentEvent take(std::optional<Time> deadline) {
    std::unique_lock lock(mutex_);
    const auto any = [&] { return !events_.empty(); };
    if (!deadline) {
      changed_.wait(lock, any);  // for work that has deadlines of its own
    } else if (!changed_.wait_until(lock, *deadline, any)) {
      return TimePassed{};
    }
    AgentEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<AgentEvent> events_;
};

class Session {
 public:
  Session(AgentModel& model, envs::Sandbox& sandbox, const AgentLimits& limits, const Clock& clock,
          AgentListener& listener)
      : model_(model), sandbox_(sandbox), loop_(limits), clock_(clock), listener_(listener) {}

  AgentRecord run(const std::stop_token& interrupt) {
    record_.began = clock_.unix_seconds();
    const std::stop_callback on_interrupt(interrupt, [this] { inbox_.put(AgentInterrupted{}); });
    carry_out(loop_.step(AgentBegins{}, clock_.now()));
    while (!over_) {
      auto event = inbox_.take(loop_.deadline());
      if (!std::holds_alternative<AgentInterrupted>(event) && !std::holds_alternative<TimePassed>(event)) end_work();
      carry_out(loop_.step(event, clock_.now()));
    }
    end_work();
    record_.ended = clock_.unix_seconds();
    return std::move(record_);
  }

 private:
  void carry_out(std::vector<AgentAction> actions) {
    for (auto& action : actions) {
      if (auto* turn = std::get_if<TakeTurn>(&action)) {
        start([this, turn = std::move(*turn)](const std::stop_token& stop) { return take_turn(turn, stop); });
      } else if (auto* calls = std::get_if<RunCalls>(&action)) {
        start([this, calls = std::move(*calls)](const std::stop_token& stop) { return run_calls(calls, stop); });
      } else if (std::holds_alternative<StopWork>(action)) {
        work_.request_stop();
      } else {
        auto& end = std::get<AgentOver>(action);
        record_.end = end.end;
        record_.why = std::move(end.why);
        over_ = true;
      }
    }
  }

  // One piece of work at a time has a thread, and the record and the listener to itself.
  template <typename Work>
  void start(Work work) {
    work_ = std::jthread([this, work = std::move(work)](const std::stop_token& stop) { inbox_.put(work(stop)); });
  }
  void end_work() {
    if (work_.joinable()) work_.join();
  }

  AgentEvent take_turn(const TakeTurn& action, const std::stop_token& stop) {
    listener_.turn_begins(action.turn);
    const TurnListener hear{.text = [this](std::string_view piece) { listener_.text(piece); },
                            .trouble = [this](const std::string& note) { listener_.trouble(note); }};
    AgentRound round{.began = clock_.unix_seconds()};
    auto turn = model_.turn(action.replies, hear, stop);
    if (!turn) return WorkFailed{std::move(turn).error()};
    round.turn = std::move(*turn);
    round.ended = clock_.unix_seconds();
    record_.rounds.push_back(std::move(round));
    const auto& taken = record_.rounds.back();
    listener_.turn_taken(action.turn, taken);
    return TurnTaken{taken.turn.calls, !taken.turn.cut_by.empty()};
  }

  AgentEvent run_calls(const RunCalls& action, const std::stop_token& stop) {
    auto& round = record_.rounds.back();
    std::map<size_t, envs::ToolOutcome> ended;
    const auto on_outcome = [&](size_t i, const envs::ToolOutcome& outcome) {
      ended.emplace(i, outcome);
      listener_.call_ended(action.turn, i, round.turn, outcome);
    };
    auto outcomes = envs::run_turn(sandbox_, action.calls, stop, on_outcome);
    // Those before the first that did not end, so that each is still beside its call.
    for (auto next = ended.find(0); next != ended.end(); next = ended.find(round.outcomes.size()))
      round.outcomes.push_back(next->second);
    if (!outcomes) return WorkFailed{std::move(outcomes).error()};
    return CallsReturned{std::move(*outcomes)};
  }

  AgentModel& model_;
  envs::Sandbox& sandbox_;
  AgentLoop loop_;
  const Clock& clock_;
  AgentListener& listener_;
  AgentRecord record_;
  bool over_ = false;
  Inbox inbox_;
  std::jthread work_;  // uses what stands above
};

}  // namespace

AgentRecord run_agent(AgentModel& model, envs::Sandbox& sandbox, const AgentLimits& limits, const Clock& clock,
                      AgentListener& listener, const std::stop_token& interrupt) {
  return Session(model, sandbox, limits, clock, listener).run(interrupt);
}

}  // namespace tandem::rollout
