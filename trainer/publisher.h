// The versions of the weights that a trainer offers to rollouts, and the audit of the bytes that they are sent.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/json.h"
#include "kernels/threads.h"
#include "trainer/learn/learner.h"
#include "weights_sync/history.h"

namespace tandem::trainer {

struct PublisherSettings {
  fs::path run_dir;
  weights_sync::HistorySettings history;
  int threads = 1;
  int audit_every = 1;  // versions between two audits; 0: none
};

class Publisher {
 public:
  // `learner` and `clock` outlive it.
  Publisher(PublisherSettings settings, const Learner& learner, const Clock& clock);

  // The learner's weights as a version, the number of its steps.
  std::shared_ptr<const weights_sync::Offer> publish();

  // Why the last audit could not be made; ok where it was.
  const Status& audited() const { return audited_; }
  // What the last audit found; null before the first.
  const Json& audit() const { return audit_; }

 private:
  Status audit(uint64_t version, const weights_sync::Object& published);

  const PublisherSettings settings_;
  const Learner& learner_;
  const Clock& clock_;
  weights_sync::History history_;
  kernels::ThreadPool threads_;
  Json audit_;
  Status audited_;
};

}  // namespace tandem::trainer
