// `tandem envs exec`: encodes the request and its outcome as fields of frames, and runs the program inside the sandbox.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/fields.h"

namespace tandem::envs {

std::string encode(const ExecRequest& request);
Result<ExecRequest> decode_exec(FieldReader& fields);

// In the process that serves it: runs the program where the session's shell is, or in `root`, with its variables, or
// those of `environment` where the shell has none of its own. The reply for decode_exec_answer.
std::string serve_exec(FieldReader& fields, const std::filesystem::path& root, const Session& session,
                       const std::vector<std::string>& environment);

// kUnavailable for an empty reply: the program was ended from outside before it was done.
Result<ExecOutcome> decode_exec_answer(std::string_view reply);

}  // namespace tandem::envs
