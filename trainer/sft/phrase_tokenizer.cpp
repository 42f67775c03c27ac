#include "trainer/sft/phrase_tokenizer.h"

#include <algorithm>
#include <map>
#include <queue>

#include "base/utf8.h"
#include "model/pre_tokenizer.h"

namespace tandem::trainer {

namespace {

// A pair of neighbours counts once for each text piece it stands in, times how often that piece occurs; equal counts go
// to the pair of the lowest ids.
//
// Pieces are few (most text repeats), so each merge walks all that hold the pair. Counted again is only what stands
// beside a merged pair: phrases are long, and nearly every merge is in each of them.
class MergeTrainer {
 public:
  using Pair = std::pair<int, int>;
  struct Merge {
    Pair pair;
    int merged = 0;
  };

  void add(const std::vector<int>& symbols, int64_t count) {
    const int index = static_cast<int>(pieces_.size());
    pieces_.push_back({symbols, count});
    for (size_t i = 0; i + 1 < symbols.size(); ++i) count_pair({symbols[i], symbols[i + 1]}, index, +1);
    push_changed();
  }

  std::vector<Merge> train(int first_id, int merges, int64_t least_count) {
    std::vector<Merge> made;
    while (static_cast<int>(made.size()) < merges) {
      const Pair best = take_best(least_count);
      if (best.first < 0) break;
      const int merged = first_id + static_cast<int>(made.size());
      made.push_back({best, merged});
      const auto where = pairs_[best].pieces;
      for (const auto& [index, times] : where) {
        if (times <= 0) continue;
        replace(index, best, merged);
      }
      push_changed();
    }
    return made;
  }

 private:
  struct Piece {
    std::vector<int> symbols;
    int64_t count;
  };
  struct Occurrences {
    int64_t count = 0;
    std::map<int, int> pieces;  // index -> times
  };
  struct Candidate {
    int64_t count;
    Pair pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void count_pair(const Pair& pair, int index, int sign) {
    Occurrences& found = pairs_[pair];
    found.count += sign * pieces_[index].count;
    found.pieces[index] += sign;
    changed_.push_back(pair);
  }
  void push_changed() {
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const Pair& pair : changed_)
      if (const int64_t count = pairs_[pair].count; count > 0) candidates_.push({count, pair});
    changed_.clear();
  }
  // Old candidates stay in the queue; one whose count is no longer true is put back with the true one.
  Pair take_best(int64_t least_count) {
    while (!candidates_.empty()) {
      const Candidate candidate = candidates_.top();
      candidates_.pop();
      const int64_t count = pairs_[candidate.pair].count;
      if (count == candidate.count) {
        if (count < least_count) break;
        return candidate.pair;
      }
      if (count < candidate.count && count >= least_count) candidates_.push({count, candidate.pair});
    }
    return {-1, -1};
  }
  void replace(int index, const Pair& pair, int merged) {
    std::vector<int>& symbols = pieces_[index].symbols;
    bool after_merged = false;
    int before = 0;  // what stood there
    size_t out = 0;
    for (size_t i = 0; i < symbols.size(); ++out) {
      const bool here = i + 1 < symbols.size() && symbols[i] == pair.first && symbols[i + 1] == pair.second;
      const int first = symbols[i], last = here ? pair.second : first;
      symbols[out] = here ? merged : first;
      if (out > 0 && (here || after_merged)) {
        count_pair({before, first}, index, -1);
        count_pair({symbols[out - 1], symbols[out]}, index, +1);
      }
      if (here) count_pair(pair, index, -1);
      before = last;
      after_merged = here;
      i += here ? 2 : 1;
    }
    symbols.resize(out);
  }

  std::vector<Piece> pieces_;
  std::map<Pair, Occurrences> pairs_;
  std::priority_queue<Candidate> candidates_;
  std::vector<Pair> changed_;  // whose counts are not in the queue yet
};

// GPT-2's printable stand-ins for bytes, as tokenizer.json writes them.
std::vector<std::string> byte_names() {
  std::vector<std::string> names(256);
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    append_utf8(printable ? static_cast<char32_t>(byte) : next++, names[byte]);
  }
  return names;
}

}  // namespace

Result<Json> make_phrase_tokenizer(std::span<const std::string> texts, const PhraseTokenizerSettings& settings) {
  Json steps = Json::array();
  if (!settings.cut.empty()) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", settings.cut}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  steps.push_back(byte_level);
  const Json pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", steps}};

  std::vector<std::string> names(settings.special.begin(), settings.special.end());
  const int first_byte = static_cast<int>(names.size());
  for (auto& name : byte_names()) names.push_back(std::move(name));

  const auto cutter = TRY(model::PreTokenizer::from_json(pre_tokenizer));
  model::RegexScratch scratch;
  std::map<std::string, int64_t, std::less<>> counts;
  std::vector<std::string_view> pieces;
  for (const std::string& text : texts) {
    pieces.clear();
    TRY(cutter.cut(text, scratch, pieces));
    for (const auto piece : pieces) ++counts[std::string(piece)];
  }
  MergeTrainer trainer;
  for (const auto& [piece, count] : counts) {
    std::vector<int> symbols;
    for (const char c : piece) symbols.push_back(first_byte + static_cast<unsigned char>(c));
    trainer.add(symbols, count);
  }
  const int first_merge = static_cast<int>(names.size());
  Json merges = Json::array();
  for (const auto& merge : trainer.train(first_merge, settings.vocabulary - first_merge, settings.least_count)) {
    merges.push_back({names[merge.pair.first], names[merge.pair.second]});
    names.push_back(names[merge.pair.first] + names[merge.pair.second]);
  }

  Json vocabulary = Json::object(), added = Json::array();
  for (size_t id = 0; id < names.size(); ++id) vocabulary[names[id]] = id;
  for (int id = 0; id < first_byte; ++id) {
    added.push_back({{"id", id},
                     {"content", names[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", added},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", pre_tokenizer},
                          {"post_processor", nullptr},
                          {"decoder", byte_level},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"ignore_merges", false},
                            {"vocab", vocabulary},
                            {"merges", merges}}}};
  return tokenizer.sorted();
}

}  // namespace tandem::trainer
