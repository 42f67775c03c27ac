// The loss of a batch with its gradient by logprob and its advantages, for every named algorithm: `tandem loss` prints
// them. Built on trainer/learn/sequence_loss.h, as a training step is.
//
// Formulas and their sources: docs/algorithms.md. Everything in double, sums from left to right. Pure functions.
#pragma once

#include <map>
#include <string>

#include "base/status.h"
#include "trainer/learn/algorithm.h"
#include "trainer/learn/batch.h"
#include "trainer/learn/own_functions.h"
#include "trainer/learn/teacher_term.h"

namespace tandem::trainer {

struct BatchLoss {
  double loss = 0;
  Rows grad_logprobs;    // 0 where the mask is 0
  Rows advantages;       // the same
  Rows returns;          // what the critic should have said, of AdvantageKind::kGae from rewards; else empty
  TeacherCounts taught;  // none where the batch has no logprobs of a teacher
  std::map<std::string, double> metrics;
  std::map<std::string, double> function_metrics;  // of functions of the user's own
};

// The advantages and returns of a batch, from its rewards and a teacher's logprobs.
struct Credit {
  Rows advantages;  // 0 where the mask is 0
  Rows returns;     // as BatchLoss has them
  TeacherCounts taught = {};
  std::map<std::string, double> function_metrics = {};  // of advantages of the user's own, as advantage_NAME
};
// Arguments and errors are those of batch_loss().
Result<Credit> credit_of(const LossBatch& batch, const Algorithm& algorithm, const OwnFunctions& functions = {},
                         int64_t step = 0);

// kInvalid where something that the algorithm needs is missing, or a correction would count twice. Sizes must agree.
// `functions` are needed for a custom loss or custom advantages.
Result<BatchLoss> batch_loss(const LossBatch& batch, const Algorithm& algorithm, const OwnFunctions& functions = {},
                             int64_t step = 0);

}  // namespace tandem::trainer
