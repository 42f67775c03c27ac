#include "cli/serve/private_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_number.h"

namespace tandem::cli {
namespace {

constexpr const char* kLockFile = "lock";

void remove_abandoned(const fs::path& parent, const std::string& prefix) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    struct stat found {};
    if (::lstat(entry.path().c_str(), &found) != 0 || !S_ISDIR(found.st_mode) || found.st_uid != ::getuid()) continue;
    const FileDescriptor lock(::open((entry.path() / kLockFile).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    // Held: its process lives. None: it is being made.
    if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;
    std::error_code ignored;
    fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

Result<PrivateFolder> PrivateFolder::make(std::string_view kind) {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) return fail(Status::unfit(fmt::format("there is no folder for temporary files: {}", error.message())));
  const std::string prefix = fmt::format("{}-{}-", kind, ::getuid());
  remove_abandoned(parent, prefix);
  PrivateFolder folder{.path = parent / fmt::format("{}{:016x}", prefix, unique_number()), .lock = {}};
  TRY(make_private_folder(folder.path));
  const fs::path file = folder.path / kLockFile;
  folder.lock = FileDescriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!folder.lock || ::flock(folder.lock.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(Status::from_errno(file.string(), errno));
  return folder;
}

}  // namespace tandem::cli
