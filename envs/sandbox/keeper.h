// Programs beside the server that leave nothing behind, whatever sessions and process groups their children move to,
// and also where the server is killed.
//
// Between the server and the program stand two processes of this executable: the one that the server started and waits
// for, and one in a session of its own that takes in all orphans (PR_SET_CHILD_SUBREAPER). When the program ends, the
// first one is killed, or the server is gone, the second ends every process below it, and itself. A program that kills
// that one by its number can still leave some: this is for programs of the user's own, and no sandbox.
#pragma once

#include <string>
#include <vector>

namespace tandem::envs {

extern const char* const kKeepArgument;

// Returns the command to start in place of `argv`, whose first entry is a path, by run_process or start_process. Its
// exit code is the program's, 128 + N after signal N, 127 where it could not be started.
std::vector<std::string> kept(std::vector<std::string> argv);

}  // namespace tandem::envs
