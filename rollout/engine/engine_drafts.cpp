// Drafts in the engine: which tokens go into a pass as guesses, and what is learned when it is collected.
#include <fmt/format.h>

#include <algorithm>

#include "rollout/engine/engine.h"

namespace tandem::rollout {

namespace {
// Rows of guesses in a pass, of all its sequences.
constexpr int kMostGuesses = 64;
}  // namespace

Result<Speculation> speculation_named(std::string_view name) {
  if (name == "off") return Speculation::kOff;
  if (name == "ngram") return Speculation::kNgram;
  return fail(Status::invalid(fmt::format("speculation is \"{}\", expected off or ngram", name)));
}

DraftLoad Engine::load_before_drafts(bool behind) {
  DraftLoad load{.sequences = 0, .rows = 0};
  if (settings_.speculation == Speculation::kOff) return load;
  int prompts = 0;
  for (const auto& [id, sequence] : admitted_) {
    if (sequence->behind != behind) continue;
    const int lacking = missing(*sequence);
    load.sequences += lacking == 1;
    if (lacking > 1) prompts += lacking;
  }
  load.rows = std::max(1, load.sequences + std::min(prompts, settings_.prefill_beside));
  load.sequences = std::max(1, load.sequences);
  return load;
}

Draft Engine::draft_of(Sequence& s, const DraftLoad& load) {
  if (settings_.speculation == Speculation::kOff || !s.later.empty()) return {};
  const int said = static_cast<int>(s.tokens.size()) - s.turn_start;
  // One token comes without a draft.
  const int room = std::min(s.turn.max_new_tokens - said, settings_.max_tokens - s.length()) - 1;
  const int guesses = std::min(room, kMostGuesses - load.drafted);
  Draft draft = s.drafts.next(s.tokens, std::min(kMostDrafted, guesses));
  // Behind an end there is nothing to say.
  const auto end = std::ranges::find_first_of(draft.tokens, s.turn.stop_tokens);
  draft.tokens.erase(end, draft.tokens.end());
  if (draft.tokens.empty()) return draft;
  const int count = worthwhile(draft, s.record, pass_cost_, load, s.balance);
  if (count == 0) {
    s.record.skip(draft);
    return {};
  }
  draft.tokens.resize(count);
  if (!s.matcher) return draft;
  model::constraint::Matcher matcher(*s.matcher);
  const auto refused = std::ranges::find_if(draft.tokens, [&](int32_t token) { return !matcher.accept(token).ok(); });
  draft.tokens.erase(refused, draft.tokens.end());
  return draft;
}

bool Engine::may_draft_soon(Sequence& s) {
  if (settings_.speculation == Speculation::kOff) return false;
  Draft draft = s.drafts.next(s.tokens, kMostDrafted);
  const int sequences = std::max(1, static_cast<int>(admitted_.size()));
  return worthwhile(draft, s.record, pass_cost_, {.sequences = sequences, .rows = sequences}, s.balance) > 0;
}

void Engine::settle(Sequence& s, const Pass::Said& said, int right) {
  const int drafted = static_cast<int>(said.draft.tokens.size());
  if (settings_.speculation == Speculation::kOff) return;
  const double token = cost_of_token(pass_cost_, said.load);
  s.balance.plain += token * (right + 1);
  if (drafted == 0) return;
  s.verifies = false;
  // The row of the last token is computed with what comes next.
  s.computed = std::min(s.computed, static_cast<int>(s.tokens.size()) - 1);
  s.balance.won += token * right - cost_of_rows(pass_cost_, said.load, drafted);
  s.record.observe(said.draft, right);
  record_.observe(said.draft, right);
  counters_.accepted_tokens += right;
}

}  // namespace tandem::rollout
