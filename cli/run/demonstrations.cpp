#include "cli/run/demonstrations.h"

#include <fmt/format.h>

#include "cli/sft/sft_data.h"
#include "envs/episodes/opening.h"
#include "model/config.h"
#include "rollout/agent/conversation.h"
#include "run/checks.h"
#include "run/run_step.h"
#include "trainer/learn/demonstrations.h"

namespace tandem::cli {

namespace {

constexpr const char* kKey = "algorithm.demonstrations.data";

Result<trainer::SampleSet> read_for(const run::RunConfig& config, const fs::path& model) {
  SftConfig sft;
  sft.model = model.string();
  sft.data.train = config.algorithm.demonstrations.data;
  sft.data.max_tokens = config.rollout.max_tokens;  // passes are planned for samples of this length
  sft.data.now = config.model.now;
  // Calls are written as in the run's own episodes.
  const auto conversation = TRY(rollout::Conversation::load(model, run::conversation_settings(config)));
  if (conversation.listing() == envs::ToolListing::kInMessages) sft.data.tool_calls = "text";
  auto set = read_samples(sft, TRY(load_renderer(sft)));
  if (set) return set;
  return fail(Status(set.error())
                  .at(fmt::format("{} (data.max_tokens is rollout.max_tokens, and data.min_reward is 1)", kKey)));
}

// The run goes on with what it began with: other samples, or damaged ones, would make another model of it.
Status check_recorded(const fs::path& path, const fs::path& run_dir) {
  const model::ModelConfig model = TRY(model::read_config(run_dir / "model"));
  const auto read = trainer::Demonstrations::read(path, model.vocabulary, model.max_positions);
  if (read) return {};
  return Status(read.error()).at(kKey).hint("bring back the file as the run wrote it, or start the run anew");
}

}  // namespace

Status provide_demonstrations(const run::RunConfig& config, const fs::path& run_dir) {
  const fs::path path = run_dir / trainer::kDemonstrationsFile;
  std::error_code error;
  if (config.algorithm.demonstrations.data.empty()) return {};
  if (fs::exists(path, error)) return check_recorded(path, run_dir);
  if (fs::exists(run_dir / "trajectories", error)) {  // the trainer makes it, after this
    return Status::corrupt(fmt::format("{} is gone, and the run has begun with it", path.string()))
        .at(kKey)
        .hint("bring back the file as the run wrote it, or start the run anew");
  }
  auto set = TRY(read_for(config, run_dir / "model"));
  std::vector<trainer::Sample> samples;
  for (auto& placed : set.train) samples.push_back(std::move(placed.sample));
  TRY(trainer::write_demonstrations(path, samples));
  fmt::print(stderr, "demonstrations: {} samples with {} tokens to learn from\n", samples.size(),
             trainer::trained_tokens(samples));
  const int64_t left_out = set.too_long + set.low_reward + set.without_reward + set.heldout + set.muted;
  if (left_out > 0) {
    fmt::print(
        stderr,
        "  {} left out: {} longer than rollout.max_tokens, {} episodes without success, {} held out, {} of weight 0\n",
        left_out, set.too_long, set.low_reward + set.without_reward, set.heldout, set.muted);
  }
  return {};
}

Status check_demonstrations(const run::RunConfig& config) {
  if (config.algorithm.demonstrations.data.empty() || run::is_tiny(config.model.path)) return {};
  TRY(read_for(config, TRY(run::model_to_check(config.model.path))));
  return {};
}

}  // namespace tandem::cli
