#include "rollout/books/lease.h"

namespace tandem::rollout {

void write_lease(const LeaseTerms& terms, wire::Lease::Builder out) {
  out.setEpisode(terms.key.episode);
  out.setAttempt(terms.key.attempt);
  out.setGroup(terms.group);
  out.setKind(terms.kind);
  out.setSplit(terms.split);
  out.setTaskSeed(terms.task_seed);
  out.setSampleSeed(terms.sample_seed);
  out.setTemperature(terms.temperature);
  out.setMinVersion(terms.min_version);
  out.setMaxVersion(terms.max_version);
  out.setClaims(terms.claims);
  out.setTopK(static_cast<uint32_t>(terms.truncation.top_k));
  out.setTopP(terms.truncation.top_p);
  out.setMinP(terms.truncation.min_p);
  if (!terms.trunk) return;
  out.setTrunkFamily(terms.trunk->family);
  out.setTrunkSeed(terms.trunk->seed);
  out.setTrunkTurn(terms.trunk->turn);
}

LeaseTerms read_lease(wire::Lease::Reader in) {
  LeaseTerms terms;
  terms.key = {in.getEpisode(), in.getAttempt()};
  terms.group = in.getGroup();
  terms.kind = in.getKind();
  terms.split = in.getSplit();
  terms.task_seed = in.getTaskSeed();
  terms.sample_seed = in.getSampleSeed();
  terms.temperature = in.getTemperature();
  terms.min_version = in.getMinVersion();
  terms.max_version = in.getMaxVersion();
  terms.claims = in.getClaims();
  terms.truncation = {.top_k = static_cast<int>(in.getTopK()), .top_p = in.getTopP(), .min_p = in.getMinP()};
  if (in.getTrunkTurn() > 0)
    terms.trunk = {.family = in.getTrunkFamily(), .seed = in.getTrunkSeed(), .turn = in.getTrunkTurn()};
  return terms;
}

void write_claim(const EpisodeKey& key, uint32_t claims, wire::EpisodeAttempt::Builder out) {
  out.setEpisode(key.episode);
  out.setAttempt(key.attempt);
  out.setClaims(claims);
}

void write_commit(const Commit& commit, wire::Commit::Builder out) {
  out.setEpisode(commit.key.episode);
  out.setAttempt(commit.key.attempt);
  out.setOutcome(std::string(to_string(commit.outcome)));
  out.setReason(commit.reason);
  out.setHasReward(commit.reward.has_value());
  out.setReward(commit.reward.value_or(0));
  auto terms = out.initTerms(static_cast<unsigned>(commit.terms.size()));
  unsigned i = 0;
  for (const auto& [name, value] : commit.terms) {
    terms[i].setName(name);
    terms[i++].setValue(value);
  }
  auto turns = out.initTurnRewards(static_cast<unsigned>(commit.turn_rewards.size()));
  for (unsigned t = 0; t < turns.size(); ++t) turns.set(t, commit.turn_rewards[t]);
  out.setShown(commit.shown);
  out.setFirstVersion(commit.first_version);
  out.setLastVersion(commit.last_version);
  out.setTurns(commit.turns);
  out.setToolCalls(commit.tool_calls);
  out.setSeconds(commit.seconds);
  out.setPromptTokens(commit.prompt_tokens);
  out.setSampledTokens(commit.sampled_tokens);
  out.setSteals(commit.steals);
  out.setRetokenisedTurns(commit.retokenised_turns);
  out.setCompactions(commit.compactions);
  out.setBranchTurn(commit.branch_turn);
  out.setBranchFamily(commit.branch_family);
  out.setInheritedTokens(commit.inherited_tokens);
  out.setInheritedCalls(commit.inherited_calls);
  if (commit.behaviour) out.setBehaviour(dump_json(to_json(*commit.behaviour)));
}

Commit read_commit(const std::string& worker, wire::Commit::Reader in) {
  Commit commit{.worker = worker,
                .key = {in.getEpisode(), in.getAttempt()},
                .reason = in.getReason(),
                .reward = {},
                .terms = {},
                .first_version = in.getFirstVersion(),
                .last_version = in.getLastVersion(),
                .turns = in.getTurns(),
                .tool_calls = in.getToolCalls(),
                .retokenised_turns = in.getRetokenisedTurns(),
                .compactions = in.getCompactions(),
                .steals = in.getSteals(),
                .prompt_tokens = in.getPromptTokens(),
                .sampled_tokens = in.getSampledTokens(),
                .seconds = in.getSeconds(),
                .branch_turn = in.getBranchTurn(),
                .branch_family = in.getBranchFamily(),
                .inherited_tokens = in.getInheritedTokens(),
                .inherited_calls = in.getInheritedCalls()};
  const auto outcome = outcome_from(in.getOutcome().cStr());
  commit.outcome = outcome ? *outcome : Outcome::kInfraError;
  if (in.getHasReward()) commit.reward = in.getReward();
  for (const auto term : in.getTerms()) commit.terms[term.getName()] = term.getValue();
  for (const double reward : in.getTurnRewards()) commit.turn_rewards.push_back(reward);
  commit.shown = in.getShown();
  commit.behaviour = read_behaviour(in.getBehaviour().cStr());
  return commit;
}

std::optional<Behaviour> read_behaviour(std::string_view text) {
  const auto json = parse_json(text);
  const auto behaviour = json ? behaviour_from_json(*json) : fail(json.error());
  return behaviour ? std::optional(*behaviour) : std::nullopt;
}

void write_batch(const TrainBatch& batch, wire::TrainBatch::Builder out) {
  out.setStep(batch.step);
  auto entries = out.initEntries(static_cast<unsigned>(batch.entries.size()));
  for (unsigned i = 0; i < entries.size(); ++i) {
    entries[i].setEpisode(batch.entries[i].key.episode);
    entries[i].setAttempt(batch.entries[i].key.attempt);
    entries[i].setGroup(batch.entries[i].group);
    entries[i].setAdvantage(batch.entries[i].advantage);
    if (!batch.entries[i].kind.empty()) entries[i].setKind(batch.entries[i].kind);
    const auto& rewards = batch.entries[i].turn_rewards;
    auto turns = entries[i].initTurnRewards(static_cast<unsigned>(rewards.size()));
    for (unsigned t = 0; t < turns.size(); ++t) turns.set(t, rewards[t]);
    auto metrics = entries[i].initMetrics(static_cast<unsigned>(batch.entries[i].metrics.size()));
    unsigned next = 0;
    for (const auto& [name, value] : batch.entries[i].metrics) {
      metrics[next].setName(name);
      metrics[next++].setValue(value);
    }
  }
}

}  // namespace tandem::rollout
