#include "envs/tasks/git_patch.h"

#include <fmt/format.h>

#include <charconv>

#include "base/text.h"
#include "envs/changes/unified_diff.h"
#include "envs/tasks/mistakes.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kNoFile = "/dev/null";

Status wrong(size_t line, const std::string& what) {
  return Status::invalid(fmt::format("line {} of the patch: {}", line, what));
}

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// "12,3" or "12"; a count that is left out is 1.
bool take_range(std::string_view& text, size_t& begin, size_t& count) {
  const auto number = [&](size_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value > (size_t{1} << 40)) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
  };
  count = 1;
  if (!number(begin)) return false;
  return !take(text, ",") || number(count);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : lines_(split(text, '\n')) {}

  Result<std::vector<GitFilePatch>> run() {
    while (at_ < lines_.size()) {
      const auto line = lines_[at_];
      const bool bare = line.starts_with("--- ") && at_ + 1 < lines_.size() && lines_[at_ + 1].starts_with("+++ ");
      if (line.starts_with("diff --git ") || bare)
        TRY(read_file_patch());
      else if (line.starts_with("@@ -"))
        return fail(wrong(at_ + 1, "a hunk without a file before it"));
      else
        ++at_;
    }
    if (files_.empty()) return fail(Status::invalid("is no patch: no line begins with \"diff --git\" or \"---\""));
    return std::move(files_);
  }

 private:
  // A name with the folder that stands for a side in front, "a/" or "b/".
  Result<std::string> path_in(std::string_view text) {
    text = text.substr(0, text.find('\t'));
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text == kNoFile) return std::string();
    if (text.starts_with('"')) return fail(wrong(at_ + 1, "names in quotes are not supported"));
    if (!text.starts_with("a/") && !text.starts_with("b/"))
      return fail(wrong(at_ + 1, fmt::format("{} must begin with a/ or b/", text)));
    return std::string(text.substr(2));
  }

  // Of "diff --git a/NAME b/NAME", where both are the same; nothing where they differ, as renamed files' do.
  static std::string name_of_both(std::string_view names) {
    const size_t half = names.size() / 2;
    if (names.size() % 2 == 0 || names[half] != ' ' || !names.starts_with("a/") ||
        !names.substr(half + 1).starts_with("b/"))
      return "";
    const auto left = names.substr(2, half - 2), right = names.substr(half + 3);
    return left == right ? std::string(left) : "";
  }

  Status read_file_patch() {
    GitFilePatch file;
    file.line = at_ + 1;
    auto line = lines_[at_];
    bool is_new = false, goes = false;
    if (take(line, "diff --git ")) {
      file.old_path = file.new_path = name_of_both(line);
      ++at_;
      TRY(read_headers(file, is_new, goes));
    }
    if (at_ + 1 < lines_.size() && lines_[at_].starts_with("--- ") && lines_[at_ + 1].starts_with("+++ ")) {
      file.old_path = TRY(path_in(lines_[at_].substr(4)));
      ++at_;
      file.new_path = TRY(path_in(lines_[at_].substr(4)));
      ++at_;
      while (at_ < lines_.size() && lines_[at_].starts_with("@@ -")) TRY(read_hunk(file));
    }
    if (is_new) file.old_path.clear();
    if (goes) file.new_path.clear();
    if (file.old_path.empty() && file.new_path.empty()) return wrong(file.line, "names no file");
    files_.push_back(std::move(file));
    return {};
  }

  Status read_headers(GitFilePatch& file, bool& is_new, bool& goes) {
    for (; at_ < lines_.size(); ++at_) {
      auto line = lines_[at_];
      if (line.starts_with("--- ") || line.starts_with("diff --git ") || line.starts_with("@@ -")) break;
      if (line == "GIT binary patch" || line.starts_with("Binary files "))
        return wrong(at_ + 1, "binary files are not supported");
      if (take(line, "new file mode ")) {
        is_new = true;
        file.mode = line;
      } else if (take(line, "deleted file mode ")) {
        goes = true;
      } else if (take(line, "new mode ")) {
        file.mode = line;
      } else if (take(line, "rename from ")) {
        file.old_path = line;
      } else if (take(line, "rename to ") || take(line, "copy to ")) {
        file.new_path = line;
      } else if (take(line, "copy from ")) {
        file.copies = true;
        file.old_path = line;
      } else if (!line.starts_with("old mode ") && !line.starts_with("index ") &&
                 !line.starts_with("similarity index ") && !line.starts_with("dissimilarity index ")) {
        break;
      }
      if (!file.mode.empty() && !file.mode.starts_with("100"))
        return wrong(at_ + 1, "neither links nor modules are supported");
    }
    return {};
  }

  Status read_hunk(GitFilePatch& file) {
    GitHunk hunk;
    hunk.line = at_ + 1;
    auto line = lines_[at_];
    size_t old_count = 0, new_begin = 0, new_count = 0;
    const bool good = take(line, "@@ -") && take_range(line, hunk.old_begin, old_count) && take(line, " +") &&
                      take_range(line, new_begin, new_count) && take(line, " @@");
    if (!good) return wrong(at_ + 1, "is no heading of a hunk, @@ -LINE,COUNT +LINE,COUNT @@");
    // Lines are counted from 1, but a place between lines is said by the one before it.
    if (old_count > 0) {
      if (hunk.old_begin == 0) return wrong(at_ + 1, "lines are counted from 1");
      --hunk.old_begin;
    }
    ++at_;
    while (old_count > 0 || new_count > 0) {
      if (at_ == lines_.size()) return wrong(hunk.line, "the hunk is cut short");
      const auto text = lines_[at_];
      const char sign = text.empty() ? ' ' : text[0];
      const bool is_line = sign == ' ' || sign == '+' || sign == '-';
      if (sign == '\\' && !hunk.lines.empty()) {
        hunk.lines.back().ends_open = true;
      } else if (!is_line || (sign != '+' && old_count == 0) || (sign != '-' && new_count == 0)) {
        return wrong(at_ + 1, "the hunk has other lines than its heading says");
      } else {
        if (sign != '+') --old_count;
        if (sign != '-') --new_count;
        hunk.lines.push_back({sign, std::string(text.substr(text.empty() ? 0 : 1))});
      }
      ++at_;
    }
    if (at_ < lines_.size() && lines_[at_].starts_with("\\ ") && !hunk.lines.empty()) {
      hunk.lines.back().ends_open = true;
      ++at_;
    }
    file.hunks.push_back(std::move(hunk));
    return {};
  }

  const std::vector<std::string_view> lines_;
  size_t at_ = 0;
  std::vector<GitFilePatch> files_;
};

