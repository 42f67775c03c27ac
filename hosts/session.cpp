#include "hosts/session.h"

#include <algorithm>

namespace tandem::hosts {

void Session::end(Process& process, run::EndKind kind, std::vector<Action>& actions) {
  if (process.state == Process::State::kEnded) return;
  bool& was_said = kind == run::EndKind::kAsk ? process.is_asked : process.is_told;
  if (std::exchange(was_said, true)) return;
  actions.push_back(End{process.process, kind});
}

std::vector<Session::Action> Session::on_beat(const Beat& beat) {
  std::vector<Action> actions;
  if (beat.number <= last_beat_) return actions;
  last_beat_ = beat.number;
  for (const HostJob& job : beat.jobs) {
    const auto found = processes_.find(job.number);
    if (found != processes_.end()) {
      if (job.end == JobEnd::kAsk) end(found->second, run::EndKind::kAsk, actions);
      if (job.end == JobEnd::kNow) end(found->second, run::EndKind::kNow, actions);
      continue;
    }
    if (job.number <= last_number_) continue;  // it was here and has been forgotten
    last_number_ = job.number;
    if (is_draining_)
      failed(job, "the host is draining");
    else if (job.end != JobEnd::kNone)
      failed(job, "it was told to end before it began");
    else
      actions.push_back(Start{job});
  }
  for (auto it = processes_.begin(); it != processes_.end();) {
    const bool is_wanted =
        std::any_of(beat.jobs.begin(), beat.jobs.end(), [&](const HostJob& job) { return job.number == it->first; });
    if (!is_wanted) end(it->second, run::EndKind::kNow, actions);
    it = !is_wanted && it->second.state == Process::State::kEnded ? processes_.erase(it) : std::next(it);
  }
  return actions;
}

std::vector<Session::Action> Session::drain() {
  std::vector<Action> actions;
  is_draining_ = true;
  for (auto& [number, process] : processes_) end(process, run::EndKind::kAsk, actions);
  return actions;
}

void Session::started(const HostJob& job, int64_t process) {
  processes_[job.number] = {.process = process, .log = job.log};
}

void Session::failed(const HostJob& job, std::string why) {
  processes_[job.number] = {.state = Process::State::kEnded, .log = job.log, .failure = std::move(why)};
}

bool Session::ended(const run::Ending& ending) {
  for (auto& [number, process] : processes_) {
    if (process.state == Process::State::kEnded || process.process != ending.process) continue;
    process.state = Process::State::kEnded;
    process.code = ending.code;
    process.signal = ending.signal;
    return true;
  }
  return false;
}

std::vector<int64_t> Session::running() const {
  std::vector<int64_t> running;
  for (const auto& [number, process] : processes_) {
    if (process.state == Process::State::kRunning) running.push_back(process.process);
  }
  return running;
}

}  // namespace tandem::hosts
