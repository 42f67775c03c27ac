// Parts that tasks are composed from, and the rule that divides them between training and the held-out splits.
//
// Every wording frame, phrase and word has a stable hash, and the hash alone says whether it is held out; nobody
// chooses sides. A word is on the same side in every list. Of a list of frames or phrases, which may be short, the
// third with the lowest hashes is held out. File formats are few, so their side is written in their table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// Whether a word belongs to the held-out side: about one in three.
bool held_out(std::string_view word);

// Which side each ingredient of a task comes from.
struct Sides {
  bool new_wordings = false;
  bool new_names = false;  // vocabulary and formats
  bool practice = false;   // wider than any list: half of the names are made up
};
Sides sides_of(Split split);

// The words of one side, in their order.
std::vector<std::string_view> side(std::span<const std::string_view> words, bool new_ones);

// The frames or phrases of one side, in their order.
std::vector<std::string_view> phrases_of_side(std::span<const std::string_view> phrases, bool new_ones);

// --- words

enum class Words : uint8_t { kThing, kAspect, kProgram, kPerson, kPlace, kAdjective, kStem };
std::span<const std::string_view> words(Words list);

// Draws words of one side without repetition, and remembers them for the proofs.
class Vocabulary {
 public:
  Vocabulary(Random& random, const Sides& sides) : random_(random), sides_(sides) {}
  std::string draw(Words list);
  const std::vector<std::string>& used() const { return used_; }

  std::string setting();            // "cache_limit"
  std::string number();             // a value of two to four digits
  std::string value_for_setting();  // a number, a word, or a size with a unit
  std::string file_stem();          // "billing"
  std::string person();
  std::string label();  // two words for titles and notes: "copper harbor"
  Random& random() { return random_; }

 private:
  std::string made_up(Words list);
  Random& random_;
  Sides sides_;
  std::vector<std::string> used_;
};

// --- wordings

// A grammar of instructions for one kind. A frame has parts in angle brackets, which are replaced by one of their
// phrases, and slots in braces, which the task fills: "<set> {key} <to> {value} in {file}."
struct Grammar {
  struct Part {
    std::string_view name;
    std::span<const std::string_view> phrases;
  };
  std::span<const std::string_view> frames;
  std::span<const Part> parts;
};

// A template of one side: its frame and every phrase are of that side, so that two sides share no wording at all.
std::string compose(const Grammar& grammar, Random& random, bool new_wordings);

using Slots = std::vector<std::pair<std::string_view, std::string>>;
// The template with its slots filled, its first letter made large.
std::string fill(std::string_view wording, const Slots& slots);

}  // namespace tandem::envs