Status check_path(const GitFilePatch& patch, const std::string& path) {
  if (const auto why = why_no_workspace_path(path); !why.empty())
    return wrong(patch.line, fmt::format("\"{}\" {}", path, why));
  return {};
}

}  // namespace

Result<std::vector<GitFilePatch>> parse_git_patch(std::string_view text) { return Parser(text).run(); }

Result<std::string> apply_git_hunks(const GitFilePatch& patch, std::string_view content) {
  const auto old = lines_of(content);
  std::string result;
  size_t at = 0;
  bool ends_open = false;
  const auto copy_to = [&](size_t end) {
    for (; at < end; ++at) {
      result.append(old.lines[at]).append("\n");
      ends_open = at + 1 == old.lines.size() && old.ends_open;
    }
  };
  for (const auto& hunk : patch.hunks) {
    if (hunk.old_begin < at || hunk.old_begin > old.lines.size())
      return fail(wrong(hunk.line, "the hunk lies beyond the file or before the hunk that it follows"));
    copy_to(hunk.old_begin);
    for (const auto& line : hunk.lines) {
      if (line.sign != '+') {
        if (at == old.lines.size() || old.lines[at] != line.text)
          return fail(wrong(hunk.line, fmt::format("line {} of the file is not \"{}\"", at + 1, line.text)));
        ++at;
      }
      if (line.sign == '-') continue;
      result.append(line.text).append("\n");
      ends_open = line.ends_open;
    }
  }
  copy_to(old.lines.size());
  if (ends_open && !result.empty()) result.pop_back();
  return result;
}

Result<PatchedPaths> apply_git_patch(std::string_view text, Files& files, std::set<std::string>& programs) {
  const auto patches = TRY(parse_git_patch(text));
  Files after = files;
  auto can_run = programs;
  PatchedPaths paths;
  for (const auto& patch : patches) {
    std::string content;
    bool runs = patch.mode == "100755";
    if (!patch.old_path.empty()) {
      const auto old = after.find(patch.old_path);
      if (old == after.end()) return fail(wrong(patch.line, "there is no file " + patch.old_path));
      content = old->second;
      if (patch.mode.empty()) runs = can_run.contains(patch.old_path);
    } else if (after.contains(patch.new_path)) {
      return fail(wrong(patch.line, patch.new_path + " is there already"));
    }
    content = TRY(apply_git_hunks(patch, content));
    if (!patch.old_path.empty() && patch.old_path != patch.new_path && !patch.copies) {
      after.erase(patch.old_path);
      can_run.erase(patch.old_path);
      paths.written.erase(patch.old_path);
      paths.removed.insert(patch.old_path);
    }
    if (patch.new_path.empty()) continue;
    TRY(check_path(patch, patch.new_path));
    after[patch.new_path] = std::move(content);
    can_run.erase(patch.new_path);
    if (runs) can_run.insert(patch.new_path);
    paths.removed.erase(patch.new_path);
    paths.written.insert(patch.new_path);
  }
  files = std::move(after);
  programs = std::move(can_run);
  return paths;
}

}  // namespace tandem::envs
