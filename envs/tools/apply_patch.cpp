// apply_patch: a patch over several files, all of it or nothing.
//
// Everything is worked out in memory first. Then new contents are written beside the files, old files get a second
// name, and only when all of that has worked do the new ones take their places; what fails on the way is undone.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "envs/tools/editable_text.h"
#include "envs/tools/functions.h"
#include "envs/tools/patch.h"
#include "envs/tools/paths.h"

namespace tandem::envs {
namespace {

// A file as the patch will leave it.
struct PlannedFile {
  fs::path path;
  bool was_there = false;
  std::optional<std::string> before;   // as read; not read where it only goes
  std::optional<std::string> content;  // none: it is gone
  mode_t mode = 0644;
};

bool is_there(const fs::path& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0;
}

class Plan {
 public:
  explicit Plan(const ToolContext& context) : context_(context) {}

  Status add(const FilePatch& patch) {
    switch (patch.kind) {
      case FilePatch::Kind::kAdd:
        return add_file(patch);
      case FilePatch::Kind::kDelete:
        return delete_file(patch);
      case FilePatch::Kind::kUpdate:
        return update_file(patch);
    }
    return {};
  }

  const std::vector<PlannedFile>& files() const { return files_; }
  const std::string& summary() const { return summary_; }

 private:
  PlannedFile& planned(const fs::path& path) {
    const auto same = std::find_if(files_.begin(), files_.end(), [&](auto& file) { return file.path == path; });
    if (same != files_.end()) return *same;
    files_.push_back({path, is_there(path), {}, {}});
    return files_.back();
  }

  // Whether there is something at `path` once what is planned so far is done.
  bool exists(const fs::path& path) const {
    const auto same = std::find_if(files_.begin(), files_.end(), [&](auto& file) { return file.path == path; });
    return same == files_.end() ? is_there(path) : same->content.has_value();
  }

  Status missing(const FilePatch& patch, const fs::path& path) const {
    if (!is_there(path)) return Status::invalid(missing_file(context_, patch.path));
    return Status::invalid("\"" + patch.path + "\" is gone by then: an earlier part of the patch deletes or moves it");
  }

  Status add_file(const FilePatch& patch) {
    const auto path = TRY(resolve(context_, patch.path));
    if (exists(path)) {
      return Status::invalid("\"" + patch.path +
                             "\" is there already; change it with \"*** Update File: " + patch.path + "\"");
    }
    planned(path).content = patch.contents;
    say("A " + shown(context_, path));
    return {};
  }

  Status delete_file(const FilePatch& patch) {
    const auto path = TRY(resolve_entry(context_, patch.path));
    if (!exists(path)) return missing(patch, path);
    std::error_code error;
    if (fs::symlink_status(path, error).type() == fs::file_type::directory) {
      return Status::invalid("\"" + patch.path + "\" is a folder; a patch deletes files");
    }
    planned(path).content.reset();
    say("D " + shown(context_, path));
    return {};
  }

  Status update_file(const FilePatch& patch) {
    const auto path = TRY(resolve(context_, patch.path));
    if (!exists(path)) return missing(patch, path);
    auto& file = planned(path);
    if (!file.content) TRY(load(patch.path, file));
    const auto editable = TRY(EditableText::of(*file.content, patch.path));
    auto patched = TRY(apply_hunks(patch, editable.text()));
    if (patch.new_path.empty() && patched.content == editable.text()) {
      return Status::invalid("the update of \"" + patch.path + "\" would change nothing");
    }
    auto content = editable.restored(patched.content);
    if (content.size() > kLargestFile) return Status::invalid("\"" + patch.path + "\" would become too large");
    auto note = patched.exact ? "" : " (some lines were matched though their spaces or quotes differ)";
    if (patch.new_path.empty()) {
      file.content = std::move(content);
      say("M " + shown(context_, path) + note);
      return {};
    }
    const auto target = TRY(resolve(context_, patch.new_path));
    if (target != path && exists(target)) {
      return Status::invalid("\"" + patch.new_path + "\" is there already; the file cannot be moved over it");
    }
    const mode_t mode = file.mode;
    file.content.reset();
    auto& moved = planned(target);
    moved.content = std::move(content);
    moved.mode = mode;
    say("M " + shown(context_, path) + " -> " + shown(context_, target) + note);
    return {};
  }

