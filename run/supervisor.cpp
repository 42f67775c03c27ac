#include "run/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <deque>

#include "base/json_file.h"
#include "base/overloaded.h"
#include "base/text.h"
#include "dashboard/run_files.h"
#include "rollout/books/failures.h"
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

Supervision::Plan plan_for(const RunConfig& config, const Topology& topology) {
  Supervision::Plan plan{.max_restarts = config.run.max_restarts,
                         .silence_seconds = config.run.silence_seconds,
                         .start_seconds = config.run.start_seconds};
  for (const Place& place : topology.places) {
    if (!place.found_at) plan.roles.push_back(place.peer);
  }
  return plan;
}

// What a report of the coordinator says of each role.
Supervision::Heard read_report(const Json& report, const std::vector<Supervision::Role>& roles) {
  Supervision::Heard heard;
  const Json lines = report.value("roles", Json::object());
  for (const auto& role : roles) {
    const Json line = lines.value(to_string(role.peer), Json::object());
    heard.roles[role.peer] = {.epoch = line.value("epoch", uint64_t{0}),
                              .silent_seconds = line.value("silent", 0.0),
                              .doing = line.value("doing", "")};
  }
  return heard;
}

}  // namespace

Supervisor::Supervisor(const fs::path& run_dir, const RunConfig& config, const Topology& topology,
                       const RunLayout& layout, Launcher& launcher, const Clock& clock, int attempt)
    : run_dir_(fs::absolute(run_dir)),
      directory_(::open(run_dir_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
      config_(config),
      layout_(layout),
      launcher_(launcher),
      clock_(clock),
      attempt_(attempt),
      supervision_(plan_for(config, topology)) {
  constructed_ = clock.now();
  const auto before = dashboard::read_status(run_dir_);
  if (!before) return;  // it is of no other use, and is written anew
  earlier_seconds_ = dashboard::number_at(*before, "wall_seconds");
  const Json restarts = before->value("restarts", Json::object());
  for (const auto& [role, count] : restarts.items())
    earlier_restarts_[role] = count.is_number_integer() ? count.get<int>() : 0;
}

Supervisor::~Supervisor() {
  stop(supervision_.processes());
  std::error_code ignored;
  fs::remove_all(layout_.socket_folder(), ignored);
  if (holds_directory_) remove_unfinished(run_dir_);  // of roles that had to be killed
}

std::vector<std::string> Supervisor::sweep(const fs::path& run_dir, const RunLayout& layout) {
  std::vector<std::string> found;
  const std::string marker = fmt::format("--run-dir{}{}", '\0', fs::absolute(run_dir).string());
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
  if (fs::exists(layout.socket_folder())) {
    fs::remove_all(layout.socket_folder(), error);
    found.push_back(fmt::format("removed {}", layout.socket_folder().string()));
  }
  for (const fs::path& path : remove_unfinished(run_dir))
    found.push_back(fmt::format("removed {}, which was not finished", path.string()));
  return found;
}

fs::path Supervisor::log_of(const wire::Peer& peer) const {
  return run_dir_ / "logs" / fmt::format("attempt_{}", attempt_) / fmt::format("{}.log", to_string(peer));
}

Status Supervisor::start() {
  TRY(make_directories(run_dir_ / "logs" / fmt::format("attempt_{}", attempt_)));
  TRY(make_private_folder(layout_.socket_folder()));
  const wire::Peer self{wire::Role::kSupervisor, 0};
  const auto epoch = TRY(count_start(run_dir_, self, clock_));
  const wire::Identity identity{.sender = to_string(self), .epoch = epoch, .run = layout_.run_id()};
  const auto lines = TRY(Lines::of(layout_));
  coordinator_ = TRY(wire::Socket::connect(context_, lines.coordinator().text(), identity, lines.secret()));
  apply(Supervision::Tick{});
  return start_error_;
}

bool Supervisor::turn() {
  wire::Socket* const sockets[] = {&*coordinator_};
  wire::wait(sockets, 100ms);
  check_directory();
  receive();
  reap();
  apply(Supervision::Tick{});
  if (!holds_directory_) return false;
  if (supervision_.is_over() || clock_.now() - last_status_ > 500ms) write_status();
  return !supervision_.is_over();
}

void Supervisor::check_directory() {
  struct stat here {
  }, ours{};
  if (!directory_ || ::fstat(directory_.get(), &ours) != 0) return;
  if (::stat(run_dir_.c_str(), &here) == 0 && here.st_ino == ours.st_ino && here.st_dev == ours.st_dev) return;
  std::error_code error;
  const fs::path now_at = fs::read_symlink(fmt::format("/proc/self/fd/{}", directory_.get()), error);
  const bool is_gone = error || ours.st_nlink == 0;
  lose_directory(is_gone ? "the run directory was removed while the run was on"
                         : fmt::format("the run directory was moved to {} while the run was on", now_at.string()));
}

void Supervisor::lose_directory(std::string how) {
  holds_directory_ = false;
  apply(Supervision::DirectoryLost{std::move(how)});
}

void Supervisor::give_up(std::string why) { apply(Supervision::GivenUp{std::move(why)}); }

void Supervisor::interrupt(Supervision::Interrupted how) { apply(how); }

void Supervisor::apply(Supervision::Event event) {
  std::deque<Supervision::Event> events;
  events.push_back(std::move(event));
  for (; !events.empty(); events.pop_front()) {
    for (const auto& action : supervision_.step(events.front(), clock_.now())) {
      if (const auto* start = std::get_if<Supervision::Start>(&action))
        events.push_back(spawn(start->peer));
      else
        perform(action);
    }
  }
}

void Supervisor::perform(const Supervision::Action& action) {
  std::visit(Overloaded{[](const Supervision::Start&) {},  // spawn() does it
                        [&](const Supervision::Ask& ask) { launcher_.end(ask.process, EndKind::kAsk); },
                        [&](const Supervision::EndSilent& end) {
                          note(fmt::format("{} (pid {}) has not answered for {:.1f} s, since {}; it was {}; ending it",
                                           to_string(end.peer), launcher_.where(end.process).pid, end.silent_seconds,
                                           format_clock(clock_.unix_seconds() - end.silent_seconds), end.doing));
                          launcher_.end(end.process, EndKind::kNow);
                        },
                        [&](const Supervision::AskReport&) {
                          wire::Outgoing message;
                          message.body().setWatch();
                          (void)coordinator_->send("", message);
                        },
                        [&](const Supervision::AskFinish&) {
                          wire::Outgoing message;
                          message.body().setFinish();
                          (void)coordinator_->send("", message);
                        },
                        [&](const Supervision::Stop& all) { stop(all.processes); },
                        [&](const Supervision::Note& said) { note(said.text); },
                        [](const Supervision::RoleFailed&) {},  // roles of a run are not independent
                        [&](const Supervision::Finish& finish) {
                          end_ = finish.end;
                          failure_ = finish.failure + (finish.quoted ? last_lines(*finish.quoted) : "");
                        }},
             action);
}

void Supervisor::note(std::string text) {
  notes_.push_back(std::move(text));
  if (!holds_directory_) return;
  // What happened is looked for where the roles' logs are. A log that cannot be written costs the run nothing else.
  const fs::path path = log_of({wire::Role::kSupervisor, 0});
  const FileDescriptor log(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (log)
    (void)write_all(log.get(), fmt::format("{} {}\n", format_clock(clock_.unix_seconds()), notes_.back()),
                    path.string());
}

Supervision::Event Supervisor::spawn(const wire::Peer& peer) {
  if (std::string why = launcher_.no_room_for(peer); !why.empty()) return Supervision::NoRoom{peer, std::move(why)};
  const auto launch = [&]() -> Result<Supervision::Started> {
    const uint64_t epoch = TRY(count_start(run_dir_, peer, clock_));
    const int64_t process =
        TRY(launcher_.start({.arguments = {"role", std::string(to_string(peer.role)), "--run-dir", run_dir_.string(),
                                           "--rank", std::to_string(peer.rank), "--epoch", std::to_string(epoch)},
                             .log = log_of(peer),
                             .peer = peer}));
    return Supervision::Started{peer, process, epoch, clock_.unix_seconds()};
  };
  auto started = launch();
  if (started) return *started;
  start_error_ = std::move(started).error();
  return Supervision::StartFailed{peer, start_error_.message()};
}

void Supervisor::receive() {
  while (auto message = coordinator_->receive()) {
    const auto body = message->body();
    if (!body.isStatusReport()) continue;
    auto parsed = parse_json(std::string_view(body.getStatusReport().cStr()));
    if (!parsed || !parsed->is_object()) continue;
    report_ = std::move(*parsed);
    note_failures();
    if (const auto why = report_.find("given_up"); why != report_.end() && why->is_string())
      give_up(why->get<std::string>());
    else
      apply(read_report(report_, supervision_.roles()));
  }
}

// Each kind of reason once, and again when there are ten times as many.
void Supervisor::note_failures() {
  for (const auto& entry : rollout::Failures::of(report_.value("failures", Json())).report()) {
    const auto reason = entry["reason"].get<std::string>();
    const auto count = entry["count"].get<uint64_t>();
    uint64_t& next = next_failure_note_.try_emplace(reason, 1).first->second;
    if (count < next) continue;
    while (next <= count) next *= 10;
    note(fmt::format("{} without a reward, the last for episode {}: {}",
                     count == 1 ? "one attempt" : fmt::format("{} attempts", count), entry["episode"].get<uint64_t>(),
                     reason));
  }
}

void Supervisor::reap() {
  const auto endings = launcher_.poll();
  for (std::string& text : launcher_.news()) note(std::move(text));
  for (const wire::Peer& peer : launcher_.more_roles()) apply(Supervision::Added{peer});
  for (const Ending& ending : endings) {
    const auto& roles = supervision_.roles();
    const bool coordinator_left =
        ending.signal == 0 && ending.code == 0 && std::any_of(roles.begin(), roles.end(), [&](const auto& role) {
          return role.is_coordinator() && role.process == ending.process;
        });
    apply(Supervision::Exited{ending, coordinator_left && await_plan_end()});
  }
}

// Whether the plan is done, now that the coordinator has left. It goes when that is so, or when the checkpoint that was
// asked for is there; its log says which.
bool Supervisor::await_plan_end() {
  // Its last word may still be on the way.
  for (const Time limit = clock_.now() + 500ms; !report_.value("last", false) && clock_.now() < limit;) {
    wire::Socket* const sockets[] = {&*coordinator_};
    if (wire::wait(sockets, 50ms)) receive();
  }
  const auto ledger = rollout::read_books(run_dir_, [this] { return plan_of(config_, run_dir_); });
  if (ledger) report_.update(rollout::progress_of(*ledger));  // which is on disk even where that word was lost
  return ledger && ledger->finished();
}

void Supervisor::stop(const std::vector<int64_t>& processes) {
  for (const int64_t process : processes) launcher_.end(process, EndKind::kNow);
  for (const int64_t process : processes) launcher_.await(process);
}

void Supervisor::write_status() {
  last_status_ = clock_.now();
  status_ = {{"state", supervision_.state()},
             {"end", supervision_.is_over() ? Json(supervision_.end()) : Json()},
             {"phase", report_.value("phase", "starting")},
             {"step", report_.value("step", 0)},
             {"steps", config_.run.steps},
             {"version", report_.value("step", 0)},
             {"pid", ::getpid()},
             {"time", clock_.unix_seconds()},
             {"wall_seconds", wall_seconds()},
             {"restarts", restarts()},
             {"roles", Json::array()}};
  for (const auto& role : supervision_.roles()) {
    const Where where = role.is_running() ? launcher_.where(role.process) : Where{.host = "", .pid = -1};
    status_["roles"].push_back({{"name", to_string(role.peer.role)},
                                {"rank", role.peer.rank},
                                {"host", where.host},
                                {"pid", where.pid},
                                {"state", role.shown_state()},
                                {"since", role.since},
                                {"waiting_for", role.waiting_for},
                                {"restarts", role.restarts}});
  }
  if (Json hosts = launcher_.hosts(); !hosts.empty()) {
    status_["hosts"] = std::move(hosts);
    status_["hosts_join_at"] = launcher_.join_address();
  }
  if (const auto standby = report_.find("standby"); standby != report_.end()) status_["standby"] = *standby;
  status_["failures"] = report_.value("failures", Json::array());
  status_["episodes"] = report_.value("episodes", Json::object());
  (void)write_file(run_dir_ / "status.json", dump_json(with_format(status_, dashboard::kStatusFormat)) + "\n");
}

std::map<std::string, int> Supervisor::restarts() const {
  std::map<std::string, int> counts = earlier_restarts_;
  for (const auto& role : supervision_.roles()) counts[std::string(to_string(role.peer.role))] += role.restarts;
  return counts;
}

double Supervisor::wall_seconds() const { return earlier_seconds_ + to_seconds(clock_.now() - constructed_); }

std::string Supervisor::last_lines(const wire::Peer& peer) const {
  const auto text = read_file(log_of(peer), 64 << 20);
  if (!text) return "";
  const auto lines = split(trim(*text), '\n');
  std::string last;
  for (size_t i = lines.size() > 5 ? lines.size() - 5 : 0; i < lines.size(); ++i)
    last += fmt::format("  {}\n", lines[i]);
  return last + fmt::format("  ({})", log_of(peer).string());
}

}  // namespace tandem::run
