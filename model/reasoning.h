// Keeps reasoning apart from the answer: what stands between <think> and </think>, Mistral's [THINK] and [/THINK] or
// Kimi's ◁think▷ and ◁/think▷, at the beginning of a text.
//
// The white space around the marks is no part of either. Reasoning that is not closed goes on to the end of the text.
// Blocks of it that follow each other are one, joined by a newline.
// Pure; thread safety: none.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace tandem::model {

struct ReasoningMarks {
  std::string_view begin, end;
};
inline constexpr std::array<ReasoningMarks, 3> kReasoningMarks = {
    {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"◁think▷", "◁/think▷"}}};
inline constexpr std::string_view kReasoningBegin = kReasoningMarks[0].begin, kReasoningEnd = kReasoningMarks[0].end;

bool is_reasoning_mark(std::string_view text);

class ReasoningSplitter {
 public:
  struct Parts {
    std::string reasoning;
    std::string content;  // all of it, together, is an end of the text
  };
  // `inside`: the text begins behind <think>; one that is written again is no part of the reasoning.
  explicit ReasoningSplitter(bool inside) : begins_inside_(inside) {}

  // Returns the parts that are certain by now; with `last`, the rest.
  Parts push(std::string_view piece, bool last);
  bool inside() const { return state_ == kReasoning || (state_ == kBefore && begins_inside_); }

 private:
  enum State : uint8_t { kBefore, kReasoning, kBehind, kContent };
  // Whether `text` begins with a mark, which is kept; it may where that is undecided.
  bool begins(std::string_view text, bool& undecided);
  bool take_reasoning(Parts& parts, bool last);
  bool look_behind(bool last);
  const bool begins_inside_;
  State state_ = kBefore;
  bool any_ = false;         // of the block has been told
  bool any_before_ = false;  // of those before it
  std::string_view begin_ = kReasoningBegin, end_ = kReasoningEnd;
  std::string pending_;
};

}  // namespace tandem::model
