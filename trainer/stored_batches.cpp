#include "trainer/stored_batches.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <map>

namespace tandem::trainer {

using rollout::EpisodeKey;
using rollout::SharedTrunk;
using rollout::Trajectory;
using rollout::TrajectoryStore;

Stored store_all(TrajectoryStore& store, const Received& received) {
  std::map<EpisodeKey, const Trajectory*> fresh;
  for (const Trajectory& t : received.trajectories) {
    if (!store.contains(t.key)) fresh[t.key] = &t;
  }
  Stored stored;
  std::vector<const Trajectory*> appended;
  for (const auto& [key, t] : fresh) {
    appended.push_back(t);
    stored.prompt_tokens += std::count(t->sampled.begin(), t->sampled.end(), 0);
    stored.generated_tokens += std::count(t->sampled.begin(), t->sampled.end(), 1);
  }
  if (!appended.empty()) stored.status = store.append(appended);
  stored.stored = store.size();
  return stored;
}

Result<std::optional<Demonstrations>> read_demonstrations(const fs::path& run_dir, const Algorithm& algorithm,
                                                          const model::ModelConfig& model) {
  if (algorithm.demonstrations.samples == 0) return std::optional<Demonstrations>();
  return TRY(Demonstrations::read(run_dir / kDemonstrationsFile, model.vocabulary, model.max_positions));
}

void add_demonstrations(const std::optional<Demonstrations>& demonstrations, const Algorithm& algorithm, uint64_t seed,
                        Loaded& loaded) {
  if (!demonstrations || loaded.samples.empty()) return;
  auto chosen = demonstrations->of_step(loaded.step, static_cast<size_t>(algorithm.demonstrations.samples), seed);
  std::ranges::move(chosen, std::back_inserter(loaded.samples));
}

namespace {

// What came of a trunk. Episodes of a family that were tried again alone may have drawn another one, under newer
// weights: only what has the same tokens by the same weights was drawn once.
struct Drawn {
  SharedTrunk trunk;
  size_t sample = 0;  // the first of it
};

bool have_same_trunk(const Sample& a, const Sample& b) {
  const auto same = [&](const auto& of_a, const auto& of_b) {
    return std::equal(of_a.begin(), of_a.begin() + a.trunk_tokens, of_b.begin());
  };
  return a.trunk_tokens == b.trunk_tokens && a.group == b.group && same(a.tokens, b.tokens) &&
         same(a.trained, b.trained) && same(a.logprobs, b.logprobs) && same(a.versions, b.versions);
}

}  // namespace

Loaded load(const TrajectoryStore& store, const Batch& batch, const Algorithm& algorithm) {
  Loaded loaded{.step = batch.step, .samples = {}, .missing = {}, .teacher_seconds = 0, .teacher = {}};
  std::vector<Drawn> trunks;
  for (const auto& entry : batch.entries) {
    auto trajectory = store.read(entry.key);
    if (!trajectory) {
      spdlog::error("step {}: {}", batch.step, trajectory.error().message());
      loaded.missing.push_back(entry.key);
      continue;
    }
    loaded.samples.push_back({.tokens = std::move(trajectory->tokens),
                              .trained = std::move(trajectory->sampled),
                              .logprobs = std::move(trajectory->logprobs),
                              .versions = std::move(trajectory->versions),
                              .advantage = entry.advantage,
                              .group = trajectory->group,
                              .turn_rewards = entry.turn_rewards,
                              .part = static_cast<uint32_t>(part_for(algorithm, entry.kind)),
                              .later_segments = std::move(trajectory->later_segments),
                              .routes = std::move(trajectory->routes),
                              .kept = std::move(trajectory->kept),
                              .metrics = entry.metrics,
                              .hint = std::move(trajectory->hint)});
    const SharedTrunk& trunk = trajectory->trunk;
    if (trunk.tokens == 0) continue;
    Sample& sample = loaded.samples.back();
    sample.trunk_tokens = trunk.tokens;
    const auto known = std::ranges::find_if(trunks, [&](const Drawn& drawn) {
      return drawn.trunk == trunk && have_same_trunk(loaded.samples[drawn.sample], sample);
    });
    sample.trunk = static_cast<int64_t>(known == trunks.end() ? loaded.samples.size() - 1 : known->sample);
    if (known == trunks.end()) trunks.push_back({trunk, loaded.samples.size() - 1});
  }
  return loaded;
}

}  // namespace tandem::trainer
