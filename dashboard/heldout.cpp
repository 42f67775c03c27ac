#include "dashboard/heldout.h"

#include <algorithm>

namespace tandem::dashboard {

using rollout::EpisodeRecord;
using rollout::Phase;

namespace {

Json rate_to_json(std::span<const TaskScore> scores) {
  const auto rate = pass_rate(scores);
  if (!rate) return {};
  int tasks = 0, samples = 0;
  for (const TaskScore& score : scores) {
    tasks += score.samples > 0;
    samples += score.samples;
  }
  return {{"pass_rate", rate->value}, {"n_tasks", tasks}, {"n_samples", samples}, {"ci95", {rate->low, rate->high}}};
}

Json gain_to_json(const Heldout& heldout) {
  const auto gain = paired_gain(heldout.before, heldout.after);
  if (!gain) return {};
  return {{"points", gain->value}, {"ci95", {gain->low, gain->high}}};
}

Json bare_rate(std::span<const TaskScore> scores) {
  const auto rate = pass_rate(scores);
  return rate ? Json(rate->value) : Json();
}

}  // namespace

Heldout Heldout::of_kind(const std::string& kind) const {
  Heldout part;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].kind != kind) continue;
    part.tasks.push_back(tasks[i]);
    part.before.push_back(before[i]);
    part.after.push_back(after[i]);
  }
  return part;
}

namespace {

// Whether an episode of a held-out task is a sample: it has a reward of its last attempt.
bool is_sample(const EpisodeRecord& episode) {
  return episode.commit && episode.commit->key.attempt == episode.attempt && episode.commit->reward;
}

void count(TaskScore& score, const EpisodeRecord& episode) {
  score.passed += *episode.commit->reward >= 1 ? 1 : 0;
  ++score.samples;
}

}  // namespace

void HeldoutScores::add(const EpisodeRecord& episode) {
  if (episode.phase == Phase::kDuring && is_sample(episode)) {
    During& during = during_[episode.min_version];
    during.last_version = std::max(during.last_version, episode.commit->last_version);
    count((episode.temperature == 0 ? during.greedy : during.sampled)[{episode.kind, episode.task_seed}], episode);
  }
  if (episode.phase != Phase::kBefore && episode.phase != Phase::kAfter) return;
  Pair& task = (episode.temperature == 0 ? greedy_ : sampled_)[{episode.kind, episode.task_seed}];
  if (is_sample(episode)) count(episode.phase == Phase::kAfter ? task.after : task.before, episode);
}

std::vector<HeldoutDuring> HeldoutScores::during() const {
  std::vector<HeldoutDuring> all;
  for (const auto& [step, one] : during_) {
    HeldoutDuring& at = all.emplace_back();
    at.step = step;
    at.last_version = one.last_version;
    for (const auto& [task, score] : one.sampled) at.sampled.push_back(score);
    for (const auto& [task, score] : one.greedy) at.greedy.push_back(score);
  }
  return all;
}

Heldout HeldoutScores::of(Decoding decoding) const {
  Heldout heldout;
  for (const auto& [task, pair] : decoding == Decoding::kGreedy ? greedy_ : sampled_) {
    heldout.tasks.push_back(task);
    heldout.before.push_back(pair.before);
    heldout.after.push_back(pair.after);
  }
  return heldout;
}

Json describe_heldout(const HeldoutScores& scores, const std::vector<std::string>& kinds, const Json& floors) {
  const Heldout sampled = scores.of(Decoding::kSampled), greedy = scores.of(Decoding::kGreedy);
  Json json;
  json["before"] = rate_to_json(sampled.before);
  json["after"] = rate_to_json(sampled.after);
  json["gain"] = gain_to_json(sampled);
  json["during"] = Json::array();
  for (const auto& one : scores.during()) {
    json["during"].push_back({{"step", one.step},
                              {"last_version", one.last_version},
                              {"sampled", rate_to_json(one.sampled)},
                              {"greedy", rate_to_json(one.greedy)}});
  }
  json["greedy"] = {
      {"before", rate_to_json(greedy.before)}, {"after", rate_to_json(greedy.after)}, {"gain", gain_to_json(greedy)}};
  json["kinds"] = Json::object();
  for (const std::string& kind : kinds) {
    const Heldout s = sampled.of_kind(kind), g = greedy.of_kind(kind);
    if (s.tasks.empty() && g.tasks.empty()) continue;
    json["kinds"][kind] = {{"before", bare_rate(s.before)},
                           {"after", bare_rate(s.after)},
                           {"greedy_before", bare_rate(g.before)},
                           {"greedy_after", bare_rate(g.after)}};
  }
  json["floors"] = floors;
  return json;
}

}  // namespace tandem::dashboard
