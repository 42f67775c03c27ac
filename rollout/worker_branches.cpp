// A rollout process: its episodes that begin as one.
//
// The episode of a family that has begun plays the trunk, or else the first; the others wait. They are found by a look
// at all episodes in each turn of the work loop, so nothing need be told when one of them ends in any way.
#include <algorithm>
#include <map>
#include <utility>

#include "rollout/worker_process.h"

namespace tandem::rollout {

namespace {

// Whether it will come to the end of the trunk here.
bool plays_trunk(const Episode& e) { return e.is_in_trunk() && !e.is_over() && e.waiting() <= Waiting::kTools; }

uint64_t family_of(const Episode& e) { return e.lease().trunk->family; }

}  // namespace

void Worker::settle_trunks() {
  struct Family {
    Episode* player = nullptr;  // one that has begun, or the first
    std::vector<Episode*> idle, waiting, parents;
    bool is_branching = false;
  };
  std::map<uint64_t, Family> families;
  for (auto& [id, e] : episodes_) {
    if (!e.lease().trunk || e.is_over()) continue;
    Family& family = families[family_of(e)];
    if (e.waiting() == Waiting::kTrunk) family.waiting.push_back(&e);
    if (e.waiting() == Waiting::kBranches) family.parents.push_back(&e);
    family.is_branching = family.is_branching || e.is_branching();
    if (e.may_wait_for_trunk())
      family.idle.push_back(&e);
    else if (plays_trunk(e) && family.player == nullptr)
      family.player = &e;
  }
  for (auto& [number, family] : families) {
    if (!family.is_branching) {
      for (Episode* parent : family.parents) step(*parent, Episode::BranchesBegun{});
    }
    if (family.player == nullptr && !family.idle.empty()) family.player = family.idle.front();
    if (family.player == nullptr && !family.waiting.empty()) {
      family.player = family.waiting.front();
      step(*family.player, Episode::TrunkFree{});
    }
    for (Episode* idle : family.idle) {
      if (idle != family.player) step(*idle, Episode::TrunkTaken{});
    }
  }
}

std::vector<Episode*> Worker::waiting_for_trunk(const Episode& of) {
  std::vector<Episode*> waiting;
  for (auto& [id, e] : episodes_) {
    if (e.waiting() == Waiting::kTrunk && family_of(e) == family_of(of)) waiting.push_back(&e);
  }
  return waiting;
}

bool Worker::holds_trunk(const Episode& e) {
  if (e.is_branching()) return true;
  return plays_trunk(e) && !waiting_for_trunk(e).empty();
}

void Worker::carry_out(Episode& e, const Episode::Fork& fork) {
  for (Episode* waiting : waiting_for_trunk(e)) step(*waiting, Episode::Forked{fork.trunk});
}

void Worker::carry_out(Episode& e, const Episode::EndTrunk&) {
  for (Episode* waiting : waiting_for_trunk(e)) step(*waiting, Episode::TrunkEnded{});
}

}  // namespace tandem::rollout
