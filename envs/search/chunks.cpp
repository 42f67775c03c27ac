#include "envs/search/chunks.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr int kTab = 4;             // columns
constexpr int kChunksDeepest = 24;  // levels that a thing is cut along; then its lines
constexpr size_t kSmall = 300;      // bytes of a piece that may take in a neighbour of another kind
constexpr size_t kScopeLine = 100;  // bytes of a line of a scope
constexpr size_t kMostScopes = 3;   // lines of a scope, the innermost
constexpr int kBlank = std::numeric_limits<int>::max();

struct Line {
  size_t begin = 0, end = 0;  // with its line end
  int level = kBlank;         // how deep it lies; kBlank of a blank line
  bool lead = false;          // a comment or an attribute: belongs to what stands below it
  bool closes = false;        // ends or goes on with what stands above it
  bool heading = false;       // of a document
};

bool ends_in(std::string_view path, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view end) { return path.ends_with(end); });
}
bool starts_with_any(std::string_view text, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view begin) { return text.starts_with(begin); });
}

bool starts_with_word(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
    if (!text.starts_with(word)) return false;
    const char next = text.size() > word.size() ? text[word.size()] : ' ';
    return !std::isalnum(static_cast<unsigned char>(next)) && next != '_';
  });
}

// One file on its way into pieces.
class Cutter {
 public:
  Cutter(std::string_view path, std::string_view text) : text_(text) {
    document_ = ends_in(path, {".md", ".markdown", ".rst", ".txt", ".adoc"});
    preprocessed_ = ends_in(path, {".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".cu", ".cuh", ".inl", ".m"});
    read_lines();
  }

  std::vector<Chunk> run() {
    cut(0, lines_.size(), -1, {}, 0);
    return std::move(chunks_);
  }

 private:
  using Scope = std::vector<std::string>;

  std::string_view trimmed(size_t line) const {
    return trim(text_.substr(lines_[line].begin, lines_[line].end - lines_[line].begin));
  }

  void read_lines() {
    for (size_t begin = 0; begin < text_.size();) {
      const size_t end = std::min(text_.find('\n', begin), text_.size() - 1) + 1;
      lines_.push_back({.begin = begin, .end = end});
      begin = end;
    }
    std::vector<int> depths(lines_.size(), 0);
    int depth = 0;
    size_t inside = 0, inside_unindented = 0;
    for (size_t i = 0; i < lines_.size(); ++i) {
      Line& line = lines_[i];
      const auto words = trimmed(i);
      if (words.empty()) continue;
      line.level = 0;
      for (size_t at = line.begin; at < line.end && (text_[at] == ' ' || text_[at] == '\t'); ++at)
        line.level += text_[at] == '\t' ? kTab : 1;
      const bool directive = preprocessed_ && words[0] == '#';
      line.heading = document_ && words[0] == '#' && line.level == 0;
      line.closes = !document_ && (words[0] == '}' || words[0] == ')' || words[0] == ']' ||
                                   starts_with_word(words, {"else", "elif", "except", "finally", "catch", "rescue",
                                                            "end", "fi", "done", "esac"}));
      line.lead = !document_ && !directive &&
                  starts_with_any(words, {"//", "/*", "*", "#", "@", "--", "[[", "[assembly", "template"});
      if (directive) line.level = kBlank - 1;  // it says nothing about the structure: as deep as what follows
      if (!document_) {
        const int before = depth;
        for (const char c : words) depth += c == '{' ? 1 : c == '}' ? -1 : 0;
        depth = std::max(depth, 0);
        depths[i] = std::min(before, words[0] == '}' ? depth : before);
        inside += depths[i] > 0 ? 1 : 0;
        inside_unindented += depths[i] > 0 && line.level == 0 ? 1 : 0;
      }
    }
    if (inside_unindented * 2 > inside) {
      for (size_t i = 0; i < lines_.size(); ++i) {
        if (lines_[i].level < kBlank - 1) lines_[i].level = depths[i];
      }
    }
    // Comments and directives lie as deep as what they stand above.
    for (size_t i = lines_.size(); i-- > 0;) {
      Line& line = lines_[i];
      const bool follows = i + 1 < lines_.size() && lines_[i + 1].level != kBlank;
      if (line.level == kBlank - 1) line.level = follows ? lines_[i + 1].level : 0;
      if (line.lead && follows) line.level = lines_[i + 1].level;
    }
  }

  size_t bytes(size_t begin, size_t end) const { return begin < end ? lines_[end - 1].end - lines_[begin].begin : 0; }
  bool blank_before(size_t line) const { return line == 0 || lines_[line - 1].level == kBlank; }

  // Where things of one level begin in [begin, end): the first of them at `begin`.
  std::vector<size_t> things(size_t begin, size_t end, int level) const {
    std::vector<size_t> starts = {begin};
    bool found = false;
    for (size_t i = begin; i < end; ++i) {
      const Line& line = lines_[i];
      if (line.level != level || line.closes) continue;
      // A chain of comments begins with its first one.
      if (i > begin && lines_[i - 1].lead && lines_[i - 1].level == level) continue;
      if (document_ && !line.heading && !blank_before(i)) continue;
      if (found && i > begin) starts.push_back(i);
      found = true;
    }
    return starts;
  }

  void cut(size_t begin, size_t end, int floor, const Scope& scope, int depth) {
    while (begin < end && lines_[begin].level == kBlank) ++begin;
    while (begin < end && lines_[end - 1].level == kBlank) --end;
    if (begin == end) return;
    if (bytes(begin, end) <= kChunkBytes && !document_) return emit(begin, end, scope);
    int level = kBlank;
    for (size_t i = begin; i < end; ++i) {
      if (lines_[i].level > floor) level = std::min(level, lines_[i].level);
    }
    if (level == kBlank || depth == kChunksDeepest) return cut_lines(begin, end, scope);
    const auto starts = things(begin, end, level);
    if (starts.size() == 1) {
      if (document_) return bytes(begin, end) <= kChunkBytes ? emit(begin, end, scope) : cut_lines(begin, end, scope);
      return cut(begin, end, level, with_opening(scope, begin, end, level), depth + 1);
    }
    join(starts, end, level, scope, depth);
  }

  // Things that fit together share a piece.
  void join(const std::vector<size_t>& starts, size_t end, int level, const Scope& scope, int depth) {
    size_t piece = starts[0];
    const auto flush = [&](size_t to) {
      if (bytes(piece, to) > kChunkBytes) {
        cut(piece, to, level, with_opening(scope, piece, to, level), depth + 1);
      } else if (piece < to) {
        emit(piece, to, scope);
      }
      piece = to;
    };
    for (size_t i = 1; i < starts.size(); ++i) {
      const size_t next = starts[i], next_end = i + 1 < starts.size() ? starts[i + 1] : end;
      const size_t so_far = bytes(piece, next);
      const bool fits = bytes(piece, next_end) <= kChunkBytes;
      // What blank lines hold apart stays apart, unless it is little.
      const bool apart = lines_[next].heading || blank_before(next);
      const bool little = so_far < kSmall || bytes(next, next_end) < kSmall / 3;
      if (!fits || (apart && !little) || (lines_[next].heading && so_far >= kSmall / 3)) flush(next);
    }
    flush(end);
  }

  // The scope within a thing that is cut: what it opens with.
  Scope with_opening(const Scope& scope, size_t begin, size_t end, int level) const {
    for (size_t i = begin; i < end; ++i) {
      if (lines_[i].level != level || lines_[i].lead) continue;
      Scope inner = scope;
      inner.emplace_back(trimmed(i).substr(0, kScopeLine));
      if (inner.size() > kMostScopes) inner.erase(inner.begin());
      return inner;
    }
    return scope;
  }

  // Where nothing shows how a text is made: as many lines as fit.
  void cut_lines(size_t begin, size_t end, const Scope& scope) {
    size_t piece = begin;
    for (size_t i = begin; i <= end; ++i) {
      if (i < end && bytes(piece, i + 1) <= kChunkBytes) continue;
      if (i == piece && i < end) {
        cut_bytes(i, scope);
        piece = i + 1;
      } else if (piece < i) {
        emit(piece, i, scope);
        piece = i;
        if (i < end && bytes(i, i + 1) > kChunkBytes) {
          cut_bytes(i, scope);
          piece = i + 1;
        }
      }
    }
  }

  // One line that is too long, between characters.
  void cut_bytes(size_t line, const Scope& scope) {
    for (size_t at = lines_[line].begin; at < lines_[line].end;) {
      size_t to = std::min(at + kChunkBytes, lines_[line].end);
      while (to < lines_[line].end && to > at + kChunkBytes - 4 && (text_[to] & 0xc0) == 0x80) --to;
      add(line, line, text_.substr(at, to - at), scope);
      at = to;
    }
  }

  void emit(size_t begin, size_t end, const Scope& scope) {
    while (begin < end && lines_[begin].level == kBlank) ++begin;
    while (begin < end && lines_[end - 1].level == kBlank) --end;
    if (begin == end) return;
    add(begin, end - 1, text_.substr(lines_[begin].begin, bytes(begin, end)), scope);
  }

  void add(size_t first, size_t last, std::string_view text, const Scope& scope) {
    if (trim(text).empty()) return;
    Chunk chunk{
        .first_line = static_cast<uint32_t>(first + 1), .last_line = static_cast<uint32_t>(last + 1), .text = text};
    if (document_) {
      if (lines_[first].heading)
        heading_ = trimmed(first).substr(0, kScopeLine);
      else
        chunk.scope = heading_;
      for (size_t i = first + 1; i <= last; ++i) {
        if (lines_[i].heading) heading_ = trimmed(i).substr(0, kScopeLine);
      }
    } else {
      // What the piece itself begins with needs no telling.
      auto above = scope;
      if (!above.empty() && text.substr(0, 4 * kScopeLine).find(above.back()) != std::string_view::npos)
        above.pop_back();
      chunk.scope = tandem::join(above, "\n");
    }
    chunks_.push_back(std::move(chunk));
  }

  std::string_view text_;
  bool document_ = false, preprocessed_ = false;
  std::vector<Line> lines_;
  std::vector<Chunk> chunks_;
  std::string heading_;
};

}  // namespace

std::vector<Chunk> cut_into_chunks(std::string_view path, std::string_view text) { return Cutter(path, text).run(); }

}  // namespace tandem::envs
