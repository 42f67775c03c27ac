#include "envs/tools/patch.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "base/text.h"
#include "envs/tools/functions.h"
#include "envs/tools/indentation.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kBegin = "*** Begin Patch", kEnd = "*** End Patch", kEndOfFile = "*** End of File";
constexpr std::string_view kAdd = "*** Add File: ", kDelete = "*** Delete File: ", kUpdate = "*** Update File: ",
                           kPatchMove = "*** Move to: ";
constexpr size_t kPatchMostFiles = 500;
constexpr size_t kMostWork = 50'000'000;  // lines compared, or bytes where that is costly; then a search is given up

std::string_view trim_right(std::string_view text) {
  const size_t end = text.find_last_not_of(" \t\r");
  return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

class PatchParser {
 public:
  explicit PatchParser(std::string_view text) : lines_(split(text, '\n')) {
    for (auto& line : lines_) {
      if (line.ends_with('\r')) line.remove_suffix(1);
    }
  }

  Result<std::vector<FilePatch>> parse() {
    skip_blank();
    if (!is(kBegin)) return fail(wrong("the patch must begin with the line \"*** Begin Patch\""));
    ++at_;
    std::vector<FilePatch> files;
    for (skip_blank(); !is(kEnd); skip_blank()) {
      if (at_ == lines_.size()) return fail(wrong("the patch must end with the line \"*** End Patch\""));
      if (files.size() == kPatchMostFiles) {
        return fail(wrong("a patch may change " + std::to_string(kPatchMostFiles) + " files; split it"));
      }
      files.push_back(TRY(file()));
    }
    ++at_;
    skip_blank();
    if (at_ < lines_.size()) return fail(wrong("there is text after \"*** End Patch\""));
    if (files.empty()) return fail(Status::invalid("the patch changes no file"));
    return files;
  }

 private:
  bool is(std::string_view marker) const { return at_ < lines_.size() && trim(lines_[at_]) == marker; }
  bool is_blank() const { return trim(lines_[at_]).empty(); }
  void skip_blank() {
    while (at_ < lines_.size() && is_blank()) ++at_;
  }

  Status wrong(const std::string& what) const {
    return Status::invalid("line " + std::to_string(std::min(at_, lines_.size() - 1) + 1) + " of the patch: " + what);
  }

  // The path behind `heading`, where this line has it.
  std::optional<std::string> heading(std::string_view heading) {
    if (at_ == lines_.size() || !lines_[at_].starts_with(heading)) return std::nullopt;
    return std::string(trim(lines_[at_++].substr(heading.size())));
  }

  Result<FilePatch> file() {
    FilePatch patch;
    patch.line = at_ + 1;
    if (auto added = heading(kAdd)) {
      patch.path = *added;
      for (; at_ < lines_.size() && lines_[at_].starts_with('+'); ++at_) {
        patch.contents.append(lines_[at_].substr(1)).append("\n");
      }
      skip_blank();
      if (at_ < lines_.size() && !lines_[at_].starts_with("*** ")) {
        return fail(wrong("every line of an added file begins with \"+\""));
      }
    } else if (auto deleted = heading(kDelete)) {
      patch.kind = FilePatch::Kind::kDelete;
      patch.path = *deleted;
    } else if (auto updated = heading(kUpdate)) {
      patch.kind = FilePatch::Kind::kUpdate;
      patch.path = *updated;
      if (auto moved = heading(kPatchMove)) {
        if (moved->empty()) return fail(Status::invalid("\"*** Move to: \" needs a path"));
        patch.new_path = *moved;
      }
      TRY(hunks(patch));
      if (patch.hunks.empty() && patch.new_path.empty()) {
        return fail(Status::invalid("line " + std::to_string(patch.line) + " of the patch: the update of \"" +
                                    patch.path + "\" has no hunk; begin one with \"@@\""));
      }
    } else {
      return fail(
          wrong("expected \"*** Add File: PATH\", \"*** Delete File: PATH\", \"*** Update File: PATH\" or "
                "\"*** End Patch\", found \"" +
                std::string(lines_[at_].substr(0, 80)) + "\""));
    }
    if (patch.path.empty()) {
      return fail(Status::invalid("line " + std::to_string(patch.line) + " of the patch names no file"));
    }
    return patch;
  }

  Status hunks(FilePatch& patch) {
    for (skip_blank(); at_ < lines_.size(); skip_blank()) {
      if (lines_[at_].starts_with("*** ")) break;
      PatchHunk hunk;
      hunk.line = at_ + 1;
      for (; at_ < lines_.size() && lines_[at_].starts_with("@@"); ++at_) {
        if (auto anchor = lines_[at_].substr(2); !trim(anchor).empty()) {
          if (anchor.starts_with(' ')) anchor.remove_prefix(1);
          hunk.anchors.emplace_back(anchor);
        }
      }
      for (; at_ < lines_.size(); ++at_) {
        const auto line = lines_[at_];
        if (line.empty()) {
          hunk.lines.push_back({' ', ""});
        } else if (line[0] == ' ' || line[0] == '-' || line[0] == '+') {
          hunk.lines.push_back({line[0], std::string(line.substr(1))});
        } else {
          break;
        }
      }
      // Blank lines before the next heading separate; they are no part of the file.
      for (size_t i = at_; !is(kEndOfFile) && !hunk.lines.empty() && lines_[i - 1].empty(); --i) hunk.lines.pop_back();
      if (hunk.lines.empty()) return wrong("a hunk needs lines that begin with \" \", \"-\" or \"+\"");
      if (is(kEndOfFile)) {
        hunk.at_end = true;
        ++at_;
      } else if (at_ < lines_.size() && !lines_[at_].starts_with("@@") && !lines_[at_].starts_with("*** ")) {
        return wrong("lines of a hunk begin with \" \", \"-\" or \"+\", found \"" +
                     std::string(lines_[at_].substr(0, 80)) + "\"");
      }
      patch.hunks.push_back(std::move(hunk));
    }
    return {};
  }

  std::vector<std::string_view> lines_;
  size_t at_ = 0;
};

// `text` without spaces at its ends, typographic quotes, dashes and spaces as ASCII has them.
std::string plain(std::string_view text) {
  struct Substitute {
    std::string_view from;
    char to;
  };
  static constexpr std::array kSubstitutes = {
      Substitute{"\u2010", '-'},  Substitute{"\u2011", '-'},  Substitute{"\u2012", '-'},  Substitute{"\u2013", '-'},
      Substitute{"\u2014", '-'},  Substitute{"\u2015", '-'},  Substitute{"\u2212", '-'},  Substitute{"\u2018", '\''},
      Substitute{"\u2019", '\''}, Substitute{"\u201A", '\''}, Substitute{"\u201B", '\''}, Substitute{"\u201C", '"'},
      Substitute{"\u201D", '"'},  Substitute{"\u201E", '"'},  Substitute{"\u201F", '"'},  Substitute{"\u00A0", ' '},
      Substitute{"\u2002", ' '},  Substitute{"\u2003", ' '},  Substitute{"\u2009", ' '},  Substitute{"\u202F", ' '},
      Substitute{"\u3000", ' '}};
  std::string result;
  while (!text.empty()) {
    const auto found = std::find_if(kSubstitutes.begin(), kSubstitutes.end(),
                                    [&](const Substitute& each) { return text.starts_with(each.from); });
    result += found == kSubstitutes.end() ? text[0] : found->to;
    text.remove_prefix(found == kSubstitutes.end() ? 1 : found->from.size());
  }
  return std::string(trim(result));
}

using Same = bool (*)(std::string_view, std::string_view);
// From strict to forgiving; the first that finds a place decides.
constexpr std::array<Same, 4> kLadder = {
    [](std::string_view a, std::string_view b) { return a == b; },
    [](std::string_view a, std::string_view b) { return trim_right(a) == trim_right(b); },
    [](std::string_view a, std::string_view b) { return trim(a) == trim(b); },
    [](std::string_view a, std::string_view b) { return plain(a) == plain(b); },
};

class Applier {
 public:
  Applier(const FilePatch& patch, std::string_view content) : patch_(patch), content_(content) {
    lines_ = split(content, '\n');
    ends_with_newline_ = lines_.back().empty();
    if (ends_with_newline_) lines_.pop_back();
  }

  Result<PatchedText> apply() {
    std::vector<std::string> result;
    size_t copied = 0;
    for (const auto& hunk : patch_.hunks) {
      const size_t place = TRY(find(hunk));
      const auto added = TRY(added_lines(hunk, place));
      while (copied < place) result.emplace_back(lines_[copied++]);
      size_t next_added = 0;
      for (const auto& line : hunk.lines) {
        if (line.sign == '+') {
          result.push_back(added[next_added++]);
        } else {
          if (line.sign == ' ') result.emplace_back(lines_[copied]);
          ++copied;
        }
      }
      next_ = copied;
    }
    while (copied < lines_.size()) result.emplace_back(lines_[copied++]);
    PatchedText patched;
    patched.exact = exact_;
    for (size_t i = 0; i < result.size(); ++i) {
      patched.content.append(result[i]);
      if (i + 1 < result.size() || ends_with_newline_) patched.content += '\n';
    }
    return patched;
  }

 private:
  // The new lines of a hunk that lies at `place`; with the file's indentation where its old lines have another one.
  Result<std::vector<std::string>> added_lines(const PatchHunk& hunk, size_t place) {
    std::vector<std::string_view> old_lines, new_lines;
    for (const auto& line : hunk.lines) (line.sign == '+' ? new_lines : old_lines).push_back(line.text);
    std::vector<std::string> lines(new_lines.begin(), new_lines.end());
    const auto there = std::span(lines_).subspan(place, old_lines.size());
    const bool same = std::equal(old_lines.begin(), old_lines.end(), there.begin(),
                                 [](auto a, auto b) { return trim(a).empty() || indentation(a) == indentation(b); });
    if (same || new_lines.empty()) return lines;
    auto indented = indented_as_file(old_lines, there, new_lines, lines_);
    if (indented) return std::move(*indented);
    return fail(Status::invalid("\"" + patch_.path + "\": the hunk at line " + std::to_string(hunk.line) +
                                " of the patch fits only with another indentation, and does not tell how deep its new "
                                "lines belong; copy the lines exactly as they are in the file"));
  }

  // Where the lines of `wanted` stand together, at `from` or later; with `at_end` only as the last of the file.
  std::optional<size_t> seek(const std::vector<std::string_view>& wanted, size_t from, bool at_end) {
    if (wanted.size() > lines_.size()) return std::nullopt;
    const size_t last = lines_.size() - wanted.size();
    for (size_t step = 0; step < kLadder.size(); ++step) {
      for (size_t i = at_end ? std::max(last, from) : from; i <= last; ++i) {
        size_t k = 0;
        while (k < wanted.size() && kLadder[step](lines_[i + k], wanted[k])) ++k;
        work_ += k + 1 + (step + 1 == kLadder.size() ? lines_[i].size() : 0);
        if (work_ > kMostWork) return std::nullopt;
        if (k < wanted.size()) continue;
        exact_ = exact_ && step == 0;
        return i;
      }
    }
    return std::nullopt;
  }

  Result<size_t> find(const PatchHunk& hunk) {
    size_t from = next_;
    for (const auto& anchor : hunk.anchors) {
      const auto place = seek({anchor}, from, false);
      if (!place) return fail(missing("the line \"" + anchor + "\" that stands after @@ was", hunk, {anchor}, from));
      from = *place + 1;
    }
    std::vector<std::string_view> wanted;
    for (const auto& line : hunk.lines) {
      if (line.sign != '+') wanted.push_back(line.text);
    }
    if (wanted.empty()) return hunk.anchors.empty() || hunk.at_end ? lines_.size() : from;
    const auto place = seek(wanted, from, hunk.at_end);
    if (place) return *place;
    return fail(missing(hunk.at_end ? "lines that should end the file were" : "its lines were", hunk, wanted, from));
  }

  Status missing(const std::string& what, const PatchHunk& hunk, const std::vector<std::string_view>& wanted,
                 size_t from) {
    auto text = "\"" + patch_.path + "\": the hunk at line " + std::to_string(hunk.line) +
                " of the patch cannot be placed: " + what + " not found";
    if (work_ > kMostWork) return Status::invalid(text + " in the time that a search may take");
    if (from > 0) {
      text += " after line " + std::to_string(from);
      if (const auto before = seek(wanted, 0, false)) {
        return Status::invalid(text + ", but at line " + std::to_string(*before + 1) +
                               "; hunks must be in the order of the file");
      }
    }
    std::string joined;
    for (const auto line : wanted) joined.append(line).append("\n");
    return Status::invalid(text + why_not_there(content_, joined, "the patch"));
  }

  const FilePatch& patch_;
  std::string_view content_;
  std::vector<std::string_view> lines_;
  bool ends_with_newline_ = true;
  size_t next_ = 0;  // the first line behind the last hunk
  size_t work_ = 0;
  bool exact_ = true;
};

}  // namespace

Result<std::vector<FilePatch>> parse_patch(std::string_view text) { return PatchParser(text).parse(); }

Result<PatchedText> apply_hunks(const FilePatch& patch, std::string_view content) {
  return Applier(patch, content).apply();
}

}  // namespace tandem::envs
