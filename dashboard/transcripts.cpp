#include "dashboard/transcripts.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "dashboard/episodes.h"
#include "model/tokenizer.h"
#include "rollout/books/trajectory.h"

namespace tandem::dashboard {

using rollout::EpisodeRecord;
using rollout::Phase;

namespace {

struct Candidate {
  const EpisodeRecord* before = nullptr;
  const EpisodeRecord* after = nullptr;
};

double reward_of(const EpisodeRecord* episode) {
  return episode != nullptr && episode->commit ? episode->commit->reward.value_or(-1) : -1;
}

int rank_of(const Candidate& c) {
  const double before = reward_of(c.before), after = reward_of(c.after);
  if (c.before == nullptr && c.after == nullptr) return 4;
  if (c.before == nullptr || c.after == nullptr) return 3;
  if (before < 1 && after >= 1) return 0;
  if (before >= 1 && after < 1) return 1;
  return 2;
}

// The pair of a task that tells most: what changed before what did not, the greedy pair before the first samples.
struct Pairs {
  Candidate greedy, sampled;
  const Candidate& best() const { return rank_of(sampled) < rank_of(greedy) ? sampled : greedy; }
};

Result<Transcript> read(const EpisodeRecord& episode, const rollout::TrajectoryStore& store,
                        const model::Tokenizer& tokenizer) {
  Transcript transcript{.episode = episode.episode,
                        .reward = episode.commit->reward,
                        .outcome = std::string(rollout::to_string(episode.commit->outcome))};
  const rollout::EpisodeKey key{episode.episode, episode.attempt};
  if (!store.contains(key)) return transcript;
  const auto trajectory = TRY(store.read(key));
  for (size_t start = 0; start < trajectory.tokens.size();) {
    size_t end = start;
    while (end < trajectory.tokens.size() && trajectory.sampled[end] == trajectory.sampled[start]) ++end;
    transcript.passages.push_back(
        {tokenizer.decode(std::span(trajectory.tokens).subspan(start, end - start)), trajectory.sampled[start] != 0});
    start = end;
  }
  return transcript;
}

}  // namespace

Result<std::vector<TranscriptPair>> choose_transcripts(const RunFiles& run, int per_kind) {
  std::map<std::string, std::map<uint64_t, Pairs>> kinds;  // kind -> task seed
  for (const EpisodeRecord& episode : run.ledger.episodes()) {
    if (!episode.commit || episode.commit->key.attempt != episode.attempt || !episode.commit->reward) continue;
    if (episode.phase != Phase::kBefore && episode.phase != Phase::kAfter) continue;
    Pairs& pairs = kinds[episode.kind][episode.task_seed];
    Candidate& candidate = episode.temperature == 0 ? pairs.greedy : pairs.sampled;
    const EpisodeRecord*& place = episode.phase == Phase::kBefore ? candidate.before : candidate.after;
    if (place == nullptr) place = &episode;
  }
  std::vector<TranscriptPair> pairs;
  if (kinds.empty()) return pairs;
  const auto tokenizer = TRY(model::Tokenizer::load(run.dir / "model"));
  const auto store = TRY(rollout::TrajectoryStore::open_to_read(run.dir / "trajectories"));
  for (const std::string& kind : run.ledger.plan().kinds) {
    const auto found = kinds.find(kind);
    if (found == kinds.end()) continue;
    std::vector<Candidate> chosen;
    for (const auto& [seed, task] : found->second) chosen.push_back(task.best());
    std::stable_sort(chosen.begin(), chosen.end(),
                     [](const Candidate& a, const Candidate& b) { return rank_of(a) < rank_of(b); });
    if (chosen.size() > static_cast<size_t>(per_kind)) chosen.resize(static_cast<size_t>(per_kind));
    for (const Candidate& candidate : chosen) {
      const EpisodeRecord& any = candidate.before != nullptr ? *candidate.before : *candidate.after;
      TranscriptPair pair{.task = task_of(any), .kind = kind, .greedy = any.temperature == 0};
      if (candidate.before != nullptr) pair.before = TRY(read(*candidate.before, store, tokenizer));
      if (candidate.after != nullptr) pair.after = TRY(read(*candidate.after, store, tokenizer));
      pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

}  // namespace tandem::dashboard
