// Checks of a run before a process is started or a file written, and the lock of its folder.
#pragma once

#include "base/folder_lock.h"
#include "rollout/agent/conversation.h"
#include "rollout/agent/hint.h"
#include "run/config.h"
#include "run/layout.h"

namespace tandem::run {

// As model.path: made when the run starts. tiny:NAME has the notation of tool calls of that name.
constexpr std::string_view kTinyModel = "tiny";
inline bool is_tiny(std::string_view path) { return path == kTinyModel || path.starts_with("tiny:"); }

// Settings of the conversation with the model, from the config.
rollout::ConversationSettings conversation_settings(const RunConfig& config);

// Settings of the hints that its trajectories have.
rollout::HintSettings hint_settings(const RunConfig& config);

// Config, model folder (its tokenizer and template, every tensor's place, type and size), a teacher's, and whether a
// sandbox can be made here.
Status check_inputs(const RunConfig& config);

// Held by the one `tandem run` that may write to a run directory, until it ends in whatever way; made where it is
// missing. kInvalid names the process that has it; kUnfit says what to do where this user cannot write there.
Result<FolderLock> claim_run_dir(const fs::path& run_dir);

// Checks that a run directory contains only files and folders. kInvalid names the first other entry: a role that opens
// a pipe would block.
Status check_run_files(const fs::path& run_dir);

// Checks the formats of the files that a run goes on with and reads late. kInvalid names the first that is of another
// format. What is damaged passes.
Status check_formats(const fs::path& run_dir);

// The same as claim_run_dir for one role of the run, by its process: two of one rank would write the same files. Waits
// some seconds for one that is ending. kUnavailable where the run is not on.
Result<FileDescriptor> claim_role(const RunLayout& layout, const wire::Peer& peer);

}  // namespace tandem::run
