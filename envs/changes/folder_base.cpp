#include "envs/changes/folder_base.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <unordered_map>

#include "base/file.h"
#include "base/text.h"
#include "envs/sandbox/capabilities.h"

namespace tandem::envs {
namespace {

constexpr const char* kChangedMeanwhile = "it was changed meanwhile";

using Stamps = std::unordered_map<std::string_view, FileStamp>;

const FileStamp* find_in(const Stamps& stamps, std::string_view path) {
  const auto found = stamps.find(path);
  return found == stamps.end() ? nullptr : &found->second;
}

std::string entries_other_than(const FolderList& now, const Stamps& begin) {
  std::string entries;
  for_each_listed(now.entries, [&](std::string_view path, const FileStamp& stamp) {
    const auto* const was = find_in(begin, path);
    if (!was || !same_file(*was, stamp)) put_listed(entries, path, stamp);
  });
  return entries;
}

// As the kernel writes paths in its lists: \040 for a space.
std::string without_octal_escapes(std::string_view text) {
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// What is not seen in the sandbox, by path: itself, or a folder that it lies in.
class HiddenPaths {
 public:
  explicit HiddenPaths(const FolderList& list) {
    for (const auto& each : list.hidden) all_.emplace(each.path, each.why);
  }
  std::string refusal_of(const std::string& path) const {
    for (auto end = path.find('/');; end = path.find('/', end + 1)) {
      const auto found = all_.find(std::string_view(path).substr(0, end));
      if (found != all_.end()) return words(found->second);
      if (end == std::string::npos) return "";
    }
  }

 private:
  static std::string words(Hidden why) {
    switch (why) {
      case Hidden::kLeftOut:
        return "it was left out by --exclude";
      case Hidden::kUnreadable:
        return "what was there before cannot be read";
      case Hidden::kSpecial:
        return "what was there before is no file, folder or link";
    }
    return "";
  }
  std::unordered_map<std::string_view, Hidden> all_;
};

// Whether something is mounted below, where it is not hidden anyway: a folder or a file, of the same file system too.
Result<bool> has_mounts_below(const fs::path& folder, const HiddenPaths& hidden) {
  std::error_code error;
  const auto whole = fs::canonical(folder, error);
  if (error) return fail(Status::from_errno(folder.string(), error.value()));
  const auto prefix = whole == "/" ? std::string("/") : whole.string() + '/';
  const auto mounts = TRY(read_file("/proc/self/mountinfo"));
  for (const auto line : split(mounts, '\n')) {
    const auto fields = split(line, ' ');
    if (fields.size() < 5) continue;
    const auto place = without_octal_escapes(fields[4]);
    if (place.size() > prefix.size() && place.starts_with(prefix) &&
        hidden.refusal_of(place.substr(prefix.size())).empty())
      return true;
  }
  return false;
}

// What the folder has at a path now, with its content where it takes no more than `room`; and how it is known.
struct Present {
  TreeEntry entry;
  bool is_whole = true, is_as_listed = true;
};

std::optional<Present> look_at(const fs::path& folder, const std::string& path, const FileStamp& listed, size_t room) {
  Present present{.entry = {.mode = listed.mode, .path = path}};
  if (S_ISLNK(listed.mode)) {
    std::error_code error;
    present.entry.content = fs::read_symlink(folder / path, error).string();
    if (error) return std::nullopt;
  }
  if (!S_ISREG(listed.mode)) return present;
  if (listed.size > room) {
    present.is_whole = false;
    return present;
  }
  auto content = read_file(folder / path, room);
  if (!content) return std::nullopt;
  present.entry.content = std::move(*content);
  // Whether that was the very file that was listed.
  const auto stamp = stamp_of_file(folder / path);
  present.is_as_listed = stamp && same_file(*stamp, listed);
  return present;
}

class Changed {
 public:
  Changed(const FolderBase& base, const FolderList& now)
      : base_(base), begin_(base.list.by_path()), now_(now.by_path()), hidden_(base.list), hidden_now_(now) {}

  void take(TreeEntry after) {
    const auto path = after.path;
    add(path, std::move(after));
  }
  void take_gone(const std::string& path) {
    // What is not there any more in the folder either is nobody's to delete.
    if (find_in(begin_, path) && find_in(now_, path)) add(path, std::nullopt);
  }

  // All those whose turn did not come, as one.
  void leave_rest(const std::string& first, uint64_t count) {
    Change change{.path = first, .before = {}, .after = TreeEntry{.mode = S_IFREG | 0644, .path = first}};
    change.refused = fmt::format(
        "of more than {} changes the first are carried over, by their names, and nothing is deleted: this one and {} "
        "more are lost with the sandbox",
        kMostChanged, count - 1);
    apart_.push_back(std::move(change));
  }
  // Deletions that are not carried over: what was moved may be among what was left.
  void keep(const std::string& path) {
    const auto* const is = find_in(now_, path);
    if (!is) return;
    Change change{.path = path, .before = TreeEntry{.mode = is->mode, .path = path}, .after = {}};
    change.refused = "nothing is deleted where there are more changes than are carried over";
    apart_.push_back(std::move(change));
  }

  void leave(TreeEntry after) {
    Change change{.path = after.path, .before = {}, .after = std::move(after)};
    if (const auto* const is = find_in(now_, change.path))
      change.before = TreeEntry{.mode = is->mode, .path = change.path};
    change.refused = fmt::format("it is too large: {} MiB are taken of one file, and {} MiB of all changes together",
                                 kLargestChangedFile >> 20, kLargestChanged >> 20);
    apart_.push_back(std::move(change));
  }

  std::vector<Change> changes() && {
    auto changes = changes_between(std::move(before_), std::move(after_));
    for (auto& change : apart_) changes.push_back(std::move(change));
    std::ranges::sort(changes, {}, &Change::path);
    for (auto& change : changes) {
      if (const auto found = conflicts_.find(change.path); found != conflicts_.end()) change.conflict = found->second;
      if (!change.refused.empty()) continue;
      change.refused = hidden_.refusal_of(change.path);
      if (change.refused.empty()) change.refused = hidden_now_.refusal_of(change.path);
      if (change.refused.empty() && base_.leaves_out && base_.leaves_out(change.path))
        change.refused = "it was left out by --exclude";
    }
    return changes;
  }

 private:
  void add(const std::string& path, std::optional<TreeEntry> after) {
    const auto* const was = find_in(begin_, path);
    const auto* const is = find_in(now_, path);
    const bool is_same = was && is ? same_file(*was, *is) : !was && !is;
    if (!is_same)
      conflicts_[path] = !is ? "it is not there any more" : !was ? "it is there meanwhile" : kChangedMeanwhile;
    std::optional<Present> present;
    if (is) {
      present = look_at(base_.folder, path, *is, std::min(kLargestChangedFile, kLargestReplaced - replaced_));
      if (!present || !present->is_whole) {
        Change change{.path = path, .before = TreeEntry{.mode = is->mode, .path = path}, .after = std::move(after)};
        change.refused = present ? fmt::format(
                                       "what it replaces is more than is kept for undoing: {} MiB of one file, "
                                       "and {} MiB altogether",
                                       kLargestChangedFile >> 20, kLargestReplaced >> 20)
                                 : "what was there before cannot be read";
        apart_.push_back(std::move(change));
        return;
      }
      if (!present->is_as_listed) conflicts_[path] = kChangedMeanwhile;
      replaced_ += present->entry.content.size();
      before_.push_back(std::move(present->entry));
    }
    if (after) after_.push_back(std::move(*after));
  }

  const FolderBase& base_;
  const Stamps begin_, now_;
  const HiddenPaths hidden_, hidden_now_;
  std::vector<TreeEntry> before_, after_;
  std::vector<Change> apart_;  // what is before is not known
  std::unordered_map<std::string, std::string> conflicts_;
  size_t replaced_ = 0;
};

}  // namespace

FolderBelow FolderBase::below() const {
  FolderBelow below{.folder = folder, .hidden = {}};
  below.hidden.reserve(list.hidden.size());
  for (const auto& each : list.hidden) below.hidden.push_back(each.path);
  return below;
}

std::vector<std::string> FolderBase::names() const {
  std::vector<std::string> names;
  names.reserve(list.files);
  for_each_listed(list.entries, [&](std::string_view path, const FileStamp& stamp) {
    if (!S_ISDIR(stamp.mode) && path != ".git" && !path.starts_with(".git/")) names.emplace_back(path);
  });
  std::ranges::sort(names);
  return names;
}

Result<FolderBase> folder_base(const fs::path& folder, const LeavesOut& leaves_out) {
  auto list = TRY(list_folder(folder, leaves_out));
  FolderBase base{.folder = folder, .leaves_out = leaves_out, .list = std::move(list)};
  // An overlay shows neither, and what it does not show must not look as if the agent had deleted it.
  if (base.list.has_mounts) return fail(Status::unfit("a part of it is on another file system"));
  if (TRY(has_mounts_below(folder, HiddenPaths(base.list)))) return fail(Status::unfit("something is mounted in it"));
  if (base.list.has_overlay_notes) return fail(Status::unfit("it holds layers of containers, with their notes"));
  return base;
}

Result<std::vector<Change>> changes_on(Sandbox& sandbox, const FolderBase& base) {
  auto listed = list_folder(base.folder, base.leaves_out);
  if (!listed) {
    return fail(
        Status::unavailable(listed.error().message()).at("the folder at the end").hint("nothing was written back"));
  }
  const auto now = std::move(*listed);
  const auto meanwhile = entries_other_than(now, base.list.by_path());
  auto difference = folder_difference(sandbox, base.list.entries, meanwhile);
  if (!difference) {
    return fail(std::move(difference)
                    .error()
                    .at("the files that the agent left behind")
                    .hint("tell the agent to delete what it built; nothing was written back"));
  }
  Changed changed(base, now);
  for (auto& entry : difference->other) changed.take(std::move(entry));
  const bool is_whole = difference->next.empty();
  for (const auto& path : difference->gone) is_whole ? changed.take_gone(path) : changed.keep(path);
  if (!is_whole) changed.leave_rest(difference->next, difference->rest);
  for (auto& entry : difference->large) changed.leave(std::move(entry));
  return std::move(changed).changes();
}

}  // namespace tandem::envs
