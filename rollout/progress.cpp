// How far a run is, as the coordinator reports it and as its books say afterwards.
#include "rollout/books/measured_checkpoints.h"
#include "rollout/coordinator.h"

namespace tandem::rollout {

Json progress_of(const Ledger& ledger) {
  const Books books = ledger.books();
  return {{"phase", to_string(ledger.phase())},
          {"step", ledger.steps_trained()},
          {"steps", ledger.plan().steps},
          {"measured", newest_measurement(ledger)},
          {"measuring", ledger.measuring() > 0 ? Json(ledger.measuring()) : Json()},
          {"late_commits", ledger.late_commits()},
          {"episodes",
           {{"admitted", books.admitted},
            {"trained", books.trained},
            {"dropped", books.dropped},
            {"in_flight", books.in_flight},
            {"states", ledger.in_states()},
            {"too_old", ledger.too_old()},
            {"waits_for_lag", ledger.waits_for_lag()}}}};
}

}  // namespace tandem::rollout
