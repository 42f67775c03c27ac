#include "hosts/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "run/layout.h"

namespace tandem::hosts {
namespace {

constexpr const char *kFiles = "files", *kHomes = "homes", *kHomeLock = ".lock";

// Holds the lock of a home while its host lives.
Result<FileDescriptor> lock_home(const fs::path& home) {
  FileDescriptor lock(::open((home / kHomeLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return fail(Status::from_errno((home / kHomeLock).string(), errno));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(Status::exists(fmt::format("{} belongs to another host", home.string())));
  return lock;
}

Status remove_left_homes(const fs::path& homes) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(homes, error)) {
    const auto lock = lock_home(entry.path());
    if (lock) fs::remove_all(entry.path(), error);
  }
  return {};
}

std::string name_of(const HomeFile& file) { return file.digest.hex() + (file.is_executable ? ".x" : ""); }

}  // namespace

Result<Store> Store::open(const fs::path& folder, uint64_t most_bytes) {
  const fs::path path = fs::absolute(folder).lexically_normal();
  TRY(make_directories(path.parent_path()));
  TRY(make_private_folder(path));
  for (const char* part : {kFiles, kHomes}) TRY(make_private_folder(path / part));
  TRY(remove_left_homes(path / kHomes));
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path / kFiles, error)) {
    // A part that no host is writing: each has the number of its writer.
    const std::string name = entry.path().filename();
    const auto dot = name.find(".part-");
    if (dot == std::string::npos) continue;
    if (::kill(std::atoi(name.c_str() + dot + 6), 0) != 0) fs::remove(entry.path(), error);
  }
  return Store(path, most_bytes);
}

Store::~Store() { remove_home(); }

Status Store::make_home(uint64_t run) {
  remove_home();
  const fs::path home = folder_ / kHomes / fmt::format("tandem-{:016x}-{}", run, ::getpid());
  std::error_code error;
  fs::remove_all(home, error);
  TRY(make_private_folder(home));
  home_lock_ = TRY(lock_home(home));
  home_ = home;
  for (const char* part : {"logs", "sockets"}) TRY(make_private_folder(home / part));
  return run::RunLayout::settle(home, run);
}

void Store::remove_home() {
  for (const auto& [digest, coming] : coming_) ::unlink(coming.path.c_str());
  coming_.clear();
  in_use_.clear();
  if (home_.empty()) return;
  std::error_code ignored;
  fs::remove_all(home_, ignored);
  home_.clear();
  home_lock_.reset();
}

fs::path Store::kept(const HomeFile& file) const { return folder_ / kFiles / name_of(file); }

Status Store::place(const HomeFile& file) {
  const fs::path to = home_ / file.path;
  TRY(make_directories(to.parent_path()));
  std::error_code error;
  fs::remove(to, error);
  if (!file.link.empty()) {
    // Only what leads to the same home.
    const fs::path target = (fs::path(file.path).parent_path() / file.link).lexically_normal();
    if (fs::path(file.link).is_absolute() || target.empty() || *target.begin() == "..")
      return Status::invalid(fmt::format("{} would lead out of the run's home, to {}", file.path, file.link));
    fs::create_symlink(file.link, to, error);
    return error ? Status::from_errno(to.string(), error.value()) : Status();
  }
  fs::create_hard_link(kept(file), to, error);
  if (error) return Status::from_errno(to.string(), error.value());
  in_use_.insert(name_of(file));
  ::utimensat(AT_FDCWD, kept(file).c_str(), nullptr, 0);  // the newest are kept longest
  return {};
}

Status Store::make_room(uint64_t bytes) {
  struct Kept {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Kept> all;
  uint64_t sum = bytes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_ / kFiles, error)) {
    std::error_code gone;
    const uint64_t size = entry.file_size(gone);
    if (gone) continue;
    sum += size;
    const std::string name = entry.path().filename();
    if (!in_use_.contains(name) && name.find(".part-") == std::string::npos)
      all.push_back({entry.last_write_time(gone), size, entry.path()});
  }
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) { return a.used < b.used; });
  for (const Kept& kept : all) {
    if (sum <= most_bytes_) break;
    if (fs::remove(kept.path, error)) sum -= kept.bytes;
  }
  return {};
}

