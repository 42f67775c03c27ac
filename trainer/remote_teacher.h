// Gives the samples of a step the logprobs of a teacher behind an endpoint: those that the run directory has, else
// those that the endpoint says, which are on disk before they are used.
//
// Thread safety: none; one owner.
#pragma once

#include <stop_token>

#include "standby/replicator.h"
#include "trainer/stored_batches.h"
#include "trainer/teacher_client.h"
#include "trainer/teacher_record.h"

namespace tandem::trainer {

class RemoteTeacher {
 public:
  // `standby`: null without one; it has a record before the step is taken.
  RemoteTeacher(fs::path run_dir, const TeacherEndpoint& endpoint, std::string key, standby::Replicator* standby,
                const Clock& clock)
      : run_dir_(std::move(run_dir)), client_(endpoint, std::move(key), clock), standby_(standby), clock_(clock) {}

  // kUnfit or kInvalid, with the reason, where the endpoint does not say them: starting the trainer again would not
  // help. kCancelled where `stop` was asked for.
  Status teach(Loaded& loaded, const std::stop_token& stop);

 private:
  const fs::path run_dir_;
  TeacherClient client_;
  standby::Replicator* const standby_;
  const Clock& clock_;
};

}  // namespace tandem::trainer
