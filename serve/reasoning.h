// Keeps reasoning apart from the answer: what stands between <think> and </think> at the beginning of a text.
//
// The white space around the marks is no part of either. Pure; thread safety: none.
#pragma once

#include <string>
#include <string_view>

namespace tandem::serve {

class ReasoningSplitter {
 public:
  struct Parts {
    std::string reasoning, content;
  };
  // Where not `looks`, all is content. `inside`: the text begins behind <think>.
  ReasoningSplitter(bool looks, bool inside) : state_(!looks ? kContent : inside ? kReasoning : kBefore) {}

  // What is certain by now; with `last`, the rest.
  Parts push(std::string_view piece, bool last);
  bool inside() const { return state_ == kReasoning; }

 private:
  enum State : uint8_t { kBefore, kReasoning, kBehind, kContent };
  State state_;
  bool any_ = false;  // of the reasoning has been told
  std::string pending_;
};

}  // namespace tandem::serve
