// Subcommands of `tandem eval`, one function each; they return the exit code.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"

namespace tandem::cli {

struct EvalOptions {
  std::string suite, out, against, endpoint, shard, device;
  std::vector<std::string> overrides;  // "a.b=v"
  bool json = false;
};
Result<int> run_eval(const EvalOptions& options);

// One evaluation out of the parts that --shard made.
Result<int> merge_evals(const std::vector<std::string>& parts, const std::string& out, const std::string& against,
                        bool json);
Result<int> compare_evals(const std::string& before, const std::string& after, double confidence, bool json);
Result<int> show_eval_history(const std::string& folder, bool json);
Result<int> bless_eval(const std::string& folder);

}  // namespace tandem::cli
