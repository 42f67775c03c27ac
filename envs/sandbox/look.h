// A program that an operator runs in a sandbox to look in: the request and its outcome as fields of frames, and the
// part that the sandbox does.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "envs/sandbox/frames.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

std::string encode(const LookRequest& request);
Result<LookRequest> decode_look(FieldReader& fields);

// In the process that serves it: runs the program where the session's shell is, or in `root`. The reply for
// decode_looked.
std::string serve_look(FieldReader& fields, const std::filesystem::path& root, const Session& session);

// kUnavailable for an empty reply: the program was ended from outside before it was done.
Result<LookOutcome> decode_looked(std::string_view reply);

}  // namespace tandem::envs
