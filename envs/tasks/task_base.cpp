#include "envs/tasks/task_base.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <vector>

#include "base/clock.h"
#include "base/digest.h"
#include "base/text.h"
#include "envs/sandbox/confine.h"
#include "envs/tasks/base_store.h"
#include "envs/tasks/git_tree.h"
#include "envs/tasks/mistakes.h"
#include "envs/tools/output.h"
#include "envs/tools/process.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr double kUnpackSeconds = 1800;
constexpr double kSettledSeconds = 0.1;  // after which a file's times tell one change from the next

bool is_left_out(const fs::path& name) { return name == ".git" || name == "__pycache__"; }

struct SourceFile {
  fs::path path;
  std::string name, stamp, mode;  // the mode's bits that a base keeps
  double changed = 0;             // unix seconds
};

SourceFile source_file(const fs::path& path, std::string name, const struct stat& info) {
  const bool is_program = S_ISREG(info.st_mode) && (info.st_mode & S_IXUSR) != 0;
  return {.path = path,
          .name = std::move(name),
          .stamp = fmt::format("{}.{} {} {}.{} {}.{}", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                               info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec),
          .mode = S_ISLNK(info.st_mode) ? "l"
                  : is_program          ? "x"
                                        : "-",
          .changed = static_cast<double>(info.st_ctim.tv_sec) + 1e-9 * static_cast<double>(info.st_ctim.tv_nsec)};
}

// What a folder holds, sorted, or an archive alone.
Result<std::vector<SourceFile>> files_of(const fs::path& source) {
  std::vector<SourceFile> files;
  struct stat info {};
  if (lstat(source.c_str(), &info) != 0) return fail(Status::from_errno(source.string(), errno));
  if (!S_ISDIR(info.st_mode)) return std::vector{source_file(source, "", info)};
  std::error_code error;
  auto entry = fs::recursive_directory_iterator(source, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (is_left_out(entry->path().filename())) {
      entry.disable_recursion_pending();
      continue;
    }
    if (lstat(entry->path().c_str(), &info) != 0) return fail(Status::from_errno(entry->path().string(), errno));
    if (!S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode)) continue;
    files.push_back(source_file(entry->path(), entry->path().lexically_relative(source).string(), info));
    if (files.size() > kMostBaseFiles)
      return fail(Status::invalid(fmt::format("{} has more than {} files", source.string(), kMostBaseFiles)));
  }
  if (error) return fail(Status::from_errno(source.string(), error.value()));
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return files;
}

std::string stamp_of(std::span<const SourceFile> files) {
  std::string text;
  for (const auto& file : files) text.append(file.name).append(1, '\0').append(file.stamp).append("\n");
  return digest_of(text).hex();
}

Result<std::string> digest_of_file(const fs::path& file) {
  const FileDescriptor in = TRY(open_regular_file(file));
  struct stat info {};
  if (fstat(in.get(), &info) != 0) return fail(Status::from_errno(file.string(), errno));
  if (info.st_size == 0) return std::string("empty");
  const auto size = static_cast<size_t>(info.st_size);
  void* const bytes = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, in.get(), 0);
  if (bytes == MAP_FAILED) return fail(Status::from_errno(file.string(), errno));
  auto digest = digest_of(std::span(static_cast<const std::byte*>(bytes), size)).hex();
  munmap(bytes, size);
  return digest;
}

Result<std::string> digest_of_contents(std::span<const SourceFile> files) {
  std::string text;
  for (const auto& file : files) {
    std::error_code error;
    const auto content =
        file.mode == "l" ? fs::read_symlink(file.path, error).string() : TRY(digest_of_file(file.path));
    if (error) return fail(Status::from_errno(file.path.string(), error.value()));
    text.append(file.name).append(1, '\0').append(file.mode).append(content).append("\n");
  }
  return digest_of(text).hex();
}

// Contents are read once: what they were is kept by the stamp. Not of files that were changed just now: they may be
// changed again without their times showing it.
Result<std::string> remembered_digest(std::span<const SourceFile> files, const std::string& stamp) {
  const fs::path all = TRY(bases_folder()), memory = all / (stamp + ".digest");
  if (auto known = read_file(memory, 64); known && known->size() == 32) return *known;
  const double now = SystemClock().unix_seconds();
  const auto digest = TRY(digest_of_contents(files));
  const auto is_settled = [&](const SourceFile& file) { return now - file.changed >= kSettledSeconds; };
  if (!std::ranges::all_of(files, is_settled)) return digest;
  TRY(make_directories(all.parent_path()));
  TRY(make_private_folder(all));
  TRY(write_file(memory, digest));
  return digest;
}

