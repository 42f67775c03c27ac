// Whom a receiver of weights asks now: its relay, or the trainer.
//
// The relay is asked until it fails: it does not answer, it does not have for `patience` a version that there is, what
// it sends is damaged again and again, or a version of it was not what it should be. Then the trainer is asked: for
// 15 s, then twice as long each time, for 8 minutes at most. A receiver that is in the middle of something stays where
// it is until that is over. A version that the relay served ends the row of failures.
//
// Pure: time comes with what happens. Thread safety: none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "base/clock.h"

namespace tandem::weights_sync {

class Upstream {
 public:
  enum class Source : uint8_t { kRelay, kTrainer };

  struct Asked {};              // the relay, for something that it answers
  struct Heard {                // from the relay
    bool is_receiving = false;  // more is to come of what was asked for
  };
  struct Known {  // there is this version, whoever said so
    uint64_t version = 0;
  };
  // How the receiver is; in every turn of its loop. Time in which there was none for a second counts for nothing: the
  // receiver had other things to do.
  struct Turn {
    uint64_t held = 0;              // the newest version that is verified
    bool is_receiving = false;      // chunks are to come
    bool is_busy = false;           // with what has come: nobody is waited for
    int refused_in_a_row = 0;       // chunks
    uint64_t refused_versions = 0;  // so far
  };
  using Event = std::variant<Asked, Heard, Known, Turn>;

  explicit Upstream(Duration patience) : patience_(patience) {}

  Source step(const Event& event, Time now);

  Source source() const { return left_until_ ? Source::kTrainer : Source::kRelay; }
  uint64_t given_up() const { return given_up_; }  // how often the relay was left
  const std::string& why() const { return why_; }  // the last time

 private:
  void on(const Asked&, Time now);
  void on(const Heard& heard, Time now);
  void on(const Known& known, Time now);
  void on(const Turn& turn, Time now);
  void leave(std::string why, Time now);

  const Duration patience_;
  uint64_t held_ = 0, known_ = 0, refused_versions_ = 0, given_up_ = 0;
  std::optional<Time> unanswered_since_, behind_since_, left_until_, last_turn_;
  int failures_ = 0;  // in a row
  std::string why_;
};

}  // namespace tandem::weights_sync
