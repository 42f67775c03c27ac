#include "envs/changes/write_back.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/file.h"
#include "base/text.h"
#include "envs/changes/file_attributes.h"
#include "envs/changes/staging_folder.h"

namespace tandem::envs {
namespace {

// A name in a folder that is held open: where it leads does not change under our hands.
struct Place {
  FileDescriptor folder;
  std::string name;
};

Result<Place> place_of(int root, const std::string& path) {
  const auto parts = split(path, '/');
  Place place{FileDescriptor(::dup(root)), std::string(parts.back())};
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const std::string part(parts[i]);
    FileDescriptor next(::openat(place.folder.get(), part.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next) return fail(Status::from_errno("the folder " + part, errno));
    place.folder = std::move(next);
  }
  return place;
}

// What is there now; nothing where nothing is. Content only where it has `size` bytes: any other size says enough.
Result<std::optional<TreeEntry>> look(const Place& place, size_t size) {
  struct stat info {};
  if (::fstatat(place.folder.get(), place.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::optional<TreeEntry>();
    return fail(Status::from_errno(place.name, errno));
  }
  TreeEntry entry{.mode = info.st_mode};
  if (S_ISLNK(info.st_mode)) {
    std::string target(4096, '\0');
    const ssize_t length = ::readlinkat(place.folder.get(), place.name.c_str(), target.data(), target.size());
    if (length < 0) return fail(Status::from_errno(place.name, errno));
    entry.content = target.substr(0, static_cast<size_t>(length));
  }
  if (!S_ISREG(info.st_mode) || static_cast<size_t>(info.st_size) != size) return std::optional(entry);
  FileDescriptor file(::openat(place.folder.get(), place.name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return fail(Status::from_errno(place.name, errno));
  entry.content.resize(size);
  for (size_t done = 0; done < size;) {
    const ssize_t count = ::read(file.get(), entry.content.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(Status::from_errno(place.name, errno));
    if (count == 0) entry.content.resize(size = done);
    done += static_cast<size_t>(count);
  }
  return std::optional(entry);
}

// Also of folders, whose content is not theirs to compare.
bool is_as(const std::optional<TreeEntry>& there, const std::optional<TreeEntry>& expected) {
  if (there.has_value() != expected.has_value()) return false;
  if (!there) return true;
  if ((there->mode & S_IFMT) != (expected->mode & S_IFMT)) return false;
  if (S_ISLNK(there->mode)) return there->content == expected->content;
  if ((there->mode & kPermissions) != (expected->mode & kPermissions)) return false;
  return S_ISDIR(there->mode) || there->content == expected->content;
}

size_t size_of(const std::optional<TreeEntry>& entry) {
  return entry && S_ISREG(entry->mode) ? entry->content.size() : 0;
}
Status sync_folder(const Place& place) {
  if (::fsync(place.folder.get()) != 0) return Status::from_errno("fsync", errno);
  return {};
}

// What a regular file there has beside its content; nothing where there is none.
struct Replaced {
  FileDescriptor file;
  struct stat info {};
};
std::optional<Replaced> replaced_at(const Place& place) {
  Replaced replaced{
      FileDescriptor(::openat(place.folder.get(), place.name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)),
      {}};
  if (!replaced.file || ::fstat(replaced.file.get(), &replaced.info) != 0 || !S_ISREG(replaced.info.st_mode))
    return std::nullopt;
  return replaced;
}

// A file or a link of this name in `folder`, whole, but not on disk yet. kExists where something has the name.
Result<FileDescriptor> make_entry(int folder, const std::string& name, const TreeEntry& entry, const Place& place) {
  if (S_ISLNK(entry.mode)) {
    if (::symlinkat(entry.content.c_str(), folder, name.c_str()) != 0) return fail(Status::from_errno("link", errno));
    return FileDescriptor();
  }
  FileDescriptor file(::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return fail(Status::from_errno("create", errno));
  const auto fill = [&]() -> Status {
    TRY(write_all(file.get(), entry.content, entry.path));
    if (const auto replaced = replaced_at(place))
      return carry_over_attributes(replaced->file.get(), replaced->info, file.get(), entry.mode);
    return begin_attributes(place.folder.get(), file.get(), entry.mode);
  };
  if (Status status = fill(); !status) {
    ::unlinkat(folder, name.c_str(), 0);
    return fail(std::move(status));
  }
  return file;
}

constexpr int kMostNames = 100;  // that are tried: a write-back that was killed may have left one

// Under a name that nobody has, beside what is there, then in its place; on disk when it returns.
Status put_in_place(const Place& place, const TreeEntry& entry) {
  std::string temporary;
  const auto make = [&]() -> Result<FileDescriptor> {
    for (int i = 0;; ++i) {
      temporary = fmt::format(".{}.tandem-{}-{}", place.name.substr(0, 200), ::getpid(), i);
      auto made = make_entry(place.folder.get(), temporary, entry, place);
      if (made || made.error().code() != Code::kExists || i + 1 == kMostNames) return made;
    }
  };
  const auto file = TRY(make());
  const auto put = [&]() -> Status {
    if (file && ::fsync(file.get()) != 0) return Status::from_errno("fsync", errno);
    if (::renameat(place.folder.get(), temporary.c_str(), place.folder.get(), place.name.c_str()) != 0)
      return Status::from_errno("rename", errno);
    return sync_folder(place);
  };
  Status status = put();
  if (!status.ok()) ::unlinkat(place.folder.get(), temporary.c_str(), 0);
  return status;
}

class WriteBack {
 public:
  WriteBack(int root, std::span<const Change> changes, const WriteBatches& batches)
      : root_(root), changes_(changes), batches_(batches), outcomes_(changes.size()) {
    const auto is_done = [](const Change& change) { return change.refused.empty() && change.conflict.empty(); };
    if (static_cast<size_t>(std::ranges::count_if(changes, is_done)) <= batches.few) return;
    // Where nothing can be made in the root each goes beside its place, and is synced by itself.
    if (auto made = StagingFolder::make(root)) staging_.emplace(std::move(*made));
  }

  Result<std::vector<WrittenChange>> run() {
    for (size_t i = 0; i < changes_.size(); ++i) check(i);
    // What goes, from the inside out; then what comes, folders before what is in them.
    for (size_t i = changes_.size(); i-- > 0;) {
      const auto& c = changes_[i];
      if (c.before && (!c.after || is_folder(c.before) != is_folder(c.after))) attempt(i, &WriteBack::take_away);
    }
    for (size_t i = 0; i < changes_.size(); ++i) {
      if (changes_[i].after) attempt(i, &WriteBack::make);
    }
    put_staged_in_place();
    // Modes of folders last: one may forbid to put something in.
    for (size_t i = changes_.size(); i-- > 0;) {
      if (is_folder(changes_[i].after)) attempt(i, &WriteBack::set_mode);
    }
    if (staging_ && ::syncfs(root_) != 0)
      return fail(Status::from_errno("what was written back may not be on disk: syncfs", errno));
    return std::move(outcomes_);
  }

 private:
  void decide(size_t i, WriteOutcome outcome, std::string why) { outcomes_[i] = {outcome, std::move(why)}; }
  void attempt(size_t i, Status (WriteBack::*work)(size_t)) {
    if (outcomes_[i].outcome != WriteOutcome::kWritten) return;
    if (const Status status = (this->*work)(i); !status.ok()) {
      decide(i, status.code() == Code::kExists ? WriteOutcome::kConflict : WriteOutcome::kFailed, status.message());
    }
  }

  // Nothing has been touched yet.
  void check(size_t i) {
    const auto& change = changes_[i];
    if (!change.refused.empty()) return decide(i, WriteOutcome::kRefused, change.refused);
    if (!change.conflict.empty()) return decide(i, WriteOutcome::kConflict, change.conflict);
    const Status status = still_as_before(i);
    if (!status.ok()) decide(i, WriteOutcome::kConflict, status.message());
  }

  // Whether it is as the change began from, or is what the change makes of it.
  Status still_as_before(size_t i) {
    const auto& change = changes_[i];
    const auto place = place_of(root_, change.path);
    if (!place) {
      // A folder that a change of ours will make, or one that is gone with all that is in it.
      return !change.before || !change.after ? Status() : Status::exists("its folder is not there any more");
    }
    const auto before = TRY(look(*place, size_of(change.before)));
    if (is_as(before, change.before)) return {};
    if (is_as(TRY(look(*place, size_of(change.after))), change.after)) return {};
    if (!before) return Status::exists("it is not there any more");
    return Status::exists(change.before ? "it was changed meanwhile" : "it is there meanwhile");
  }

  Status take_away(size_t i) {
    const auto& change = changes_[i];
    auto place = place_of(root_, change.path);
    if (!place) return {};  // gone with its folder
    const auto there = TRY(look(*place, size_of(change.before)));
    if (!is_as(there, change.before)) return still_as_before(i);
    const int flags = is_folder(change.before) ? AT_REMOVEDIR : 0;
    if (::unlinkat(place->folder.get(), place->name.c_str(), flags) == 0) return settle(*place);
    if (errno == ENOTEMPTY || errno == EEXIST) return Status::exists("there is something else in the folder");
    return Status::from_errno("delete", errno);
  }

  // Now, where each is synced by itself; else at the end, with all others.
  Status settle(const Place& place) { return staging_ ? Status() : sync_folder(place); }

  Status make(size_t i) {
    const auto& change = changes_[i];
    const auto place = TRY(place_of(root_, change.path));
    bool is_there = false;
    if (TRY(is_made(place, change, is_there))) return {};
    if (is_folder(change.after)) {
      if (is_there) return {};  // only its mode is another
      if (::mkdirat(place.folder.get(), place.name.c_str(), 0700) != 0) return Status::from_errno("create", errno);
      // At once where we can still write in it: undoing knows it again, whenever we are killed.
      if ((change.after->mode & 0300) == 0300) TRY(set_mode(i));
      return settle(place);
    }
    return staging_ ? stage(i, place) : put_in_place(place, *change.after);
  }

  // Whether it is as it is to be. kExists where it is neither that nor what it was.
  Result<bool> is_made(const Place& place, const Change& change, bool& is_there) {
    const auto there = TRY(look(place, size_of(change.after)));
    is_there = there.has_value();
    if (is_as(there, change.after)) return true;
    const bool taken_away = change.before && is_folder(change.before) != is_folder(change.after);
    if (!(taken_away && !there) && !is_as(TRY(look(place, size_of(change.before))), change.before))
      return fail(Status::exists("it was changed meanwhile"));
    return false;
  }

  Status stage(size_t i, const Place& place) {
    const auto& entry = *changes_[i].after;
    if (staged_.size() >= batches_.files || staged_bytes_ + entry.content.size() > batches_.bytes)
      put_staged_in_place();
    auto name = staging_->next();
    auto made = make_entry(staging_->get(), name, entry, place);
    if (!made && made.error().code() == Code::kExhausted && !staged_.empty()) {
      put_staged_in_place();  // what they replace makes room
      made = make_entry(staging_->get(), name, entry, place);
    }
    if (!made) return std::move(made).error();
    staged_.push_back({i, std::move(name)});
    staged_bytes_ += entry.content.size();
    return {};
  }

  // What is staged is on disk first, all of it by one sync; then each takes its place.
  void put_staged_in_place() {
    if (staged_.empty()) return;
    const bool are_synced = ::syncfs(staging_->get()) == 0;
    for (const auto& [i, name] : staged_) {
      staged_name_ = name;
      if (!are_synced) attempt(i, &WriteBack::sync_staged);  // whose fault it was
      attempt(i, &WriteBack::place_staged);
      ::unlinkat(staging_->get(), name.c_str(), 0);  // where it is there still
    }
    staged_.clear();
    staged_bytes_ = 0;
  }

  Status sync_staged(size_t i) {
    if (S_ISLNK(changes_[i].after->mode)) return {};
    const FileDescriptor file(::openat(staging_->get(), staged_name_.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!file || ::fsync(file.get()) != 0) return Status::from_errno("fsync", errno);
    return {};
  }

  Status place_staged(size_t i) {
    const auto& change = changes_[i];
    const auto place = TRY(place_of(root_, change.path));
    bool is_there = false;
    if (TRY(is_made(place, change, is_there))) return {};
    if (::renameat(staging_->get(), staged_name_.c_str(), place.folder.get(), place.name.c_str()) == 0) return {};
    // Another file system is mounted on the way.
    return errno == EXDEV ? put_in_place(place, *change.after) : Status::from_errno("rename", errno);
  }

  Status set_mode(size_t i) {
    const auto& after = *changes_[i].after;
    const auto place = TRY(place_of(root_, changes_[i].path));
    const FileDescriptor folder(
        ::openat(place.folder.get(), place.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder || ::fchmod(folder.get(), after.mode & kPermissions) != 0) return Status::from_errno("mode", errno);
    return {};
  }

  struct Staged {
    size_t change = 0;
    std::string name;
  };
  const int root_;
  const std::span<const Change> changes_;
  const WriteBatches batches_;
  std::optional<StagingFolder> staging_;
  std::vector<Staged> staged_;
  size_t staged_bytes_ = 0;
  std::string staged_name_;  // of the one that is being put in its place
  std::vector<WrittenChange> outcomes_;
};

}  // namespace

std::string_view to_string(WriteOutcome outcome) {
  static constexpr std::array<std::string_view, 4> kNames = {"written", "conflict", "refused", "failed"};
  return kNames[static_cast<size_t>(outcome)];
}

void remove_left_behind(const fs::path& root) {
  const FileDescriptor folder(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) remove_left_staging(folder.get());
}

Result<FolderIdentity> identity_of_folder(const fs::path& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) return fail(Status::from_errno(folder.string(), errno));
  return FolderIdentity{.device = info.st_dev, .number = info.st_ino};
}

Result<std::vector<WrittenChange>> write_back(const fs::path& root, std::span<const Change> changes,
                                              const std::optional<FolderIdentity>& expected,
                                              const WriteBatches& batches) {
  const FileDescriptor folder(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return fail(Status::from_errno(root.string(), errno));
  struct stat info {};
  if (::fstat(folder.get(), &info) != 0) return fail(Status::from_errno(root.string(), errno));
  if (expected && *expected != FolderIdentity{.device = info.st_dev, .number = info.st_ino}) {
    return fail(Status::exists(root.string() + " is another folder by now than the one that was worked on")
                    .hint("nothing was written back"));
  }
  remove_left_staging(folder.get());
  return WriteBack(folder.get(), changes, batches).run();
}

}  // namespace tandem::envs
