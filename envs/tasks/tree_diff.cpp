#include "envs/tasks/tree_diff.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "base/text.h"
#include "envs/changes/unified_diff.h"
#include "envs/sandbox/ignore_rules.h"
#include "envs/sandbox/sources.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kNotRegular = "(not a regular file)";  // what links and the like are collected as
constexpr uint64_t kMostBaseBytesRead = 32 << 20;
constexpr size_t kMostLineEdits = 1500;    // beyond it line_edits looks for no shortest difference
constexpr double kMostWork = 5e8;          // of line_edits, in squares of edits: seconds
constexpr size_t kLookedForBinary = 8192;  // bytes, as with git
constexpr std::array<std::string_view, 4> kCaches = {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"};

bool is_binary(std::string_view content) { return content.substr(0, kLookedForBinary).find('\0') != content.npos; }

bool is_of_tools(std::string_view path) {
  const auto parts = split(path, '/');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (std::find(kCaches.begin(), kCaches.end(), parts[i]) != kCaches.end()) return true;
    if (left_out_by_name(parts[i], true) == LeftOut::kIgnored) return true;
  }
  return false;
}

// With their line ends: a last line without one is another line.
std::vector<std::string_view> whole_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

struct LineCount {
  uint64_t added = 0, removed = 0;
  bool at_least = false;
};

// Lines that one text has more often than the other: no difference has fewer.
LineCount least_difference(const std::vector<std::string_view>& before, const std::vector<std::string_view>& after) {
  std::map<std::string_view, int64_t> more;
  for (const auto line : after) ++more[line];
  for (const auto line : before) --more[line];
  LineCount count;
  for (const auto& [line, by] : more) (by > 0 ? count.added : count.removed) += static_cast<uint64_t>(std::abs(by));
  return count;
}

class LineCounter {
 public:
  LineCount count(std::string_view before, std::string_view after) {
    auto a = whole_lines(before), b = whole_lines(after);
    const size_t shorter = std::min(a.size(), b.size());
    size_t head = 0, tail = 0;
    while (head < shorter && a[head] == b[head]) ++head;
    while (tail < shorter - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
    for (auto* lines : {&a, &b}) {
      lines->resize(lines->size() - tail);
      lines->erase(lines->begin(), lines->begin() + static_cast<std::ptrdiff_t>(head));
    }
    LineCount least = least_difference(a, b);
    if (least.added == b.size() && least.removed == a.size()) return least;  // they have no line in common
    least.at_least = true;
    const auto most_edits = static_cast<double>(std::min(a.size() + b.size(), kMostLineEdits));
    if (least.added + least.removed > kMostLineEdits || work_ + most_edits * most_edits > kMostWork) return least;
    work_ += most_edits * most_edits;
    LineCount found;
    for (const auto& edit : line_edits(a, b)) {
      found.added += edit.new_end - edit.new_begin;
      found.removed += edit.old_end - edit.old_begin;
    }
    return found.added + found.removed > kMostLineEdits ? least : found;  // it gave up
  }

 private:
  double work_ = 0;
};

// What is ignored by rules of folders above a path. Paths must come in order, so that each folder is looked at once.
class IgnoredPaths {
 public:
  template <typename Read>
  bool ignores(const std::string& path, const Read& read) {
    if (path.starts_with('/')) return false;
    while (!folders_.empty() && !path.starts_with(folders_.back().prefix)) {
      rules_.drop_to(folders_.back().rules);
      folders_.pop_back();
    }
    if (folders_.empty()) enter("", read, false);
    for (size_t slash = path.find('/', folders_.back().prefix.size()); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      const auto folder = path.substr(0, slash);
      enter(folder, read, folders_.back().ignored || rules_.ignores(folder, true));
    }
    return folders_.back().ignored || rules_.ignores(path, false);
  }

 private:
  struct Folder {
    std::string prefix;  // with its slash
    size_t rules = 0;    // that there were before its own
    bool ignored = false;
  };
  template <typename Read>
  void enter(const std::string& folder, const Read& read, bool ignored) {
    const auto prefix = folder.empty() ? folder : folder + "/";
    folders_.push_back({prefix, rules_.size(), ignored});
    if (ignored) return;
    if (const auto text = read(prefix + ".gitignore")) rules_.add(folder, *text);
  }

  IgnoreRules rules_;
  std::vector<Folder> folders_;
};

class Comparison {
 public:
  Comparison(const Task& task, const Collected& begun, const Collected& left)
      : task_(task), begun_(begun), left_(left), base_(task.base && task.base->tree ? &*task.base->tree : nullptr) {}

