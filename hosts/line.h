// A run's line to one of its hosts: what it asks next, what the answers mean, when the host is lost. A pure machine: no
// sockets, files or clocks.
//
// The host is opened, filled with what it lacks, settled; then it is up, and beats say which processes are to run
// there. One that does not answer for kSilence is lost: all its processes count as ended. It goes on being asked; when
// it answers again, whatever still runs there is ended first. A host that has forgotten the session is opened again.
// Time in which nobody called tick is nobody's silence.
//
// Thread safety: none.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "hosts/bundle.h"

namespace tandem::hosts {

inline constexpr double kSilence = 3.5;  // seconds without an answer, then a host is lost

class Line {
 public:
  enum class State : uint8_t { kReaching, kFilling, kSettling, kUp, kLost, kDraining, kLeft, kRefused };

  struct Terms {
    std::string name;                // of the host, for people: "10.0.0.5:7070"
    Open open;                       // what it is asked to open
    std::string numerics_id;         // that it must have
    const Bundle* bundle = nullptr;  // outlives the line
    // The small files for a home at this place. An error refuses the host.
    std::function<Result<std::vector<HomeText>>(const fs::path& home)> texts;
  };
  explicit Line(Terms terms) : terms_(std::move(terms)) {}

  // Log output of a process there, from `offset` on.
  struct Said {
    std::string log;  // name of its file
    std::string text;
  };
  struct Ended {
    uint64_t number = 0;
    int code = 0, signal = 0;
    std::string how;  // see run::Ending
  };
  struct Turn {
    std::vector<Request> requests;  // of a SendChunk the sender adds the bytes
    std::vector<Said> said;
    std::vector<Ended> ended;
    std::vector<std::string> news;
  };

  Turn tick(Time now);
  Turn on(const Answer& answer, Time now);

  // A process that is to run there; its number is above those of all before. Only while the host is up.
  void start(uint64_t number, std::vector<std::string> arguments, std::string log);
  // Asks all its processes to end, then gives the host back.
  void give_back();
  // Unknown numbers are left alone.
  void end(uint64_t number, JobEnd how);
  // No Ended comes of it any more.
  void forget(uint64_t number) { jobs_.erase(number); }

  State state() const { return state_; }
  std::string_view shown_state() const;  // of status.json
  bool takes_roles() const { return state_ == State::kUp; }
  const Status& refusal() const { return refusal_; }  // where it is refused
  // Where the host has the run in a later epoch: it was taken over, and this side is to end.
  const std::optional<Fenced>& fence() const { return fence_; }
  const std::string& name() const { return terms_.name; }
  const Opened& opened() const { return opened_; }
  bool has(uint64_t number) const { return jobs_.contains(number); }
  int pid(uint64_t number) const;  // 0: not known yet
  double silent_seconds(Time now) const { return to_seconds(now - last_answer_); }
  // Bytes of files that the host lacked when it was opened; both are 0 before.
  uint64_t bytes_to_send() const { return bytes_to_send_; }
  uint64_t bytes_sent() const { return bytes_taken_; }
  // The source of an offered file with this digest; empty where there is none.
  fs::path source_of(const Digest& digest) const;

 private:
  struct Job {
    HostJob job;
    int pid = 0;
  };
  struct Coming {  // a file that the host lacks
    Digest digest;
    uint64_t bytes = 0, asked = 0;  // asked: bytes that were sent
  };
  void on(const Opened& opened, Turn& turn);
  void on(const Missing& missing, Turn& turn);
  void on(const Took& took, Turn& turn);
  void on(const HostState& state, Time now, Turn& turn);
  void on(const Refused& refused, Turn& turn);
  void on(const Fenced& fenced, Turn& turn);
  void send_chunks(Turn& turn);
  void settle(Turn& turn);
  void reopen() { state_ = State::kReaching, next_ask_ = {}; }
  void refuse(Status why, Turn& turn);
  void lose_jobs(const std::string& how, Turn& turn);
  Request beat();

  const Terms terms_;
  State state_ = State::kReaching;
  Status refusal_;
  std::optional<Fenced> fence_;
  Opened opened_;
  std::map<uint64_t, Job> jobs_;
  std::deque<Coming> coming_;
  size_t in_flight_ = 0;  // chunks without an answer
  uint64_t bytes_to_send_ = 0, bytes_taken_ = 0;
  uint64_t beats_ = 0;
  int attempts_ = 0;  // to fill it
  bool was_up_ = false, is_given_back_ = false;
  Time last_tick_{}, last_answer_{}, next_ask_{}, progress_{};
};

}  // namespace tandem::hosts
