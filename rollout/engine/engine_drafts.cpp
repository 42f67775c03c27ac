// Drafts in the engine: which tokens go into a pass as guesses, and what is learned when it is collected.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rollout/engine/draft_model.h"

namespace tandem::rollout {

namespace {
// Rows of guesses in a pass, of all its sequences.
constexpr int kMostGuesses = 64;
// Most tokens of the draft model in a row: it is wrong more often the further it goes.
constexpr int kMostOfModel = 16;
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

int Engine::room_for_draft(const Sequence& s, const DraftLoad& load) const {
  const int said = static_cast<int>(s.tokens.size()) - s.turn_start;
  // One token comes without a draft.
  const int room = std::min(s.turn.max_new_tokens - said, settings_.max_tokens - s.length()) - 1;
  return std::min({kMostDrafted, room, kMostGuesses - load.drafted});
}

Draft Engine::draft_of(Sequence& s, const DraftLoad& load) {
  Draft draft{.tokens = std::exchange(s.proposed, {}), .source = DraftSource::kModel, .matched = s.matched};
  if (settings_.speculation == Speculation::kOff || !s.later.empty()) return {};
  const int room = room_for_draft(s, load);
  const bool is_of_model = !draft.tokens.empty();
  if (!is_of_model) draft = s.drafts.next(s.tokens, room);
  draft.tokens.resize(std::min(draft.tokens.size(), static_cast<size_t>(std::max(0, room))));
  // Behind an end there is nothing to say.
  const auto end = std::ranges::find_first_of(draft.tokens, s.turn.stop_tokens);
  draft.tokens.erase(end, draft.tokens.end());
  if (draft.tokens.empty()) return draft;
  if (is_of_model) {
    draft.seconds_of_token = draft_model_->seconds_of_token();
  } else {
    const int count = worthwhile(draft, s.record, pass_cost_, load, s.balance);
    if (count == 0) {
      s.record.skip(draft);
      return {};
    }
    draft.tokens.resize(count);
  }
  if (!s.matcher) return draft;
  model::constraint::Matcher matcher(*s.matcher);
  const auto refused = std::ranges::find_if(draft.tokens, [&](int32_t token) { return !matcher.accept(token).ok(); });
  draft.tokens.erase(refused, draft.tokens.end());
  return draft;
}

Draft Engine::draft_by_model(Sequence& s, const DraftLoad& load) {
  Draft draft = s.drafts.next(s.tokens, room_for_draft(s, load));
  if (worthwhile(draft, s.record, pass_cost_, load, s.balance) > 0) return {};
  const int most = std::min(kMostOfModel, room_for_draft(s, load));
  draft = {.tokens = std::vector<int32_t>(static_cast<size_t>(std::max(0, most))),
           .source = DraftSource::kModel,
           .matched = s.matched,
           .seconds_of_token = draft_model_->seconds_of_token()};
  if (draft.tokens.empty()) return draft;
  const int count = worthwhile(draft, s.record, pass_cost_, load, s.balance);
  if (count == 0) s.record.skip(draft);
  draft.tokens.resize(static_cast<size_t>(count));
  return draft;
}

Status Engine::ask_draft_model(bool behind, const DraftLoad& load) {
  if (settings_.speculation == Speculation::kOff) return {};
  DraftLoad asked = load;
  std::vector<DraftModel::Wanted> wanted;
  for (const auto& [id, admitted] : admitted_) {
    Sequence& s = *admitted;
    s.proposed.clear();
    const bool lacks_one = s.later.empty() && !s.verifies && static_cast<int>(s.tokens.size()) - s.computed == 1;
    if (s.behind != behind || !lacks_one) continue;
    const auto most = static_cast<int>(draft_by_model(s, asked).tokens.size());
    if (most == 0) continue;
    wanted.push_back({.id = id, .tokens = s.tokens, .turn = &s.turn, .most = most});
    asked.rows += most;
    asked.drafted += most;
  }
  if (wanted.empty()) return {};
  auto proposed = TRY(draft_model_->propose(wanted));
  for (size_t i = 0; i < wanted.size(); ++i) {
    // Rows of padding in the small model's vocabulary are no tokens of this one.
    auto& tokens = proposed[i];
    tokens.erase(std::ranges::find_if(tokens, [&](int32_t token) { return token >= vocabulary_; }), tokens.end());
    admitted_.at(wanted[i].id)->proposed = std::move(tokens);
  }
  return {};
}

bool Engine::may_draft_soon(Sequence& s) {
  if (settings_.speculation == Speculation::kOff) return false;
  const Draft draft = s.drafts.next(s.tokens, kMostDrafted);
  const int sequences = std::max(1, static_cast<int>(admitted_.size()));
  const DraftLoad load{.sequences = sequences, .rows = sequences};
  return worthwhile(draft, s.record, pass_cost_, load, s.balance) > 0 ||
         (draft_model_ && !draft_by_model(s, load).tokens.empty());
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
  s.balance.won += token * right - cost_of_rows(pass_cost_, said.load, drafted) - drafted * said.draft.seconds_of_token;
  if (said.draft.source == DraftSource::kModel) s.matched = right == drafted ? s.matched + right : right;
  s.record.observe(said.draft, right);
  record_.observe(said.draft, right);
  counters_.accepted_tokens += right;
}

}  // namespace tandem::rollout
