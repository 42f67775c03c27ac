#include "run/supervisor.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <ctime>

#include "base/exit_code.h"
#include "base/text.h"
#include "dashboard/run_files.h"
#include "rollout/coordinator.h"
#include "run/starts.h"

namespace tandem::run {

using namespace std::chrono_literals;

namespace {

// "14:03:07", for people beside this machine's logs.
std::string format_clock(double unix_seconds) {
  const auto seconds = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  return fmt::format("{:02}:{:02}:{:02}", parts.tm_hour, parts.tm_min, parts.tm_sec);
}

// Removes the files and folders that were being written when their writer was killed; returns their paths.
std::vector<fs::path> remove_unfinished(const fs::path& run_dir) {
  std::vector<fs::path> unfinished;
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(run_dir, error); it != fs::recursive_directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename();
    if (!(name.starts_with('.') && name.ends_with(".tmp")) && !name.starts_with("model.tmp-")) continue;
    unfinished.push_back(it->path());
    it.disable_recursion_pending();
  }
  for (const fs::path& path : unfinished) fs::remove_all(path, error);
  return unfinished;
}

}  // namespace

Supervisor::Supervisor(const fs::path& run_dir, const RunConfig& config, const Topology& topology,
                       const RunLayout& layout, Launcher& launcher, const Clock& clock, int attempt)
    : run_dir_(fs::absolute(run_dir)),
      config_(config),
      layout_(layout),
      launcher_(launcher),
      clock_(clock),
      attempt_(attempt) {
  for (const Place& place : topology.places) {
    if (!place.found_at) roles_.push_back({.peer = place.peer});
  }
  constructed_ = clock.now();
  const auto text = read_file(run_dir_ / "status.json", 1 << 20);
  const auto before = text ? parse_json(*text) : Result<Json>(Json::object());
  if (!before || !before->is_object()) return;  // it is of no other use, and is written anew
  earlier_seconds_ = dashboard::number_at(*before, "wall_seconds");
  const Json restarts = before->value("restarts", Json::object());
  for (const auto& [role, count] : restarts.items())
    earlier_restarts_[role] = count.is_number_integer() ? count.get<int>() : 0;
}

Supervisor::~Supervisor() {
  kill_all();
  std::error_code ignored;
  fs::remove_all(layout_.socket_folder(), ignored);
  remove_unfinished(run_dir_);  // of roles that had to be killed
}

std::vector<std::string> Supervisor::sweep() {
  std::vector<std::string> found;
  const std::string marker = fmt::format("--run-dir{}{}", '\0', run_dir_.string());
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = std::stoi(name);
    if (pid == ::getpid()) continue;
    const auto command = read_file(entry.path() / "cmdline", 1 << 16);
    if (!command || command->find(std::string_view("\0role\0", 6)) == std::string::npos) continue;
    const size_t at = command->find(marker);
    if (at == std::string::npos || (at + marker.size() < command->size() && (*command)[at + marker.size()] != '\0'))
      continue;
    ::kill(pid, SIGKILL);
    found.push_back(fmt::format("ended process {} of an earlier life of this run", pid));
  }
  if (fs::exists(layout_.socket_folder())) {
    fs::remove_all(layout_.socket_folder(), error);
    found.push_back(fmt::format("removed {}", layout_.socket_folder().string()));
  }
  for (const fs::path& path : remove_unfinished(run_dir_))
    found.push_back(fmt::format("removed {}, which was not finished", path.string()));
  return found;
}

fs::path Supervisor::log_of(const Role& role) const {
  return run_dir_ / "logs" / fmt::format("attempt_{}", attempt_) / fmt::format("{}.log", role.label());
}

Status Supervisor::start() {
  TRY(make_directories(run_dir_ / "logs" / fmt::format("attempt_{}", attempt_)));
  TRY(make_private_folder(layout_.socket_folder()));
  const wire::Peer self{wire::Role::kSupervisor, 0};
  const wire::Identity identity{
      .sender = to_string(self), .epoch = TRY(count_start(run_dir_, self, clock_)), .run = layout_.run_id()};
  const wire::Address coordinator = layout_.address({wire::Role::kCoordinator, 0});
  coordinator_ = TRY(wire::Socket::connect(context_, coordinator.text(), identity));
  last_report_ = clock_.now();
  for (Role& role : roles_) TRY(spawn(role));
  return {};
}

Status Supervisor::spawn(Role& role) {
  role.epoch = TRY(count_start(run_dir_, role.peer, clock_));
  role.process =
      TRY(launcher_.start({.arguments = {"role", role.name(), "--run-dir", run_dir_.string(), "--rank",
                                         std::to_string(role.peer.rank), "--epoch", std::to_string(role.epoch)},
                           .log = log_of(role)}));
  role.started = clock_.now();
  role.since = clock_.unix_seconds();
  role.state = "starting";
  return {};
}

