// New weights in the engine, and what becomes of the turns that run.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "rollout/engine/engine.h"

namespace tandem::rollout {

Result<OnNewVersion> on_new_version_named(std::string_view name) {
  if (name == "recompute") return OnNewVersion::kRecompute;
  if (name == "keep") return OnNewVersion::kKeep;
  if (name == "finish") return OnNewVersion::kFinish;
  return fail(
      Status::invalid(fmt::format("there is no way \"{}\" to take on new weights, expected recompute, keep or "
                                  "finish",
                                  name)));
}

Result<std::unique_ptr<model::StagedWeights>> Engine::stage_weights() {
  // The weights before the live ones are about to be written over.
  for (auto& [id, sequence] : sequences_) {
    if (sequence.behind) recompute(sequence);
  }
  return executor_->stage();
}

Status Engine::swap_weights(std::unique_ptr<model::StagedWeights> prepared, uint64_t version) {
  TRY(executor_->flip(std::move(prepared)));
  version_before_ = std::exchange(version_, version);
  cache_.forget();
  for (auto& [id, s] : sequences_) {
    const bool has_begun = s.in_turn && (s.computed > 0 || static_cast<int>(s.tokens.size()) > s.turn_start);
    if (settings_.on_new_version == OnNewVersion::kFinish && has_begun && !s.behind) {
      s.behind = true;
    } else if (settings_.on_new_version == OnNewVersion::kKeep && s.computed > 0 && !s.turn.prompt_logprobs) {
      s.mixed = true;
    } else {
      recompute(s);
    }
  }
  return {};
}

Status Engine::roll_back_weights() {
  TRY(executor_->roll_back());
  version_ = version_before_;
  recompute_all();
  return {};
}

Result<std::vector<SampledToken>> Engine::sleep() {
  std::vector<SampledToken> sampled;
  while (!passes_.empty()) std::ranges::move(TRY(collect()), std::back_inserter(sampled));
  recompute_all();
  TRY(executor_->sleep());
  asleep_ = true;
  return sampled;
}

Status Engine::wake() {
  TRY(executor_->wake());
  asleep_ = false;
  return {};
}

void Engine::recompute_all() {
  cache_.forget();
  for (auto& [id, sequence] : sequences_) recompute(sequence);
}

void Engine::recompute(Sequence& sequence) {
  counters_.recomputed_tokens += sequence.computed;
  sequence.behind = false;
  sequence.prompt.clear();
  forget_pages(sequence);
}

void Engine::forget_pages(Sequence& sequence) {
  cache_.release(sequence.pages);
  sequence.computed = sequence.remembered = 0;
  sequence.mixed = false;
}

bool Engine::next_is_behind() {
  bool behind = false, level = false;
  for (const auto& [id, sequence] : admitted_) {
    if (missing(*sequence) > 0) (sequence->behind ? behind : level) = true;
  }
  last_was_behind_ = behind && (!level || !last_was_behind_);
  return last_was_behind_;
}

}  // namespace tandem::rollout
