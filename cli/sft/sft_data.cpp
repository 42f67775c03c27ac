#include "cli/sft/sft_data.h"

#include <fmt/format.h>

#include <map>

#include "base/digest.h"
#include "base/iso_time.h"
#include "rollout/books/trajectory.h"
#include "rollout/coordinator.h"
#include "run/resume.h"

namespace tandem::cli {

using trainer::Purpose;

namespace {

constexpr const char* kTokenizer = "tokenizer.json";

struct RecordedRun {
  rollout::RunPlan plan;
  rollout::TrajectoryStore store;
};

// Token ids mean something to one tokenizer alone.
Result<RecordedRun> open_run(const fs::path& run_dir, const fs::path& model) {
  std::error_code error;
  if (!fs::exists(run_dir / "config.resolved.json", error)) {
    return fail(Status::invalid("is a folder, and not that of a run: it has no config.resolved.json")
                    .at(run_dir.string())
                    .hint("name files of transcripts, or the directory of a run"));
  }
  const std::string theirs = TRY(read_file(run_dir / "model" / kTokenizer)), ours = TRY(read_file(model / kTokenizer));
  if (digest_of(theirs) != digest_of(ours)) {
    return fail(
        Status::invalid(fmt::format("its episodes are tokens of another tokenizer than that of {}", model.string()))
            .at(run_dir.string())
            .hint("train the model that the run trained, or one with its tokenizer.json"));
  }
  rollout::RunPlan plan = TRY(run::plan_of(TRY(run::read_resolved(run_dir)), run_dir));
  auto store = TRY(rollout::TrajectoryStore::open_to_read(run_dir / "trajectories"));
  return RecordedRun{std::move(plan), std::move(store)};
}

std::string place_of(const fs::path& run_dir, uint64_t episode) {
  return fmt::format("{} episode {}", run_dir.string(), episode);
}

Result<trainer::Episode> read_tokens(const rollout::TrajectoryStore& store, rollout::EpisodeKey key) {
  auto trajectory = TRY(store.read(key));
  return trainer::Episode{.tokens = std::move(trajectory.tokens),
                          .sampled = std::move(trajectory.sampled),
                          .reward = {},
                          .split = {},
                          .later_segments = std::move(trajectory.later_segments)};
}

// The episodes that a run trained on, with their rewards.
Status add_run(const fs::path& run_dir, const fs::path& model, Purpose purpose, trainer::SampleReader& reader) {
  const auto run = TRY(open_run(run_dir, model));
  const auto add = [&](const rollout::EpisodeRecord& episode) -> Status {
    const rollout::EpisodeKey key{episode.episode, episode.attempt};
    if (!run.store.contains(key)) return {};
    trainer::Episode tokens = TRY(read_tokens(run.store, key));
    tokens.split = episode.split;
    if (episode.commit && episode.commit->key == key) tokens.reward = episode.commit->reward;
    reader.add_episode(place_of(run_dir, episode.episode), std::move(tokens), purpose);
    return {};
  };
  TRY(rollout::read_episodes(run_dir, run.plan, add));
  return {};
}

// Adds for each group of a run that has different rewards its best and its worst episode, the earliest of equal
// ones.
Status add_pairs_of_run(const fs::path& run_dir, const fs::path& model, Purpose purpose,
                        trainer::SampleReader& reader) {
  struct Rewarded {
    rollout::EpisodeKey key;
    double reward = 0;
  };
  struct Extremes {
    Rewarded best, worst;
  };
  const auto run = TRY(open_run(run_dir, model));
  std::map<uint64_t, Extremes> groups;
  const auto add = [&](const rollout::EpisodeRecord& episode) -> Status {
    const rollout::EpisodeKey key{episode.episode, episode.attempt};
    if (episode.split != "train" || !episode.commit || episode.commit->key != key || !episode.commit->reward) return {};
    if (!run.store.contains(key)) return {};
    const Rewarded rewarded{key, *episode.commit->reward};
    auto& [best, worst] = groups.try_emplace(episode.group, Extremes{rewarded, rewarded}).first->second;
    if (rewarded.reward > best.reward) best = rewarded;
    if (rewarded.reward < worst.reward) worst = rewarded;
    return {};
  };
  TRY(rollout::read_episodes(run_dir, run.plan, add));
  for (const auto& [group, extremes] : groups) {
    const auto& [best, worst] = extremes;
    if (best.reward == worst.reward) continue;
    trainer::Episode chosen = TRY(read_tokens(run.store, best.key)), rejected = TRY(read_tokens(run.store, worst.key));
    chosen.reward = best.reward;
    reader.add_pair(fmt::format("{} and {}", place_of(run_dir, best.key.episode), worst.key.episode), std::move(chosen),
                    std::move(rejected), purpose);
  }
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
                 .pairs = config.on_pairs(),
                 .rewards = config.on_rewards(),
                 .margin = config.reward.margin});
  const auto add = [&](const std::string& path, Purpose purpose) {
    std::error_code error;
    if (!fs::is_directory(path, error)) return reader.add_file(path, purpose);
    const auto add_folder = config.on_pairs() ? add_pairs_of_run : add_run;
    if (Status status = add_folder(path, config.model, purpose, reader); !status.ok())
      reader.add_mistake(status.to_string());
  };
  for (const auto& path : config.on_pairs() ? data.preferences : data.train) add(path, Purpose::kTrain);
  for (const auto& path : data.validation) add(path, Purpose::kValidate);
  return reader.finish();
}

}  // namespace tandem::cli