bool Supervisor::turn() {
  wire::Socket* const sockets[] = {&*coordinator_};
  wire::wait(sockets, 100ms);
  hear();
  reap();
  if (!over_) watch_silence();
  const Time now = clock_.now();
  for (Role& role : roles_) {
    if (role.is_running() || ending_ || over_ || now < role.restart_at) continue;
    if (const Status status = spawn(role); !status.ok()) finish(End::kFailed, status.message());
  }
  if (interrupted_ && !ending_ && now > finish_deadline_) {
    finish(End::kFailed, "the run did not reach a checkpoint within 150 s of being asked to stop");
  }
  if (ending_ && now - ending_since_ > 10s) kill_all();
  if (ending_ && std::none_of(roles_.begin(), roles_.end(), [](const Role& r) { return r.is_running(); })) over_ = true;
  if (over_ || now - last_status_ > 500ms) write_status();
  return !over_;
}

void Supervisor::hear() {
  const Time now = clock_.now();
  if (now - last_watch_ > 1s) {
    last_watch_ = now;
    wire::Outgoing message;
    if (interrupted_ && !ending_)
      message.body().setFinish();
    else
      message.body().setWatch();
    (void)coordinator_->send("", message);
  }
  while (auto message = coordinator_->receive()) {
    const auto body = message->body();
    if (!body.isStatusReport()) continue;
    if (auto parsed = parse_json(std::string_view(body.getStatusReport().cStr()))) {
      // After a silence of its own the coordinator has yet to hear from the others.
      if (report_.empty() || now - last_report_ > 2s) informed_since_ = now;
      report_ = std::move(*parsed);
      last_report_ = now;
    }
  }
}

void Supervisor::interrupt() {
  if (interrupted_) return finish(End::kFailed, "interrupted twice: ended at once");
  interrupted_ = true;
  finish_deadline_ = clock_.now() + 150s;
  last_watch_ = {};
  notes_.push_back("stopping: waiting for a checkpoint (interrupt again to end at once)");
}

void Supervisor::reap() {
  for (const Ending& ending : launcher_.poll()) {
    for (Role& role : roles_) {
      if (role.process == ending.process) on_exit(role, ending);
    }
  }
}

void Supervisor::on_exit(Role& role, const Ending& ending) {
  const Time now = clock_.now();
  role.process = -1;
  const bool clean = ending.signal == 0 && ending.code == 0;
  if (clean && role.is_coordinator()) {
    // Its last word may still be on the way.
    for (const Time limit = now + 500ms; !report_.value("last", false) && clock_.now() < limit;) {
      wire::Socket* const sockets[] = {&*coordinator_};
      if (wire::wait(sockets, 50ms)) hear();
    }
    // It goes when the plan is done, or when the checkpoint that was asked for is there; its log says which.
    const auto ledger = rollout::read_books(run_dir_, [this] { return plan_of(config_, run_dir_); });
    if (ledger) report_.update(rollout::progress_of(*ledger));  // which is on disk even where that word was lost
    ending_ = true;
    ending_since_ = now;
    end_ = ledger && ledger->finished() ? End::kDone : End::kInterrupted;
    // Its farewell reaches nobody who had not read it when its socket went.
    for (const Role& other : roles_) {
      if (other.is_running()) launcher_.end(other.process, EndKind::kAsk);
    }
  }
  if (clean || ending_) {
    // Told to stop, and the coordinator goes next; one that was stopped by somebody else is started again.
    role.state = "done";
    role.restart_at = now + 2s;
    return;
  }
  const auto is = [&](int expected) { return ending.signal == 0 && ending.code == expected; };
  const char* lacking = is(kUsage)     ? "with its config"
                        : is(kUnfit)   ? "on this machine"
                        : is(kDamaged) ? "with what lies in the run directory"
                                       : nullptr;
  if (lacking != nullptr) {
    return finish(End::kFailed, fmt::format("{} cannot work {}:\n{}", role.label(), lacking, last_lines(role)));
  }
  const std::string how = ending.signal != 0 ? fmt::format("was ended by signal {}", ending.signal)
                                             : fmt::format("ended with code {}", ending.code);
  if (++role.restarts > config_.run.max_restarts) {
    return finish(End::kFailed, fmt::format("{} {}, and has been started again {} times:\n{}", role.label(), how,
                                            config_.run.max_restarts, last_lines(role)));
  }
  notes_.push_back(fmt::format("{} {}; starting it again", role.label(), how));
  // The first restart is at once; one that keeps dying waits longer each time.
  role.quick_deaths = now - role.started < 10s ? role.quick_deaths + 1 : 0;
  role.restart_at = now + std::min(5s, 1s * std::max(0, role.quick_deaths - 1));
  role.state = "restarting";
}

