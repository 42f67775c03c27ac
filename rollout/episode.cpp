#include "rollout/episode.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "rollout/agent/turn_rules.h"

namespace tandem::rollout {

using namespace std::chrono_literals;

namespace {

constexpr Duration kSendAgain = 2s;        // what trainer or coordinator did not acknowledge
constexpr Duration kClaimPatience = 5s;    // of a victim
constexpr Duration kPauseForRoom = 500ms;  // where no server has any

}  // namespace

std::string_view to_string(Waiting waiting) {
  static constexpr std::array<std::string_view, 11> kNames = {"weights", "sandbox", "tokens",      "tools",
                                                              "grade",   "trainer", "coordinator", "a claim elsewhere",
                                                              "a claim", "a trunk", "its branches"};
  return kNames[static_cast<size_t>(waiting)];
}

Episode::Episode(LeaseTerms lease, const Settings& settings, Time now)
    : patience_(settings.patience),
      grade_patience_(std::max(settings.patience, settings.grade_patience)),
      numerics_id_(settings.numerics_id),
      routes_(settings.routes),
      vocabulary_(settings.vocabulary),
      lease_(std::move(lease)),
      trajectory_(empty_trajectory()),
      started_(now),
      in_trunk_(lease_.trunk.has_value()) {}

Trajectory Episode::empty_trajectory() const {
  Trajectory trajectory{.key = lease_.key, .group = lease_.group, .numerics_id = numerics_id_};
  trajectory.routes.shape = routes_;
  if (lease_.truncation.any()) trajectory.kept.vocabulary = vocabulary_;
  return trajectory;
}

Episode::Episode(Handover handover, const Settings& settings, Time now)
    : patience_(settings.patience),
      grade_patience_(std::max(settings.patience, settings.grade_patience)),
      numerics_id_(settings.numerics_id),
      routes_(settings.routes),
      vocabulary_(settings.vocabulary),
      lease_(std::move(handover.lease)),
      trajectory_(std::move(handover.trajectory)),
      started_(now),
      waiting_(Waiting::kClaim),
      due_(now),
      sandbox_(handover.sandbox),
      turns_(handover.turns),
      max_turns_(handover.max_turns),
      tool_calls_(handover.tool_calls),
      prompt_tokens_(handover.prompt_tokens),
      steals_(handover.steals),
      retokenised_turns_(handover.retokenised_turns),
      opening_(std::move(handover.opening)),
      instruction_(std::move(handover.instruction)),
      is_summarising_(handover.is_summarising),
      said_(std::move(handover.said)),
      in_trunk_(lease_.trunk && !handover.is_past_trunk),
      is_by_itself_(in_trunk_),
      inherited_tokens_(handover.inherited_tokens),
      inherited_calls_(handover.inherited_calls),
      resumes_(handover.is_sampling),
      shared_(handover.sandbox) {
  if (sandbox_) {
    server_ = handover.server;
  } else {
    trajectory_ = empty_trajectory();
  }
}

std::vector<Episode::Action> Episode::step(const Event& event, Time now) {
  Actions actions;
  if (is_over_ && !std::holds_alternative<Began>(event)) return actions;
  std::visit([&](const auto& which) { on(which, now, actions); }, event);
  return actions;
}

// ---- Time ----

void Episode::on(const Tick& tick, Time now, Actions& actions) {
  version_ = tick.version;
  if (waiting_ == Waiting::kWeights) return start(now, actions);
  if (now < due_) return;
  switch (waiting_) {
    case Waiting::kSandbox:
    case Waiting::kTools:
    case Waiting::kGrade:
      if (sends_ == 0) return ask(now, actions);
      if (sends_ == 1) return send_ask(now, actions);
      return give_up(fmt::format("the environment server did not answer within {:.0f} s",
                                 2 * to_seconds(waiting_ == Waiting::kGrade ? grade_patience_ : patience_)),
                     now, actions);
    case Waiting::kTrainer:
    case Waiting::kCoordinator:
    case Waiting::kHandedOver:  // nobody has claimed it
    case Waiting::kClaim:
      return send(waiting_, now, actions);
    case Waiting::kWeights:
    case Waiting::kTokens:
    case Waiting::kTrunk:
    case Waiting::kBranches:
      return;
  }
}

void Episode::start(Time now, Actions& actions) {
  if (version_ > lease_.max_version)
    return give_up(fmt::format("its weights {} are gone, {} are here", lease_.max_version, version_), now, actions);
  if (version_ < lease_.min_version) return;
  if (std::exchange(resumes_, false)) {
    waiting_ = Waiting::kTokens;
    actions.push_back(Resume{});
    return;
  }
  // One that was taken over has its sandbox: its turn is answered again, not run again, and the engine computes the
  // tokens when the next turn starts.
  waiting_ = sandbox_ ? Waiting::kTools : Waiting::kSandbox;
  wanted_ = now;
  ask(now, actions);
}

// ---- The environment ----

bool Episode::waits_for_env() const {
  return waiting_ == Waiting::kSandbox || waiting_ == Waiting::kTools || waiting_ == Waiting::kGrade;
}

void Episode::ask(Time now, Actions& actions) {
  ++ask_;
  sends_ = 0;
  if (waiting_ == Waiting::kSandbox) server_ = from_ ? std::optional(from_->server) : std::nullopt;
  send_ask(now, actions);
}

void Episode::send_ask(Time now, Actions& actions) {
  ++sends_;
  due_ = now + (waiting_ == Waiting::kGrade ? grade_patience_ : patience_);
  if (waiting_ == Waiting::kSandbox) {
    actions.push_back(Acquire{ask_, server_, from_});
  } else if (waiting_ == Waiting::kTools) {
    actions.push_back(Call{ask_, *server_, *sandbox_, turns_, said_});
  } else {
    actions.push_back(Score{ask_, *server_, *sandbox_, answer_, outcome_ == Outcome::kTruncated});
  }
}

void Episode::pause(Time now) {
  sends_ = 0;
  due_ = now + kPauseForRoom;
}

void Episode::on(const Asked& asked, Time now, Actions&) {
  if (!answers(Waiting::kSandbox, asked.ask)) return;
  server_ = asked.server;
  if (!server_) pause(now);
}

void Episode::on(const Began& began, Time now, Actions& actions) {
  const bool is_there = server_ == began.server;
  if (waiting_ != Waiting::kSandbox || !is_there) {
    if (!is_there || sandbox_ != began.sandbox) actions.push_back(Release{began.server, began.sandbox});
    return;
  }
  sandbox_ = began.sandbox;
  max_turns_ = began.max_turns;
  if (std::exchange(from_, std::nullopt)) {
    // As one that was taken over: the server says once more what the calls of the trunk's last turn gave.
    waiting_ = Waiting::kTools;
    return ask(now, actions);
  }
  waiting_ = Waiting::kTokens;
  opening_ = began.opening;
  actions.push_back(Open{});
}

void Episode::on(const Refused& refused, Time now, Actions& actions) {
  if (!waits_for_env() || !answers(waiting_, refused.ask)) return;
  const bool may_wait =
      waiting_ == Waiting::kSandbox && refused.why.code() == Code::kExhausted && now - wanted_ < 2 * patience_;
  if (from_ && !may_wait) return play_trunk_alone(refused.why.message(), actions);
  if (!may_wait) return give_up(refused.why, now, actions);
  if (refused.is_room_elsewhere && !from_) return ask(now, actions);
  pause(now);
}

void Episode::on(const Called& called, Time now, Actions& actions) {
  if (!answers(Waiting::kTools, called.ask)) return;
  const bool is_answer = after_message(false, said_.calls.size()) == AfterMessage::kAnswered;
  if (is_answer && !called.instruction) return ask_for_grade(said_.text, false, now, actions);
  if (called.results.size() != said_.calls.size()) {
    return give_up(
        fmt::format("the environment server answered {} of {} calls", called.results.size(), said_.calls.size()), now,
        actions);
  }
  const AfterCalls next = after_calls(called.is_over, turns_, max_turns_);
  if (in_trunk_ && next == AfterCalls::kNextTurn && turns_ >= lease_.trunk->turn) return fork(actions);
  tool_calls_ += static_cast<uint32_t>(said_.calls.size());
  if (next != AfterCalls::kNextTurn) return ask_for_grade("", next == AfterCalls::kTruncated, now, actions);
  if (called.instruction) instruction_ = *called.instruction;
  waiting_ = Waiting::kTokens;
  actions.push_back(Continue{{.results = called.results, .instruction = called.instruction.value_or("")}});
}

void Episode::on(const Scored& scored, Time now, Actions& actions) {
  if (!answers(Waiting::kGrade, scored.ask)) return;
  reward_ = scored.reward;
  terms_ = scored.terms;
  turn_rewards_ = scored.turn_rewards;
  shown_ = scored.shown;
  found_ = scored.found;
  behaviour_ = scored.behaviour;
  release_sandbox(actions);
  send(Waiting::kTrainer, now, actions);
}

void Episode::on(const ServerRestarted& restarted, Time now, Actions& actions) {
  if (!waits_for_env() || sends_ == 0 || server_ != restarted.server) return;
  --sends_;
  send_ask(now, actions);
}

void Episode::on(const ServerSilent& silent, Time now, Actions& actions) {
  if (waiting_ != Waiting::kSandbox || sends_ == 0 || server_ != silent.server) return;
  if (from_) return play_trunk_alone(fmt::format("env-{} does not answer", silent.server), actions);
  ask(now, actions);
}

void Episode::on(const ServerLost& lost, Time now, Actions& actions) {
  if (server_ != lost.server || waiting_ == Waiting::kHandedOver || waiting_ == Waiting::kClaim) return;
  if (sandbox_) return give_up(fmt::format("env-{} is lost, and its sandbox with it", lost.server), now, actions);
  if (waiting_ != Waiting::kSandbox || sends_ == 0) return;
  if (from_) return play_trunk_alone(fmt::format("env-{} is lost", lost.server), actions);
  ask(now, actions);
}

void Episode::release_sandbox(Actions& actions) {
  if (sandbox_) actions.push_back(Release{*server_, *sandbox_});
  sandbox_.reset();
  server_.reset();
}

// ---- The model ----

void Episode::on(const TurnOpened& opened, Time, Actions&) {
  if (waiting_ != Waiting::kTokens) return;
  if (turns_ == 0) prompt_tokens_ = static_cast<uint32_t>(opened.tokens.size());
  is_summarising_ = opened.asks_for_summary;
  if (std::exchange(begins_segment_, false)) trajectory_.begin_segment();
  retokenised_turns_ += opened.is_retokenised;
  trajectory_.append(opened.tokens);
}

void Episode::on(const TurnRefused& refused, Time now, Actions& actions) {
  if (waiting_ != Waiting::kTokens) return;
  begins_segment_ = false;  // a summary that nothing goes on from
  const bool has_begun = turns_ > 0;
  if (has_begun && refused.why.code() == Code::kExhausted) return ask_for_grade("", true, now, actions);
  give_up(refused.why.message(), now, actions);
}

void Episode::on(const Sampled& sampled, Time, Actions&) {
  if (waiting_ != Waiting::kTokens) return;
  trajectory_.append_sampled(sampled.token, sampled.logprob, sampled.version, sampled.kept);
  trajectory_.append_routes(sampled.routes_from, sampled.routes);
}

std::span<const int32_t> Episode::turn_tokens() const {
  size_t start = trajectory_.tokens.size();
  while (start > trajectory_.last_segment() && trajectory_.sampled[start - 1]) --start;
  return std::span(trajectory_.tokens).subspan(start);
}

void Episode::on(const TurnEnded& turn, Time now, Actions& actions) {
  if (waiting_ != Waiting::kTokens) return;
  if (!is_summarising_) ++turns_;
  if (after_message(turn.is_cut, 0) == AfterMessage::kTruncated) return ask_for_grade("", true, now, actions);
  if (std::exchange(is_summarising_, false)) {
    // Without a word on what it did it could only begin again.
    if (turn.said.text.empty()) return ask_for_grade("", true, now, actions);
    begins_segment_ = true;
    actions.push_back(EndSampling{});
    actions.push_back(Open{turn.said.text});
    return;
  }
  said_ = turn.said;
  waiting_ = Waiting::kTools;
  ask(now, actions);
}

void Episode::ask_for_grade(std::string answer, bool is_truncated, Time now, Actions& actions) {
  if (in_trunk_ && ends_trunk(actions)) return;
  actions.push_back(EndSampling{});
  answer_ = std::move(answer);
  outcome_ = is_truncated ? Outcome::kTruncated : Outcome::kCompleted;
  waiting_ = Waiting::kGrade;
  ask(now, actions);
}

// ---- Trainer and coordinator ----

void Episode::send(Waiting waiting, Time now, Actions& actions) {
  waiting_ = waiting;
  due_ = now + kSendAgain;
  if (waiting == Waiting::kTrainer) actions.push_back(SendTrajectory{});
  if (waiting == Waiting::kCoordinator) actions.push_back(SendCommit{commit(now)});
  if (waiting == Waiting::kClaim || waiting == Waiting::kHandedOver) actions.push_back(SendClaim{});
}

void Episode::on(const Stored& stored, Time now, Actions& actions) {
  if (waiting_ == Waiting::kTrainer && stored.key == lease_.key) send(Waiting::kCoordinator, now, actions);
}

void Episode::on(const Committed& committed, Time, Actions& actions) {
  if (waiting_ == Waiting::kCoordinator && committed.key == lease_.key) finish(End::kCommitted, actions);
}

void Episode::on(const Revoked& revoked, Time, Actions& actions) {
  if (revoked.key == lease_.key) finish(End::kRevoked, actions);
}

void Episode::give_up(const Status& why, Time now, Actions& actions) {
  outcome_ = why.code() == Code::kCancelled ? Outcome::kCancelled : Outcome::kInfraError;
  reason_ = why.message();
  actions.push_back(Note{fmt::format("episode {} attempt {} ({}): {}", lease_.key.episode, lease_.key.attempt,
                                     to_string(outcome_), reason_)});
  actions.push_back(EndSampling{});
  release_sandbox(actions);
  send(Waiting::kCoordinator, now, actions);
}

void Episode::finish(End end, Actions& actions) {
  actions.push_back(EndSampling{});
  release_sandbox(actions);
  sends_ = 0;
  is_over_ = true;
  actions.push_back(Over{end});
}

Commit Episode::commit(Time now) const {
  Commit commit{.key = lease_.key,
                .outcome = outcome_,
                .reason = reason_,
                .reward = reward_,
                .terms = terms_,
                .turn_rewards = turn_rewards_,
                .shown = shown_,
                .first_version = UINT64_MAX,
                .turns = turns_,
                .tool_calls = tool_calls_,
                .retokenised_turns = retokenised_turns_,
                .compactions = compactions(),
                .steals = steals_,
                .prompt_tokens = prompt_tokens_,
                .seconds = to_seconds(now - started_),
                .branch_turn = trajectory_.trunk.tokens > 0 && lease_.trunk ? lease_.trunk->turn : 0,
                .branch_family = trajectory_.trunk.family,
                .inherited_tokens = inherited_tokens_,
                .inherited_calls = inherited_calls_,
                .behaviour = behaviour_};
  for (size_t t = 0; t < trajectory_.tokens.size(); ++t) {
    if (!trajectory_.sampled[t]) continue;
    commit.first_version = std::min(commit.first_version, trajectory_.versions[t]);
    commit.last_version = std::max(commit.last_version, trajectory_.versions[t]);
    ++commit.sampled_tokens;
  }
  if (commit.sampled_tokens == 0) commit.first_version = commit.last_version = version_;
  return commit;
}

// ---- Other rollouts ----

void Episode::on(const Stolen& stolen, Time now, Actions& actions) {
  // Its state is tokens and a sandbox then. What the engine samples meanwhile does not count: it is sampled again.
  const bool is_sampling = waiting_ == Waiting::kTokens && !trajectory_.tokens.empty();
  if (from_) return;
  if (!is_sampling && waiting_ != Waiting::kWeights && waiting_ != Waiting::kSandbox && waiting_ != Waiting::kTools)
    return;
  if (is_sampling) actions.push_back(EndSampling{});
  parked_ = {waiting_, due_};
  shared_ = sandbox_;
  waiting_ = Waiting::kHandedOver;
  due_ = now + kClaimPatience;
  actions.push_back(HandOver{stolen.thief, handover()});
}

void Episode::on(const NotHandedOver&, Time, Actions& actions) {
  if (waiting_ != Waiting::kHandedOver) return;
  waiting_ = parked_.waiting;
  due_ = parked_.due;
  if (waiting_ == Waiting::kTokens) actions.push_back(Resume{});
}

void Episode::on(const Gone& gone, Time, Actions& actions) {
  if (gone.key != lease_.key || gone.claims <= lease_.claims) return;
  if (sandbox_ == shared_) sandbox_.reset();  // the other has it
  finish(End::kHandedOver, actions);
}

void Episode::on(const Ours& ours, Time now, Actions& actions) {
  if (ours.key != lease_.key || ours.claims != lease_.claims + 1) return;
  if (waiting_ != Waiting::kClaim && waiting_ != Waiting::kHandedOver) return;
  lease_.claims = ours.claims;
  if (waiting_ == Waiting::kClaim) {
    waiting_ = Waiting::kWeights;  // this rollout may be younger than the lease
    return;
  }
  waiting_ = parked_.waiting;
  if (waits_for_env()) ask(now, actions);
  if (waiting_ == Waiting::kTokens) actions.push_back(Resume{});
}

Handover Episode::handover() const {
  return {.lease = lease_,
          .trajectory = trajectory_,
          .sandbox = sandbox_,
          .server = server_.value_or(0),
          .opening = opening_,
          .instruction = instruction_,
          .said = said_,
          .is_sampling = resumes_ || (waiting_ == Waiting::kHandedOver && parked_.waiting == Waiting::kTokens),
          .is_summarising = is_summarising_,
          .turns = turns_,
          .max_turns = max_turns_,
          .tool_calls = tool_calls_,
          .retokenised_turns = retokenised_turns_,
          .prompt_tokens = prompt_tokens_,
          .steals = steals_ + 1,
          .is_past_trunk = !in_trunk_,
          .inherited_tokens = inherited_tokens_,
          .inherited_calls = inherited_calls_};
}

}  // namespace tandem::rollout
