// RUN/starts.log: every start of a process of the run, counted.
//
// The number of a start is the epoch of that process: it tells the process from its earlier lives, of this attempt and
// of those before, whatever the clocks of the machines say. Whoever starts a process counts it: the supervisor, or the
// process itself where it is started by hand.
#pragma once

#include "base/clock.h"
#include "base/file.h"
#include "wire/peer.h"

namespace tandem::run {

// The number of the start that follows now, from 1; it is on disk when this returns. The wall clock is for the record.
// Several processes may count at once. kCorrupt where the log is damaged in the middle.
Result<uint64_t> count_start(const fs::path& run_dir, const wire::Peer& peer, const Clock& clock);

}  // namespace tandem::run