void Supervisor::watch_silence() {
  const Time now = clock_.now();
  const double limit = config_.run.silence_seconds;
  const bool informed = !report_.empty() && now - last_report_ < 2s;
  for (Role& role : roles_) {
    if (!role.is_running()) continue;
    if (role.is_coordinator()) {
      const double silent = to_seconds(now - std::max(last_report_, role.started));
      role.state = report_.empty() ? "starting" : silent > limit / 2 ? "stalled" : "ok";
      if (silent >= limit) end_silent(role, silent, "keeping the books");
      continue;
    }
    // What the coordinator does not know while it is away itself says nothing about the others.
    if (!informed) continue;
    const Json peer = report_.value("roles", Json::object()).value(role.label(), Json::object());
    if (peer.value("epoch", uint64_t{0}) != role.epoch) {
      // It has not introduced itself. Loading a model takes time, and only a coordinator that is there can be told.
      role.waiting_for = "starting";
      const double silent = to_seconds(now - std::max(role.started, informed_since_));
      if (silent >= std::max(limit, config_.run.start_seconds)) end_silent(role, silent, "starting");
      continue;
    }
    const double silent = peer.value("silent", 0.0);
    role.waiting_for = peer.value("doing", "");
    role.state = silent > limit / 2 ? "stalled" : "ok";
    if (silent >= limit) end_silent(role, silent, role.waiting_for);
  }
}

void Supervisor::end_silent(Role& role, double silent, const std::string& doing) {
  role.state = "stalled";
  notes_.push_back(fmt::format("{} (pid {}) has not answered for {:.1f} s, since {}; it was {}; ending it",
                               role.label(), role.process, silent, format_clock(clock_.unix_seconds() - silent),
                               doing));
  launcher_.end(role.process, EndKind::kNow);
  role.started = clock_.now();
}

void Supervisor::finish(End end, std::string failure) {
  if (ending_ && end == End::kDone) return;
  ending_ = true;
  ending_since_ = clock_.now() - 11s;  // nothing to wait for
  end_ = end;
  if (failure_.empty()) failure_ = std::move(failure);
  kill_all();
}

void Supervisor::kill_all() {
  for (Role& role : roles_) {
    if (role.is_running()) launcher_.end(role.process, EndKind::kNow);
  }
  for (Role& role : roles_) {
    if (!role.is_running()) continue;
    launcher_.await(role.process);
    role.process = -1;
  }
}

void Supervisor::write_status() {
  last_status_ = clock_.now();
  const std::string phase = report_.empty() ? "starting" : report_.value("phase", "starting");
  std::string state = "running";
  if (report_.empty()) state = "starting";
  if (interrupted_ || ending_) state = "stopping";
  if (over_) state = end_ == End::kFailed ? "failed" : "done";
  status_ = {{"state", state},
             {"phase", phase},
             {"step", report_.value("step", 0)},
             {"steps", config_.run.steps},
             {"version", report_.value("step", 0)},
             {"pid", ::getpid()},
             {"time", clock_.unix_seconds()},
             {"wall_seconds", wall_seconds()},
             {"restarts", restarts()},
             {"roles", Json::array()}};
  for (const Role& role : roles_) {
    const bool dead = !role.is_running() && role.state != "done" && role.state != "restarting";
    std::string shown = role.state == "starting" ? "ok" : role.state == "done" ? "ok" : role.state;
    status_["roles"].push_back({{"name", role.name()},
                                {"rank", role.peer.rank},
                                {"pid", role.process},
                                {"state", dead ? "dead" : shown},
                                {"since", role.since},
                                {"waiting_for", role.waiting_for},
                                {"restarts", role.restarts}});
  }
  status_["episodes"] = report_.empty() ? Json::object() : report_.value("episodes", Json::object());
  (void)write_file(run_dir_ / "status.json", dump_json(status_) + "\n");
}

std::map<std::string, int> Supervisor::restarts() const {
  std::map<std::string, int> counts = earlier_restarts_;
  for (const Role& role : roles_) counts[role.name()] += role.restarts;
  return counts;
}

double Supervisor::wall_seconds() const { return earlier_seconds_ + to_seconds(clock_.now() - constructed_); }

std::string Supervisor::last_lines(const Role& role) const {
  const auto text = read_file(log_of(role), 64 << 20);
  if (!text) return "";
  const auto lines = split(trim(*text), '\n');
  std::string last;
  for (size_t i = lines.size() > 5 ? lines.size() - 5 : 0; i < lines.size(); ++i)
    last += fmt::format("  {}\n", lines[i]);
  return last + fmt::format("  ({})", log_of(role).string());
}

}  // namespace tandem::run
