#include "envs/tasks/task.h"

#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr std::array<std::string_view, kSplits.size()> kTaskNames = {"train", "heldout", "heldout_instances",
                                                                     "heldout_wordings", "heldout_formats"};

}  // namespace

std::string_view to_string(Split split) { return kTaskNames[static_cast<size_t>(split)]; }

Result<Split> split_from(std::string_view name) {
  for (size_t i = 0; i < kTaskNames.size(); ++i) {
    if (kTaskNames[i] == name) return kSplits[i];
  }
  return fail(Status::invalid("there is no split \"" + std::string(name) + "\"" + did_you_mean(name, kTaskNames)));
}

double seconds_of(const Expectation& expectation) {
  constexpr int kProgramsOfCalls = 3;
  double seconds = expectation.calls ? kProgramsOfCalls * expectation.calls->seconds : 0;
  if (!expectation.commands) return seconds;
  for (const CheckCommand& command : expectation.commands->commands) seconds += command.seconds;
  return seconds;
}

void Task::begin_step(size_t number) {
  const TaskStep& step = steps.at(number);
  instruction = step.instruction;
  expectation = step.expectation;
  solution = step.solution;
}

std::string TaskSpec::id() const {
  return kind + "/" + std::string(envs::to_string(split)) + "/" + std::to_string(seed);
}

}  // namespace tandem::envs