// A command line that must end well.
Status run_line(const std::string& line, const fs::path& source) {
  const ProcessSpec spec{.argv = {"/bin/bash", "-c", line},
                         .directory = "/",
                         .environment = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "HOME=/nonexistent"},
                         .time_limit_s = kUnpackSeconds,
                         .errors_apart = true};
  const auto result = TRY(run_process(spec));
  if (result.timed_out)
    return Status::deadline(fmt::format("unpacking {} took more than {} s", source.string(), kUnpackSeconds));
  if (result.exit_code == 0) return {};
  return Status::invalid(
      fmt::format("{} cannot be unpacked: {}", source.string(), trim(make_printable(result.errors.substr(0, 1000)))));
}

// A folder that is alone at the top is the root.
Status lift_single_folder(const fs::path& tree) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(tree, error)) entries.push_back(entry.path());
  if (error || entries.size() != 1 || !fs::is_directory(fs::symlink_status(entries[0], error))) return {};
  const fs::path aside = tree.string() + ".top";
  fs::rename(entries[0], aside, error);
  if (!error) fs::remove(tree, error);
  if (!error) fs::rename(aside, tree, error);
  return error ? Status::from_errno(tree.string(), error.value()) : Status();
}

struct GitEntry {
  bool is_program = false, is_link = false;
  std::string path;
};

Status write_git_files(const fs::path& tree, std::span<const GitEntry> entries, std::string_view objects,
                       int64_t time) {
  std::vector<std::pair<std::string, std::string>> links;
  std::string last_folder;
  for (const auto& entry : entries) {
    const size_t line_end = std::min(objects.find('\n'), objects.size());
    const auto words = split(objects.substr(0, line_end), ' ');
    size_t size = 0;
    const bool good = words.size() == 3 &&
                      std::from_chars(words[2].data(), words[2].data() + words[2].size(), size).ec == std::errc() &&
                      line_end + 1 + size < objects.size() + 1;
    if (!good) return Status::not_found(entry.path + " is not in the repository");
    const auto content = objects.substr(line_end + 1, size);
    objects.remove_prefix(std::min(objects.size(), line_end + 1 + size + 1));
    if (entry.is_link) {
      links.emplace_back(entry.path, content);
      continue;
    }
    const auto file = tree / entry.path;
    if (auto folder = file.parent_path().string(); folder != last_folder) {
      TRY(make_directories(folder));
      last_folder = std::move(folder);
    }
    const int mode = entry.is_program ? 0755 : 0644;
    const FileDescriptor out(open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!out) return Status::from_errno(file.string(), errno);
    TRY(write_all(out.get(), content, file.string()));
    const timespec times[2] = {{time, 0}, {time, 0}};
    if (futimens(out.get(), times) != 0) return Status::from_errno(file.string(), errno);
  }
  // Last, so that no file is written through one.
  for (const auto& [path, target] : links) {
    const auto link = tree / path;
    TRY(make_directories(link.parent_path()));
    if (symlink(target.c_str(), link.c_str()) != 0) return Status::from_errno(link.string(), errno);
    const timespec times[2] = {{time, 0}, {time, 0}};
    (void)utimensat(AT_FDCWD, link.c_str(), times, AT_SYMLINK_NOFOLLOW);
  }
  return {};
}

Status unpack_git(const TaskBase& base, const fs::path& folder) {
  const auto repository = TRY(git_folder_of(base.source));
  const auto name = shell_quoted(base.commit + "^{commit}");
  const auto list = (folder / "list").string(), contents = (folder / "objects").string();
  const auto run = [&](const std::string& line) { return run_git(repository, line, 1 << 20, kUnpackSeconds); };
  TRY(run(fmt::format("git ls-tree -r --full-tree -z {} > {}", name, shell_quoted(list))));
  std::vector<GitEntry> entries;
  std::string objects;
  const auto text = TRY(read_file(list));
  for (const auto line : split(text, '\0')) {
    const size_t tab = line.find('\t');
    const auto words = split(line.substr(0, tab), ' ');
    if (tab == std::string_view::npos || words.size() < 3 || words[1] != "blob") continue;
    std::string path(line.substr(tab + 1));
    if (const auto why = why_no_workspace_path(path); !why.empty())
      return Status::invalid(fmt::format("\"{}\" {}", path, why));
    objects.append(words[2]).append("\n");
    entries.push_back({words[0] == "100755", words[0] == "120000", std::move(path)});
  }
  if (entries.size() > kMostBaseFiles)
    return Status::invalid(fmt::format("{} has more than {} files", base.source.string(), kMostBaseFiles));
  TRY(write_file(list, objects));
  TRY(run(fmt::format("git cat-file --batch --buffer < {} > {}", shell_quoted(list), shell_quoted(contents))));
  const auto when = TRY(run("git show -s --format=%ct " + name));
  int64_t time = 0;
  (void)std::from_chars(when.data(), when.data() + when.size(), time);
  const FileDescriptor in = TRY(open_regular_file(contents));
  struct stat info {};
  if (fstat(in.get(), &info) != 0) return Status::from_errno(contents, errno);
  const auto size = static_cast<size_t>(info.st_size);
  void* const bytes = size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, in.get(), 0) : nullptr;
  if (bytes == MAP_FAILED) return Status::from_errno(contents, errno);
  const Status written =
      write_git_files(folder / "tree", entries, std::string_view(static_cast<const char*>(bytes), size), time);
  if (bytes != nullptr) munmap(bytes, size);
  std::error_code error;
  for (const auto& file : {list, contents}) fs::remove(file, error);
  return written;
}

