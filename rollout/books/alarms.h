// Detects problems of a training from the metrics of its steps, with evidence and the config key to change.
//
// Each rule looks at the newest steps, compares them with earlier ones of the same run, and speaks when it begins to
// hold, then every kAlarmAgain steps while it goes on. A run that learns raises none. What a step lacks (an algorithm
// without ratios, a run without terms) says nothing.
//
// Pure: the same lines give the same alarms. Thread safety: none.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace tandem::rollout {

struct Alarm {
  std::string name;      // "entropy_collapse", stable for scripts
  std::string evidence;  // numbers, in a sentence
  std::string key;       // of the config, to change first
  std::string advice;    // in a sentence
};

// {"name", "evidence", "key", "advice"}.
Json to_json(const Alarm& alarm);
// "alarm at step 12: EVIDENCE; ADVICE (KEY)", of an object as to_json() makes it.
std::string alarm_line(uint64_t step, const Json& alarm);

// Steps after which an alarm that holds is raised again.
inline constexpr int kAlarmAgain = 50;

// Every alarm; "unlearned" stands for those of all kinds of task.
inline constexpr std::array<std::string_view, 11> kAlarmNames = {
    "mismatch",  "entropy_collapse",       "no_signal", "truncation",        "ratio_tails", "gradient_spike",
    "unlearned", "reward_without_success", "dead_loss", "published_weights", "weight_store"};

class Alarms {
 public:
  // Alarms in `off` (names of kAlarmNames) are not raised.
  explicit Alarms(std::vector<std::string> off = {}) : off_(std::move(off)) {}

  // `line` is a line of metrics.jsonl (docs/run-directory.md); lines come in order of their steps; one of a step that
  // was there takes its place.
  std::vector<Alarm> step(const Json& line);

 private:
  // The metrics of a step that rules read; NaN where one is missing.
  struct Seen {
    double step, success, groups, with_signal, entropy, grad_norm, loss, mismatch, compared, ratio_max,
        dropped_fraction, clip_fraction, mismatch_kl, finished, truncated, learned, taught;
  };
  static Seen read(const Json& line);

  void mismatch(std::vector<Alarm>& held) const;
  void entropy(std::vector<Alarm>& held) const;
  void signal(std::vector<Alarm>& held) const;
  void truncation(std::vector<Alarm>& held) const;
  void ratios(std::vector<Alarm>& held) const;
  void gradient(std::vector<Alarm>& held) const;
  void kinds(std::vector<Alarm>& held) const;
  void reward(std::vector<Alarm>& held) const;
  void dead_loss(std::vector<Alarm>& held) const;
  static void published(const Json& line, std::vector<Alarm>& held);
  void stored(const Json& line, std::vector<Alarm>& held);

  bool is_off(const std::string& name) const;

  std::vector<std::string> off_;
  std::deque<Seen> first_, recent_;  // the oldest steps of the run, and the newest
  // Success of each kind of task: the newest steps that had some of it, and the best that so many steps had before.
  struct Kind {
    std::deque<double> recent;
    double best = 0;
    double squares = 0;  // of differences between one step and the next, and how many
    int differences = 0;
    // The standard deviation of a single step without the trend.
    double scatter() const { return differences > 0 ? std::sqrt(squares / (2.0 * differences)) : 0; }
  };
  std::map<std::string, Kind> kinds_;
  uint64_t store_failures_ = 0;           // of the trainer, so far
  int failing_ = 0;                       // steps in a row that added to them
  std::map<std::string, double> raised_;  // the step at which each alarm that holds was raised last
};

}  // namespace tandem::rollout
