#include "envs/tasks/workspace/parts.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace tandem::envs {
namespace {

constexpr uint64_t kSalt = 1;

}  // namespace

bool held_out(std::string_view word) { return derive_seed(kSalt, word) % 3 == 0; }

Sides sides_of(Split split) {
  switch (split) {
    case Split::kTrain:
      return {.practice = true};
    case Split::kHeldoutInstances:
      return {};
    case Split::kHeldout:
      return {.new_wordings = true, .new_names = true};
    case Split::kHeldoutWordings:
      return {.new_wordings = true};
    case Split::kHeldoutFormats:
      return {.new_names = true};
  }
  return {};
}

std::vector<std::string_view> side(std::span<const std::string_view> words, bool new_ones) {
  std::vector<std::string_view> chosen;
  for (auto word : words) {
    if (held_out(word) == new_ones) chosen.push_back(word);
  }
  return chosen;
}

std::vector<std::string_view> phrases_of_side(std::span<const std::string_view> phrases, bool new_ones) {
  std::vector<uint64_t> hashes;
  for (auto phrase : phrases) hashes.push_back(derive_seed(kSalt, phrase));
  auto sorted = hashes;
  std::sort(sorted.begin(), sorted.end());
  const uint64_t border = sorted[sorted.size() / 3];  // the first that is not held out
  std::vector<std::string_view> chosen;
  for (size_t i = 0; i < phrases.size(); ++i) {
    if ((hashes[i] < border) == new_ones) chosen.push_back(phrases[i]);
  }
  return chosen;
}

std::string compose(const Grammar& grammar, Random& random, bool new_wordings) {
  const auto frames = phrases_of_side(grammar.frames, new_wordings);
  std::string text(random.pick(frames));
  for (size_t begin; (begin = text.find('<')) != std::string::npos;) {
    const size_t end = text.find('>', begin);
    const auto name = text.substr(begin + 1, end - begin - 1);
    const Grammar::Part* part = nullptr;
    for (const auto& candidate : grammar.parts) {
      if (candidate.name == name) part = &candidate;
    }
    if (!part) abort();  // a grammar with an unknown part is a mistake in its source, found by every test that runs it
    const auto phrases = phrases_of_side(part->phrases, new_wordings);
    text.replace(begin, end - begin + 1, random.pick(phrases));
  }
  return text;
}

std::string fill(std::string_view wording, const Slots& slots) {
  const bool starts_with_slot = wording.starts_with('{');  // a path or a name keeps its case
  std::string text;
  while (!wording.empty()) {
    const size_t begin = wording.find('{');
    text.append(wording.substr(0, begin));
    if (begin == std::string_view::npos) break;
    const size_t end = wording.find('}', begin);
    const auto name = wording.substr(begin + 1, end - begin - 1);
    const std::string* value = nullptr;
    for (const auto& [slot, filling] : slots) {
      if (slot == name) value = &filling;
    }
    if (!value) abort();  // as above
    text.append(*value);
    wording.remove_prefix(end + 1);
  }
  if (!starts_with_slot && !text.empty())
    text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace tandem::envs
