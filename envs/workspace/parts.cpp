#include "envs/workspace/parts.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace tandem::envs {
namespace {

constexpr uint64_t kSalt = 1;

}  // namespace

bool for_validation(std::string_view word) { return derive_seed(kSalt, word) / 3 % 5 == 3; }

Side side_of(std::string_view word) {
  if (derive_seed(kSalt, word) % 3 == 0) return Side::kHeldout;
  return for_validation(word) ? Side::kValidation : Side::kTrain;
}

Sides sides_of(Split split) {
  switch (split) {
    case Split::kTrain:
      return {.practice = true};
    case Split::kHeldoutInstances:
      return {};
    case Split::kValidation:
      return {.wordings = Side::kValidation, .names = Side::kValidation};
    case Split::kHeldout:
      return {.wordings = Side::kHeldout, .names = Side::kHeldout};
    case Split::kHeldoutWordings:
      return {.wordings = Side::kHeldout};
    case Split::kHeldoutFormats:
      return {.names = Side::kHeldout};
  }
  return {};
}

std::vector<std::string_view> words_of_side(std::span<const std::string_view> words, Side side) {
  std::vector<std::string_view> chosen;
  for (auto word : words) {
    if (side_of(word) == side) chosen.push_back(word);
  }
  return chosen;
}

std::vector<std::string_view> phrases_of_side(std::span<const std::string_view> phrases, Side side) {
  std::vector<uint64_t> hashes;
  for (auto phrase : phrases) hashes.push_back(derive_seed(kSalt, phrase));
  auto sorted = hashes;
  std::sort(sorted.begin(), sorted.end());
  const size_t held_out = sorted.size() / 3, validation = std::max<size_t>(1, (sorted.size() - held_out) / 6);
  std::vector<std::string_view> chosen;
  for (size_t i = 0; i < phrases.size(); ++i) {
    Side its = Side::kTrain;
    if (hashes[i] < sorted[held_out + validation]) its = Side::kValidation;
    if (hashes[i] < sorted[held_out]) its = Side::kHeldout;
    if (its == side) chosen.push_back(phrases[i]);
  }
  return chosen;
}

std::string compose(const Grammar& grammar, Random& random, Side side) {
  const auto frames = phrases_of_side(grammar.frames, side);
  std::string text(random.pick(frames));
  for (size_t begin; (begin = text.find('<')) != std::string::npos;) {
    const size_t end = text.find('>', begin);
    const auto name = text.substr(begin + 1, end - begin - 1);
    const Grammar::Part* part = nullptr;
    for (const auto& candidate : grammar.parts) {
      if (candidate.name == name) part = &candidate;
    }
    if (!part) abort();  // a grammar with an unknown part is a mistake in its source, found by every test that runs it
    const auto phrases = phrases_of_side(part->phrases, side);
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
