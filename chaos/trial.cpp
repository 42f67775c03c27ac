#include "chaos/trial.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "dashboard/run_files.h"

namespace tandem::chaos {

using namespace std::chrono_literals;

namespace {

constexpr auto kTurn = 20ms, kLook = 50ms;
constexpr auto kStopped = 12s;  // one that is not ended before goes on: "slow, and back"
constexpr auto kFullDisk = 3s;
constexpr auto kAskedToEnd = 120s;

std::optional<wire::MessageFault> of_message(Kind kind) {
  switch (kind) {
    case Kind::kDrop:
      return wire::MessageFault::kDrop;
    case Kind::kDelay:
      return wire::MessageFault::kDelay;
    case Kind::kDuplicate:
      return wire::MessageFault::kDuplicate;
    case Kind::kCorrupt:
      return wire::MessageFault::kCorrupt;
    default:
      return std::nullopt;
  }
}

// Whether files of a process may grow. False where it is gone.
bool let_files_grow(int64_t pid, bool may) {
  rlimit limit{};
  if (::prlimit(static_cast<pid_t>(pid), RLIMIT_FSIZE, nullptr, &limit) != 0) return false;
  limit.rlim_cur = may ? limit.rlim_max : 0;
  return ::prlimit(static_cast<pid_t>(pid), RLIMIT_FSIZE, &limit, nullptr) == 0;
}

}  // namespace

Result<Trial> Trial::begin(TrialSettings settings, const Clock& clock) {
  fs::path file = settings.run_dir;
  file += ".faults";
  auto messages = TRY(wire::Faults::create(file));
  if (::setenv(wire::Faults::kVariable, fs::absolute(file).c_str(), 1) != 0)
    return fail(Status::from_errno("setenv", errno));
  return Trial(std::move(settings), clock, std::move(messages));
}

Result<TrialResult> Trial::run(Schedule& schedule, const std::function<bool()>& stop, const OnProgress& on_progress) {
  fs::path log = settings_.run_dir;
  log += ".log";
  const int64_t run = TRY(launcher_.start({.arguments = settings_.arguments, .log = log}));
  last_progress_ = clock_.now();
  std::optional<Time> asked_to_end;
  Fault next = schedule.next();
  Time due = clock_.now() + from_seconds(next.after);
  int done = 0;
  for (;; std::this_thread::sleep_for(kTurn)) {
    const auto endings = launcher_.poll();
    if (!endings.empty()) {
      result_.exit = endings.front().signal != 0 ? 128 + endings.front().signal : endings.front().code;
      break;
    }
    const Time now = clock_.now();
    if (stop() && !asked_to_end) {
      asked_to_end = now;
      launcher_.end(run, run::EndKind::kAsk);
    }
    const bool hung = to_seconds(now - last_progress_) > settings_.hang_seconds;
    if (hung || (asked_to_end && now - *asked_to_end > kAskedToEnd)) {
      result_.hung = hung;
      let_go(true);
      launcher_.end(run, run::EndKind::kNow);
      launcher_.await(run);
      result_.exit = 128 + SIGKILL;
      break;
    }
    TRY(look());
    let_go(false);
    if (asked_to_end || done >= settings_.faults || now < due || processes_.empty()) continue;
    if (TRY(hurt(next))) {
      ++done;
      on_progress(fmt::format("{} faults of {}, step {}", done, settings_.faults, progress_.value("step", 0)));
    }
    next = schedule.next();
    due = now + from_seconds(next.after);
  }
  let_go(true);
  result_.undetected += static_cast<int>(watched_.size());
  for (const Kind kind : {Kind::kDrop, Kind::kDelay, Kind::kDuplicate, Kind::kCorrupt}) {
    const auto count = static_cast<int>(messages_->done(*of_message(kind)));
    if (count > 0) result_.faults[kind] = count;
  }
  return result_;
}

Status Trial::note(std::string_view event, const Process& process, Json more) {
  if (settings_.events.empty()) return {};
  Json line = {{"event", event},
               {"round", settings_.round},
               {"at", clock_.unix_seconds()},
               {"step", progress_.value("step", 0)},
               {"target", process.name}};
  line.update(more);
  std::ofstream file(settings_.events, std::ios::app);
  file << dump_json(line) << "\n";
  file.flush();
  return file ? Status() : Status::unavailable("a fault could not be written down").at(settings_.events.string());
}

Status Trial::look() {
  const Time now = clock_.now();
  if (now < next_look_) return {};
  next_look_ = now + kLook;
  const auto status = dashboard::read_status(settings_.run_dir);
  if (!status || !status->contains("roles") || !(*status)["roles"].is_array()) return {};
  const Json progress = {{"step", status->value("step", 0)},
                         {"phase", status->value("phase", "")},
                         {"episodes", status->value("episodes", Json::object())}};
  if (progress != progress_) {
    progress_ = progress;
    last_progress_ = now;
  }
  TRY(detect((*status)["roles"]));
  processes_.clear();
  if (status->value("state", "") != "running") return {};
  for (const Json& role : (*status)["roles"]) {
    const std::string kind = role.value("name", "");
    const auto pid = role.value("pid", int64_t{0});
    if (pid <= 0 || role.value("state", "") != "ok") continue;
    // One that has not introduced itself yet is given as long as it takes to load a model.
    if (kind != "coordinator" && role.value("waiting_for", "").empty()) continue;
    processes_.push_back({.name = fmt::format("{}-{}", kind, role.value("rank", 0)),
                          .pid = pid,
                          .keeps_books = kind == "coordinator" || kind == "trainer"});
  }
  return {};
}

Status Trial::detect(const Json& roles) {
  Status noted;
  std::erase_if(watched_, [&](const Watched& watched) {
    for (const Json& role : roles) {
      const bool same = fmt::format("{}-{}", role.value("name", ""), role.value("rank", 0)) == watched.process.name;
      if (!same || (role.value("pid", int64_t{0}) == watched.process.pid && role.value("state", "") == "ok")) continue;
      const double seconds = to_seconds(clock_.now() - watched.since);
      result_.detected_seconds.push_back(seconds);
      if (noted) noted = note("noticed", watched.process, {{"kind", to_string(watched.kind)}, {"seconds", seconds}});
      return true;
    }
    return false;
  });
  return noted;
}

Result<bool> Trial::hurt(const Fault& fault) {
  std::vector<Process> targets;
  for (const Process& process : processes_) {
    const auto is_same = [&](const auto& other) { return other.process.name == process.name; };
    // One fault of a process at a time, so that what is noticed is this one.
    if (std::ranges::any_of(watched_, is_same) || std::ranges::any_of(held_, is_same)) continue;
    if (fault.kind != Kind::kDisk || process.keeps_books) targets.push_back(process);
  }
  if (targets.empty()) return false;
  const Process& target = targets[fault.target % targets.size()];
  const Time now = clock_.now();
  if (const auto message = of_message(fault.kind)) {
    messages_->ask(target.name, *message);
    TRY(note("fault", target, {{"kind", to_string(fault.kind)}}));
    return true;
  }
  if (fault.kind == Kind::kDisk) {
    if (!let_files_grow(target.pid, false)) return false;
    held_.push_back({target, fault.kind, now + kFullDisk});
  } else {
    if (::kill(static_cast<pid_t>(target.pid), fault.kind == Kind::kKill ? SIGKILL : SIGSTOP) != 0) return false;
    watched_.push_back({target, fault.kind, now});
    if (fault.kind == Kind::kStop) held_.push_back({target, fault.kind, now + kStopped});
  }
  ++result_.faults[fault.kind];
  TRY(note("fault", target, {{"kind", to_string(fault.kind)}, {"pid", target.pid}}));
  return true;
}

// The process may be gone and its number another's by now, which neither harms.
void Trial::let_go(bool all) {
  const Time now = clock_.now();
  std::erase_if(held_, [&](const Held& held) {
    if (!all && now < held.until) return false;
    if (held.kind == Kind::kStop) {
      ::kill(static_cast<pid_t>(held.process.pid), SIGCONT);
      result_.undetected += static_cast<int>(
          std::erase_if(watched_, [&](const Watched& watched) { return watched.process.pid == held.process.pid; }));
    } else {
      let_files_grow(held.process.pid, true);
    }
    return true;
  });
}

}  // namespace tandem::chaos
