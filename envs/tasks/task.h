// A task: files, an instruction that needs tools, and the expected result.
//
// Values throughout; no thread-safety concern. workspace/kinds.h makes tasks from specs, task_set.h reads those that
// somebody wrote.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "envs/mcp/foreign_tools.h"
#include "envs/network/allow_list.h"
#include "envs/sandbox/files.h"
#include "envs/tasks/task_base.h"

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

// Which task is meant. Any process makes the same task from it, so specs travel and tasks do not.
struct TaskSpec {
  std::string kind;
  Split split = Split::kTrain;
  uint64_t seed = 0;
  std::string id() const;  // "set/train/17"
  friend bool operator==(const TaskSpec&, const TaskSpec&) = default;
};

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

// MiB of a sandbox's disk, which is memory: what there is, and what a task can ask for.
inline constexpr int kUsualDiskMb = 256, kMostDiskMb = 2048;

// A command that a check runs, and what it must do.
struct CheckCommand {
  std::string command;                     // for bash, in the workspace
  int exit_code = 0;                       // that it must end with
  std::optional<std::string> output = {};  // that it must print, but for white space at its end; compared out here
  double seconds = 10;                     // after which it is ended, and has failed
  bool any_exit = false;                   // it may end with any exit code
};

// Commands over what was left behind, in one fresh sandbox that nothing but those files reaches.
struct CommandCheck {
  Files files;                         // take the place of whatever was left behind at their paths
  std::set<std::string> programs;      // those of them that can be run
  std::set<std::string> folders = {};  // of which nothing that was left behind is kept
  std::vector<CheckCommand> commands;  // in order; the first that does otherwise is the last
  // The reward is the number that they leave in /logs/verifier/reward.json or reward.txt, whatever they end with.
  bool leaves_reward = false;
  // A script that must give a verdict, as messages name it: "tests/test.sh". Where it gives none (out of its time,
  // killed, a program that it lacks, no reward or report) there is no grade. Empty: then the check has failed.
  std::string verifier = {};
  // Tests that must have passed by what pytest or unittest say in the output of the last command, whatever it ends
  // with; none named: all that they say, at least one.
  std::optional<std::vector<std::string>> tests = {};
};

// Tests of a Python function that never meet the code under test: the calls that they make are recorded with the
// reference, made of the code under test in a sandbox of its own, and replayed to the tests with its answers.
struct CallCheck {
  std::string module;  // the file left behind that has the function: "solution.py"
  std::string function;
  std::string reference;  // a right module
  std::string test;       // a program that runs with the names of the reference, and asserts
  double seconds = 10;    // of each of the three
};

// How a task is judged. Everything set here must hold.
struct Expectation {
  std::optional<Files> files;             // the workspace at the end, whole
  Files contains;                         // files that must have this content, whatever there is beside them
  std::optional<std::string> answer;      // the final answer
  std::vector<std::string> distractors;   // values that an answer must not name beside the right one
  std::optional<HiddenTest> hidden_test;  // the work of the code left behind
  std::optional<CommandCheck> commands;
  std::optional<CallCheck> calls;
};

// How long the programs of a check may run together.
double seconds_of(const Expectation& expectation);

// The actions of an expert: calls turn by turn, then the answer. Used for demonstrations and to prove a task solvable.
struct Solution {
  Files files;  // put in beside the calls, where these need some
  std::vector<std::vector<Call>> turns;
  std::string answer;  // empty where the last change ends the episode
};

// One of several instructions that follow each other in one episode. The folder, the shell and the conversation go on;
// what runs in the background ends with its step.
struct TaskStep {
  std::string name;
  std::string instruction;
  Files files = {};  // put in before it, in place of whatever lies at their paths
  std::set<std::string> programs = {};
  std::vector<std::string> setup = {};  // commands that run then
  Expectation expectation = {};
  std::optional<double> least_reward = {};  // below it the episode ends with this step
  Solution solution = {};
};

struct Task {
  TaskSpec spec;
  std::string name;  // of a task that somebody wrote: "strings/reverse"; empty for one that is made
  std::string instruction;
  std::optional<TaskBase> base = {};  // below the files
  Files files;
  std::set<std::string> programs;  // those of the files that can be run
  std::vector<std::string> setup;  // commands before the model begins; what they export stays
  std::vector<std::string>
      needs;  // without which it cannot be judged: programs, absolute paths, "package NAME" of Debian, "python NAME"
  std::string image;  // of a container engine, whose programs there are and whose files the workspace begins with;
                      // empty: those of this machine
  Links links;
  int disk_mb = kUsualDiskMb;  // of the workspace, and of /tmp
  AllowList network;           // the hosts that programs may speak to while the model works, never while tests run
  std::vector<McpServerSpec> servers;  // whose tools the model has beside ours
  int max_turns = 3;                   // assistant messages
  bool ends_on_change = true;          // the first turn that changes files is the last
  Expectation expectation;
  Solution solution;
  // Where there are several, the instruction, the expectation and the solution above are those of the step that is on.
  // The reward is the mean of those that were begun, or that of the last of them.
  std::vector<TaskStep> steps;
  bool last_step_counts = false;

  // Puts what is of this step in its place.
  void begin_step(size_t number);

  // Parts that the task was composed from, for the proofs that splits share nothing.
  std::string wording;                  // the instruction with its slots unfilled
  std::vector<std::string> vocabulary;  // the words that names and values were made of
  std::vector<std::string> formats;     // file formats, by extension
};

}  // namespace tandem::envs
