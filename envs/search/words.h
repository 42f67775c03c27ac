// The words of code, and how well they answer a query.
//
// Words are runs of letters, digits and underscores, in lower case, and the parts that an identifier is made of
// ("maxOpenFiles": max, open, files, and itself), each without a plural's s. They are kept as 32-bit hashes, which are
// no secret keeping: short words can be guessed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tandem::envs {

struct WordCount {
  uint32_t word = 0;   // its hash
  uint32_t count = 0;  // in the text
  friend bool operator==(const WordCount&, const WordCount&) = default;
};

// Each word once, by its hash.
std::vector<WordCount> count_words(std::string_view text);
// Words of a question, without stop words such as "how" and "the" unless there are no others.
std::vector<uint32_t> query_words(std::string_view query);

}  // namespace tandem::envs
