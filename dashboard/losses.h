// Detects events that the log of a run has lost, by comparison with other files of the run.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "rollout/books/ledger.h"

namespace tandem::dashboard {

// A line for people for each piece of evidence: bytes at the end of the log that are no whole record, steps and
// episodes that other files know of and the books, `ledger`, do not. Nothing while the run is on: then the files do not
// stand still.
std::vector<std::string> losses_of(const fs::path& run_dir, const rollout::Ledger& ledger);

}  // namespace tandem::dashboard
