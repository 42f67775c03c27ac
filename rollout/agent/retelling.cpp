#include "rollout/agent/retelling.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::rollout {
namespace {

// In place of the result of call `i`: a text that no template changes and no file has.
std::string mark_of(size_t i) { return fmt::format("RESULT-{}-OF-THE-EPISODE", i); }

size_t places_of(const Said& said) { return std::max<size_t>(said.calls.size(), 1); }

Reply reply_with(const Said& said, std::vector<std::string> texts) {
  if (said.calls.empty()) return {.results = {}, .instruction = std::move(texts.front())};
  return {.results = std::move(texts), .instruction = {}};
}

// What `text` has in the places where `written` has marks. Nothing where the rest is another.
std::optional<std::vector<std::string>> texts_between(std::string_view written, std::string_view text, size_t places) {
  std::vector<std::string_view> fixed;  // before, between and behind the marks
  for (size_t i = 0; i < places; ++i) {
    const std::string mark = mark_of(i);
    const size_t at = written.find(mark);
    if (at == std::string_view::npos) return std::nullopt;
    fixed.push_back(written.substr(0, at));
    written.remove_prefix(at + mark.size());
  }
  if (!text.starts_with(fixed.front())) return std::nullopt;
  text.remove_prefix(fixed.front().size());
  if (!text.ends_with(written)) return std::nullopt;
  text.remove_suffix(written.size());
  std::vector<std::string> found;
  for (size_t i = 1; i < places; ++i) {
    const size_t at = text.find(fixed[i]);
    if (at == std::string_view::npos) return std::nullopt;
    found.emplace_back(text.substr(0, at));
    text.remove_prefix(at + fixed[i].size());
  }
  found.emplace_back(text);
  return found;
}

Result<Reply> reply_of(const Conversation& conversation, const RetoldTurn& turn, std::span<const int32_t> between,
                       const Json& tools) {
  std::vector<std::string> marks;
  for (size_t i = 0; i < places_of(turn.said); ++i) marks.push_back(mark_of(i));
  const auto probe = TRY(conversation.next_turn(turn.tokens, turn.said, reply_with(turn.said, marks), tools));
  const auto& tokenizer = conversation.tokenizer();
  auto texts = texts_between(tokenizer.decode(probe.tokens), tokenizer.decode(between), places_of(turn.said));
  if (!texts) return fail(Status::invalid("what follows is not what the template writes after it"));
  Reply reply = reply_with(turn.said, std::move(*texts));
  const auto again = TRY(conversation.next_turn(turn.tokens, turn.said, reply, tools));
  if (!std::equal(again.tokens.begin(), again.tokens.end(), between.begin(), between.end()))
    return fail(Status::invalid("its results have other tokens when they are written again"));
  return reply;
}

}  // namespace

Result<std::vector<RetoldTurn>> retell(const Conversation& conversation, const envs::Opening& opening,
                                       std::span<const int32_t> tokens, std::span<const uint8_t> sampled) {
  if (tokens.size() != sampled.size()) return fail(Status::corrupt("its lists differ in length"));
  const auto run_from = [&](size_t begin) {
    size_t end = begin;
    while (end < tokens.size() && sampled[end] == sampled[begin]) ++end;
    return tokens.subspan(begin, end - begin);
  };
  const auto prompt = TRY(conversation.prompt(opening));
  if (tokens.empty() || sampled.front() != 0 || !std::ranges::equal(prompt, run_from(0)))
    return fail(Status::invalid("its prompt is not that of its task: task, tools or template have changed since"));
  std::vector<RetoldTurn> turns;
  for (size_t at = prompt.size(); at < tokens.size();) {
    const auto said = run_from(at);
    RetoldTurn turn{.tokens = {said.begin(), said.end()}, .begin = at, .said = {}, .reply = {}};
    turn.said = conversation.read(turn.tokens, opening.tools);
    at += said.size();
    if (at < tokens.size()) {
      const auto between = run_from(at);
      auto reply = reply_of(conversation, turn, between, opening.tools);
      if (!reply) return fail(Status(reply.error()).at(fmt::format("turn {}", turns.size() + 1)));
      turn.reply = std::move(*reply);
      at += between.size();
    }
    turns.push_back(std::move(turn));
  }
  return turns;
}

}  // namespace tandem::rollout
