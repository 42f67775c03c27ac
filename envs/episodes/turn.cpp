#include "envs/episodes/turn.h"

#include <future>
#include <mutex>

namespace tandem::envs {

bool only_reads(const Call& call) {
  const Tool* tool = find_tool(call.name);
  return tool && effect_of(*tool, call.arguments) == ToolEffect::kReads;
}

size_t end_of_parallel(std::span<const ParsedCall> calls, size_t begin) {
  size_t end = begin + 1;
  if (only_reads(calls[begin].call)) {
    while (end < calls.size() && only_reads(calls[end].call)) ++end;
  }
  return end;
}

Result<std::vector<ToolOutcome>> run_turn(Sandbox& sandbox, std::span<const ParsedCall> calls,
                                          const std::stop_token& stop, const OnOutcome& on_outcome) {
  std::vector<Result<ToolOutcome>> results(calls.size(), ToolOutcome{});
  std::mutex telling;
  const auto run_one = [&](const ParsedCall& parsed) -> Result<ToolOutcome> {
    if (parsed.error.empty()) return sandbox.call(parsed.call.name, parsed.call.arguments, stop);
    ToolOutcome outcome;
    outcome.output = parsed.error;
    return outcome;
  };
  const auto run = [&](size_t i) {
    auto result = run_one(calls[i]);
    if (result && on_outcome) {
      std::lock_guard lock(telling);
      on_outcome(i, *result);
    }
    return result;
  };
  for (size_t begin = 0; begin < calls.size();) {
    const size_t end = end_of_parallel(calls, begin);
    std::vector<std::future<Result<ToolOutcome>>> others;
    for (size_t i = begin + 1; i < end; ++i) others.push_back(std::async(std::launch::async, run, i));
    results[begin] = run(begin);
    for (size_t i = begin + 1; i < end; ++i) results[i] = others[i - begin - 1].get();
    begin = end;
  }
  std::vector<ToolOutcome> outcomes;
  for (auto& result : results) outcomes.push_back(TRY(std::move(result)));
  return outcomes;
}

}  // namespace tandem::envs
