// How well an episode ended: 1 or 0, from the files left behind, the final answer, and hidden tests; never from what
// the model says about itself.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "envs/task.h"

namespace tandem::envs {

struct Grade {
  double reward = 0;                    // 1 where every term is 1, else 0
  std::map<std::string, double> terms;  // files, answer, tests: those that the task has
};

// Runs a Python program over `files` in a fresh sandbox and returns what it printed. An error means that the sandbox
// failed, not the program.
using Runner = std::function<Result<std::string>(const Files& files, const std::string& program)>;

// An error only where the runner failed: such an episode has no reward at all.
//
// Files must be the expected ones exactly, but for the last line end; `__pycache__` is not looked at.
Result<Grade> grade(const Task& task, const Files& left_behind, std::string_view final_answer, const Runner& runner);

// Whether an answer names the expected value, and only it. Accepted is, after trimming spaces, quotes and a full stop:
// the value itself; a last line that is the value; a text of which the only quoted or backticked part is the value; a
// text of at most 20 words that has the value as a whole word, and no distractor, and where the value is a number, no
// other number.
bool answer_matches(std::string_view answer, std::string_view expected, const std::vector<std::string>& distractors);

}  // namespace tandem::envs
