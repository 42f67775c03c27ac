// Looking for pieces: all of them are compared, by their vectors and by their words, and the two ranks joined.
//
// Exact, without a structure that would have to be built and kept: a comparison is 384 products, and the words of a
// piece are passed over by a bit map of those of the query.
#include <algorithm>
#include <bitset>
#include <cmath>
#include <unordered_map>

#include "envs/search/code_index.h"

namespace tandem::envs {
namespace {

constexpr double kRankOffset = 60;   // of reciprocal rank fusion (Cormack, Clarke, Buettcher 2009)
constexpr size_t kRanked = 200;      // pieces of each rank that count
constexpr double kSaturation = 1.2;  // k1 and b of BM25 (Robertson and Zaragoza 2009)
constexpr double kLengthShare = 0.75;
constexpr float kSearchUnknown = -2;  // similarity of what has no vector yet
constexpr size_t kMostWords = 32;     // of a query

// Four sums of four, added at the end: what the compiler makes vector instructions of.
float dot(const float* a, const float* b, size_t width) {
  typedef float Four __attribute__((vector_size(16), aligned(4)));
  Four sums[4] = {};
  size_t i = 0;
  for (; i + 16 <= width; i += 16) {
    for (size_t k = 0; k < 4; ++k) {
      sums[k] += *reinterpret_cast<const Four*>(a + i + 4 * k) * *reinterpret_cast<const Four*>(b + i + 4 * k);
    }
  }
  const Four sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  float result = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  for (; i < width; ++i) result += a[i] * b[i];
  return result;
}

struct Candidate {
  const std::string* path;
  const IndexedFile* file;
  uint32_t chunk;
  float similarity = 0;
  double words = 0;
};

struct WordHit {
  uint32_t candidate, word, count;  // `word` by its place in the query
};

// The best first; equal ones in the order of paths and lines, which is that of the numbers.
template <typename Score>
std::vector<uint32_t> best(std::vector<uint32_t> numbers, const Score& score) {
  const auto better = [&](uint32_t a, uint32_t b) { return score(a) != score(b) ? score(a) > score(b) : a < b; };
  const size_t count = std::min(kRanked, numbers.size());
  std::partial_sort(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(count), numbers.end(), better);
  numbers.resize(count);
  return numbers;
}

}  // namespace

std::vector<SearchHit> CodeIndex::search(std::span<const float> query, std::span<const uint32_t> words,
                                         std::span<const std::string> folders, size_t limit) const {
  words = words.first(std::min(words.size(), kMostWords));
  std::bitset<4096> may_be_asked;
  for (const uint32_t word : words) may_be_asked.set(word % may_be_asked.size());
  std::vector<Candidate> all;
  std::vector<WordHit> hits;
  std::vector<uint32_t> similar;
  double total_length = 0;
  const auto width = static_cast<size_t>(width_);
  each([&](const std::string& path, const Entry& entry) {
    if (!entry.file) return;
    const auto holds = [&path](const std::string& folder) { return lies_in(path, folder); };
    const bool wanted = folders.empty() || std::any_of(folders.begin(), folders.end(), holds);
    if (!wanted) return;
    uint32_t word = 0;
    for (uint32_t i = 0; i < entry.file->chunks.size(); ++i) {
      const auto number = static_cast<uint32_t>(all.size());
      all.push_back({&path, entry.file.get(), i});
      total_length += entry.file->chunks[i].word_count;
      if (!query.empty()) {
        const float cosine = dot(query.data(), entry.file->vectors.data() + i * width, width);
        // Vectors out of a file may be no numbers, which no order holds.
        all.back().similarity = std::abs(cosine) < 1.5f ? cosine : kSearchUnknown;
        similar.push_back(number);
      }
      for (; word < entry.file->word_ends[i]; ++word) {
        const auto& count = entry.file->words[word];
        if (!may_be_asked.test(count.word % may_be_asked.size())) continue;
        const auto asked = std::find(words.begin(), words.end(), count.word);
        if (asked != words.end() && count.count > 0)
          hits.push_back({number, static_cast<uint32_t>(asked - words.begin()), count.count});
      }
    }
    for (const auto& [chunk, text] : entry.waiting) {
      // Its vector is zeros: nothing is known of its likeness, which is not the same as none.
      if (!query.empty()) all[all.size() - entry.file->chunks.size() + chunk].similarity = kSearchUnknown;
    }
  });
  std::erase_if(similar, [&](uint32_t number) { return all[number].similarity == kSearchUnknown; });

  std::vector<double> holding(words.size());
  for (const auto& hit : hits) ++holding[hit.word];
  const double average = all.empty() ? 1 : std::max(1.0, total_length / static_cast<double>(all.size()));
  std::vector<uint32_t> worded;
  for (const auto& hit : hits) {
    auto& candidate = all[hit.candidate];
    if (candidate.words == 0) worded.push_back(hit.candidate);
    const double without = std::max(0.0, static_cast<double>(all.size()) - holding[hit.word]);
    const double rarity = std::log(1 + (without + 0.5) / (holding[hit.word] + 0.5));
    const double length = candidate.file->chunks[candidate.chunk].word_count / average;
    candidate.words +=
        rarity * hit.count * (kSaturation + 1) / (hit.count + kSaturation * (1 - kLengthShare + kLengthShare * length));
  }

  std::unordered_map<uint32_t, double> scores;
  const auto add = [&](const std::vector<uint32_t>& ranked) {
    for (size_t rank = 0; rank < ranked.size(); ++rank)
      scores[ranked[rank]] += 1 / (kRankOffset + static_cast<double>(rank) + 1);
  };
  add(best(std::move(similar), [&](uint32_t number) { return all[number].similarity; }));
  add(best(std::move(worded), [&](uint32_t number) { return all[number].words; }));
  std::vector<uint32_t> found;
  for (const auto& [number, score] : scores) found.push_back(number);
  // Equal ones that have the words come first: a piece that waits for its vector has no other rank.
  std::sort(found.begin(), found.end(), [&](uint32_t a, uint32_t b) {
    if (scores[a] != scores[b]) return scores[a] > scores[b];
    return all[a].words != all[b].words ? all[a].words > all[b].words : a < b;
  });
  std::vector<SearchHit> result;
  for (size_t i = 0; i < std::min(limit, found.size()); ++i) {
    const auto& candidate = all[found[i]];
    const auto& chunk = candidate.file->chunks[candidate.chunk];
    result.push_back({*candidate.path, chunk.first_line, chunk.last_line, scores[found[i]],
                      std::max(0.0, static_cast<double>(candidate.similarity))});
  }
  return result;
}

}  // namespace tandem::envs
