// Reads the result that a grading script has left behind, as Harbor does, and detects a missing verdict.
//
// Pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "envs/tasks/task.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

struct VerifierRewards {
  double reward = 0;                      // from 0 to 1
  std::map<std::string, double> metrics;  // the other numbers
};

// A command that prints what read_rewards reads, whatever is there.
std::string print_rewards_command();

// /logs/verifier/reward.json where it is there, else reward.txt. JSON is a number, or an object of numbers: `reward` is
// the reward, or the only number, whatever it is called; texts beside a `reward` are left out. kInvalid, in words, for
// everything else; also where both are there and differ, or where they were left so that a script could not have
// written them.
Result<VerifierRewards> read_rewards(std::string_view printed);

// The end of an output, which is where tests say what failed.
std::string last_lines(std::string_view output);

// Whether a command was ended by its time, and whether that was less than what the task gives it.
bool is_out_of_time(const ToolOutcome& outcome);
bool is_cut_short(const CheckCommand& command, const ToolOutcome& outcome);

// kInvalid, with the output, where `check.verifier` was ended before it gave a verdict.
Status check_verifier(const CommandCheck& check, const CheckCommand& command, const ToolOutcome& outcome);

// kInvalid: that `check.verifier` gave no verdict, why, and the end of what it printed.
Status no_verdict(const CommandCheck& check, const std::string& why, std::string_view output);

}  // namespace tandem::envs
