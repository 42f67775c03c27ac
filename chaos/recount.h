// The books of a run counted again, from its log and its trajectories: what was lost, what is there twice.
//
// Thread safety: none needed.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace tandem::chaos {

struct Recount {
  uint64_t admitted = 0, trained = 0, dropped = 0, in_flight = 0;  // as the ledger has them
  uint64_t lost = 0, duplicated = 0;
  std::vector<std::string> findings;  // a sentence for each that is counted in `lost` or `duplicated`
};

// Lost is a trained episode whose trajectory is not on disk, one that was dropped because its trajectory was gone, one
// that is neither under way nor trained nor dropped, and one that a batch lacks; duplicated is one that is in the books
// twice or that a batch has more than it may.
Result<Recount> recount(const fs::path& run_dir);

Json to_json(const Recount& recount);

}  // namespace tandem::chaos
