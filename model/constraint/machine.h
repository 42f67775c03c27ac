// Steps from stack to stacks, byte by byte, as a grammar allows.
//
// Every stack that a step gives can still be completed. Several come out where the grammar does not yet tell apart what
// it is: alternatives of anyOf, and numbers that may end.
//
// Thread safety: none; the grammar must outlive the machine.
#pragma once

#include <array>
#include <vector>

#include "model/constraint/grammar.h"
#include "model/constraint/stacks.h"

namespace tandem::model::constraint {

class Machine {
 public:
  // `marks`: parts of calls that are tokens of their own, which `step_mark` takes and bytes never are.
  explicit Machine(const Grammar& grammar, const std::vector<std::string>& marks = {});

  StackId begin();
  // Adds to `out` what a byte leads to; nothing where it is refused. Stacks stand in it once or several times.
  void step(StackId stack, uint8_t byte, std::vector<StackId>& out);
  void step_mark(StackId stack, std::string_view mark, std::vector<StackId>& out);
  // Whether the text may end here.
  bool complete(StackId stack) const;

  const Grammar& grammar() const { return grammar_; }
  Stacks& stacks() { return stacks_; }
  const Stacks& stacks() const { return stacks_; }
  const Dfa* automaton(uint32_t number) const { return number == kNone ? nullptr : grammar_.automata[number].get(); }

  // Whether white space may come next, up to kMaxWhiteSpace of it; what follows it does not depend on how much there
  // is.
  bool takes_space(const Place& place) const;
  // For objects: whether another key may begin, whether a property may be it, whether a name that is no property may.
  bool may_have_key(const Place& object) const;
  bool may_have(const Place& object, uint32_t property) const;
  bool may_have_other(const Place& object) const;
  // The object behind a key. `name`: of a key that is no property; null where it is not known.
  StackId behind_property(const Place& key, uint32_t property);
  StackId behind_other(const Place& key, const std::string* name);
  // The stack behind the tag that ends free text; kNoStack where none may come, or it is a token of its own.
  StackId behind_text();
  const std::vector<std::array<uint32_t, 256>>& text_steps() const { return text_steps_; }
  // The state of free text after a byte: their number where the tag ends that begins calls, one more where one ends
  // that no text has.
  uint32_t step_text(uint32_t state, uint8_t byte) const { return text_steps_[state][byte]; }

 private:
  void prepare_calls(const std::vector<std::string>& marks);
  bool part_takes_space(const Place& place) const;
  bool part_completes(const Place& place) const;
  bool may_be_nothing(uint32_t node) const;  // a text of no characters
  void begin_value(uint32_t node, StackId parent, uint32_t depth, uint8_t byte, std::vector<StackId>& out);
  void step_root(Place place, uint8_t byte, std::vector<StackId>& out);
  void step_literal(Place place, uint8_t byte, std::vector<StackId>& out);
  void step_array(Place place, uint8_t byte, std::vector<StackId>& out);
  void step_object(Place place, uint8_t byte, std::vector<StackId>& out);
  void step_key(Place place, uint8_t byte, std::vector<StackId>& out);
  void step_start(Place place, uint8_t byte, std::vector<StackId>& out);
  void step_text(Place place, uint8_t byte, std::vector<StackId>& out);
  void step_part(Place place, uint8_t byte, std::vector<StackId>& out);
  void step_raw(Place place, uint8_t byte, std::vector<StackId>& out);
  void begin_part(uint32_t number, uint32_t keys, uint8_t byte, std::vector<StackId>& out);
  StackId behind_part(uint32_t number, uint32_t keys = kNoKeys);
  // Whether the part may come behind those keys; what they are then.
  bool enter(const Part& part, uint32_t& keys);
  KeySet with_property(uint32_t keys, uint32_t object, uint32_t property) const;
  bool fits(uint32_t node, uint32_t depth) const {
    const uint32_t needed = grammar_.nodes[node].depth;
    return needed != kNever && depth + needed <= kMaxNesting;
  }
  // Takes white space; false where the byte is none. Too much of it leads nowhere.
  bool step_space(const Place& place, uint8_t byte, std::vector<StackId>& out);

  const Grammar& grammar_;
  Stacks stacks_;
  std::vector<std::array<uint32_t, 256>> text_steps_;  // by state: with how much of which tag the text ends
  std::vector<bool> marks_;                            // by part
  bool text_ends_by_mark_ = false;
};

}  // namespace tandem::model::constraint
