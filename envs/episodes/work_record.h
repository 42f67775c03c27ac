// Counts how an agent works, message by message: what runs and evaluations report of an episode (base/behaviour.h).
//
// An edit counts as undone where a later call of a tool that writes files took all of its changes back: the file has
// the content of before again, or exactly the lines that the edit had taken stand in place of those that it had put. Of
// commands in a shell it is known that they changed files, not what: they are edits that nothing undoes, and undo none.
//
// A value: copies go on by themselves. Thread safety: none. Times are seconds since the beginning of the episode.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "base/behaviour.h"
#include "envs/episodes/turn.h"

namespace tandem::envs {

class WorkRecord {
 public:
  // A message that ended at `seconds`, and what its calls gave; the last may lack an outcome.
  void turn(std::span<const ParsedCall> calls, std::span<const ToolOutcome> outcomes, double seconds);

  // Of work that ended at `seconds`.
  Behaviour behaviour(double seconds) const;

 private:
  struct Change {
    FileChange change;
    size_t edit = 0;
    bool undone = false;
  };
  void edit(std::span<const FileChange> changes);
  void undo(Change& change);

  Behaviour behaviour_;
  std::map<uint64_t, std::vector<Change>> changes_;  // by file
  std::vector<size_t> standing_;                     // of each edit with known changes: those that stand
};

}  // namespace tandem::envs
