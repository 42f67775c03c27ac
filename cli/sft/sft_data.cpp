#include "cli/sft/sft_data.h"

#include <fmt/format.h>

#include "base/digest.h"
#include "base/iso_time.h"
#include "rollout/books/trajectory.h"
#include "rollout/coordinator.h"
#include "run/resume.h"

namespace tandem::cli {

using trainer::Purpose;

namespace {

constexpr const char* kTokenizer = "tokenizer.json";

// The episodes that a run trained on, with their rewards; token ids mean something to one tokenizer alone.
Status add_run(const fs::path& run_dir, const fs::path& model, Purpose purpose, trainer::SampleReader& reader) {
  std::error_code error;
  if (!fs::exists(run_dir / "config.resolved.json", error)) {
    return Status::invalid("is a folder, and not that of a run: it has no config.resolved.json")
        .at(run_dir.string())
        .hint("name files of transcripts, or the directory of a run");
  }
  const std::string theirs = TRY(read_file(run_dir / "model" / kTokenizer)), ours = TRY(read_file(model / kTokenizer));
  if (digest_of(theirs) != digest_of(ours)) {
    return Status::invalid(fmt::format("its episodes are tokens of another tokenizer than that of {}", model.string()))
        .at(run_dir.string())
        .hint("train the model that the run trained, or one with its tokenizer.json");
  }
  const rollout::RunPlan plan = TRY(run::plan_of(TRY(run::read_resolved(run_dir)), run_dir));
  const auto store = TRY(rollout::TrajectoryStore::open_to_read(run_dir / "trajectories"));
  const auto add = [&](const rollout::EpisodeRecord& episode) -> Status {
    const rollout::EpisodeKey key{episode.episode, episode.attempt};
    if (!store.contains(key)) return {};
    auto trajectory = TRY(store.read(key));
    trainer::Episode tokens{.tokens = std::move(trajectory.tokens),
                            .sampled = std::move(trajectory.sampled),
                            .reward = {},
                            .split = episode.split,
                            .later_segments = std::move(trajectory.later_segments)};
    if (episode.commit && episode.commit->key == key) tokens.reward = episode.commit->reward;
    reader.add_episode(fmt::format("{} episode {}", run_dir.string(), episode.episode), std::move(tokens), purpose);
    return {};
  };
  TRY(rollout::read_episodes(run_dir, plan, add));
  return {};
}

}  // namespace

Result<trainer::ChatRenderer> load_renderer(const SftConfig& config) {
  trainer::RenderingSettings settings;
  if (config.data.tool_calls == "text") settings.calls = trainer::CallWriting::kText;
  if (!config.data.now.empty()) settings.now = parse_iso_time(config.data.now);
  return trainer::ChatRenderer::load(config.model, settings);
}

Result<trainer::SampleSet> read_samples(const SftConfig& config, const trainer::ChatRenderer& renderer) {
  const auto& data = config.data;
  trainer::SampleReader reader(
      renderer, {.max_tokens = std::min(data.max_tokens, renderer.config().max_positions),
                 .min_reward = data.min_reward,
                 .validation_share = data.validation_share,
                 .on_mistake = data.on_error == "skip" ? trainer::OnMistake::kSkip : trainer::OnMistake::kStop,
                 .pairs = config.on_pairs()});
  const auto add = [&](const std::string& path, Purpose purpose) {
    std::error_code error;
    if (!fs::is_directory(path, error)) return reader.add_file(path, purpose);
    if (config.on_pairs()) return reader.add_mistake(path + ": is a folder, not a file of pairs");
    if (Status status = add_run(path, config.model, purpose, reader); !status.ok())
      reader.add_mistake(status.to_string());
  };
  for (const auto& path : config.on_pairs() ? data.preferences : data.train) add(path, Purpose::kTrain);
  for (const auto& path : data.validation) add(path, Purpose::kValidate);
  return reader.finish();
}

}  // namespace tandem::cli
