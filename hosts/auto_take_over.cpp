#include "hosts/auto_take_over.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "base/unique_number.h"
#include "run/checks.h"
#include "run/resume.h"
#include "run/spread.h"
#include "standby/record.h"

extern char** environ;

namespace tandem::hosts {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLookAgain = 2s;
constexpr size_t kMostWatched = 64;  // runs with a copy here that were heard in this life of the host

// `tandem` itself, in a session of its own; what it says is added to `log`.
Result<pid_t> start_apart(const std::vector<std::string>& arguments, const fs::path& log) {
  TRY(make_directories(log.parent_path()));
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawn_file_actions_addclosefrom_np(&files, 3);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t process = -1;
  const int error = posix_spawn(&process, "/proc/self/exe", &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return fail(Status::from_errno("tandem run --take-over", error));
  return process;
}

}  // namespace

void AutoTakeOver::opened(uint64_t run) {
  heard_.opened(run, clock_.now());
  const auto found = runs_.find(run);
  if (found == runs_.end()) {
    if (runs_.size() >= kMostWatched) forget_one();
    runs_[run].copy = settings_.copies / fmt::format("{:016x}", run);
  } else if (found->second.process < 0) {
    found->second.watch.reset();
    found->second.look_again = {};
  }
}

// The one that was heard longest ago, of those that nothing runs of.
void AutoTakeOver::forget_one() {
  auto oldest = runs_.end();
  for (auto it = runs_.begin(); it != runs_.end(); ++it) {
    if (it->second.process > 0) continue;
    if (oldest == runs_.end() || silence(it->first).seconds > silence(oldest->first).seconds) oldest = it;
  }
  if (oldest != runs_.end()) runs_.erase(oldest);
}

void AutoTakeOver::heard(uint64_t run) { heard_.heard(run, clock_.now()); }

void AutoTakeOver::turn() {
  heard_.tick(clock_.now());
  for (auto& [run, watched] : runs_) turn_of(run, watched);
}

// The first copy of a run comes some time after it is heard first.
void AutoTakeOver::read_config(Watched& watched) const {
  std::error_code error;
  if (!fs::exists(watched.copy / "config.resolved.json", error)) return;
  const auto record = standby::read_record_of(watched.copy);
  const auto recorded = run::read_recorded(watched.copy);
  if (!record || record->is_taken || !recorded) return;
  const auto& asked = recorded->config.run;
  if (asked.standby_takes_over != "majority") return;
  watched.name = record->name;
  MajorityWatch::Terms terms{.run = record->name, .others = {}, .patience = asked.standby_patience};
  for (const std::string& host : asked.hosts) {
    if (host != asked.standby) terms.others.push_back(host);
  }
  watched.watch.emplace(std::move(terms));
  say(fmt::format("goes on with run {} when {} of its {} hosts have heard nothing of it for {:g} s", watched.name,
                  watched.watch->needed(), asked.hosts.size(), asked.standby_patience));
}

void AutoTakeOver::turn_of(uint64_t run, Watched& watched) {
  const Time now = clock_.now();
  if (watched.process > 0) return look_at_process(watched);
  if (is_draining_) return;
  if (!watched.watch) {
    if (now < watched.look_again) return;
    watched.look_again = now + kLookAgain;
    read_config(watched);
    if (!watched.watch) return;
  }
  hear(watched);
  const auto turn = watched.watch->tick(silence(run), now);
  for (const std::string& line : turn.news) say(line);
  if (watched.watch->state() != MajorityWatch::State::kAsking) watched.others.clear();
  if (!turn.asks.empty()) ask(run, watched, turn.asks);
  if (!turn.takes_over) return;
  if (const Status begun = take_over(watched); !begun.ok()) {
    say(fmt::format("run {} could not be taken over: {}", watched.name, begun.to_string()));
    watched.watch->failed(now);
  }
}

void AutoTakeOver::ask(uint64_t run, Watched& watched, const std::vector<std::string>& hosts) {
  if (watched.others.empty()) {
    const uint64_t life = unique_number();
    const wire::Identity identity{.sender = fmt::format("{:016x}/standby-{:x}", run, life), .epoch = life, .run = run};
    for (const std::string& host : hosts) {
      if (auto socket = wire::Socket::connect(context_, host, identity, &settings_.secret))
        watched.others.push_back({.address = host, .socket = std::move(*socket)});
    }
  }
  for (Other& other : watched.others) {
    wire::Outgoing out(1);
    write_request(0, AskSilence{}, out.body().initHostRequest());
    (void)other.socket.send("", out);  // who does not answer does not agree
  }
}

void AutoTakeOver::hear(Watched& watched) {
  for (Other& other : watched.others) {
    for (int i = 0; i < 16; ++i) {
      const auto message = other.socket.receive();
      if (!message) break;
      if (!message->body().isHostAnswer()) continue;
      const auto answer = read_answer(message->body().getHostAnswer());
      const auto* silence = answer ? std::get_if<Silence>(&*answer) : nullptr;
      if (silence != nullptr) watched.watch->on(other.address, *silence, clock_.now());
    }
  }
}

Status AutoTakeOver::take_over(Watched& watched) {
  const fs::path log = watched.copy / "logs" / "take-over.log";
  watched.process = TRY(start_apart({"tandem", "run", "--take-over", watched.copy.string()}, log));
  say(fmt::format("goes on with run {} as process {}: {}", watched.name, watched.process, log.string()));
  return {};
}

void AutoTakeOver::look_at_process(Watched& watched) {
  int how = 0;
  if (::waitpid(watched.process, &how, WNOHANG) != watched.process) return;
  watched.process = -1;
  const std::string end =
      WIFSIGNALED(how) ? fmt::format("by signal {}", WTERMSIG(how)) : fmt::format("with {}", WEXITSTATUS(how));
  const auto record = standby::read_record_of(watched.copy);
  if (record && record->is_taken) {
    watched.watch->done();
    say(fmt::format("run {} that was taken over has ended {}; `tandem run --take-over {}` goes on where it is not done",
                    watched.name, end, watched.copy.string()));
  } else {
    watched.watch->failed(clock_.now());
    say(fmt::format("run {} was not taken over: `tandem run --take-over` ended {}, and {} says why", watched.name, end,
                    (watched.copy / "logs" / "take-over.log").string()));
  }
}

void AutoTakeOver::drain() {
  is_draining_ = true;
  for (const auto& [run, watched] : runs_) {
    if (watched.process > 0) ::kill(watched.process, SIGTERM);
  }
}

bool AutoTakeOver::is_running() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const auto& entry) { return entry.second.process > 0; });
}

}  // namespace tandem::hosts
