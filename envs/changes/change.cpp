#include "envs/changes/change.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/text.h"
#include "envs/changes/unified_diff.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr size_t kLargestShown = size_t{1} << 20;  // bytes of a file whose lines are compared

bool unreadable(const std::optional<TreeEntry>& entry) { return entry && (entry->mode & S_IFMT) == 0; }

bool is_plain(const TreeEntry& entry) { return S_ISREG(entry.mode) || S_ISDIR(entry.mode) || S_ISLNK(entry.mode); }

bool same(const TreeEntry& a, const TreeEntry& b) {
  if ((a.mode & S_IFMT) != (b.mode & S_IFMT) || a.content != b.content) return false;
  return S_ISLNK(a.mode) || (a.mode & kPermissions) == (b.mode & kPermissions);
}

// Whether a link at `path` leads to a place in the same tree, whatever links of it do. So steps up come first: behind a
// name, which may be a link to a folder further up, they may lead anywhere.
bool stays_inside(const std::string& path, const std::string& target) {
  const std::filesystem::path to(target);
  if (to.empty() || to.is_absolute() || target.find('\0') != std::string::npos) return false;
  auto depth = std::ranges::count(path, '/');
  bool is_behind_a_name = false;
  for (const auto& part : to) {
    if (part == "..") {
      if (is_behind_a_name || --depth < 0) return false;
    } else if (part != "." && !part.empty()) {
      is_behind_a_name = true;
    }
  }
  return true;
}

// Names that any file system of the user's may take for .git.
bool is_git(std::string_view path) {
  for (const auto part : split(path, '/')) {
    std::string name(part);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (name == ".git") return true;
  }
  return false;
}

std::string refusal_of(const Change& change) {
  if (is_git(change.path)) return "what belongs to git is for git to change";
  // It could not be put back.
  if (change.before && !is_plain(*change.before)) return "what was there before is no file, folder or link";
  if (!change.after) return "";
  const auto& after = *change.after;
  if (S_ISLNK(after.mode) && !stays_inside(change.path, after.content))
    return "the link leads out of the folder, or may";
  if (unreadable(change.after)) return "it cannot be read";
  if (!is_plain(after)) return "it is no file, folder or link";
  return "";
}

// Whether the folder of a path could be looked into. What is below one that could not is not known to be gone.
bool hidden(const std::map<std::string, TreeEntry>& tree, const std::string& path) {
  for (auto end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    const auto folder = tree.find(path.substr(0, end));
    if (folder == tree.end()) return false;
    if (S_ISDIR(folder->second.mode) && (folder->second.mode & 0500) != 0500) return true;
  }
  return false;
}

std::map<std::string, TreeEntry> by_path(std::vector<TreeEntry> entries) {
  std::map<std::string, TreeEntry> tree;
  for (auto& entry : entries) {
    auto path = entry.path;
    tree.emplace(std::move(path), std::move(entry));
  }
  return tree;
}

std::string type_of(mode_t mode) {
  return S_ISDIR(mode) ? "folder" : S_ISLNK(mode) ? "link" : S_ISREG(mode) ? "file" : "other";
}

bool is_text(const std::string& content) {
  return content.size() <= kLargestShown && content.find('\0') == std::string::npos;
}

std::string content_of(const std::optional<TreeEntry>& entry) {
  if (!entry || S_ISDIR(entry->mode)) return "";
  return entry->content;
}

std::string git_mode(const TreeEntry& entry) {
  if (S_ISLNK(entry.mode)) return "120000";
  return (entry.mode & 0100) != 0 ? "100755" : "100644";
}

// As git writes a name: one with letters that would end a line, or the quotes, stands in quotes.
std::string git_name(char side, const std::string& path) {
  const auto name = fmt::format("{}/{}", side, path);
  const auto is_plain_letter = [](unsigned char c) { return c >= 0x20 && c != 0x7f && c != '"' && c != '\\'; };
  if (std::ranges::all_of(name, is_plain_letter)) return name;
  std::string quoted = "\"";
  for (const unsigned char c : name) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', static_cast<char>(c)};
    } else if (is_plain_letter(c)) {
      quoted += static_cast<char>(c);
    } else {
      quoted += fmt::format("\\{:03o}", c);
    }
  }
  return quoted + '"';
}

