#include "dashboard/transcripts.h"

#include <algorithm>

#include "dashboard/episodes.h"
#include "model/tokenizer.h"
#include "rollout/books/trajectory.h"

namespace tandem::dashboard {

using rollout::EpisodeRecord;

namespace {

double reward_of(const std::optional<EpisodeRecord>& episode) {
  return episode && episode->commit ? episode->commit->reward.value_or(-1) : -1;
}

int rank_of(const EpisodePair& pair) {
  const double before = reward_of(pair.before), after = reward_of(pair.after);
  if (!pair.before && !pair.after) return 4;
  if (!pair.before || !pair.after) return 3;
  if (before < 1 && after >= 1) return 0;
  if (before >= 1 && after < 1) return 1;
  return 2;
}

// The pair of a task that tells most: what changed before what did not, the greedy pair before the first samples.
const EpisodePair& best_of(const TaskPairs& task) {
  return rank_of(task.sampled) < rank_of(task.greedy) ? task.sampled : task.greedy;
}

Result<Transcript> read(const EpisodeRecord& episode, const rollout::TrajectoryStore& store,
                        const model::Tokenizer& tokenizer) {
  Transcript transcript{.episode = episode.episode,
                        .reward = episode.commit->reward,
                        .outcome = std::string(rollout::to_string(episode.commit->outcome))};
  const rollout::EpisodeKey key{episode.episode, episode.attempt};
  if (!store.contains(key)) return transcript;
  const auto trajectory = TRY(store.read(key));
  const auto is_segment = [&](size_t token) {
    return std::ranges::binary_search(trajectory.later_segments, static_cast<uint32_t>(token));
  };
  for (size_t start = 0; start < trajectory.tokens.size();) {
    if (is_segment(start)) transcript.passages.push_back({"\n[The conversation goes on from this summary.]\n", false});
    size_t end = start + 1;
    while (end < trajectory.tokens.size() && trajectory.sampled[end] == trajectory.sampled[start] && !is_segment(end))
      ++end;
    transcript.passages.push_back(
        {tokenizer.decode(std::span(trajectory.tokens).subspan(start, end - start)), trajectory.sampled[start] != 0});
    start = end;
  }
  return transcript;
}

}  // namespace

Result<std::vector<TranscriptPair>> choose_transcripts(const RunFiles& run, int per_kind) {
  std::vector<TranscriptPair> pairs;
  const auto& kinds = run.totals.pairs;
  if (kinds.empty()) return pairs;
  const auto tokenizer = TRY(model::Tokenizer::load(run.dir / "model"));
  const auto store = TRY(rollout::TrajectoryStore::open_to_read(run.dir / "trajectories"));
  for (const std::string& kind : run.ledger.plan().kinds) {
    const auto found = kinds.find(kind);
    if (found == kinds.end()) continue;
    std::vector<const EpisodePair*> chosen;
    for (const auto& [seed, task] : found->second) chosen.push_back(&best_of(task));
    std::stable_sort(chosen.begin(), chosen.end(),
                     [](const EpisodePair* a, const EpisodePair* b) { return rank_of(*a) < rank_of(*b); });
    if (chosen.size() > static_cast<size_t>(per_kind)) chosen.resize(static_cast<size_t>(per_kind));
    for (const EpisodePair* candidate : chosen) {
      const EpisodeRecord& any = candidate->before ? *candidate->before : *candidate->after;
      TranscriptPair pair{.task = task_of(any), .kind = kind, .greedy = any.temperature == 0};
      if (candidate->before) pair.before = TRY(read(*candidate->before, store, tokenizer));
      if (candidate->after) pair.after = TRY(read(*candidate->after, store, tokenizer));
      pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

}  // namespace tandem::dashboard
