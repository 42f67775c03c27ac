// Grades an episode by its files, final answer and tests; never by the model's own claims.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "envs/tasks/runner.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

struct Grade {
  double reward = 0;  // 1 where every term is 1, else 0; of a check that leaves a reward, that number
  // files, answer, tests: those that the task has. Beside them tests_passed, a share, where the check knows it, and the
  // metrics that a verifier leaves beside its reward, by their names.
  std::map<std::string, double> terms;
  std::string why;                 // of a term that is not 1: what was found, for people
  std::string shown = {};          // what a judge compares with the other attempts at the task
  std::vector<double> turns = {};  // rewards of the messages of the model, where somebody says them; none else
};

// An error is one without a reward: kInvalid where the task's own tests gave no verdict (out of their time, a program
// that they lack, no reward), with the end of their output; else the runner failed.
//
// Files must be the expected ones exactly, but for the last line end; `__pycache__` is not looked at. `programs` are
// those of the files left behind that can be run. Of a task with a base that is prepared, `left_behind` are the files
// that are other than there, and `removed` those that are not there any more. Commands
// of a check meet `details`, too.
Result<Grade> grade(const Task& task, const Files& left_behind, std::string_view final_answer, const Runner& runner,
                    const std::set<std::string>& programs = {}, const std::set<std::string>& removed = {},
                    const TreeDetails& details = {});

// Whether an answer names the expected value, and only it. Accepted is, after trimming spaces, quotes and a full stop:
// the value itself; a last line that is the value; a text of which the only quoted or backticked part is the value; a
// text of at most 20 words that has the value as a whole word, and no distractor, and where the value is a number, no
// other number.
bool answer_matches(std::string_view answer, std::string_view expected, const std::vector<std::string>& distractors);

}  // namespace tandem::envs
