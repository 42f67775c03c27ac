// An episode and the others of its family: who plays the trunk, and what goes on from it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rollout/episode.h"

namespace tandem::rollout {

void Episode::on(const TrunkTaken&, Time, Actions&) {
  if (may_wait_for_trunk()) waiting_ = Waiting::kTrunk;
}

void Episode::on(const TrunkFree&, Time, Actions&) {
  if (waiting_ == Waiting::kTrunk) waiting_ = Waiting::kWeights;
}

void Episode::on(const TrunkEnded&, Time, Actions&) {
  if (waiting_ != Waiting::kTrunk) return;
  in_trunk_ = false;
  waiting_ = Waiting::kWeights;
}

void Episode::on(const Forked& forked, Time now, Actions& actions) {
  const Handover& trunk = forked.trunk;
  if (waiting_ != Waiting::kTrunk || !trunk.sandbox) return;
  const auto& tokens = trunk.trajectory;
  for (size_t i = 0; i < tokens.tokens.size(); ++i) {
    if (tokens.sampled[i] && tokens.versions[i] < lease_.min_version)
      return play_trunk_alone("the trunk is of older weights than its lease allows", actions);
  }
  trajectory_ = trunk.trajectory;
  trajectory_.key = lease_.key;
  trajectory_.group = lease_.group;
  opening_ = trunk.opening;
  instruction_ = trunk.instruction;
  said_ = trunk.said;
  turns_ = trunk.turns;
  max_turns_ = trunk.max_turns;
  tool_calls_ = trunk.tool_calls;  // those of the last turn count when they are answered
  inherited_calls_ = trunk.tool_calls + static_cast<uint32_t>(said_.calls.size());
  retokenised_turns_ = trunk.retokenised_turns;
  prompt_tokens_ = trunk.prompt_tokens;
  inherited_tokens_ =
      static_cast<uint32_t>(std::count(trajectory_.sampled.begin(), trajectory_.sampled.end(), uint8_t{1}));
  in_trunk_ = false;
  from_ = Trunk{.server = trunk.server, .sandbox = *trunk.sandbox, .turn = trunk.turns};
  waiting_ = Waiting::kSandbox;
  wanted_ = now;
  ask(now, actions);
}

// Its calls are answered once more: the server keeps what it said, so nothing that they gave need be kept here.
void Episode::on(const BranchesBegun&, Time now, Actions& actions) {
  if (waiting_ != Waiting::kBranches) return;
  waiting_ = Waiting::kTools;
  ask(now, actions);
}

// The turn with which the trunk ends is over.
void Episode::fork(Actions& actions) {
  in_trunk_ = false;
  trajectory_.trunk = {.family = lease_.trunk->family, .tokens = static_cast<uint32_t>(trajectory_.tokens.size())};
  waiting_ = Waiting::kBranches;
  actions.push_back(Fork{handover()});
}

// Everything that it has is let go of; it begins as its lease says.
void Episode::begin_anew(bool in_trunk, Actions& actions) {
  actions.push_back(EndSampling{});
  release_sandbox(actions);
  trajectory_ = empty_trajectory();
  opening_ = {};
  instruction_.clear();
  said_ = {};
  turns_ = max_turns_ = tool_calls_ = prompt_tokens_ = retokenised_turns_ = 0;
  inherited_tokens_ = inherited_calls_ = 0;
  is_summarising_ = begins_segment_ = false;
  sends_ = 0;
  from_.reset();
  in_trunk_ = in_trunk;
  waiting_ = Waiting::kWeights;
}

// The sandbox of the trunk could not be had.
void Episode::play_trunk_alone(std::string_view why, Actions& actions) {
  actions.push_back(Note{fmt::format("episode {} attempt {} plays its trunk again by itself: {}", lease_.key.episode,
                                     lease_.key.attempt, why)});
  begin_anew(true, actions);
  is_by_itself_ = true;
}

// The episode would end before its trunk does: so it does not branch. That is the end of the family's first episode,
// whose own seed this was, and another one begins by its own. Returns whether it begins anew.
bool Episode::ends_trunk(Actions& actions) {
  actions.push_back(EndTrunk{});
  in_trunk_ = false;
  if (lease_.trunk->seed == lease_.sample_seed) return false;
  begin_anew(false, actions);
  return true;
}

}  // namespace tandem::rollout
