#include "cli/run/demonstrations.h"

#include <fmt/format.h>

#include "cli/sft/sft_data.h"
#include "run/checks.h"
#include "run/run_step.h"
#include "trainer/learn/demonstrations.h"

namespace tandem::cli {

namespace {

Result<trainer::SampleSet> read_for(const run::RunConfig& config, const fs::path& model) {
  SftConfig sft;
  sft.model = model.string();
  sft.data.train = config.algorithm.demonstrations.data;
  sft.data.max_tokens = config.rollout.max_tokens;  // passes are planned for samples of this length
  sft.data.now = config.model.now;
  return read_samples(sft, TRY(load_renderer(sft)));
}

}  // namespace

Status provide_demonstrations(const run::RunConfig& config, const fs::path& run_dir) {
  const fs::path path = run_dir / trainer::kDemonstrationsFile;
  std::error_code error;
  if (config.algorithm.demonstrations.data.empty() || fs::exists(path, error)) return {};
  auto set = read_for(config, run_dir / "model");
  if (!set) return Status(set.error()).at("algorithm.demonstrations.data");
  std::vector<trainer::Sample> samples;
  for (auto& placed : set->train) samples.push_back(std::move(placed.sample));
  TRY(trainer::write_demonstrations(path, samples));
  fmt::print(stderr, "demonstrations: {} samples with {} tokens to learn from\n", samples.size(),
             trainer::trained_tokens(samples));
  const int64_t left_out = set->too_long + set->low_reward + set->without_reward + set->heldout;
  if (left_out > 0) {
    fmt::print(stderr, "  {} left out: {} longer than rollout.max_tokens, {} episodes without success, {} held out\n",
               left_out, set->too_long, set->low_reward + set->without_reward, set->heldout);
  }
  return {};
}

Status check_demonstrations(const run::RunConfig& config) {
  if (config.algorithm.demonstrations.data.empty() || run::is_tiny(config.model.path)) return {};
  const auto set = read_for(config, TRY(run::model_to_check(config.model.path)));
  return set ? Status() : Status(set.error()).at("algorithm.demonstrations.data");
}

}  // namespace tandem::cli
