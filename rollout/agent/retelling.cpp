#include "rollout/agent/retelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/segments.h"
#include "rollout/agent/compaction.h"

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

// How what follows a turn is written: as between two turns, or with a request for a summary behind it.
using WriteReply = std::function<Result<NextTurn>(const RetoldTurn& turn, const Reply& reply)>;

// The texts in the places of what stands between two turns.
Result<std::vector<std::string>> texts_of(const Conversation& conversation, const RetoldTurn& turn,
                                          std::span<const int32_t> between, const WriteReply& write) {
  std::vector<std::string> marks;
  for (size_t i = 0; i < places_of(turn.said); ++i) marks.push_back(mark_of(i));
  const auto probe = TRY(write(turn, reply_with(turn.said, marks)));
  const auto& tokenizer = conversation.tokenizer();
  auto texts = texts_between(tokenizer.decode(probe.tokens), tokenizer.decode(between), places_of(turn.said));
  if (!texts) return fail(Status::invalid("what follows is not what the template writes after it"));
  const auto again = TRY(write(turn, reply_with(turn.said, *texts)));
  if (!std::equal(again.tokens.begin(), again.tokens.end(), between.begin(), between.end()))
    return fail(Status::invalid("its results have other tokens when they are written again"));
  return *std::move(texts);
}

Result<Reply> reply_of(const Conversation& conversation, const RetoldTurn& turn, std::span<const int32_t> between,
                       const Json& tools) {
  const auto write = [&](const RetoldTurn& of, const Reply& reply) {
    return conversation.next_turn(of.tokens, of.said, reply, tools);
  };
  return reply_with(turn.said, TRY(texts_of(conversation, turn, between, write)));
}

// The turn before a summary: results, and the request. Behind a turn without calls it stands alone.
Result<Reply> reply_before_summary(const Conversation& conversation, const envs::Compaction& compaction,
                                   const RetoldTurn& turn, std::span<const int32_t> between, const Json& tools) {
  Reply reply{.results = {}, .instruction = compaction.request};
  if (turn.said.calls.empty()) {
    const auto asked = TRY(ask_for_summary(conversation, compaction, turn.tokens, turn.said, {}, tools));
    if (!std::ranges::equal(asked.tokens, between))
      return fail(Status::invalid("what follows is not the request for a summary"));
    return reply;
  }
  const auto write = [&](const RetoldTurn& of, const Reply& results) {
    return ask_for_summary(conversation, compaction, of.tokens, of.said, results, tools);
  };
  reply.results = TRY(texts_of(conversation, turn, between, write));
  // Where the template takes no message of the user's behind results, the request was written into the last of them.
  if (!conversation.next_turn(turn.tokens, turn.said, reply, tools)) {
    reply.results.back() += "\n\n" + reply.instruction;
    reply.instruction.clear();
  }
  return reply;
}

// The turns of one segment; `is_summed_up`: its last turn is a summary.
Result<std::vector<RetoldTurn>> turns_of(const Conversation& conversation, const envs::Compaction& compaction,
                                         const envs::Opening& opening, std::span<const int32_t> tokens,
                                         std::span<const uint8_t> sampled, bool is_summed_up) {
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
      const size_t next = at + between.size();
      const bool is_before_summary =
          is_summed_up && next < tokens.size() && next + run_from(next).size() == tokens.size();
      auto reply = is_before_summary ? reply_before_summary(conversation, compaction, turn, between, opening.tools)
                                     : reply_of(conversation, turn, between, opening.tools);
      if (!reply) return fail(Status(reply.error()).at(fmt::format("turn {}", turns.size() + 1)));
      turn.reply = std::move(*reply);
      at += between.size();
    }
    turns.push_back(std::move(turn));
  }
  return turns;
}

}  // namespace

Result<std::vector<RetoldSegment>> retell_segments(const Conversation& conversation, const envs::Compaction& compaction,
                                                   const envs::Opening& opening, std::span<const int32_t> tokens,
                                                   std::span<const uint8_t> sampled,
                                                   std::span<const uint32_t> later_segments) {
  if (tokens.size() != sampled.size() || !are_parts(later_segments, tokens.size()))
    return fail(Status::corrupt("its lists differ in length"));
  const auto all_tokens = split_at(tokens, later_segments);
  const auto all_sampled = split_at(sampled, later_segments);
  std::vector<RetoldSegment> segments;
  for (size_t i = 0; i < all_tokens.size(); ++i) {
    RetoldSegment segment{.opening = opening, .turns = {}};
    if (i > 0) {
      const auto summary = summary_in(conversation, segments.back().turns.back().tokens, opening.tools);
      segment.opening = opening_after(opening, compaction, summary, "");
    }
    auto turns =
        turns_of(conversation, compaction, segment.opening, all_tokens[i], all_sampled[i], i + 1 < all_tokens.size());
    if (!turns) return fail(Status(turns.error()).at(fmt::format("segment {}", i + 1)));
    if (turns->empty()) return fail(Status::corrupt(fmt::format("segment {} has no turn", i + 1)));
    segment.turns = std::move(*turns);
    segments.push_back(std::move(segment));
  }
  return segments;
}

}  // namespace tandem::rollout
