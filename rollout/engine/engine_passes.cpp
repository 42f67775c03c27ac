// Passes of the engine: what a plan asks the executor for, and what becomes of its answer.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/attention.h"
#include "rollout/engine/engine.h"

namespace tandem::rollout {

namespace {
bool has_penalties(const TurnRequest& turn) { return turn.frequency_penalty != 0 || turn.presence_penalty != 0; }
}  // namespace

Status Engine::submit(std::span<const Chunk> chunks) {
  // All of one version.
  const Sequence& any = *chunks.front().sequence;
  model::Plan plan{.before_flip = any.behind};
  plan.routes = route_pages_.has_value();
  Pass pass{.version = version_of(any)};
  std::vector<int32_t> tokens;
  for (const Chunk& chunk : chunks) {
    const Sequence& s = *chunk.sequence;
    const int first = s.computed, known = static_cast<int>(s.tokens.size());
    const int drafted = static_cast<int>(chunk.draft.tokens.size()), end = first + chunk.rows - drafted;
    const int row = static_cast<int>(plan.batch.tokens.size());
    tokens.clear();
    for (int at = first; at < end; ++at) {
      if (at >= known) plan.later.push_back({row + at - first, s.later[at - known]});
      tokens.push_back(at < known ? s.tokens[at] : 0);
    }
    tokens.insert(tokens.end(), chunk.draft.tokens.begin(), chunk.draft.tokens.end());
    plan.batch.add(tokens, first, s.pages, s.adapter_id);
    ask_for_prompt(chunk, row, plan, pass);
    if (chunk.samples) ask_for_tokens(chunk, row + chunk.rows - drafted - 1, plan, pass);
    pass.parts.push_back({{chunk.id, s.turn_number}, chunk.rows, first, {}});
    if (route_pages_) {
      const auto from = s.pages.begin() + first / kernels::kPageTokens;
      pass.parts.back().pages.assign(from, s.pages.begin() + (first + chunk.rows - 1) / kernels::kPageTokens + 1);
    }
    pass.samples_alone = pass.samples_alone && chunk.rows == drafted + 1;
  }
  pass.rows = static_cast<int>(plan.batch.tokens.size());
  pass.ticket = TRY(executor_->submit(std::move(plan)));
  int draw = 0;
  for (const Chunk& chunk : chunks) {
    const int drafted = static_cast<int>(chunk.draft.tokens.size());
    chunk.sequence->computed += chunk.rows;
    chunk.sequence->verifies = drafted > 0;
    if (chunk.samples) chunk.sequence->later.push_back({pass.ticket, std::exchange(draw, draw + drafted + 1)});
    if (chunk.rows > drafted + 1) counters_.prompt_tokens += chunk.rows - drafted;
    counters_.drafted_tokens += drafted;
  }
  pass.route_moves = std::exchange(route_moves_, {});
  passes_.push_back(std::move(pass));
  ++counters_.steps;
  return {};
}

// The tokens behind `row`, the last one that the sequence has, and behind those of the draft, which follow it.
void Engine::ask_for_tokens(const Chunk& chunk, int row, model::Plan& plan, Pass& pass) {
  const Sequence& s = *chunk.sequence;
  const std::span<const int32_t> drafted = chunk.draft.tokens;
  auto matcher = s.matcher;
  for (size_t i = 0; i <= drafted.size(); ++i) {
    if (i > 0 && matcher) {
      matcher = std::make_shared<model::constraint::Matcher>(*matcher);
      (void)matcher->accept(drafted[i - 1]);  // its mask has what was drafted, see draft_of
    }
    const int at = row + static_cast<int>(i);
    plan.draws.push_back(draw_of(s, at, drafted.first(i), matcher));
    pass.draw_tops.push_back(s.turn.top_logprobs > 0 ? plan.tops.size() : kNoTop);
    if (s.turn.top_logprobs > 0) plan.tops.push_back({at, s.turn.top_logprobs});
  }
  pass.said.push_back({{chunk.id, s.turn_number}, chunk.draft, chunk.load, s.context_version});
}

// The logprobs of prompt tokens that follow rows of the chunk, those alone that are not known from before.
void Engine::ask_for_prompt(const Chunk& chunk, int row, model::Plan& plan, Pass& pass) {
  const Sequence& s = *chunk.sequence;
  if (!s.turn.prompt_logprobs) return;
  for (int at = s.computed; at < s.computed + chunk.rows && at + 1 < s.turn_start; ++at) {
    if (at < static_cast<int>(s.prompt.size())) continue;
    plan.picks.push_back({row + at - s.computed, s.tokens[at + 1]});
    pass.prompt.push_back(
        {.of = {chunk.id, s.turn_number}, .at = at, .top = s.turn.prompt_top_logprobs > 0 ? plan.tops.size() : kNoTop});
    if (s.turn.prompt_top_logprobs > 0) plan.tops.push_back({row + at - s.computed, s.turn.prompt_top_logprobs});
  }
}

model::Draw Engine::draw_of(const Sequence& s, int row, std::span<const int32_t> drafted,
                            std::shared_ptr<model::constraint::Matcher> matcher) {
  const int length = s.length() + static_cast<int>(drafted.size());
  model::Draw draw{
      .row = row, .sampling = s.turn.sampling, .seed = s.turn.seed, .position = static_cast<uint64_t>(length)};
  draw.logit_scale = s.turn.logit_scale;
  draw.bias = s.turn.bias;
  draw.keeps = s.turn.record_kept;
  std::map<int32_t, int> with_draft;
  if (has_penalties(s.turn) && !drafted.empty()) {
    with_draft = s.said;
    for (const int32_t token : drafted) ++with_draft[token];
  }
  for (const auto& [token, count] : with_draft.empty() ? s.said : with_draft) {
    const float penalty = s.turn.frequency_penalty * static_cast<float>(count) + s.turn.presence_penalty;
    const auto same = std::ranges::find(draw.bias, token, &model::TokenBias::token);
    if (same != draw.bias.end())
      same->add -= penalty;
    else
      draw.bias.push_back({token, -penalty});
  }
  const bool may_stop = length - s.turn_start >= s.turn.min_new_tokens;
  if (!matcher && may_stop) return draw;
  if (!matcher) {
    draw.mask = [stops = s.turn.stop_tokens](std::span<uint64_t> allowed) {
      std::ranges::fill(allowed, ~uint64_t{0});
      for (const int32_t token : stops) {
        if (token >= 0 && static_cast<size_t>(token) < allowed.size() * 64)
          allowed[token / 64] &= ~(uint64_t{1} << (token % 64));
      }
    };
    return draw;
  }
  // May run when the sequence is gone.
  draw.mask = [matcher = std::move(matcher), stops = s.turn.stop_tokens](std::span<uint64_t> allowed) {
    std::vector<uint64_t> mask(std::max(matcher->vocabulary().mask_words(), allowed.size()), 0);
    matcher->mask(std::span(mask).first(matcher->vocabulary().mask_words()));
    // Tokens of the tokenizer that the model does not have cannot be drawn.
    std::copy_n(mask.begin(), allowed.size(), allowed.begin());
    if (!matcher->complete()) return;
    for (const int32_t token : stops) {
      if (token >= 0 && static_cast<size_t>(token) < allowed.size() * 64)
        allowed[token / 64] |= uint64_t{1} << (token % 64);
    }
  };
  return draw;
}

Result<std::vector<SampledToken>> Engine::collect() {
  const Pass pass = std::move(passes_.front());
  passes_.pop_front();
  model::Answer answer = TRY(executor_->collect(pass.ticket));
  if (answer.draws.size() != pass.draw_tops.size())
    return fail(
        Status::internal(fmt::format("a pass of {} draws has {} answers", pass.draw_tops.size(), answer.draws.size())));
  const auto lacks = [&](size_t top) { return top != kNoTop && top >= answer.tops.size(); };
  if (answer.picks.size() != pass.prompt.size() ||
      (!answer.kept.empty() && answer.kept.size() != answer.draws.size()) ||
      std::ranges::any_of(pass.draw_tops, lacks) || std::ranges::any_of(pass.prompt, lacks, &Pass::PromptPick::top))
    return fail(Status::internal("a pass has fewer logprobs than it asked for"));
  if (route_pages_) TRY(take_routes(pass, answer));
  counters_.forward_seconds += answer.forward_seconds;
  counters_.sample_seconds += answer.sample_seconds;
  const double row_seconds = (answer.forward_seconds + answer.sample_seconds) / std::max(1, pass.rows);
  for (const Pass::Part& part : pass.parts) {
    if (Sequence* const s = running_turn(part.of)) s->compute_seconds += row_seconds * part.rows;
  }
  std::vector<SampledToken> sampled;
  for (size_t i = 0; i < pass.prompt.size(); ++i) {
    const auto& [of, at, top] = pass.prompt[i];
    Sequence* const s = running_turn(of);
    // What was given up and is computed again may be known by now.
    if (s == nullptr || at != static_cast<int>(s->prompt.size()) || pass.version != version_of(*s)) continue;
    s->prompt.push_back({answer.picks[i], {}});
    if (top != kNoTop) s->prompt.back().top = answer.tops[top];
  }
  if (pass.samples_alone) pass_cost_.observe(pass.rows, answer.forward_seconds + answer.sample_seconds);
  size_t first = 0;
  for (const Pass::Said& said : pass.said) {
    take_said(pass, said, first, answer, sampled);
    first += said.draft.tokens.size() + 1;
  }
  TRY(Status(routes_lost_));
  counters_.sampled_tokens += sampled.size();
  return sampled;
}

void Engine::take_said(const Pass& pass, const Pass::Said& said, size_t first, model::Answer& answer,
                       std::vector<SampledToken>& sampled) {
  Sequence* const s = running_turn(said.of);
  if (s == nullptr) return;
  s->later.erase(s->later.begin());
  const auto& drafted = said.draft.tokens;
  size_t right = 0;
  for (size_t i = 0;; ++i) {
    sampled.push_back(take(said.of.sequence, *s, answer.draws[first + i], pass.version));
    sampled.back().context_version = said.context_version;
    if (!answer.kept.empty()) sampled.back().kept = std::move(answer.kept[first + i]);
    counters_.mixed_tokens += said.context_version != pass.version;
    if (const size_t top = pass.draw_tops[first + i]; top != kNoTop) sampled.back().top = std::move(answer.tops[top]);
    // Behind another token than the drafted one the rows that follow are of nobody.
    if (i == drafted.size() || sampled.back().token != drafted[i]) break;
    ++right;
    if (sampled.back().turn_ended) break;
  }
  settle(*s, said, static_cast<int>(right));
}

// Nothing where the turn is over.
Engine::Sequence* Engine::running_turn(const Pass::Of& of) {
  const auto found = sequences_.find(of.sequence);
  const bool runs = found != sequences_.end() && found->second.in_turn && found->second.turn_number == of.turn_number;
  return runs ? &found->second : nullptr;
}

SampledToken Engine::take(SequenceId id, Sequence& s, const kernels::Sampled& drawn, uint64_t version) {
  SampledToken token{.sequence = id,
                     .token = drawn.token,
                     .logprob = drawn.logprob,
                     .sampling_logprob = drawn.sampling_logprob,
                     .version = version,
                     .compute_seconds = std::exchange(s.compute_seconds, 0)};
  if (static_cast<int>(s.tokens.size()) == s.turn_start) {
    token.prompt = std::move(s.prompt);
    token.cached_tokens = s.cached;
  }
  const auto& stops = s.turn.stop_tokens;
  const bool stopped = std::find(stops.begin(), stops.end(), token.token) != stops.end();
  if (token.token < 0 || (s.matcher && !stopped && !s.matcher->accept(token.token).ok())) {
    token.token = -1;
    token.logprob = token.sampling_logprob = 0;
    end_turn(id, s, token, TurnEnd::kConstraint);
    return token;
  }
  if (route_pages_) {
    if (Status told = tell_routes(s, token); !told.ok()) routes_lost_ = std::move(told);
  }
  s.tokens.push_back(token.token);
  token.predicted = s.drafts.said(s.tokens, s.turn_start);
  if (has_penalties(s.turn)) ++s.said[token.token];
  const int said = static_cast<int>(s.tokens.size()) - s.turn_start;
  if (stopped)
    end_turn(id, s, token, TurnEnd::kStop);
  else if (said >= s.turn.max_new_tokens)
    end_turn(id, s, token, TurnEnd::kLength);
  else if (static_cast<int>(s.tokens.size()) >= settings_.max_tokens)
    end_turn(id, s, token, TurnEnd::kContext);
  return token;
}

void Engine::end_turn(SequenceId id, Sequence& s, SampledToken& token, TurnEnd end) {
  token.turn_ended = true;
  token.end = end;
  s.in_turn = false;
  --running_;
  leave_queue(id, s);
  s.later.clear();
  // What was planned behind the end is written over by what comes there.
  s.computed = std::min(s.computed, static_cast<int>(s.tokens.size()));
  // The next turn is of the live weights.
  if (std::exchange(s.behind, false)) forget_pages(s);
}

}  // namespace tandem::rollout
