// How an agent worked on one task, as counts over its messages and calls, and their means over episodes.
//
// Values and pure functions. envs/episodes/work_record.h counts; runs and evaluations report.
#pragma once

#include <map>
#include <string>

#include "base/json.h"

namespace tandem {

struct Behaviour {
  int turns = 0;              // messages of the model
  int calls = 0;              // that were answered, those that were refused included
  int parallel_calls = 0;     // that ran at once with another one of their message
  int parallel_turns = 0;     // messages with several calls
  int refused_calls = 0;      // that a tool refused, or that could not be read
  int edits = 0;              // calls that changed files
  int edits_undone = 0;       // those whose changes a later call took back (envs/tools/file_change.h)
  int reads_before_edit = 0;  // calls that only read, searches included, before the first edit
  int searches_before_edit = 0;
  int searches = 0;            // grep, glob_file_search, codebase_search
  double seconds_to_edit = 0;  // from the beginning to the end of the first edit; 0: none
  double seconds = 0;          // from the beginning to the end of the work, without its grading
  friend bool operator==(const Behaviour&, const Behaviour&) = default;
};

Json to_json(const Behaviour& behaviour);
// What is missing is 0. kCorrupt for anything but an object, and for numbers below 0 or beyond 1e9.
Result<Behaviour> behaviour_from_json(const Json& json);

// Sums over episodes.
class BehaviourSums {
 public:
  void add(const Behaviour& behaviour);
  void add(const BehaviourSums& other);
  bool empty() const { return episodes_ == 0; }

  // A field of Behaviour by its name, as the mean of all episodes; 0 without any.
  double mean(const std::string& field) const;

  // Means: `episodes`, `calls_per_turn`, `parallel_share` of the calls, `refused_share` of them, `edits`,
  // `edits_undone`, `reads_before_edit`, `searches_before_edit`, `searches`, `parallel_turns` and `seconds` an episode,
  // `seconds_to_edit` of the episodes with an edit. Shares of nothing are missing, and so is that of no edit.
  Json means() const;

  // The sums themselves, for a snapshot. kCorrupt for anything that is not of sums_to_json.
  Json sums_to_json() const;
  static Result<BehaviourSums> sums_from_json(const Json& json);
  friend bool operator==(const BehaviourSums&, const BehaviourSums&) = default;

 private:
  int episodes_ = 0, with_edit_ = 0;
  std::map<std::string, double> sums_;  // by the names of to_json(Behaviour)
};

// `{all: means, kinds: {KIND: means}}`, as a line of metrics.jsonl has it.
Json means_of(const std::map<std::string, BehaviourSums>& by_kind);

}  // namespace tandem
