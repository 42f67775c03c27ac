// Whether an evaluation may pass, gate by gate. Pure.
#pragma once

#include "base/exit_code.h"
#include "eval/night.h"

namespace tandem::eval {

struct GateResult {
  std::string name;  // its key in the suite; of the blessed evaluation with "_blessed" behind
  bool passed = true;
  std::optional<double> value;  // nothing where there was none
  double limit = 0;
  std::string says;  // in words
};

// Checks the gates of the suite, max_error_share, and max_regression_points where there is an evaluation to compare
// with. Regressions and increases of the work count where they are sure; those that are not pass, and say so.
std::vector<GateResult> check_gates(const Gates& gates, const NightSummary& summary, const NightComparison* against,
                                    const NightComparison* blessed);

// kIncomplete where max_error_share failed, whatever the others say: there is too little to judge by; else
// kRegression where a gate failed.
ExitCode exit_code_of(const std::vector<GateResult>& gates);

Json to_json(const std::vector<GateResult>& gates);

}  // namespace tandem::eval
