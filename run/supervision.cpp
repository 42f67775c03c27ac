#include "run/supervision.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/exit_code.h"

namespace tandem::run {

using namespace std::chrono_literals;

namespace {

constexpr Duration kAskEvery = 1s;
constexpr Duration kReportIsFresh = 2s;
constexpr Duration kQuickDeath = 10s;
constexpr Duration kLongestPause = 5s;
constexpr Duration kPauseAfterCleanEnd = 2s, kPauseWithoutRoom = 1s;
constexpr Duration kPatienceForCheckpoint = 150s;
constexpr Duration kPatienceForLastRoles = 10s;

// What a role lacks whose exit code says that a restart is no help; or null.
const char* lack_of(const Ending& ending) {
  if (ending.signal != 0 || !ending.how.empty()) return nullptr;
  switch (ending.code) {
    case kUsage:
      return "with its config";
    case kUnfit:
      return "as things are";
    case kDamaged:
      return "with what lies in the run directory";
    default:
      return nullptr;
  }
}

}  // namespace

Supervision::Supervision(const Plan& plan) : plan_(plan) {
  for (const wire::Peer& peer : plan.roles) {
    roles_.emplace_back();
    roles_.back().peer = peer;
  }
}

std::vector<Supervision::Action> Supervision::step(const Event& event, Time now) {
  Actions actions;
  if (is_over_ && !std::holds_alternative<Started>(event)) return actions;
  std::visit([&](const auto& which) { on(which, now, actions); }, event);
  return actions;
}

void Supervision::on(const Started& started, Time now, Actions& actions) {
  if (starting_ != started.peer) return;
  Role& role = *std::find_if(roles_.begin(), roles_.end(), [&](const Role& r) { return r.peer == started.peer; });
  if (started.epoch <= role.epoch) return;  // of an earlier life
  starting_.reset();
  if (is_over_) {
    actions.push_back(Stop{{started.process}});
    return;
  }
  role.process = started.process;
  role.epoch = started.epoch;
  role.since = started.unix_seconds;
  role.started = now;
  role.told_to_end = false;
  role.state = Role::State::kStarting;
  if (is_ending_) actions.push_back(Ask{role.process});
  start_next(now, actions);
}

void Supervision::on(const StartFailed& failed, Time now, Actions& actions) {
  if (starting_ != failed.peer) return;
  starting_.reset();
  if (plan_.independent) {
    Role& role = *std::find_if(roles_.begin(), roles_.end(), [&](const Role& r) { return r.peer == failed.peer; });
    role.started = now;
    on_death(role, Ending{.how = "could not be started: " + failed.reason}, now, actions);
    return start_next(now, actions);
  }
  fail(failed.reason, {}, actions);
}

void Supervision::on(const Added& added, Time now, Actions& actions) {
  const bool is_known =
      std::any_of(roles_.begin(), roles_.end(), [&](const Role& role) { return role.peer == added.peer; });
  if (is_known || is_ending_) return;
  roles_.emplace_back();
  roles_.back().peer = added.peer;
  start_next(now, actions);
}

void Supervision::on(const NoRoom& full, Time now, Actions& actions) {
  if (starting_ != full.peer) return;
  starting_.reset();
  Role& role = *std::find_if(roles_.begin(), roles_.end(), [&](const Role& r) { return r.peer == full.peer; });
  role.state = Role::State::kRestarting;
  role.waiting_for = full.why;
  role.restart_at = now + kPauseWithoutRoom;
  start_next(now, actions);
}

void Supervision::on(const Exited& exited, Time now, Actions& actions) {
  const Ending& ending = exited.ending;
  const auto role = std::find_if(roles_.begin(), roles_.end(),
                                 [&](const Role& r) { return r.is_running() && r.process == ending.process; });
  if (role == roles_.end()) return;
  role->process = -1;
  const bool clean = ending.signal == 0 && ending.code == 0 && ending.how.empty();
  if (clean && role->is_coordinator()) {
    is_ending_ = true;
    ending_since_ = now;
    end_ = exited.plan_done ? End::kDone : End::kInterrupted;
    if (end_ == End::kInterrupted && !is_interrupted_) {
      actions.push_back(
          Note{fmt::format("{} (pid {}) was asked to end, by a signal to it alone, and the run ends with it after a "
                           "checkpoint; `tandem run --resume` goes on. To stop a run, interrupt `tandem run`",
                           to_string(role->peer), ending.process)});
    }
    // Its farewell reaches nobody who had not read it when its socket went.
    for (const int64_t process : processes()) actions.push_back(Ask{process});
  }
  if ((!clean || plan_.independent) && !is_ending_) return on_death(*role, ending, now, actions);
  // Told to stop, and the coordinator goes next; one that was stopped by somebody else is started again.
  if (!is_ending_ && ++role->clean_ends > plan_.max_restarts) {
    return fail(fmt::format("{} has ended {} times with code 0, though the run goes on:\n", label_of(role->peer),
                            role->clean_ends),
                role->peer, actions);
  }
  role->state = Role::State::kDone;
  role->restart_at = now + kPauseAfterCleanEnd;
}

void Supervision::on_death(Role& role, const Ending& ending, Time now, Actions& actions) {
  const std::string label = label_of(role.peer);
  const std::string how = !ending.how.empty()  ? ending.how
                          : ending.signal != 0 ? fmt::format("was ended by signal {}", ending.signal)
                                               : fmt::format("ended with code {}", ending.code);
  role.last_cause = how;
  // An independent role is tried again in any case: what it lacks may be on its way.
  const char* const lack = plan_.independent ? nullptr : lack_of(ending);
  if (lack != nullptr) return fail(fmt::format("{} cannot work {}:\n", label, lack), role.peer, actions);
  if (plan_.independent && too_many_deaths(role, now)) {
    return fail_alone(role, fmt::format("{}, and has been started again {} times", how, role.deaths.size() - 1),
                      actions);
  }
  ++role.restarts;
  if (!plan_.independent && role.restarts > plan_.max_restarts) {
    return fail(fmt::format("{} {}, and has been started again {} times:\n", label, how, plan_.max_restarts), role.peer,
                actions);
  }
  actions.push_back(Note{fmt::format("{} {}; starting it again", label, how)});
  // The first restart is at once; one that keeps dying waits longer each time.
  role.quick_deaths = now - role.started < kQuickDeath ? role.quick_deaths + 1 : 0;
  role.restart_at = now + std::min<Duration>(kLongestPause, 1s * std::max(0, role.quick_deaths - 1));
  role.state = Role::State::kRestarting;
}

bool Supervision::too_many_deaths(Role& role, Time now) {
  role.deaths.push_back(now);
  if (plan_.restart_window_seconds > 0)
    std::erase_if(role.deaths, [&](Time death) { return to_seconds(now - death) > plan_.restart_window_seconds; });
  return role.deaths.size() > static_cast<size_t>(plan_.max_restarts);
}

void Supervision::fail_alone(Role& role, std::string why, Actions& actions) {
  role.state = Role::State::kFailed;
  actions.push_back(RoleFailed{role.peer, std::move(why)});
}

std::string Supervision::label_of(const wire::Peer& peer) const {
  const auto label = plan_.labels.find(peer);
  return label == plan_.labels.end() ? to_string(peer) : label->second;
}

void Supervision::on(const Revived& revived, Time now, Actions& actions) {
  const auto role = std::find_if(roles_.begin(), roles_.end(), [&](const Role& r) { return r.peer == revived.peer; });
  if (role == roles_.end() || role->state != Role::State::kFailed || is_ending_) return;
  role->state = Role::State::kRestarting;
  role->deaths.clear();
  role->quick_deaths = 0;
  role->restart_at = now;
  start_next(now, actions);
}

void Supervision::on(const Heard& heard, Time now, Actions&) {
  // After a silence of its own the coordinator has yet to hear from the others.
  if (!report_ || now - last_report_ > kReportIsFresh) informed_since_ = now;
  report_ = heard;
  last_report_ = now;
}

void Supervision::on(const Interrupted& interrupted, Time now, Actions& actions) {
  if (std::exchange(is_interrupted_, true)) {
    if (interrupted.by == Interrupted::By::kPerson) fail("interrupted twice: ended at once", {}, actions);
    return;
  }
  if (plan_.independent) {
    is_ending_ = true;
    ending_since_ = now;
    end_ = End::kInterrupted;
    for (const int64_t process : processes()) actions.push_back(Ask{process});
    return;
  }
  finish_deadline_ = now + kPatienceForCheckpoint;
  next_ask_ = now;
  actions.push_back(Note{"stopping: waiting for a checkpoint (interrupt again to end at once)"});
}

void Supervision::on(const DirectoryLost& lost, Time, Actions& actions) { fail(lost.how, {}, actions); }

void Supervision::on(const GivenUp& given_up, Time, Actions& actions) { fail(given_up.why, {}, actions); }

void Supervision::on(const Tick&, Time now, Actions& actions) {
  watch_silence(now, actions);
  if (is_ending_) {
    const Duration patience = plan_.independent ? from_seconds(plan_.end_seconds) : kPatienceForLastRoles;
    if (now - ending_since_ > patience) {
      stop_all(actions);
      return finish({.end = end_}, actions);
    }
    if (!starting_ && processes().empty()) return finish({.end = end_}, actions);
  } else if (is_interrupted_ && now > finish_deadline_) {
    return fail("the run did not reach a checkpoint within 150 s of being asked to stop", {}, actions);
  }
  if (now >= next_ask_) {
    next_ask_ = now + kAskEvery;
    if (is_interrupted_ && !is_ending_)
      actions.push_back(AskFinish{});
    else
      actions.push_back(AskReport{});
  }
  start_next(now, actions);
}

void Supervision::watch_silence(Time now, Actions& actions) {
  const double limit = plan_.silence_seconds;
  const bool informed = report_ && now - last_report_ < kReportIsFresh;
  const auto end_silent = [&](Role& role, double silent, const std::string& doing) {
    role.state = Role::State::kStalled;
    role.told_to_end = true;
    role.started = now;  // its death counts as a quick one
    actions.push_back(EndSilent{role.peer, role.process, silent, doing});
  };
  const auto state_after = [&](double silent) { return silent > limit / 2 ? Role::State::kStalled : Role::State::kOk; };
  for (Role& role : roles_) {
    if (!role.is_running() || role.told_to_end) continue;
    if (role.is_coordinator()) {
      const double silent = to_seconds(now - std::max(last_report_, role.started));
      role.state = report_ ? state_after(silent) : Role::State::kStarting;
      if (silent >= limit) end_silent(role, silent, "keeping the books");
      continue;
    }
    // What the coordinator does not know while it is away itself says nothing about the others.
    if (!informed) continue;
    const auto seen = report_->roles.find(role.peer);
    if (seen == report_->roles.end() || seen->second.epoch != role.epoch) {
      // It has not introduced itself. Loading a model takes time, and only a coordinator that is there can be told.
      role.waiting_for = "starting";
      const double silent = to_seconds(now - std::max(role.started, informed_since_));
      if (silent >= std::max(limit, plan_.start_seconds)) end_silent(role, silent, "starting");
      continue;
    }
    role.waiting_for = seen->second.doing;
    role.state = state_after(seen->second.silent_seconds);
    if (seen->second.silent_seconds >= limit) end_silent(role, seen->second.silent_seconds, role.waiting_for);
  }
}

void Supervision::start_next(Time now, Actions& actions) {
  if (starting_ || is_ending_) return;
  const auto due = std::find_if(roles_.begin(), roles_.end(), [&](const Role& r) {
    return !r.is_running() && r.state != Role::State::kFailed && now >= r.restart_at;
  });
  if (due == roles_.end()) return;
  starting_ = due->peer;
  actions.push_back(Start{due->peer});
}

void Supervision::stop_all(Actions& actions) {
  actions.push_back(Stop{processes()});
  for (Role& role : roles_) role.process = -1;
}

void Supervision::finish(Finish how, Actions& actions) {
  is_ending_ = is_over_ = true;
  end_ = how.end;
  actions.push_back(std::move(how));
}

void Supervision::fail(std::string failure, std::optional<wire::Peer> quoted, Actions& actions) {
  stop_all(actions);
  finish({.end = End::kFailed, .failure = std::move(failure), .quoted = quoted}, actions);
}

std::vector<int64_t> Supervision::processes() const {
  std::vector<int64_t> running;
  for (const Role& role : roles_) {
    if (role.is_running()) running.push_back(role.process);
  }
  return running;
}

std::string_view Supervision::state() const {
  if (is_over_ && end_ != End::kInterrupted) return end_ == End::kFailed ? "failed" : "done";
  if (is_interrupted_ || is_ending_) return "stopping";
  return report_ ? "running" : "starting";
}

std::string_view Supervision::end() const {
  if (!is_over_) return "";
  if (end_ == End::kInterrupted) return "interrupted";
  return state();
}

std::string_view Supervision::Role::shown_state() const {
  switch (state) {
    case State::kDone:
      return "ok";
    case State::kFailed:
      return "failed";
    case State::kRestarting:
      return "restarting";
    case State::kStarting:
    case State::kOk:
      return is_running() ? "ok" : "dead";
    case State::kStalled:
      return is_running() ? "stalled" : "dead";
  }
  return "dead";
}

}  // namespace tandem::run
