// Reads samples from the sources in `data` of a `tandem sft` config: files of transcripts, and run directories.
#pragma once

#include "cli/sft/sft_config.h"
#include "trainer/sft/sample_set.h"

namespace tandem::cli {

// As `data` says how the model's template is used.
Result<trainer::ChatRenderer> load_renderer(const SftConfig& config);

// kInvalid holds the mistakes of all of them.
Result<trainer::SampleSet> read_samples(const SftConfig& config, const trainer::ChatRenderer& renderer);

}  // namespace tandem::cli
