// A task: a small folder, an instruction that can only be met through tools, and what a good end looks like.
//
// A task is a pure function of its spec: any process makes the same one from (kind, split, seed), so specs travel and
// tasks do not. Values throughout; no thread-safety concern.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace tandem::envs {

// Which wordings, names and formats a task is drawn from. kHeldout shares none of them with kTrain and is what results
// are quoted on; the other three change one thing at a time, to tell what a model did not carry over.
enum class Split : uint8_t {
  kTrain,
  kHeldout,
  kHeldoutInstances,  // all parts from training, instances never drawn there
  kHeldoutWordings,   // only the wordings are new
  kHeldoutFormats,    // only the file formats and the vocabulary are new
};
inline constexpr std::array kSplits = {Split::kTrain, Split::kHeldout, Split::kHeldoutInstances,
                                       Split::kHeldoutWordings, Split::kHeldoutFormats};
std::string_view to_string(Split split);
Result<Split> split_from(std::string_view name);

struct TaskSpec {
  std::string kind;
  Split split = Split::kTrain;
  uint64_t seed = 0;
  std::string id() const;  // "set/train/17"
  friend bool operator==(const TaskSpec&, const TaskSpec&) = default;
};

using Files = std::map<std::string, std::string>;  // path relative to the workspace -> content

// One call of a tool, before it is checked.
struct Call {
  std::string name;
  Json arguments;
  friend bool operator==(const Call&, const Call&) = default;
};

// A program that grading runs in a fresh sandbox over the files left behind. Its output is compared out here, so that
// the code under test never sees what is expected of it.
struct HiddenTest {
  std::string driver;                 // Python that prints one line a case
  std::vector<std::string> expected;  // the lines it must print, exactly
};

// How a task is judged. Everything set here must hold.
struct Expectation {
  std::optional<Files> files;             // the workspace at the end, whole
  std::optional<std::string> answer;      // the final answer
  std::vector<std::string> distractors;   // values that an answer must not name beside the right one
  std::optional<HiddenTest> hidden_test;  // the work of the code left behind
};

// What an expert does: calls turn by turn, then what it says. Used for demonstrations and to prove a task solvable.
struct Solution {
  std::vector<std::vector<Call>> turns;
  std::string answer;  // empty where the last change ends the episode
};

struct Task {
  TaskSpec spec;
  std::string instruction;
  Files files;
  int max_turns = 3;           // assistant messages
  bool ends_on_change = true;  // the first turn that changes files is the last
  Expectation expectation;
  Solution solution;

  // What it was composed from, for the proofs that splits share nothing.
  std::string wording;                  // the instruction with its slots unfilled
  std::vector<std::string> vocabulary;  // the words that names and values were made of
  std::vector<std::string> formats;     // file formats, by extension
};

// The kinds of the workspace family, easiest to learn first.
std::span<const std::string_view> task_kinds();
// These and `echo`, which only shows that a loop works and is no measure of a model.
std::span<const std::string_view> every_kind();

// kNotFound, with the nearest kind, where there is no such kind.
Result<Task> make_task(const TaskSpec& spec);

}  // namespace tandem::envs
