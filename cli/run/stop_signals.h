// Signals that stop `tandem run`.
//
// SIGTERM and SIGUSR1 come from schedulers: they ask for a checkpoint and a clean end, however often they come. SIGINT
// comes from a person: the first asks for the same, one while the run is stopping ends everything at once.
//
// Thread safety: one at a time in a process; asked on one thread.
#pragma once

#include "run/supervision.h"

namespace tandem::cli {

// Until the run begins there is nothing to save: SIGINT, SIGTERM and SIGUSR1 end the process with kInterrupted.
void end_on_signals();

// From now on signals are kept for next_interrupt.
void keep_signals();

// The oldest one that has not been returned yet; nothing where there is none.
std::optional<run::Supervision::Interrupted> next_interrupt();

}  // namespace tandem::cli
