#include "envs/search/words.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <string>

namespace tandem::envs {
namespace {

constexpr size_t kWordsLongest = 64;  // bytes; longer runs are data

constexpr std::array<std::string_view, 40> kFiller = {
    "a",    "an",   "and",  "are", "as", "at",   "be",   "by",    "can",   "do",  "does", "for", "from",  "get",
    "has",  "have", "how",  "i",   "in", "is",   "it",   "of",    "on",    "or",  "that", "the", "there", "they",
    "this", "to",   "used", "was", "we", "what", "when", "where", "which", "who", "why",  "with"};

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_digit_byte(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_upper(c) || is_lower(c) || is_digit_byte(c) || c == '_' || (c & 0x80) != 0; }

uint32_t hash_of(std::string_view word) { return static_cast<uint32_t>(XXH3_64bits(word.data(), word.size())); }

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

template <typename Take>
void take_word(std::string_view text, const Take& take) {
  if (text.size() < 2 || text.size() > kWordsLongest || std::all_of(text.begin(), text.end(), is_digit_byte)) return;
  auto word = lower(text);
  if (word.size() > 3 && word.ends_with('s') && !word.ends_with("ss")) word.pop_back();
  take(word);
}

template <typename Take>
void for_each_word(std::string_view text, const Take& take) {
  for (size_t begin = 0; begin < text.size();) {
    if (!is_word(text[begin])) {
      ++begin;
      continue;
    }
    size_t end = begin;
    while (end < text.size() && is_word(text[end])) ++end;
    const auto run = text.substr(begin, end - begin);
    begin = end;
    take_word(run, take);
    // Its parts: at underscores, before a capital behind a small letter, before the last of several capitals.
    size_t part = 0;
    for (size_t i = 1; i <= run.size(); ++i) {
      const bool cut = i == run.size() || run[i] == '_' || run[i - 1] == '_' ||
                       (is_upper(run[i]) && !is_upper(run[i - 1])) ||
                       (is_upper(run[i]) && i + 1 < run.size() && is_lower(run[i + 1])) ||
                       (is_digit_byte(run[i]) != is_digit_byte(run[i - 1]));
      if (!cut) continue;
      const auto piece = run.substr(part, i - part);
      if (piece.size() < run.size() && piece != "_") take_word(piece, take);
      part = i;
    }
  }
}

}  // namespace

std::vector<WordCount> count_words(std::string_view text) {
  std::vector<uint32_t> hashes;
  for_each_word(text, [&](const std::string& word) { hashes.push_back(hash_of(word)); });
  std::sort(hashes.begin(), hashes.end());
  std::vector<WordCount> counts;
  for (const uint32_t hash : hashes) {
    if (counts.empty() || counts.back().word != hash) counts.push_back({hash, 0});
    ++counts.back().count;
  }
  return counts;
}

std::vector<uint32_t> query_words(std::string_view query) {
  std::vector<uint32_t> words, filler;
  for_each_word(query, [&](const std::string& word) {
    const bool says_little = std::find(kFiller.begin(), kFiller.end(), word) != kFiller.end();
    auto& list = says_little ? filler : words;
    if (const auto hash = hash_of(word); std::find(list.begin(), list.end(), hash) == list.end()) list.push_back(hash);
  });
  return words.empty() ? filler : words;
}

}  // namespace tandem::envs
