#include "envs/packages/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/digest.h"

namespace tandem::envs {
namespace {

constexpr auto kPackageLockPause = std::chrono::milliseconds(10);
constexpr double kAbandonedSeconds = 24 * 3600;  // after which nobody goes on with an incoming file

}  // namespace

Result<fs::path> packages_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  if (cache && cache[0] == '/') return fs::path(cache) / "tandem" / "packages";
  if (home && home[0] == '/') return fs::path(home) / ".cache" / "tandem" / "packages";
  return fail(Status::unfit("there is no folder for packages").hint("set HOME or XDG_CACHE_HOME to an absolute path"));
}

Result<PackageStore> PackageStore::open(const fs::path& folder, uint64_t most_bytes) {
  for (const char* name : {"files", "names", "locks", "incoming"}) TRY(make_directories(folder / name));
  return PackageStore(folder, most_bytes);
}

std::optional<StoredFile> PackageStore::find(const PackageDigest& digest) const {
  if (!digest) return std::nullopt;
  std::string sha256 = digest.hex;
  if (digest.kind == PackageDigest::Kind::kSha512) {
    const auto known = read_file(folder_ / "names" / digest.to_string(), 64);
    if (!known || !PackageDigest::sha256(*known)) return std::nullopt;
    sha256 = *known;
  }
  StoredFile found{
      .file = FileDescriptor(::open((folder_ / "files" / sha256).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)),
      .sha256 = sha256};
  struct stat info {};
  if (!found.file || fstat(found.file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  found.bytes = static_cast<uint64_t>(info.st_size);
  if (!is_whole(found)) {
    ::unlink((folder_ / "files" / sha256).c_str());
    return std::nullopt;
  }
  (void)futimens(found.file.get(), nullptr);
  return found;
}

bool PackageStore::is_whole(const StoredFile& file) const {
  {
    const std::lock_guard lock(checked_->mutex);
    if (checked_->files.contains(file.sha256)) return true;
  }
  PackageHasher hasher;
  std::vector<char> buffer(size_t{1} << 20);
  off_t at = 0;
  ssize_t count = 0;
  while ((count = ::pread(file.file.get(), buffer.data(), buffer.size(), at)) > 0) {
    hasher.add({buffer.data(), static_cast<size_t>(count)});
    at += count;
  }
  hasher.finish();
  if (count < 0 || hasher.sha256() != file.sha256) return false;
  note_whole(file.sha256);
  return true;
}

void PackageStore::note_whole(const std::string& sha256) const {
  const std::lock_guard lock(checked_->mutex);
  checked_->files.insert(sha256);
}

PackageStore::Incoming::~Incoming() {
  if (file_) unlink(path_.c_str());
}

Status PackageStore::Incoming::add(std::string_view bytes) {
  hasher_.add(bytes);
  bytes_ += bytes.size();
  return write_all(file_.get(), bytes, path_.string());
}

Result<PackageStore::Incoming> PackageStore::begin() const {
  std::string name = (folder_ / "incoming" / "file-XXXXXX").string();
  FileDescriptor file(mkostemp(name.data(), O_CLOEXEC));
  if (!file) return fail(Status::from_errno(name, errno));
  Incoming incoming;
  incoming.path_ = name;
  incoming.file_ = std::move(file);
  return incoming;
}

Result<StoredFile> PackageStore::keep(Incoming incoming, const PackageDigest& expected) const {
  incoming.hasher_.finish();
  const auto& sha256 = incoming.hasher_.sha256();
  if (expected && !incoming.hasher_.is(expected))
    return fail(Status::corrupt(
        fmt::format("it is not what its index says: sha256-{} came, not {}", sha256, expected.to_string())));
  if (incoming.bytes() > most_bytes_)
    return fail(Status::exhausted("a file is larger than all that may be kept").hint("raise env.packages.cache_mb"));
  if (fsync(incoming.file_.get()) != 0) return fail(Status::from_errno(incoming.path_.string(), errno));
  const auto place = folder_ / "files" / sha256;
  if (rename(incoming.path_.c_str(), place.c_str()) != 0) return fail(Status::from_errno(place.string(), errno));
  incoming.file_.reset();
  note_whole(sha256);
  if (expected.kind == PackageDigest::Kind::kSha512) TRY(write_file(folder_ / "names" / expected.to_string(), sha256));
  // Open before there is room: another process that makes some may take it away.
  auto kept = find(PackageDigest::sha256(sha256));
  make_room(sha256);
  if (!kept) return fail(Status::unavailable(fmt::format("{} went before it could be read", place.string())));
  return std::move(*kept);
}

// File systems note times by the tick of a clock, so one that came just now may look no newer than the others.
void PackageStore::make_room(const std::string& newest) const {
  struct Kept {
    fs::path path;
    uint64_t bytes = 0;
    timespec used{};
  };
  std::vector<Kept> kept;
  uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_ / "files", error)) {
    struct stat info {};
    if (lstat(entry.path().c_str(), &info) != 0) continue;
    bytes += static_cast<uint64_t>(info.st_size);
    if (entry.path().filename() != newest)
      kept.push_back({entry.path(), static_cast<uint64_t>(info.st_size), info.st_mtim});
  }
  std::ranges::sort(kept, [](const Kept& a, const Kept& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (auto one = kept.begin(); one != kept.end() && bytes > most_bytes_; ++one) {
    if (unlink(one->path.c_str()) == 0) bytes -= one->bytes;
  }
  // What a process that was killed has left.
  const double now = SystemClock().unix_seconds();
  for (const auto& entry : fs::directory_iterator(folder_ / "incoming", error)) {
    struct stat info {};
    if (lstat(entry.path().c_str(), &info) == 0 && now - static_cast<double>(info.st_mtim.tv_sec) > kAbandonedSeconds)
      unlink(entry.path().c_str());
  }
}

// The file goes while it is locked: sandboxes choose the keys, and there is no end of them.
PackageStore::Lock::~Lock() {
  if (file_) unlink(path_.c_str());
}

Result<PackageStore::Lock> PackageStore::lock(const std::string& key, Duration wait,
                                              const std::stop_token& stop) const {
  const auto path = folder_ / "locks" / digest_of(key).hex();
  const SystemClock clock;
  for (const Time deadline = clock.now() + wait;;) {
    FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return fail(Status::from_errno(path.string(), errno));
    if (flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      struct stat ours {};
      // One that its last holder has removed is nobody's lock any more.
      if (fstat(file.get(), &ours) != 0) return fail(Status::from_errno(path.string(), errno));
      if (ours.st_nlink > 0) return Lock(path, std::move(file));
      continue;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) return fail(Status::from_errno(path.string(), errno));
    if (stop.stop_requested()) return fail(Status::cancelled("the sandbox has ended"));
    if (clock.now() >= deadline)
      return fail(Status::deadline(fmt::format("another process fetches {} for too long", key)));
    std::this_thread::sleep_for(kPackageLockPause);
  }
}

}  // namespace tandem::envs
