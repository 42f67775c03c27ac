// The agent's loop: decides the next action after each message of the model and each round of calls, and the end.
//
// Pure: no clock, socket, thread or sandbox inside. The shell (agent_session.h) carries out the actions and reports
// their results. At most one piece of work is under way: TakeTurn or RunCalls begins it, TurnTaken, CallsReturned or
// WorkFailed ends it. AgentOver comes once, is the last action, and never while work is under way.
//
// Thread safety: none; one owner.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "envs/episodes/turn.h"
#include "envs/tools/tool.h"

namespace tandem::rollout {

struct AgentLimits {
  int turns = 30;                // messages of the model
  size_t calls_of_turn = 64;     // more are answered with an error
  int same_turns = 3;            // the same calls with the same results so often in a row: it is going in circles
  bool ends_on_change = false;   // the first turn that changes files is the last, as in tasks that end so
  std::optional<Duration> time;  // of everything; work that is under way then is ended
};

enum class AgentEnd : uint8_t {
  kAnswered,     // a message without calls
  kChanged,      // files were changed, and that was to be the end
  kTruncated,    // a message that was cut at a limit
  kTurns,        // no turn was left
  kTime,         // no time was left
  kCircles,      // the same over and over
  kInterrupted,  // somebody asked to stop
  kFailed,       // the model or the sandbox failed
};
std::string_view to_string(AgentEnd end);  // "answered"
// Whether the agent ended by itself: the first two.
inline bool is_whole(AgentEnd end) { return end <= AgentEnd::kChanged; }

struct AgentBegins {};
struct TurnTaken {
  std::vector<envs::ParsedCall> calls;
  bool cut = false;
};
struct CallsReturned {
  std::vector<envs::ToolOutcome> outcomes;
};
struct WorkFailed {
  Status why;  // kCancelled after StopWork
};
struct AgentInterrupted {};
struct TimePassed {};  // deadline() may have come
using AgentEvent = std::variant<AgentBegins, TurnTaken, CallsReturned, WorkFailed, AgentInterrupted, TimePassed>;

struct TakeTurn {
  int turn = 1;
  std::vector<envs::ToolOutcome> replies;  // to the calls of the turn before
};
struct RunCalls {
  int turn = 1;
  std::vector<envs::ParsedCall> calls;
};
struct StopWork {};
struct AgentOver {
  AgentEnd end = AgentEnd::kFailed;
  Status why;  // of kFailed
};
using AgentAction = std::variant<TakeTurn, RunCalls, StopWork, AgentOver>;

class AgentLoop {
 public:
  explicit AgentLoop(const AgentLimits& limits) : limits_(limits) {}

  std::vector<AgentAction> step(const AgentEvent& event, Time now);
  // The time at which to send TimePassed; empty where only work is pending.
  std::optional<Time> deadline() const;

 private:
  std::vector<AgentAction> work_ended(const AgentEvent& event);
  std::vector<AgentAction> message_came(const TurnTaken& taken);
  std::vector<AgentAction> calls_returned(const CallsReturned& returned);
  std::vector<AgentAction> stop(AgentEnd end);
  std::vector<AgentAction> over(AgentEnd end, Status why = {});
  bool goes_in_circles(const std::vector<envs::ToolOutcome>& outcomes);

  struct Round {
    std::vector<envs::ParsedCall> calls;
    std::vector<std::string> outputs;
  };

  AgentLimits limits_;
  int turn_ = 0;
  bool working_ = false, over_ = false;
  std::optional<AgentEnd> stopping_;  // StopWork was said; the end once the work has ended
  std::optional<Time> ends_at_;
  std::vector<envs::ParsedCall> calls_;  // under way
  Round last_;
  int same_ = 0;
};

}  // namespace tandem::rollout
