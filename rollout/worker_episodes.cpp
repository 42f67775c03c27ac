// A rollout process: its episodes.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "rollout/agent/turn_rules.h"
#include "rollout/worker_process.h"

namespace tandem::rollout {

void Worker::start_ready() {
  for (auto& [id, e] : episodes_) {
    if (e.waiting != Waiting::kWeights) continue;
    if (engine_.version() > e.lease.max_version) {
      hand_back(e, Outcome::kInfraError,
                fmt::format("its weights {} are gone, {} are here", e.lease.max_version, engine_.version()));
      continue;
    }
    if (engine_.version() < e.lease.min_version) continue;
    // One that was taken over has its sandbox: its turn is answered again, not run again, and the engine computes the
    // tokens when the next turn starts.
    e.waiting = e.env_lease == 0 ? Waiting::kSandbox : Waiting::kTools;
    e.wanted = clock_.now();
    env_.ask(e);
  }
}

void Worker::begin(AgentEpisode& e, wire::Acquired::Reader acquired) {
  e.env_lease = acquired.getLease();
  e.max_turns = acquired.getMaxTurns();
  std::vector<ChatMessage> messages;
  for (const auto message : acquired.getMessages()) messages.push_back({message.getRole(), message.getContent()});
  auto prompt = conversation_.prompt(messages);
  if (!prompt) return hand_back(e, Outcome::kInfraError, prompt.error().message());
  e.prompt_tokens = static_cast<uint32_t>(prompt->size());
  e.trajectory = {.key = e.lease.key, .group = e.lease.group, .numerics_id = engine_.numerics_id()};
  e.trajectory.append(*prompt);
  e.waiting = Waiting::kTokens;
  if (const Status status = engine_.add(e.lease.key.episode, std::move(*prompt), turn_request(e)); !status.ok()) {
    hand_back(e, Outcome::kInfraError, status.message());
  }
}

TurnRequest Worker::turn_request(const AgentEpisode& e) const {
  return {.max_new_tokens = settings_.max_new_tokens,
          .sampling = {.temperature = e.lease.temperature},
          .seed = e.lease.sample_seed,
          .stop_tokens = conversation_.end_tokens()};
}

void Worker::record(const SampledToken& token) {
  const auto found = episodes_.find(token.sequence);
  if (found == episodes_.end()) return engine_.release(token.sequence);
  AgentEpisode& e = found->second;
  e.trajectory.append_sampled(token.token, token.logprob, token.version);
  if (!token.turn_ended) return;
  ++e.turns;
  size_t start = e.trajectory.tokens.size();
  while (start > 0 && e.trajectory.sampled[start - 1]) --start;
  e.said = conversation_.text_of(std::span(e.trajectory.tokens).subspan(start));
  if (after_message(token.end != TurnEnd::kStop, 0) == AfterMessage::kTruncated) {
    e.truncated = true;
    return ask_for_grade(e, "");
  }
  e.waiting = Waiting::kTools;
  env_.ask(e);
}

void Worker::on_called(AgentEpisode& e, wire::Called::Reader called) {
  const bool answered = after_message(false, called.getCalls()) == AfterMessage::kAnswered;
  if (answered && !called.getNextStep()) return ask_for_grade(e, e.said);
  e.tool_calls += called.getCalls();
  const AfterCalls next = after_calls(called.getOver(), e.turns, e.max_turns);
  if (next != AfterCalls::kNextTurn) {
    e.truncated = next == AfterCalls::kTruncated;
    return ask_for_grade(e, "");
  }
  const auto response = called.getResponse();
  const auto tokens = conversation_.next_turn({response.getRole(), response.getContent()});
  if (!tokens) return hand_back(e, Outcome::kInfraError, tokens.error().message());
  const Status status = engine_.knows(e.lease.key.episode)
                            ? engine_.extend(e.lease.key.episode, *tokens, turn_request(e))
                            : adopt(e, *tokens);
  if (status.code() == Code::kExhausted) {
    e.truncated = true;
    return ask_for_grade(e, "");
  }
  if (!status.ok()) return hand_back(e, Outcome::kInfraError, status.message());
  e.trajectory.append(*tokens);
  e.waiting = Waiting::kTokens;
}

Status Worker::adopt(const AgentEpisode& e, std::span<const int32_t> tokens) {
  auto prompt = e.trajectory.tokens;
  prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  if (static_cast<int>(prompt.size()) >= settings_.engine.max_tokens)
    return Status::exhausted("no room for the next turn");
  return engine_.add(e.lease.key.episode, std::move(prompt), turn_request(e));
}

void Worker::ask_for_grade(AgentEpisode& e, std::string answer) {
  engine_.release(e.lease.key.episode);
  e.said = std::move(answer);
  e.outcome = e.truncated ? Outcome::kTruncated : Outcome::kCompleted;
  e.waiting = Waiting::kGrade;
  env_.ask(e);
}

void Worker::deliver(AgentEpisode& e) {
  env_.release(e);
  e.waiting = Waiting::kTrainer;
  send_trajectory(e);
}

void Worker::on_stored(const EpisodeKey& key) {
  const auto found = episodes_.find(key.episode);
  if (found == episodes_.end() || found->second.lease.key != key || found->second.waiting != Waiting::kTrainer) return;
  commit(found->second);
}

void Worker::commit(AgentEpisode& e) {
  e.waiting = Waiting::kCoordinator;
  send_commit(e);
}

void Worker::hand_back(AgentEpisode& e, Outcome outcome, const std::string& reason) {
  spdlog::warn("episode {} attempt {} ({}): {}", e.lease.key.episode, e.lease.key.attempt, to_string(outcome), reason);
  engine_.release(e.lease.key.episode);
  env_.release(e);
  e.outcome = outcome;
  e.reason = reason;
  e.reward.reset();
  commit(e);
}

void Worker::forget(uint64_t id) {
  AgentEpisode& e = episodes_.at(id);
  engine_.release(id);
  env_.release(e);
  env_.drop(e);
  episodes_.erase(id);
  credits_announced_ = UINT32_MAX;
}

}  // namespace tandem::rollout
