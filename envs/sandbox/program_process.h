// Processes of the static program, or of this program where there is none.
#pragma once

#include <string>

#include "base/file.h"
#include "base/status.h"

namespace tandem::envs {

struct StartedProgram {
  FileDescriptor socket;  // to it, of whole messages
  int process = -1;       // a child, to be waited for
};

// With the command line `name hidden 3 label`, in which 3 is the number of its socket and all that it has open beyond
// the standard streams.
Result<StartedProgram> start_program(std::string name, std::string hidden, std::string label);

}  // namespace tandem::envs
