#include "envs/tasks/base_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "envs/sandbox/base_tree.h"

namespace tandem::envs {
namespace {

constexpr double kLockSeconds = 1800;

bool is_digest(std::string_view name) {
  return name.size() == 32 &&
         std::ranges::all_of(name, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

double used_at(const fs::path& lock, const fs::path& folder) {
  struct stat info {};
  if (lstat(lock.c_str(), &info) != 0 && lstat(folder.c_str(), &info) != 0) return 0;
  return static_cast<double>(info.st_mtim.tv_sec);
}

// The bytes of a folder that is no whole base.
uint64_t bytes_below(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  auto entry = fs::recursive_directory_iterator(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored) && !entry->is_symlink(ignored)) bytes += entry->file_size(ignored);
  }
  return bytes;
}

}  // namespace

Result<fs::path> bases_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if (cache && cache[0] == '/') return fs::path(cache) / "tandem" / "bases";
  if (home && home[0] == '/') return fs::path(home) / ".cache" / "tandem" / "bases";
  return fail(Status::unfit("there is no folder for bases").hint("set HOME or XDG_CACHE_HOME to an absolute path"));
}

Result<FileDescriptor> lock_base(const fs::path& bases, const std::string& digest, bool alone) {
  const fs::path path = bases / (digest + ".lock");
  FileDescriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return fail(Status::from_errno(path.string(), errno));
  const SystemClock clock;
  for (const Time start = clock.now(); flock(file.get(), (alone ? LOCK_EX : LOCK_SH) | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail(Status::from_errno(path.string(), errno));
    if (to_seconds(clock.now() - start) > kLockSeconds)
      return fail(Status::deadline(
          fmt::format("another process unpacks the base for more than {} s; it has {}", kLockSeconds, path.string())));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  (void)futimens(file.get(), nullptr);
  return file;
}

Result<std::vector<KeptBase>> kept_bases() {
  const fs::path all = TRY(bases_folder());
  std::vector<KeptBase> bases;
  std::error_code error;
  if (!fs::exists(all, error)) return bases;
  for (const auto& entry : fs::directory_iterator(all, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code ignored;
    if (!entry.is_directory(ignored) || entry.is_symlink(ignored)) continue;
    KeptBase base{.digest = name.substr(0, 32), .folder = entry.path()};
    const auto ending = std::string_view(name).substr(base.digest.size());
    if (!is_digest(base.digest) || (!ending.empty() && ending != ".part" && ending != ".gone")) continue;
    const auto tree =
        ending.empty() ? open_base_tree(entry.path(), base.digest) : Result<BaseTree>(fail(Status::not_found("")));
    base.torn = !tree;
    base.bytes = tree ? tree->bytes : bytes_below(entry.path());
    base.used = used_at(all / (base.digest + ".lock"), entry.path());
    bases.push_back(std::move(base));
  }
  if (error) return fail(Status::from_errno(all.string(), error.value()));
  std::ranges::sort(bases, {}, &KeptBase::used);
  return bases;
}

Result<bool> remove_base(const KeptBase& base, double before) {
  const fs::path all = base.folder.parent_path(), lock_path = all / (base.digest + ".lock");
  struct stat info {};
  const bool noted = lstat(lock_path.c_str(), &info) == 0;
  const FileDescriptor lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return fail(Status::from_errno(lock_path.string(), errno));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    return fail(Status::from_errno(lock_path.string(), errno));
  }
  if (fstat(lock.get(), &info) != 0) return fail(Status::from_errno(lock_path.string(), errno));
  // Under the lock: nobody has begun to use it since.
  const double used = noted ? static_cast<double>(info.st_mtim.tv_sec) : base.used;
  if (used >= before) return false;
  const fs::path gone = all / (base.digest + ".gone");
  std::error_code error;
  if (base.folder != gone) {
    fs::remove_all(gone, error);
    fs::rename(base.folder, gone, error);
    if (error) return fail(Status::from_errno(base.folder.string(), error.value()));
  }
  fs::remove_all(gone, error);
  if (error) return fail(Status::from_errno(gone.string(), error.value()));
  return true;
}

}  // namespace tandem::envs
