// Standard input, output and errors as this program needs them: all three are there, and what cannot be written to
// standard error is left out, since a command must not end because nobody reads what it says.
//
// Thread safety: `prepare_standard_streams` once, before other threads; then as stdio's.
#pragma once

#include "base/status.h"

namespace tandem::cli {

// Closed ones are opened on /dev/null, so that no file of the program gets their numbers.
void prepare_standard_streams();

// Writes what stands in the buffer of standard output. The error of this or of any earlier write.
Status finish_standard_output();

}  // namespace tandem::cli