Result<std::vector<uint32_t>> Store::offer(const std::vector<HomeFile>& files) {
  uint64_t sum = 0;
  for (const HomeFile& file : files) sum += std::min(file.bytes, most_bytes_ + 1);
  if (sum > most_bytes_) {
    return fail(Status::exhausted(fmt::format("the run's files take {} MiB, and this host keeps {} at most", sum >> 20,
                                              most_bytes_ >> 20))
                    .hint("`tandem host --store-gb` says how much"));
  }
  for (const auto& [digest, coming] : coming_) ::unlink(coming.path.c_str());
  coming_.clear();
  uint64_t wanted = 0;
  std::vector<uint32_t> missing;
  for (uint32_t i = 0; i < files.size(); ++i) {
    const HomeFile& file = files[i];
    std::error_code error;
    // What is kept had its digest when it came, and nobody writes to it since.
    if (file.link.empty() && file.bytes == 0) TRY(write_file(kept(file), ""));
    const bool is_there = !file.link.empty() || (fs::file_size(kept(file), error) == file.bytes && !error);
    if (is_there) {
      TRY(place(file));
      continue;
    }
    auto& coming = coming_[file.digest];
    coming.bytes = file.bytes;
    coming.places.push_back(file);
    if (coming.places.size() > 1) continue;  // the same bytes come once
    wanted += file.bytes;
    missing.push_back(i);
  }
  TRY(make_room(wanted));
  return missing;
}

Result<uint64_t> Store::add(const Chunk& chunk, std::span<const std::byte> bytes) {
  const auto found = coming_.find(chunk.digest);
  if (found == coming_.end()) return fail(Status::invalid("a chunk of a file that was not offered, or is complete"));
  Coming& coming = found->second;
  if (chunk.offset != coming.have || bytes.size() > coming.bytes - coming.have)
    return fail(Status::invalid("a chunk that does not follow the last one of its file"));
  if (!coming.file) {
    coming.path = folder_ / kFiles / fmt::format("{}.part-{}", chunk.digest.hex(), ::getpid());
    coming.file = FileDescriptor(::open(coming.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!coming.file) return fail(Status::from_errno(coming.path.string(), errno));
  }
  TRY(write_all(coming.file.get(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, coming.path.string()));
  coming.have += bytes.size();
  if (coming.have < coming.bytes) return coming.have;
  coming.file.reset();
  if (digest_of(TRY(MappedFile::open(coming.path)).bytes()) != chunk.digest) {
    coming.have = 0;
    return fail(Status::corrupt(fmt::format("{} came with other bytes than it was sent with", coming.places[0].path)));
  }
  const Coming complete = std::move(coming);
  coming_.erase(found);
  const fs::path first = kept(complete.places[0]);
  std::error_code error;
  fs::rename(complete.path, first, error);
  if (error) return fail(Status::from_errno(first.string(), error.value()));
  for (const HomeFile& file : complete.places) {
    const fs::path to = kept(file);
    if (to != first) fs::copy_file(first, to, fs::copy_options::overwrite_existing, error);
    if (error) return fail(Status::from_errno(to.string(), error.value()));
    if (::chmod(to.c_str(), file.is_executable ? 0700 : 0600) != 0) return fail(Status::from_errno(to.string(), errno));
    TRY(place(file));
  }
  return complete.have;
}

Status Store::write(const HomeText& text) {
  const fs::path to = home_ / text.path;
  TRY(make_directories(to.parent_path()));
  FileDescriptor file(::open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return Status::from_errno(to.string(), errno);
  return write_all(file.get(), text.content, to.string());
}

Result<fs::path> usual_store() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/')
    return fs::path(cache) / "tandem" / "host";
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
    return fs::path(home) / ".cache" / "tandem" / "host";
  return fail(Status::unfit("there is no place for what runs send: neither XDG_CACHE_HOME nor HOME is an absolute path")
                  .hint("name a folder by --store"));
}

}  // namespace tandem::hosts
