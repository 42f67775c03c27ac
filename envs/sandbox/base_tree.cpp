#include "envs/sandbox/base_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kManifestMark = "tandem-base-2";
constexpr uint64_t kLargestManifest = uint64_t{512} << 20;
constexpr int64_t kNanoseconds = 1'000'000'000;
constexpr size_t kMostChanges = 10'000;  // files that are collected, as of a workspace without a base
constexpr uint64_t kLargestBaseFile = uint64_t{1} << 30;
constexpr uint64_t kMostChangeBytes = 32 << 20;

int64_t nanoseconds(const timespec& time) { return time.tv_sec * kNanoseconds + time.tv_nsec; }

enum class BaseKind : char { kFile = '-', kProgram = 'x', kLink = 'l' };

struct BaseEntry {
  int64_t modified = 0;  // nanoseconds
  BaseKind kind = BaseKind::kFile;
};

struct Manifest {
  uint64_t files = 0, bytes = 0;
  uint64_t list = 0;  // bytes after the first line
  int64_t made = 0;   // nanoseconds: no file of it has changed since
  std::unordered_map<std::string_view, BaseEntry> entries;
};

template <typename Number>
bool take(std::string_view& text, Number& number, char end) {
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest == text.data() + text.size() || *rest != end) return false;
  text.remove_prefix(static_cast<size_t>(rest - text.data()) + 1);
  return true;
}

// The entries are of the text, as long as that is there.
Result<Manifest> read_manifest(std::string_view text, bool with_entries) {
  Manifest manifest;
  const auto corrupt = [] { return fail(Status::corrupt("the list of a base's files cannot be read")); };
  if (!text.starts_with(kManifestMark)) return corrupt();
  text.remove_prefix(kManifestMark.size());
  if (!text.starts_with(' ')) return corrupt();
  text.remove_prefix(1);
  if (!take(text, manifest.files, ' ') || !take(text, manifest.bytes, ' ') || !take(text, manifest.made, ' ') ||
      !take(text, manifest.list, '\n'))
    return corrupt();
  if (!with_entries) return manifest;
  if (text.size() != manifest.list) return corrupt();
  manifest.entries.reserve(manifest.files);
  while (!text.empty()) {
    BaseEntry entry;
    if (!take(text, entry.modified, ' ')) return corrupt();
    const size_t end = text.find('\0');
    if (end == std::string_view::npos || end < 3) return corrupt();
    entry.kind = static_cast<BaseKind>(text[0]);
    manifest.entries.emplace(text.substr(2, end - 2), entry);
    text.remove_prefix(end + 1);
  }
  if (manifest.entries.size() != manifest.files) return corrupt();
  return manifest;
}

Status failed(const fs::path& path) { return Status::from_errno(path.string(), errno); }

// One name of a file that has several.
Status separate(const fs::path& path, mode_t mode) {
  const auto copy = path.string() + ".tandem";
  std::error_code error;
  fs::copy_file(path, copy, error);
  if (error) return Status::from_errno(path.string(), error.value());
  if (chmod(copy.c_str(), mode & 0777) != 0 || rename(copy.c_str(), path.c_str()) != 0) return failed(path);
  return {};
}

size_t first_line(const char* text, ssize_t size) {
  const std::string_view all(text, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return std::min(all.find('\n'), all.size() - (all.empty() ? 0 : 1)) + 1;
}

// Opened below the tree of a base, whatever links there are.
FileDescriptor open_below(const BaseTree& base, const std::string& path, uint64_t flags) {
  const FileDescriptor tree(open(base.tree().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!tree) return {};
  open_how how{};
  how.flags = flags | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  return FileDescriptor(static_cast<int>(syscall(SYS_openat2, tree.get(), path.c_str(), &how, sizeof how)));
}

}  // namespace

std::optional<uint32_t> mode_in_base(const BaseTree& base, const std::string& path) {
  const auto file = open_below(base, path, O_PATH);
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0) return std::nullopt;
  return info.st_mode;
}

