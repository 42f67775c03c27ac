#include "hosts/line.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::hosts {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAskAgain = 500ms, kBeatEvery = 250ms, kBeatToLost = 1s;
constexpr Duration kLongestGap = 1s;     // between ticks; what is longer is our own absence
constexpr Duration kFillPatience = 30s;  // without progress, then it is opened again
constexpr int kMostAttempts = 4;
constexpr size_t kWindow = 8;  // chunks without an answer

}  // namespace

Line::Turn Line::tick(Time now) {
  Turn turn;
  if (last_tick_ == Time{}) last_answer_ = progress_ = last_tick_ = now;
  if (const Duration gap = now - last_tick_; gap > kLongestGap) last_answer_ += gap, progress_ += gap;
  last_tick_ = now;
  const bool is_silent = to_seconds(now - last_answer_) > kSilence;
  if ((state_ == State::kUp || state_ == State::kDraining) && is_silent) {
    const bool is_gone = state_ == State::kDraining && jobs_.empty();
    state_ = is_gone ? State::kLeft : State::kLost;
    if (is_gone) {
      turn.news.push_back(fmt::format("host {} has left", name()));
    } else {
      turn.news.push_back(
          fmt::format("host {} is lost: it has not answered for {:.1f} s", name(), to_seconds(now - last_answer_)));
    }
    lose_jobs(fmt::format("was lost with host {}", name()), turn);
  }
  if ((state_ == State::kFilling || state_ == State::kSettling) && now - progress_ > kFillPatience) reopen();
  if (is_given_back_ && jobs_.empty() && state_ != State::kLeft) {
    state_ = State::kLeft;
    turn.requests.emplace_back(Close{});
    turn.news.push_back(fmt::format("host {} is given back", name()));
  }
  if (now < next_ask_ || (is_given_back_ && state_ == State::kLeft)) return turn;
  switch (state_) {
    case State::kReaching:
      next_ask_ = now + kAskAgain;
      turn.requests.emplace_back(terms_.open);
      break;
    case State::kUp:
    case State::kDraining:
      next_ask_ = now + kBeatEvery;
      turn.requests.push_back(beat());
      break;
    case State::kLost:
    case State::kLeft:
      next_ask_ = now + kBeatToLost;
      turn.requests.push_back(beat());
      break;
    case State::kFilling:
    case State::kSettling:
    case State::kRefused:
      break;
  }
  return turn;
}

Line::Turn Line::on(const Answer& answer, Time now) {
  Turn turn;
  last_answer_ = progress_ = now;
  if (last_tick_ == Time{}) last_tick_ = now;
  if (const auto* opened = std::get_if<Opened>(&answer)) on(*opened, turn);
  if (const auto* missing = std::get_if<Missing>(&answer)) on(*missing, turn);
  if (const auto* took = std::get_if<Took>(&answer)) on(*took, turn);
  if (const auto* state = std::get_if<HostState>(&answer)) on(*state, now, turn);
  if (const auto* refused = std::get_if<Refused>(&answer)) on(*refused, turn);
  if (const auto* fenced = std::get_if<Fenced>(&answer)) on(*fenced, turn);
  if (std::holds_alternative<Settled>(answer) && state_ == State::kSettling) {
    state_ = State::kUp;
    next_ask_ = {};
    if (was_up_) turn.news.push_back(fmt::format("host {} is back", name()));
    was_up_ = true;
  }
  return turn;
}

void Line::on(const Opened& opened, Turn& turn) {
  if (state_ != State::kReaching) return;
  opened_ = opened;
  if (opened.version != terms_.open.version) {
    return refuse(Status::unfit(fmt::format("it has version {} of tandem, and this machine version {}", opened.version,
                                            terms_.open.version))
                      .hint("install the same version on both"),
                  turn);
  }
  if (opened.numerics_id != terms_.numerics_id) {
    return refuse(Status::unfit(fmt::format("it computes as {}, and this machine as {}: samples of one would not have "
                                            "the log-probabilities of the other",
                                            opened.numerics_id, terms_.numerics_id))
                      .hint("TANDEM_ISA names an instruction set that both have"),
                  turn);
  }
  if (++attempts_ > kMostAttempts)
    return refuse(Status::unavailable("it could not be filled with what the run needs"), turn);
  state_ = State::kFilling;
  turn.requests.emplace_back(Offer{terms_.bundle->files});
}

void Line::on(const Missing& missing, Turn& turn) {
  if (state_ != State::kFilling) return;
  coming_.clear();
  in_flight_ = 0;
  bytes_to_send_ = bytes_taken_ = 0;
  for (const uint32_t place : missing.files) {
    if (place >= terms_.bundle->files.size())
      return refuse(Status::corrupt("it lacks a file that was not offered"), turn);
    const HomeFile& file = terms_.bundle->files[place];
    coming_.push_back({.digest = file.digest, .bytes = file.bytes});
    bytes_to_send_ += file.bytes;
  }
  coming_.empty() ? settle(turn) : send_chunks(turn);
}

void Line::send_chunks(Turn& turn) {
  for (Coming& file : coming_) {
    while (in_flight_ < kWindow && file.asked < file.bytes) {
      turn.requests.emplace_back(SendChunk{{.digest = file.digest, .offset = file.asked}});
      file.asked += std::min<uint64_t>(kChunkBytes, file.bytes - file.asked);
      ++in_flight_;
    }
    if (in_flight_ >= kWindow) return;
  }
}

