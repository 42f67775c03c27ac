// A search index of a folder's files: pieces with their vectors and words.
//
// Pieces of files are immutable and shared between copies of an index, so a copy costs what its list of files costs. An
// index over a base costs what is other than in the base: every sandbox has one over that of its folder or snapshot.
// An index holds no text but of the pieces that wait to be embedded.
//
// Thread safety: none; const methods from any thread while nobody changes it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "envs/sandbox/sources.h"
#include "envs/search/merkle_tree.h"
#include "envs/search/words.h"

namespace tandem::envs {

inline constexpr size_t kMostChunks = 200'000;  // of an index; files beyond are left out as too many

struct IndexedChunk {
  uint32_t first_line = 1, last_line = 1;
  Digest text;              // of what is embedded: path, scope and lines
  uint32_t word_count = 0;  // with repetitions
};

// The pieces of one file.
struct IndexedFile {
  std::vector<IndexedChunk> chunks;
  std::vector<float> vectors;       // [chunk][width]; of those that wait, zeros
  std::vector<uint32_t> word_ends;  // by chunk: behind its last word in `words`
  std::vector<WordCount> words;
};

struct SearchHit {
  std::string path;
  uint32_t first_line = 1, last_line = 1;
  double score = 0;       // by both ranks together; comparable within one search alone
  double similarity = 0;  // cosine of the vectors; 0 where it has none
};

class CodeIndex {
 public:
  // Vectors of texts, [text][width].
  using Embed = std::function<Result<std::vector<float>>(std::span<const std::string> texts)>;
  // A vector of a piece that somebody has already; null where there is none.
  using Find = std::function<const float*(const Digest& piece)>;
  // Told of each vector that was computed.
  using Keep = std::function<void(const Digest& piece, const float* vector)>;

  explicit CodeIndex(int width) : width_(width) {}
  // Begins with all that `base` holds, which nobody changes any more and none of whose pieces waits.
  static CodeIndex over(std::shared_ptr<const CodeIndex> base);
  int width() const { return width_; }

  // In the order of paths, for changes_of_sources.
  std::vector<KnownSource> known() const;

  // Takes what has changed. Pieces that a file had before keep their vectors; the others wait.
  struct Applied {
    std::vector<std::string> changed, restamped, removed;  // `restamped`: the stamp alone is new
  };
  Applied apply(SourceChanges changes);

  // Gives vectors to the pieces that wait: found ones, then up to `most` that are recalled or computed. Whether a piece
  // is recalled depends on what others did before; that it counts all the same keeps the answers of one sandbox
  // independent of theirs. `ended` is told of every file whose last piece got one. An error of `embed` leaves what was
  // done.
  struct Embedding {
    Embed embed;
    Find find = {}, recall = {};
    Keep keep = {};
    size_t most = SIZE_MAX;
    std::function<Status(const std::string& path)> ended = {};
    std::function<void(size_t done)> progress = {};  // of those that are computed
  };
  Result<size_t> embed(const Embedding& how);  // how many were recalled or computed

  size_t waiting() const { return waiting_; }
  size_t chunks() const { return chunks_; }
  size_t files() const;  // that are searched
  // Files that are its own, or gone: what it costs beside its base.
  size_t changed_files() const { return entries_.size() + hidden_.size(); }

  // The best `limit` pieces of files in any of the folders (or files; empty: all), by rank of similarity and rank of
  // words together. A query vector of no elements leaves the similarity out.
  std::vector<SearchHit> search(std::span<const float> query, std::span<const uint32_t> words,
                                std::span<const std::string> folders, size_t limit) const;

  // Over the files that are searched.
  MerkleTree tree() const;

  // For reading and writing an index: a file with all its vectors.
  const KnownSource* source(const std::string& path) const;
  const IndexedFile* file(const std::string& path) const;  // null where pieces wait
  void put(KnownSource source, std::shared_ptr<IndexedFile> file);
  void restamp(const std::string& path, uint64_t stamp);
  void remove(const std::string& path);

 private:
  struct Entry {
    KnownSource source;
    std::shared_ptr<IndexedFile> file;                    // shared with copies of the index, and then not written
    std::vector<std::pair<size_t, std::string>> waiting;  // chunk, and the text to embed
  };
  using Entries = std::map<std::string, Entry, std::less<>>;
  // In the order of paths, those of the base that are not hidden among its own.
  template <typename Visit>
  void each(const Visit& visit) const {
    auto own = entries_.begin();
    for (auto of_base = base_ ? base_->entries_.begin() : entries_.end(); base_ && of_base != base_->entries_.end();
         ++of_base) {
      if (hidden_.contains(of_base->first)) continue;
      for (; own != entries_.end() && own->first < of_base->first; ++own) visit(own->first, own->second);
      visit(of_base->first, of_base->second);
    }
    for (; own != entries_.end(); ++own) visit(own->first, own->second);
  }
  const Entry* find_entry(const std::string& path) const;  // its own or the base's; null: none
  Entry& own_entry(const std::string& path);               // as it was, now to be changed
  void erase(const std::string& path);
  void drop(const Entry& entry);
  void cut(Entry& entry, std::string_view content, const IndexedFile* before);

  int width_;
  size_t chunks_ = 0, waiting_ = 0;
  std::shared_ptr<const CodeIndex> base_;      // null: none
  Entries entries_;                            // its own
  std::set<std::string, std::less<>> hidden_;  // paths of the base that it has itself, or that are gone
};

// The pieces of a file as they are embedded: of path, scope and lines.
struct PieceText {
  Digest digest;
  std::string text;
};
std::vector<PieceText> pieces_of(const std::string& path, std::string_view content);

// Whether `path` is `folder` or lies in it; every path lies in "".
bool lies_in(std::string_view path, std::string_view folder);

}  // namespace tandem::envs