std::string git_diff(const Change& change) {
  const bool old_file = change.before && !is_folder(change.before);
  const bool new_file = change.after && !is_folder(change.after);
  if (!old_file && !new_file) return "";  // git knows no folders
  std::string text = fmt::format("diff --git {} {}\n", git_name('a', change.path), git_name('b', change.path));
  if (!old_file) text += fmt::format("new file mode {}\n", git_mode(*change.after));
  if (!new_file) text += fmt::format("deleted file mode {}\n", git_mode(*change.before));
  if (old_file && new_file && git_mode(*change.before) != git_mode(*change.after)) {
    text += fmt::format("old mode {}\nnew mode {}\n", git_mode(*change.before), git_mode(*change.after));
  }
  const auto before = old_file ? content_of(change.before) : "", after = new_file ? content_of(change.after) : "";
  if (before == after) return text;
  const auto name = [&](bool there, char side) {
    return there ? git_name(side, change.path) : std::string("/dev/null");
  };
  if (!is_text(before) || !is_text(after)) {
    return text + fmt::format("Binary files {} and {} differ ({} -> {})\n", name(old_file, 'a'), name(new_file, 'b'),
                              format_bytes(before.size()), format_bytes(after.size()));
  }
  text += fmt::format("--- {}\n+++ {}\n", name(old_file, 'a'), name(new_file, 'b'));
  return text + unified_hunks(before, after);
}

}  // namespace

std::vector<Change> changes_between(std::vector<TreeEntry> before, std::vector<TreeEntry> after) {
  auto old_tree = by_path(std::move(before)), new_tree = by_path(std::move(after));
  std::vector<Change> changes;
  for (auto& [path, entry] : old_tree) {
    const auto found = new_tree.find(path);
    if (found == new_tree.end()) {
      if ((entry.mode & S_IFMT) == 0 || hidden(new_tree, path)) continue;
      changes.push_back({path, entry, std::nullopt, ""});
    } else if (!same(entry, found->second) && (found->second.mode & S_IFMT) != 0) {
      changes.push_back({path, entry, found->second, ""});
    }
  }
  for (auto& [path, entry] : new_tree) {
    if (!old_tree.contains(path)) changes.push_back({path, std::nullopt, entry, ""});
  }
  std::ranges::sort(changes, {}, &Change::path);
  for (auto& change : changes) {
    change.refused = unreadable(change.before) ? "what was there before cannot be read" : refusal_of(change);
  }
  return changes;
}

std::vector<Change> inverse(std::vector<Change> changes) {
  for (auto& change : changes) std::swap(change.before, change.after);
  return changes;
}

std::string kind_of(const Change& change) {
  if (!change.before) return S_ISREG(change.after->mode) ? "new" : "new " + type_of(change.after->mode);
  if (!change.after) return S_ISREG(change.before->mode) ? "deleted" : "deleted " + type_of(change.before->mode);
  const mode_t before = change.before->mode, after = change.after->mode;
  if ((before & S_IFMT) != (after & S_IFMT)) return type_of(before) + " -> " + type_of(after);
  if (change.before->content != change.after->content) return "changed";
  return fmt::format("mode {:o} -> {:o}", before & kPermissions, after & kPermissions);
}

std::string diff_of(std::span<const Change> changes, size_t limit) {
  std::string text;
  for (size_t i = 0; i < changes.size(); ++i) {
    const auto shown = make_printable(git_diff(changes[i]));
    if (text.size() + shown.size() <= limit) {
      text += shown;
      continue;
    }
    const auto room = std::string_view(shown).substr(0, limit - text.size());
    text.append(room.substr(0, room.rfind('\n') + 1));
    text += fmt::format("[... the rest of {} and {} more left out ...]\n", make_printable(changes[i].path),
                        changes.size() - i - 1);
    break;
  }
  return text;
}

}  // namespace tandem::envs