void Line::on(const Took& took, Turn& turn) {
  if (state_ != State::kFilling || coming_.empty() || took.chunk.digest != coming_.front().digest) return;
  if (in_flight_ > 0) --in_flight_;
  const Coming& file = coming_.front();
  bytes_taken_ += took.chunk.offset > 0 ? (took.chunk.offset - 1) % kChunkBytes + 1 : 0;
  if (took.chunk.offset >= file.bytes) coming_.pop_front();
  coming_.empty() ? settle(turn) : send_chunks(turn);
}

void Line::settle(Turn& turn) {
  auto texts = terms_.texts(opened_.home);
  if (!texts) return refuse(texts.error(), turn);
  state_ = State::kSettling;
  turn.requests.emplace_back(Settle{std::move(*texts)});
}

void Line::on(const HostState& state, Time now, Turn& turn) {
  const bool was_away = state_ == State::kLost || state_ == State::kLeft;
  if (!was_away && state_ != State::kUp && state_ != State::kDraining) return;
  if (!state.is_known) {
    if (!was_away) {
      turn.news.push_back(fmt::format("host {} has begun anew", name()));
      lose_jobs(fmt::format("was lost with an earlier life of host {}", name()), turn);
    }
    attempts_ = 0;
    return reopen();
  }
  if (was_away) {
    if (!state.processes.empty()) return;  // what was replaced is ended first
    state_ = is_given_back_ ? State::kDraining : State::kUp;
    turn.news.push_back(fmt::format("host {} is back", name()));
  }
  if (state.is_draining && state_ == State::kUp) {
    state_ = State::kDraining;
    turn.news.push_back(fmt::format("host {} is draining: its roles move", name()));
  }
  for (const HostProcess& process : state.processes) {
    const auto found = jobs_.find(process.number);
    if (found == jobs_.end()) continue;
    Job& job = found->second;
    if (process.pid != 0) job.pid = process.pid;
    if (!process.log.empty() && process.log_offset == job.job.log_offset) {
      turn.said.push_back({.log = job.job.log, .text = process.log});
      job.job.log_offset += process.log.size();
    }
    if (process.is_running || !process.is_log_complete) continue;
    std::string how;
    if (!process.failure.empty()) how = fmt::format("was not started on host {}: {}", name(), process.failure);
    turn.ended.push_back({.number = process.number, .code = process.code, .signal = process.signal, .how = how});
    jobs_.erase(found);
    next_ask_ = now;  // so that the host forgets it soon
  }
}

void Line::on(const Refused& refused, Turn& turn) {
  const Code code = refused.why.code();
  switch (state_) {
    case State::kFilling:
      // A chunk was damaged or lost on its way.
      if (code == Code::kCorrupt || code == Code::kInvalid || code == Code::kNotFound) return reopen();
      return refuse(refused.why, turn);
    case State::kReaching:
    case State::kSettling:
      // One that was there before may have room again.
      if (was_up_ && (code == Code::kExhausted || code == Code::kUnavailable || code == Code::kNotFound))
        return reopen();
      return refuse(refused.why, turn);
    default:
      return;
  }
}

void Line::on(const Fenced& fenced, Turn& turn) {
  if (fenced.epoch <= terms_.open.epoch || fence_) return;
  fence_ = fenced;
  refuse(Status::unfit(fmt::format("the run was taken over at {}: it has epoch {} there, and this is epoch {}",
                                   fenced.holder, fenced.epoch, terms_.open.epoch)),
         turn);
  lose_jobs(fmt::format("was ended by host {}: the run was taken over", name()), turn);
}

void Line::refuse(Status why, Turn& turn) {
  state_ = State::kRefused;
  refusal_ = std::move(why);
  turn.news.push_back(fmt::format("host {} is not used: {}", name(), refusal_.message()));
}

void Line::lose_jobs(const std::string& how, Turn& turn) {
  for (const auto& [number, job] : jobs_) turn.ended.push_back({.number = number, .how = how});
  jobs_.clear();
}

Request Line::beat() {
  Beat beat{.number = ++beats_, .jobs = {}};
  for (const auto& [number, job] : jobs_) beat.jobs.push_back(job.job);
  return beat;
}

void Line::start(uint64_t number, std::vector<std::string> arguments, std::string log) {
  jobs_[number] = {.job = {.number = number, .arguments = std::move(arguments), .log = std::move(log)}};
  next_ask_ = {};
}

void Line::give_back() {
  is_given_back_ = true;
  if (state_ == State::kUp) state_ = State::kDraining;
  for (auto& [number, job] : jobs_) job.job.end = std::max(job.job.end, JobEnd::kAsk);
  next_ask_ = {};
}

void Line::end(uint64_t number, JobEnd how) {
  const auto found = jobs_.find(number);
  if (found == jobs_.end() || found->second.job.end >= how) return;
  found->second.job.end = how;
  next_ask_ = {};
}

int Line::pid(uint64_t number) const {
  const auto found = jobs_.find(number);
  return found == jobs_.end() ? 0 : found->second.pid;
}

fs::path Line::source_of(const Digest& digest) const {
  const auto& files = terms_.bundle->files;
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const HomeFile& file) { return file.link.empty() && file.digest == digest; });
  return found == files.end() ? fs::path()
                              : terms_.bundle->sources[static_cast<size_t>(std::distance(files.begin(), found))];
}

std::string_view Line::shown_state() const {
  switch (state_) {
    case State::kReaching:
      return was_up_ ? "lost" : "reaching";
    case State::kFilling:
    case State::kSettling:
      return "filling";
    case State::kUp:
      return "up";
    case State::kLost:
      return "lost";
    case State::kDraining:
      return "draining";
    case State::kLeft:
      return "left";
    case State::kRefused:
      return "refused";
  }
  return "lost";
}

}  // namespace tandem::hosts
