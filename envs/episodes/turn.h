// The calls of one message, run in a sandbox: the same way in training and in production.
#pragma once

#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "envs/sandbox/sandbox.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// A call as a model wrote it. What could not be read is answered with its error, which the model reads.
struct ParsedCall {
  Call call;
  std::string error;  // empty where the call could be read
  std::string id;     // by which the result is told from others; empty where nobody needs it
  friend bool operator==(const ParsedCall&, const ParsedCall&) = default;
};

// The most calls of one message. Parsers drop further calls, and replace the last one by an error.
inline constexpr unsigned kMostCalls = 1024;

// Told of each outcome as it comes; perhaps from several threads, one at a time.
using OnOutcome = std::function<void(size_t index, const ToolOutcome& outcome)>;

// Whether a call changes nothing, whatever it gives.
bool only_reads(const Call& call);

// The end of the calls that run at once with calls[begin]: those that only read and follow each other.
size_t end_of_parallel(std::span<const ParsedCall> calls, size_t begin);

// Calls that only read run at once, those that may change files one after another, in order. Calls that could not be
// parsed give their error. Outcomes are in the order of the calls. Fails where the sandbox does, and with kCancelled
// where `stop` was asked for before the last call had begun.
Result<std::vector<ToolOutcome>> run_turn(Sandbox& sandbox, std::span<const ParsedCall> calls,
                                          const std::stop_token& stop = {}, const OnOutcome& on_outcome = {});

}  // namespace tandem::envs
