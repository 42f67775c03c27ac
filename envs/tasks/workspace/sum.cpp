// sum: add up the numbers of one or two files.
#include "envs/tasks/workspace/kind.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kSum[] = {"add up",
                                     "sum",
                                     "total",
                                     "compute the sum of",
                                     "work out the total of",
                                     "calculate the sum of",
                                     "tell me the sum of",
                                     "find the total of",
                                     "combine",
                                     "give me the total of",
                                     "determine the sum of",
                                     "put together",
                                     "tally"};
constexpr std::string_view kNumbers[] = {
    "the numbers",    "all numbers", "all the values",          "the amounts", "the figures", "every number",
    "the quantities", "all amounts", "the values of all lines", "the counts",  "each value",  "the last column"};
constexpr std::string_view kSumFrames[] = {"<sum> <numbers> in {files}<tail>",
                                           "<open> <sum> <numbers> in {files}<tail>",
                                           "in {files}, <sum> <numbers><tail>",
                                           "{files}: <sum> <numbers><tail>",
                                           "<sum> <numbers> that are listed in {files}<tail>",
                                           "<sum> <numbers> of {files}<tail>",
                                           "take {files} and <sum> <numbers><tail>",
                                           "looking at {files}, <sum> <numbers><tail>",
                                           "I need one total: <sum> <numbers> in {files}<tail>",
                                           "what do you get if you <sum> <numbers> in {files}? Do it<tail>",
                                           "<open> take {files}, then <sum> <numbers><tail>",
                                           "from {files}, <sum> <numbers><tail>",
                                           "for the whole of {files}, <sum> <numbers><tail>",
                                           "read {files} and <sum> <numbers><tail>"};
constexpr Grammar::Part kSumParts[] = {{"sum", kSum}, {"numbers", kNumbers}, {"open", kOpen}, {"tail", kReport}};

}  // namespace

bool build_sum(Draft& draft) {
  Task& task = draft.task;
  task.max_turns = 4;
  const auto& format = draft.format(records_formats());
  const size_t files = 1 + draft.random.below(2);
  std::vector<std::string> paths;
  int64_t total = 0;
  for (size_t f = 0; f < files; ++f) {
    std::vector<Entry> entries;
    const size_t rows = 3 + draft.random.below(3);
    for (size_t i = 0; i < rows; ++i) {
      const auto value = draft.random.between(2, 99);
      total += value;
      entries.push_back({draft.words.draw(Words::kThing), std::to_string(value)});
    }
    paths.push_back(draft.new_path(format.extension));
    task.files[paths.back()] = format.render(entries);
  }
  if (draft.random.chance(0.4)) add_notes_file(draft);

  draft.instruct({kSumFrames, kSumParts}, {{"files", files == 1 ? paths[0] : paths[0] + " and " + paths[1]}});
  task.expectation.files = task.files;
  task.expectation.answer = std::to_string(total);
  std::string command = "awk -F'[^0-9]+' '{s += $NF} END {print s}'";  // whatever stands before the numbers
  for (const auto& path : paths) command += " " + path;
  task.solution.turns = {{shell_call(command)}};
  task.solution.answer = std::to_string(total);
  return true;
}

}  // namespace tandem::envs
