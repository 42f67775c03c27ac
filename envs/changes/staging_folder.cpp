#include "envs/changes/staging_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kStagingName = ".tandem-write-back-";
constexpr int kMostStagingNames = 100;  // that are tried
constexpr int kStagingFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_staging_name(std::string_view name) {
  if (!name.starts_with(kStagingName)) return false;
  const auto parts = split(name.substr(kStagingName.size()), '-');
  return parts.size() == 2 && is_number(parts[0]) && is_number(parts[1]);
}

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(::openat(folder, ".", kStagingFlags)), ::closedir);
  if (!stream) return names;
  while (const auto* const entry = ::readdir(stream.get())) {
    const std::string_view name(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

// All or nothing of what is in it; whoever is not sure that it is ours does not touch it.
bool empty_staging(int folder) {
  const auto names = names_in(folder);
  if (!std::ranges::all_of(names, [](const auto& name) { return is_number(name); })) return false;
  for (const auto& name : names) ::unlinkat(folder, name.c_str(), 0);
  return true;
}

}  // namespace

Result<StagingFolder> StagingFolder::make(int root) {
  for (int i = 0; i < kMostStagingNames; ++i) {
    auto name = fmt::format("{}{}-{}", kStagingName, ::getpid(), i);
    if (::mkdirat(root, name.c_str(), 0700) != 0) {
      if (errno == EEXIST) continue;
      return fail(Status::from_errno("a folder for files that are written back", errno));
    }
    FileDescriptor folder(::openat(root, name.c_str(), kStagingFlags));
    struct stat info {};
    // Somebody may have taken it for left behind before it was locked.
    if (!folder || ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 || ::fstat(folder.get(), &info) != 0 ||
        info.st_nlink == 0)
      continue;
    return StagingFolder(root, std::move(name), std::move(folder));
  }
  return fail(Status::exists("there is no name left for a folder of files that are written back"));
}

StagingFolder::~StagingFolder() {
  if (!folder_) return;
  if (empty_staging(folder_.get())) ::unlinkat(root_, name_.c_str(), AT_REMOVEDIR);
}

void remove_left_staging(int root) {
  for (const auto& name : names_in(root)) {
    if (!is_staging_name(name)) continue;
    const FileDescriptor folder(::openat(root, name.c_str(), kStagingFlags));
    if (!folder || ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (empty_staging(folder.get())) ::unlinkat(root, name.c_str(), AT_REMOVEDIR);
  }
}

}  // namespace tandem::envs
