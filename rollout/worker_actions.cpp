// A rollout process: what its episodes want done.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "envs/episodes/call_messages.h"
#include "rollout/agent/compaction.h"
#include "rollout/worker_process.h"

namespace tandem::rollout {

namespace {

std::vector<int32_t> tokens_of_segment(const Episode& e) {
  const auto tokens = e.trajectory().last_tokens();
  return {tokens.begin(), tokens.end()};
}

}  // namespace

void Worker::step(Episode& e, const Episode::Event& event) {
  for (const auto& action : e.step(event, clock_.now()))
    std::visit([&](const auto& which) { carry_out(e, which); }, action);
}

void Worker::step(const EpisodeKey& key, const Episode::Event& event) {
  Episode* const e = find(key);
  if (e == nullptr) return;
  step(*e, event);
  if (!e->is_over()) return;
  episodes_.erase(key.episode);
  credits_announced_ = UINT32_MAX;
}

Episode* Worker::find(const EpisodeKey& key) {
  const auto found = episodes_.find(key.episode);
  return found != episodes_.end() && found->second.key() == key ? &found->second : nullptr;
}

void Worker::step_all(const Episode::Event& event) {
  for (auto& [id, e] : episodes_) step(e, event);
}

// ---- The environment ----

void Worker::carry_out(Episode& e, const Episode::Acquire& acquire) {
  const auto server = acquire.server ? acquire.server : env_.best(env_load());
  if (server) {
    env_.send(*server, {e.key(), acquire.ask}, [&](wire::Body::Builder body) {
      auto out = body.initAcquire();
      out.setEpisode(e.key().episode);
      out.setAttempt(e.key().attempt);
      out.setKind(e.lease().kind);
      out.setSplit(e.lease().split);
      out.setSeed(e.lease().task_seed);
      out.setRunDir(settings_.run_dir);
      out.setToolsInMessages(conversation_.listing() == envs::ToolListing::kInMessages);
      out.setBranches(e.is_in_trunk());
      if (acquire.from) {
        out.setTrunkLease(acquire.from->sandbox);
        out.setTrunkTurn(acquire.from->turn);
      }
    });
  }
  if (!acquire.server) step(e, Episode::Asked{acquire.ask, server});
}

void Worker::carry_out(Episode& e, const Episode::Call& call) {
  env_.send(call.server, {e.key(), call.ask}, [&](wire::Body::Builder body) {
    auto out = body.initCall();
    out.setLease(call.sandbox);
    out.setTurn(call.turn);
    envs::write_calls(call.said.calls, out.initCalls(static_cast<unsigned>(call.said.calls.size())));
    out.setAnswer(call.said.text);
    out.setReasoning(call.said.reasoning);
  });
}

void Worker::carry_out(Episode& e, const Episode::Score& score) {
  env_.send(score.server, {e.key(), score.ask}, [&](wire::Body::Builder body) {
    auto out = body.initScore();
    out.setLease(score.sandbox);
    out.setAnswer(score.answer);
    out.setTruncated(score.is_truncated);
  });
}

void Worker::carry_out(Episode&, const Episode::Release& release) { env_.release(release.server, release.sandbox); }

// ---- The engine ----

void Worker::carry_out(Episode& e, const Episode::Open& open) {
  auto prompt = conversation_.prompt(
      open.summary.empty() ? e.opening()
                           : opening_after(e.opening(), settings_.compaction, open.summary, e.instruction()));
  if (!prompt) return step(e, Episode::TurnRefused{prompt.error()});
  // A task that does not fit is an error; behind a summary it is the episode that has no room.
  const Status status = !open.summary.empty() && static_cast<int>(prompt->size()) >= settings_.engine.max_tokens
                            ? Status::exhausted("no room for the summary")
                            : engine_.add(e.key().episode, *prompt, turn_request(e));
  if (!status) return step(e, Episode::TurnRefused{status});
  step(e, Episode::TurnOpened{.tokens = std::move(*prompt)});
}

void Worker::carry_out(Episode& e, const Episode::Continue& next) {
  auto turn = conversation_.next_turn(e.turn_tokens(), e.said(), next.reply, e.tools());
  const size_t tokens = e.trajectory().last_tokens().size() + (turn ? turn->tokens.size() : 0);
  const bool asks = turn && is_compaction_due(settings_.compaction, tokens, e.compactions());
  if (asks)
    turn = ask_for_summary(conversation_, settings_.compaction, e.turn_tokens(), e.said(), next.reply, e.tools());
  if (!turn) return step(e, Episode::TurnRefused{turn.error()});
  const Status status = engine_.knows(e.key().episode) ? engine_.extend(e.key().episode, turn->tokens, turn_request(e))
                                                       : adopt(e, turn->tokens);
  if (!status) return step(e, Episode::TurnRefused{status});
  step(e, Episode::TurnOpened{std::move(turn->tokens), turn->is_retokenised, asks});
}

TurnRequest rest_of_turn(TurnRequest turn, size_t said) {
  turn.max_new_tokens = std::max(1, turn.max_new_tokens - static_cast<int>(said));
  return turn;
}

// The draws of a turn depend on the tokens before them, whoever sampled those.
void Worker::carry_out(Episode& e, const Episode::Resume&) {
  const TurnRequest rest = rest_of_turn(turn_request(e), e.turn_tokens().size());
  const Status status = engine_.add(e.key().episode, tokens_of_segment(e), rest);
  if (!status) step(e, Episode::TurnRefused{status});
}

Status Worker::adopt(const Episode& e, std::span<const int32_t> tokens) {
  auto prompt = tokens_of_segment(e);
  prompt.insert(prompt.end(), tokens.begin(), tokens.end());
  if (static_cast<int>(prompt.size()) >= settings_.engine.max_tokens)
    return Status::exhausted("no room for the next turn");
  return engine_.add(e.key().episode, std::move(prompt), turn_request(e));
}

static_assert(kernels::kMostKept <= static_cast<int>(kMostOfKeepSet), "what engines record can be read");

TurnRequest Worker::turn_request(const Episode& e) const {
  // The temperature is the policy's own: what is recorded is what the trainer computes.
  const float temperature = e.lease().temperature;
  // So is what is cut off.
  const Truncation& cut = e.lease().truncation;
  return {.max_new_tokens = settings_.max_new_tokens,
          .sampling = {.temperature = temperature > 0 ? 1.0f : 0.0f,
                       .top_k = cut.top_k,
                       .top_p = cut.top_p,
                       .min_p = cut.min_p},
          .logit_scale = kernels::logit_scale_at(temperature),
          .seed = seed_of_segment(e.seed(), e.compactions()),
          .stop_tokens = conversation_.end_tokens(),
          .record_kept = cut.any()};
}

void Worker::carry_out(Episode& e, const Episode::EndSampling&) { engine_.release(e.key().episode); }

void Worker::record(SampledToken& token) {
  const auto found = episodes_.find(token.sequence);
  if (found == episodes_.end()) return engine_.release(token.sequence);
  Episode& e = found->second;
  step(e, Episode::Sampled{token.token, token.logprob, token.version, static_cast<size_t>(token.routes_from),
                           std::move(token.routes), std::move(token.kept)});
  if (!token.turn_ended) return;
  auto said = e.is_summarising() ? Said{.text = summary_in(conversation_, e.turn_tokens(), e.tools()), .calls = {}}
                                 : conversation_.read(e.turn_tokens(), e.tools());
  step(e, Episode::TurnEnded{std::move(said), token.end != TurnEnd::kStop});
}

// ---- Trainer and coordinator ----

void Worker::carry_out(Episode& e, const Episode::SendTrajectory&) {
  wire::Outgoing message;
  const auto body = message.body().initTrajectory();
  if (!settings_.hint.any()) {
    write_trajectory(e.trajectory(), body, message);
  } else {
    Trajectory hinted = e.trajectory();
    auto hint = hint_of(conversation_, settings_.hint, e.opening(), hinted.prompt(), e.found());
    if (!hint) spdlog::warn("episode {} is learned from without a hint: {}", e.key().episode, hint.error().message());
    if (hint) hinted.hint = std::move(*hint);
    write_trajectory(hinted, body, message);
  }
  (void)trainer_.send("", message);
}

void Worker::carry_out(Episode&, const Episode::SendCommit& send) {
  wire::Outgoing message;
  write_commit(send.commit, message.body().initCommit());
  (void)link_.send(message);
}

void Worker::carry_out(Episode& e, const Episode::SendClaim&) {
  wire::Outgoing message;
  write_claim(e.key(), e.lease().claims, message.body().initClaim());
  (void)link_.send(message);
}

void Worker::carry_out(Episode&, const Episode::Note& note) { spdlog::warn("{}", note.text); }

void Worker::carry_out(Episode& e, const Episode::Over& over) {
  env_.drop(e.key().episode);
  if (over.end == Episode::End::kCommitted) ++finished_;
}

// ---- Other rollouts ----

void Worker::hand_over(wire::Steal::Reader steal) {
  uint32_t left = steal.getCount();
  const std::string thief = steal.getThief();
  for (const Waiting kind : {Waiting::kWeights, Waiting::kSandbox, Waiting::kTools}) {
    for (auto& [id, e] : episodes_) {
      if (left == 0 || e.waiting() != kind || holds_trunk(e)) continue;
      step(e, Episode::Stolen{thief});
      if (e.waiting() != Waiting::kHandedOver) break;
      --left;
      ++handed_over_;
    }
  }
  hand_over_running(left, thief);
  // What there was is on its way, or nothing was: the thief may ask again.
  wire::Outgoing message;
  message.body().setDeclined(thief);
  (void)link_.send(message);
}

// Episodes that are being sampled, between two steps of the engine: the thief computes their tokens again, so the
// shortest go first.
void Worker::hand_over_running(uint32_t count, const std::string& thief) {
  std::vector<Episode*> running;
  for (auto& [id, e] : episodes_)
    if (e.waiting() == Waiting::kTokens && !holds_trunk(e)) running.push_back(&e);
  std::ranges::sort(running, {},
                    [](const Episode* e) { return std::pair(e->trajectory().last_tokens().size(), e->key()); });
  for (size_t i = 0; i < std::min<size_t>(count, running.size()); ++i) {
    step(*running[i], Episode::Stolen{thief});
    if (running[i]->waiting() != Waiting::kHandedOver) return;
    ++handed_over_;
    ++handed_over_running_;
  }
}

void Worker::carry_out(Episode& e, const Episode::HandOver& to) {
  auto found = thieves_.find(to.thief);
  if (found == thieves_.end()) {
    auto socket =
        wire::Socket::connect(context_, to.thief, settings_.identity, settings_.secret ? &*settings_.secret : nullptr);
    if (!socket) return step(e, Episode::NotHandedOver{});
    found = thieves_.emplace(to.thief, std::move(*socket)).first;
  }
  wire::Outgoing message;
  write_handover(to.handover, message);
  if (!found->second.send("", message).ok()) return step(e, Episode::NotHandedOver{});
  if (to.handover.sandbox) {
    handed_sandboxes_[e.key()] = {to.handover.server, *to.handover.sandbox};
    if (handed_sandboxes_.size() > kMostHandedSandboxes) handed_sandboxes_.erase(handed_sandboxes_.begin());
  }
  env_.drop(e.key().episode);
}

}  // namespace tandem::rollout
