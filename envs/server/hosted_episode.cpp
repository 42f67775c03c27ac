#include "envs/server/hosted_episode.h"

#include <fmt/format.h>

#include "envs/episodes/call_messages.h"

namespace tandem::envs {

namespace {

// The digest of what was said in a turn, whoever's turn it is: a branch has the turns of its trunk.
Digest digest_of_message(wire::Call::Reader in) {
  std::string said;
  for (const auto call : in.getCalls()) said += call.toString().flatten().cStr();
  for (const std::string_view part : {std::string_view(in.getAnswer().cStr(), in.getAnswer().size()),
                                      std::string_view(in.getReasoning().cStr(), in.getReasoning().size())})
    said += fmt::format("\n{}:", part.size()) + std::string(part);
  return digest_of(said);
}

void write_grade(const Grade& grade, const Behaviour& behaviour, wire::Scored::Builder out) {
  out.setReward(grade.reward);
  auto terms = out.initTerms(static_cast<unsigned>(grade.terms.size()));
  unsigned i = 0;
  for (const auto& [name, value] : grade.terms) {
    terms[i].setName(name);
    terms[i++].setValue(value);
  }
  auto turns = out.initTurnRewards(static_cast<unsigned>(grade.turns.size()));
  for (unsigned t = 0; t < turns.size(); ++t) turns.set(t, grade.turns[t]);
  out.setShown(grade.shown);
  out.setFound(grade.why);
  out.setBehaviour(dump_json(to_json(behaviour)));
}

}  // namespace

Result<AnswerWriter> HostedEpisode::begin(const Start& start,
                                          const std::function<Result<std::shared_ptr<const RunTerms>>()>& terms,
                                          SandboxBackend& backend) {
  std::lock_guard lock(mutex_);
  if (!episode_ && start.trunk) TRY(begin_from(*start.trunk, start.trunk_turn, start.holder));
  if (!episode_) {
    const auto of_run = TRY(terms());
    TRY(open(start, *of_run, backend));
  }
  return AnswerWriter([holder = start.holder, opening = episode_->opening(start.listing),
                       turns = episode_->task().max_turns](wire::Body::Builder body) {
    auto out = body.initAcquired();
    out.setLease(holder.lease);
    out.setEpisode(holder.episode);
    out.setAttempt(holder.attempt);
    out.setMaxTurns(static_cast<uint32_t>(turns));
    auto messages = out.initMessages(static_cast<unsigned>(opening.messages.size()));
    for (unsigned i = 0; i < messages.size(); ++i) {
      messages[i].setRole(opening.messages[i].role);
      messages[i].setContent(opening.messages[i].content);
    }
    out.setTools(dump_json(opening.tools));
  });
}

Status HostedEpisode::open(const Start& start, const RunTerms& terms, SandboxBackend& backend) {
  EpisodeOptions options = terms.episode;
  options.holder = start.holder;
  options.holder.run = terms.name;
  options.branches = start.is_trunk;
  // What is held out is measured by the task alone, whatever becomes of the user's rewards.
  const bool is_rewarded = terms.rewards != nullptr && start.spec.split == Split::kTrain;
  options.keep_left_behind = is_rewarded;
  foreign_ = terms.foreign;
  if (terms.foreign && terms.foreign->has(start.spec.kind))
    episode_ = TRY(terms.foreign->open(start.spec));
  else
    episode_ = TRY(Episode::open(TRY(terms.make_task(start.spec)), backend, options));
  options_ = options;
  began_ = clock_.now();
  rewards_ = is_rewarded ? terms.rewards : nullptr;
  is_scored_apart_ = is_rewarded;
  if (is_rewarded) record_.begin(*episode_, episode_->opening(start.listing));
  return {};
}

// As the trunk is after `turn` turns, which are answered here as there.
Status HostedEpisode::begin_from(HostedEpisode& trunk, uint32_t turn, const SandboxHolder& holder) {
  std::lock_guard lock(trunk.mutex_);
  const bool is_there =
      trunk.episode_ && !trunk.grade_ && !trunk.turns_.empty() && trunk.turns_.rbegin()->first == turn;
  if (!is_there) return Status::not_found(fmt::format("the trunk is not behind its turn {}", turn));
  auto* const episode = dynamic_cast<Episode*>(trunk.episode_.get());
  if (episode == nullptr) return Status::unfit("an environment of somebody else's cannot be branched");
  auto branch = episode->branch(holder);
  if (!branch && branch.error().code() == Code::kExhausted) return Status::unfit(branch.error().message());
  if (!branch) return std::move(branch).error();
  episode_ = std::move(*branch);
  options_ = trunk.options_;
  options_.holder = holder;
  rewards_ = trunk.rewards_;
  is_scored_apart_ = trunk.is_scored_apart_.load();
  record_ = trunk.record_;
  work_ = trunk.work_;
  began_ = trunk.began_;
  turns_ = trunk.turns_;
  return {};
}

Result<HostedEpisode::TurnAnswer> HostedEpisode::play(wire::Call::Reader in) {
  if (grade_ || !episode_) return fail(Status::not_found("the episode is over"));
  const auto calls = TRY(read_calls(in.getCalls()));
  const SessionRecord::Said said{.text = in.getAnswer().cStr(), .reasoning = in.getReasoning().cStr(), .calls = calls};
  TurnAnswer answer;
  const double seconds = to_seconds(clock_.now() - began_);
  if (calls.empty()) {
    answer.instruction = TRY(episode_->next_step(said.text));
    work_.turn({}, {}, seconds);
    if (rewards_) record_.answer(said, answer.instruction);
    return answer;
  }
  auto outcomes = TRY(episode_->turn(calls, said.text));
  work_.turn(calls, outcomes, seconds);
  if (rewards_) record_.turn(said, outcomes);
  for (auto& outcome : outcomes) answer.results.push_back(std::move(outcome.output));
  answer.over = episode_->over();
  return answer;
}

Result<AnswerWriter> HostedEpisode::call(wire::Call::Reader in) {
  std::lock_guard lock(mutex_);
  const Digest asked = digest_of_message(in);
  auto known = turns_.find(in.getTurn());
  // Two rollouts that both take the episode for theirs may have sampled this turn by other weights.
  if (known != turns_.end() && known->second.asked != asked)
    return fail(Status::invalid(fmt::format("turn {} was played with other calls", in.getTurn())));
  if (known == turns_.end()) {
    auto answer = TRY(play(in));
    answer.asked = asked;
    known = turns_.emplace(in.getTurn(), std::move(answer)).first;
  }
  return AnswerWriter([answer = known->second](wire::Body::Builder body) {
    auto out = body.initCalled();
    out.setOver(answer.over);
    auto results = out.initResults(static_cast<unsigned>(answer.results.size()));
    for (unsigned i = 0; i < results.size(); ++i) results.set(i, answer.results[i]);
    out.setNextStep(answer.instruction.has_value());
    out.setInstruction(answer.instruction.value_or(""));
  });
}

Result<AnswerWriter> HostedEpisode::score(wire::Score::Reader in, SandboxBackend& backend) {
  std::lock_guard lock(mutex_);
  if (!grade_) {
    if (!episode_) return fail(Status::not_found("the episode has not begun"));
    const double seconds = to_seconds(clock_.now() - began_);
    grade_ = TRY(record_.score(*episode_, {.answer = in.getAnswer().cStr(), .truncated = in.getTruncated()},
                               rewards_.get(), backend, options_));
    behaviour_ = work_.behaviour(seconds);
  }
  return AnswerWriter([grade = *grade_, behaviour = behaviour_](wire::Body::Builder body) {
    write_grade(grade, behaviour, body.initScored());
  });
}

}  // namespace tandem::envs
