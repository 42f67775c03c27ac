// `tandem sft` on transcripts: reads them, shows what would be learned, trains.
#pragma once

#include "cli/sft/sft_config.h"

namespace tandem::cli {

struct SftOptions {
  std::string config;
  std::vector<std::string> overrides;
  bool resume = false, dry_run = false, json = false;
  int show = 0;  // the sample to show, from 1; 0: train
};

// The result is the exit code.
Result<int> train_on_transcripts(const SftOptions& options, const SftConfig& config, const Schema& schema);

}  // namespace tandem::cli