Status unpack(const TaskBase& base, const fs::path& folder) {
  const fs::path tree = folder / "tree";
  TRY(make_directories(tree));
  const auto from = shell_quoted(base.source.string()), to = shell_quoted(tree.string());
  switch (base.kind) {
    case TaskBase::Kind::kGit:
      return unpack_git(base, folder);
    case TaskBase::Kind::kFolder:
      return run_line(fmt::format("set -o pipefail; tar -C {} --exclude=.git --exclude=__pycache__ -cf - . | "
                                  "tar -C {} --no-same-owner -xf -",
                                  from, to),
                      base.source);
    case TaskBase::Kind::kArchive:
      TRY(run_line(fmt::format("tar -C {} --no-same-owner -xf {}", to, from), base.source));
      return lift_single_folder(tree);
  }
  return {};
}

}  // namespace

Result<TaskBase> find_task_base(TaskBase::Kind kind, const fs::path& source, const std::string& commit) {
  TaskBase base{.kind = kind, .source = fs::absolute(source).lexically_normal()};
  std::error_code error;
  if (kind == TaskBase::Kind::kGit) {
    const auto repository = TRY(git_folder_of(base.source));
    const auto name = run_git(repository, "git rev-parse --verify " + shell_quoted(commit + "^{commit}"), 4096, 60);
    // Git's own words for an unknown name are "Needed a single revision".
    if (!name && name.error().message().find("single revision") != std::string::npos)
      return fail(Status::not_found(fmt::format("{} has no commit \"{}\"", base.source.string(), commit)));
    if (!name) return fail(name.error());
    base.commit = trim(*name);
    base.digest = digest_of("git " + base.commit).hex();
    return base;
  }
  const bool is_folder = kind == TaskBase::Kind::kFolder;
  if (is_folder && !fs::is_directory(base.source, error))
    return fail(Status::not_found("there is no folder " + base.source.string()));
  if (!is_folder && !fs::is_regular_file(base.source, error))
    return fail(Status::not_found("there is no archive " + base.source.string()));
  base.source = fs::canonical(base.source, error);
  if (error) return fail(Status::from_errno(source.string(), error.value()));
  const auto files = TRY(files_of(base.source));
  base.stamp = stamp_of(files);
  base.digest = digest_of((is_folder ? "folder " : "archive ") + TRY(remembered_digest(files, base.stamp))).hex();
  return base;
}

Result<TaskBase> BaseSources::find(TaskBase::Kind kind, const fs::path& source, const std::string& commit) {
  const auto key = std::tuple(kind, fs::absolute(source).lexically_normal(), commit);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  return known_.emplace(key, find_task_base(kind, source, commit)).first->second;
}

Result<BaseTree> prepare_base(const TaskBase& base) {
  const fs::path all = TRY(bases_folder()), folder = all / base.digest;
  {
    // Whoever removes bases sees by it that this one is used. A folder that cannot be written loses none.
    const auto used = lock_base(all, base.digest, false);
    if (auto there = open_base_tree(folder, base.digest)) return there;
  }
  TRY(make_directories(all.parent_path()));
  TRY(make_private_folder(all));  // whoever sandboxes run as outside may write nothing here
  const FileDescriptor lock = TRY(lock_base(all, base.digest, true));
  if (auto there = open_base_tree(folder, base.digest)) return there;  // another one has made it meanwhile
  const fs::path part = all / (base.digest + ".part");
  std::error_code error;
  fs::remove_all(part, error);
  fs::remove_all(folder, error);
  TRY(make_directories(part));
  Status made = unpack(base, part);
  if (made && base.kind != TaskBase::Kind::kGit && stamp_of(TRY(files_of(base.source))) != base.stamp)
    made = Status::invalid(base.source.string() + " has changed since the task was read");
  if (made) made = seal_base_tree(part, kNobody);
  if (made && rename(part.c_str(), folder.c_str()) != 0) made = Status::from_errno(folder.string(), errno);
  if (!made) {
    fs::remove_all(part, error);
    return fail(std::move(made));
  }
  return open_base_tree(folder, base.digest);
}

bool is_prepared(const TaskBase& base) {
  const auto all = bases_folder();
  return all && open_base_tree(*all / base.digest, base.digest).has_value();
}

}  // namespace tandem::envs