Result<std::string> read_base_file(const BaseTree& base, const std::string& path) {
  const auto file = open_below(base, path, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return fail(Status::not_found("the base has no file " + path));
  std::string content;
  char buffer[65536];
  ssize_t count = 0;
  while ((count = read(file.get(), buffer, sizeof buffer)) > 0) {
    content.append(buffer, static_cast<size_t>(count));
    if (content.size() > kLargestBaseFile) return fail(Status::exhausted(path + " of the base is larger than is read"));
  }
  if (count < 0) return fail(Status::from_errno(path, errno));
  return content;
}

Status seal_base_tree(const fs::path& folder, unsigned user) {
  const fs::path root = folder / "tree";
  std::vector<std::string> paths;
  std::vector<fs::path> folders = {root}, removed;
  std::error_code error;
  auto entry = fs::recursive_directory_iterator(root, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const auto type = entry->symlink_status(error).type();
    if (error) break;
    if (type == fs::file_type::directory)
      folders.push_back(entry->path());
    else if (type == fs::file_type::regular || type == fs::file_type::symlink)
      paths.push_back(entry->path().lexically_relative(root).string());
    else
      removed.push_back(entry->path());
    if (paths.size() > kMostBaseFiles)
      return Status::invalid(fmt::format("has more than {} files, the most of a base", kMostBaseFiles));
  }
  if (error) return Status::from_errno(root.string(), error.value());
  for (const auto& path : removed) fs::remove(path, error);
  std::sort(paths.begin(), paths.end());
  std::string list;
  uint64_t bytes = 0;
  int64_t number = 0;
  const bool is_root = geteuid() == 0;
  for (const auto& path : paths) {
    const auto file = root / path;
    struct stat info {};
    if (lstat(file.c_str(), &info) != 0) return failed(file);
    if (S_ISREG(info.st_mode) && info.st_nlink > 1) TRY(separate(file, info.st_mode));
    if (is_root && lchown(file.c_str(), user, user) != 0) return failed(file);
    const bool is_program = (info.st_mode & S_IXUSR) != 0;
    if (S_ISREG(info.st_mode) && chmod(file.c_str(), is_program ? 0755 : 0644) != 0) return failed(file);
    const timespec modified = {info.st_mtim.tv_sec, number++};
    const timespec times[2] = {modified, modified};
    if (utimensat(AT_FDCWD, file.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) return failed(file);
    bytes += static_cast<uint64_t>(info.st_size);
    if (bytes > kMostBaseBytes)
      return Status::invalid("has more than " + format_bytes(kMostBaseBytes) + ", the most of a base");
    const auto kind = S_ISLNK(info.st_mode) ? BaseKind::kLink : is_program ? BaseKind::kProgram : BaseKind::kFile;
    list += fmt::format("{} {} ", nanoseconds(modified), static_cast<char>(kind));
    list.append(path).push_back('\0');
  }
  for (const auto& each : folders) {
    if (is_root && chown(each.c_str(), user, user) != 0) return failed(each);
    if (chmod(each.c_str(), 0755) != 0) return failed(each);
  }
  // By the clock that files have: that of the newest of them.
  const FileDescriptor mark(open((folder / "made").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  struct stat made {};
  if (!mark || futimens(mark.get(), nullptr) != 0 || fstat(mark.get(), &made) != 0) return failed(folder / "made");
  // A power cut leaves a whole base or none; and no file of a sandbox has a time that the base has.
  if (syncfs(mark.get()) != 0) return failed(folder);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto head =
      fmt::format("{} {} {} {} {}\n", kManifestMark, paths.size(), bytes, nanoseconds(made.st_ctim), list.size());
  return write_file(folder / "manifest", head + list);
}

Result<BaseTree> open_base_tree(const fs::path& folder, std::string digest) {
  BaseTree base{.folder = folder, .digest = std::move(digest)};
  const FileDescriptor file(open(base.manifest().c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return fail(Status::not_found("there is no base at " + folder.string()));
  char head[128];
  const ssize_t size = read(file.get(), head, sizeof head);
  const auto manifest =
      TRY(read_manifest(std::string_view(head, static_cast<size_t>(std::max<ssize_t>(size, 0))), false));
  struct stat whole {
  }, made{};
  std::error_code error;
  // A copy of a base has other times, by which every file of it would count as changed.
  const bool is_whole = fstat(file.get(), &whole) == 0 && stat((folder / "made").c_str(), &made) == 0 &&
                        static_cast<uint64_t>(whole.st_size) == first_line(head, size) + manifest.list &&
                        nanoseconds(made.st_ctim) == manifest.made && fs::is_directory(base.tree(), error);
  if (!is_whole) return fail(Status::corrupt("the base at " + folder.string() + " is not as it was made"));
  base.files = manifest.files;
  base.bytes = manifest.bytes;
  return base;
}

Collected collect_changes(const fs::path& root, std::string_view text) {
  Collected collected;
  auto manifest = read_manifest(text, true);
  if (!manifest) {
    collected.complete = false;
    return collected;
  }
  uint64_t bytes = 0;
  const size_t prefix = root.native().size() + 1;
  std::error_code error;
  fs::recursive_directory_iterator entry(root, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    struct stat info {};
    if (lstat(entry->path().c_str(), &info) != 0) continue;
    const auto name = entry->path().native().substr(prefix);
    if (S_ISDIR(info.st_mode)) {
      if (!add_detail(collected.details, entry->path(), name, info.st_mode)) collected.complete = false;
      continue;
    }
    const auto known = manifest->entries.find(name);
    if (known != manifest->entries.end()) {
      const bool is_base =
          nanoseconds(info.st_ctim) <= manifest->made && nanoseconds(info.st_mtim) == known->second.modified;
      manifest->entries.erase(known);
      if (is_base) continue;
    }
    if (collected.files.size() >= kMostChanges) {
      collected.complete = false;
      break;
    }
    if (!add_detail(collected.details, entry->path(), name, info.st_mode)) collected.complete = false;
    auto& content = collected.files[name];
    if (!S_ISREG(info.st_mode)) {
      content = "(not a regular file)";
    } else if (auto read = read_file(entry->path(), kMostChangeBytes - bytes)) {
      bytes += read->size();
      content = std::move(*read);
      if ((info.st_mode & S_IXUSR) != 0) collected.programs.insert(name);
    } else {
      collected.complete = false;
    }
  }
  if (error) collected.complete = false;
  if (collected.complete) {
    for (const auto& [path, known] : manifest->entries) collected.removed.emplace(path);
  }
  return collected;
}

Result<Collected> changes_against(const BaseTree& base, const Collected& all) {
  const auto text = TRY(read_file(base.manifest(), kLargestManifest));
  auto manifest = TRY(read_manifest(text, true));
  Collected changes{.complete = all.complete, .details = all.details};
  for (const auto& [path, content] : all.files) {
    const auto known = manifest.entries.find(path);
    if (known == manifest.entries.end()) {
      changes.files[path] = content;
      if (all.programs.contains(path)) changes.programs.insert(path);
      continue;
    }
    const bool was_program = known->second.kind == BaseKind::kProgram, is_link = known->second.kind == BaseKind::kLink;
    manifest.entries.erase(known);
    if (is_link && content == "(not a regular file)") {
      changes.details.links.erase(path);
      continue;
    }
    const auto before = is_link ? fail(Status::not_found("")) : read_base_file(base, path);
    if (before && *before == content && was_program == all.programs.contains(path)) continue;
    changes.files[path] = content;
    if (all.programs.contains(path)) changes.programs.insert(path);
  }
  if (all.complete) {
    for (const auto& [path, known] : manifest.entries) changes.removed.emplace(path);
  }
  return changes;
}

}  // namespace tandem::envs
