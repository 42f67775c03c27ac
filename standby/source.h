// The side of a standby that has the files: what is to be copied, what is sent next, what is there. A pure machine: no
// sockets, files or clocks.
//
// The wanted state is declarative: logs with so many bytes, files with this content, links. It is kept whole, so
// whatever the other side has lost is known again: a life begins with a survey of what is there, then comes what is
// missing, then what is wanted from then on. Each want has a mark; a mark is held when everything up to it is on the
// other side's disk. At most kWindow bytes are under way; what is not answered is sent again, all that follows it too.
// Bytes are read from the files when they are sent, so what waits takes no memory.
//
// Time in which nobody called tick is nobody's silence.
//
// Thread safety: none.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "standby/protocol.h"

namespace tandem::standby {

inline constexpr double kSilence = 3.5;  // seconds without an answer, then the standby is lost
inline constexpr uint64_t kWindow = 8 * kPartBytes;

class Source {
 public:
  enum class State : uint8_t {
    kComparing,  // what is there is not known yet
    kCopying,
    kWhole,   // all that is wanted is there
    kLost,    // it does not answer
    kFenced,  // the run was taken over; nothing is copied any more
  };

  struct Terms {
    std::string name;                // of the standby, for people
    std::vector<std::string> paths;  // this stream's: what is there below them and not wanted is removed
    uint64_t epoch = 1;              // of the run
    uint64_t first_life = 1;         // above those of all earlier processes
    std::string run;
    bool goes_on = false;  // its owner goes on without a standby that is lost
    // The digest of the first `bytes` of a log as it is here; nothing where it cannot be read.
    std::function<std::optional<Digest>(const std::string& path, uint64_t bytes)> digest_of_log;
  };
  explicit Source(Terms terms);

  // Wants, each with its mark. A log only grows.
  uint64_t extend(const std::string& path, uint64_t bytes);  // it has so many now
  uint64_t put(const std::string& path, uint64_t bytes, const Digest& digest, bool is_executable);
  uint64_t link(const std::string& path, const std::string& target);
  uint64_t remove(const std::string& path);  // a file, or all below a folder
  uint64_t last_mark() const { return mark_; }

  struct Turn {
    std::vector<Request> requests;  // of an Extend or a Put the sender adds the bytes
    std::vector<std::string> news;  // for people
  };
  Turn tick(Time now);
  Turn on(const Answer& answer, Time now);
  // A file that was to be sent is not there any more: it is wanted no longer.
  Turn unreadable(const std::string& path, Time now);

  uint64_t held() const { return held_; }
  State state() const { return state_; }
  std::string_view shown_state() const;  // of status.json
  // Whether the owner need not wait for the mark: it is held, or the owner goes on without.
  bool covers(uint64_t mark) const { return held_ >= mark || (terms_.goes_on && state_ == State::kLost); }
  bool has_answered() const { return has_answered_; }
  const std::string& folder() const { return folder_; }  // of the copy; empty: not known yet
  const Status& trouble() const { return trouble_; }     // why it refused last
  const Fenced& fence() const { return fence_; }         // in kFenced
  double silent_seconds(Time now) const { return to_seconds(now - last_answer_); }
  size_t files() const { return wanted_.size(); }

 private:
  enum class Kind : uint8_t { kLog, kFile, kLink };
  struct Wanted {
    Kind kind = Kind::kLog;
    uint64_t bytes = 0;
    Digest digest;
    bool is_executable = false;
    std::string target;
    uint64_t order = 0;  // they are sent in the order in which they were wanted
  };
  struct Job {  // of the queue: a whole change, sent in parts
    Op op;      // offset: what was sent; bytes: up to where (Extend)
    uint64_t mark = 0;
  };
  struct Sent {
    uint64_t number = 0;
    Op op;
    uint64_t mark = 0, bytes = 0;
  };
  void begin();
  void compare(const Surveyed& surveyed);
  void enqueue(Op op);
  std::optional<Sent> next_part();
  void send(Time now, Turn& turn);
  void send_again(Time now, Turn& turn);
  void settle(Turn& turn);
  Request request_of(const Sent& sent) const;

  const Terms terms_;
  State state_ = State::kComparing;
  std::map<std::string, Wanted> wanted_;
  std::deque<Job> queue_;
  std::deque<Sent> under_way_;
  uint64_t under_way_bytes_ = 0;
  uint64_t mark_ = 0, held_ = 0, order_ = 0;
  uint64_t life_, number_ = 0;  // the last one that was sent
  bool is_compared_ = false;    // of this life
  int fruitless_ = 0;           // answers since the last progress that brought none
  bool was_lost_ = false, has_answered_ = false;
  std::string folder_;
  Status trouble_;
  Fenced fence_;
  Time last_tick_{}, last_answer_{}, last_progress_{}, begin_at_{};
};

}  // namespace tandem::standby