  Status load(const std::string& name, PlannedFile& file) {
    struct stat info {};
    if (stat(file.path.c_str(), &info) != 0) return Status::from_errno(name, errno);
    if (!S_ISREG(info.st_mode)) return Status::invalid("\"" + name + "\" is not a regular file");
    file.mode = info.st_mode & 07777;
    file.before = TRY(read_file(file.path, kLargestFile));
    file.content = file.before;
    return {};
  }

  void say(const std::string& line) { summary_ += line + "\n"; }

  const ToolContext& context_;
  std::vector<PlannedFile> files_;
  std::string summary_;
};

// Before it is carried out.
std::vector<FileChange> changes_of(const std::vector<PlannedFile>& files) {
  std::vector<FileChange> changes;
  for (const auto& file : files) {
    const auto before = file.before || !file.was_there ? file.before : readable_content(file.path);
    const bool is_known = before.has_value() == file.was_there;
    if (is_known && before != file.content) changes.push_back(change_of(file.path, before, file.content));
  }
  return changes;
}

// Carries a plan out. What it has done is undone when it goes, unless all of it was done.
class Commit {
 public:
  ~Commit() {
    for (auto step = undo_.rbegin(); step != undo_.rend(); ++step) (*step)();
  }

  Status carry_out(const std::vector<PlannedFile>& files) {
    for (const auto& file : files) {
      if (file.content && file.content != file.before) TRY(write_beside(file));
    }
    for (const auto& file : files) {
      if (file.content ? file.content != file.before : file.was_there) TRY(put_in_place(file));
    }
    undo_.clear();
    for (const auto& path : backups_) unlink(path.c_str());
    return {};
  }

 private:
  static fs::path beside(const fs::path& path, const char* ending) {
    return path.parent_path() / ("." + path.filename().string() + ending);
  }

  Status make_folders(const fs::path& folder) {
    if (is_there(folder)) return {};
    TRY(make_folders(folder.parent_path()));
    if (mkdir(folder.c_str(), 0755) != 0) return Status::from_errno(folder.filename().string(), errno);
    undo_.push_back([folder] { rmdir(folder.c_str()); });
    return {};
  }

  Status write_beside(const PlannedFile& file) {
    TRY(make_folders(file.path.parent_path()));
    const auto path = beside(file.path, ".tandem-new");
    const auto name = file.path.filename().string();
    unlink(path.c_str());
    FileDescriptor written(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!written) return Status::from_errno(name, errno);
    undo_.push_back([path] { unlink(path.c_str()); });
    TRY(write_all(written.get(), *file.content, name));
    return fchmod(written.get(), file.mode) == 0 ? Status() : Status::from_errno(name, errno);
  }

  Status put_in_place(const PlannedFile& file) {
    const auto name = file.path.filename().string();
    if (file.was_there) {
      const auto backup = beside(file.path, ".tandem-old");
      unlink(backup.c_str());
      // A second name, so that a reader sees the old file until the new one has its place; some file systems have none.
      const bool kept = file.content && link(file.path.c_str(), backup.c_str()) == 0;
      if (!kept && rename(file.path.c_str(), backup.c_str()) != 0) return Status::from_errno(name, errno);
      undo_.push_back([backup, path = file.path] {
        // Where both are names of one file still, a rename does nothing.
        if (rename(backup.c_str(), path.c_str()) == 0) unlink(backup.c_str());
      });
      backups_.push_back(backup);
    }
    if (!file.content) return {};
    if (rename(beside(file.path, ".tandem-new").c_str(), file.path.c_str()) != 0)
      return Status::from_errno(name, errno);
    if (!file.was_there) undo_.push_back([path = file.path] { unlink(path.c_str()); });
    return {};
  }

  std::vector<std::function<void()>> undo_;
  std::vector<fs::path> backups_;
};

}  // namespace

ToolOutcome tool_apply_patch(const ToolContext& context, const Json& arguments) {
  const auto patches = parse_patch(arguments.at("input").get_ref<const std::string&>());
  std::vector<FileChange> changes;
  const auto apply = [&]() -> Result<std::string> {
    Plan plan(context);
    for (const auto& patch : TRY(patches)) TRY(plan.add(patch));
    changes = changes_of(plan.files());
    TRY(Commit().carry_out(plan.files()));
    return plan.summary();
  };
  const auto summary = apply();
  if (!summary) return ToolOutcome::refused(summary.error().message() + "\nNothing was changed.");
  return ToolOutcome::edited("Applied the patch:\n" + *summary, std::move(changes));
}

}  // namespace tandem::envs
