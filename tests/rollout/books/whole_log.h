// The books by the plainest way to read a log: every event into a ledger that keeps every episode.
#pragma once

#include <gtest/gtest.h>

#include "base/record_log.h"
#include "rollout/books/ledger_log.h"

namespace tandem::rollout {

// Reads a log whose first event is its plan.
inline Ledger whole_log(const fs::path& run_dir) {
  Ledger ledger(History::kFull);
  const auto replay = [&](std::string_view record, uint64_t) -> Status {
    (void)ledger.step(TRY(event_from_json(TRY(parse_json(record)))));
    return {};
  };
  const auto content = read_log(ledger_log_path(run_dir), replay);
  EXPECT_TRUE(content) << content.error().to_string();
  return ledger;
}

}  // namespace tandem::rollout