  TreeDiff run() {
    diff_.at_least = !left_.complete;
    std::set<std::string> paths = begun_.removed;
    paths.insert(left_.removed.begin(), left_.removed.end());
    for (const auto& [path, content] : begun_.files) paths.insert(path);
    for (const auto& [path, content] : left_.files) paths.insert(path);
    const auto rules = [&](const std::string& path) -> std::optional<std::string> {
      const auto there = before(path);
      return there.exists && there.text ? std::optional<std::string>(*there.text) : std::nullopt;
    };
    for (const auto& path : paths) {
      if (is_of_tools(path)) continue;
      const bool ignored = ignored_.ignores(path, rules);
      if (!ignored || is_given(path)) compare(path);
    }
    return std::move(diff_);
  }

 private:
  // Of a path at one time. Without a text: it could not be read, or is no regular file.
  struct State {
    bool exists = false, regular = true;
    const std::string* text = nullptr;
  };

  State before(const std::string& path) { return state(begun_, path, true); }
  State after(const std::string& path) { return state(left_, path, left_.complete); }

  State state(const Collected& tree, const std::string& path, bool whole) {
    if (const auto file = tree.files.find(path); file != tree.files.end()) {
      if (file->second == kNotRegular) return {.exists = true, .regular = false};
      // What was too much to be collected has no content.
      const bool unread = !whole && file->second.empty();
      return {.exists = true, .text = unread ? nullptr : &file->second};
    }
    if (!base_ || tree.removed.contains(path)) return {};
    return of_base(path);
  }

  State of_base(const std::string& path) {
    const auto mode = mode_in_base(*base_, path);
    if (!mode || S_ISDIR(*mode)) return {};
    if (!S_ISREG(*mode)) return {.exists = true, .regular = false};
    const auto known = read_.find(path);
    if (known != read_.end()) return {.exists = true, .text = &known->second};
    std::error_code error;
    const auto bytes = std::filesystem::file_size(base_->tree() / path, error);
    if (error || bytes > kMostBaseBytesRead - bytes_read_) return {.exists = true};
    auto content = read_base_file(*base_, path);
    if (!content) return {.exists = true};
    bytes_read_ += std::min<uint64_t>(content->size(), kMostBaseBytesRead - bytes_read_);
    return {.exists = true, .text = &(read_[path] = std::move(*content))};
  }

  bool is_given(const std::string& path) {
    if (task_.files.contains(path)) return true;
    const auto mode = base_ ? mode_in_base(*base_, path) : std::nullopt;
    return mode && !S_ISDIR(*mode);
  }

  bool leads_elsewhere(const std::string& path) const {
    const auto was = begun_.details.links.find(path), is = left_.details.links.find(path);
    return was != begun_.details.links.end() && is != left_.details.links.end() && was->second != is->second;
  }

  void compare(const std::string& path) {
    // Where not all was collected, what is missing is unknown.
    if (!left_.complete && !left_.files.contains(path)) return;
    const State was = before(path), is = after(path);
    if (!was.exists && !is.exists) return;
    if (was.exists && is.exists && was.regular == is.regular) {
      if (!was.regular && !leads_elsewhere(path)) return;
      if (was.regular && was.text && is.text && *was.text == *is.text) return;
      // It may be as it was.
      if (was.regular && !is.text) return;
    }
    ++diff_.files;
    if (was.exists) diff_.touched.insert(path);
    count_lines(path, was, is);
  }

  void count_lines(const std::string& path, const State& was, const State& is) {
    static const std::string kNothing;
    const auto is_unread = [](const State& state) { return state.exists && state.regular && !state.text; };
    const auto text_of = [](const State& state) -> const std::string& { return state.text ? *state.text : kNothing; };
    if (is_unread(was) || is_unread(is)) diff_.at_least = true;
    if (is_binary(text_of(was)) || is_binary(text_of(is))) {
      ++diff_.binary_files;
      return;
    }
    if (is.text) diff_.texts.insert(path);
    if (is_unread(was) || is_unread(is)) return;
    const auto lines = lines_.count(text_of(was), text_of(is));
    diff_.lines_added += lines.added;
    diff_.lines_removed += lines.removed;
    diff_.at_least = diff_.at_least || lines.at_least;
  }

  const Task& task_;
  const Collected &begun_, &left_;
  const BaseTree* const base_;
  TreeDiff diff_;
  IgnoredPaths ignored_;
  LineCounter lines_;
  Files read_;  // of the base
  uint64_t bytes_read_ = 0;
};

}  // namespace

TreeDiff tree_diff(const Task& task, const Collected& begun, const Collected& left) {
  return Comparison(task, begun, left).run();
}

}  // namespace tandem::envs
