#include "base/folder_lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>

#include "base/json_file.h"
#include "base/text.h"

namespace tandem {
namespace {

constexpr const char* kRecord = "lock.json";
constexpr int kFormat = 1;
constexpr uint64_t kMostBytes = 4096;

// Their magic numbers (statfs(2)); linux/magic.h lacks most of them.
constexpr std::array<uint64_t, 12> kShared = {
    0x6969,      // NFS
    0x517B,      // SMB
    0xFE534D42,  // SMB2
    0xFF534D42,  // CIFS
    0x65735546,  // FUSE, virtiofs
    0x01021997,  // 9p
    0x0BD00BD0,  // Lustre
    0x00C36400,  // Ceph
    0x47504653,  // GPFS
    0x5346414F,  // AFS
    0x7461636F,  // OCFS2
    0x01161970,  // GFS2
};

uint64_t kernels_type_of(int folder) {
  struct statfs info {};
  return ::fstatfs(folder, &info) == 0 ? static_cast<uint64_t>(info.f_type) & 0xFFFF'FFFF : 0;
}

std::string this_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unknown host";
}

std::string this_machine() {
  const auto id = read_file("/proc/sys/kernel/random/boot_id", 64);
  return id ? std::string(trim(*id)) : this_host();
}

struct Record {
  LockHolder holder;
  std::string machine;
  std::string bytes;
  Status format;  // kInvalid: one that is not known
};

std::optional<Record> read_record(const fs::path& folder) {
  auto text = read_file(folder / kRecord, kMostBytes);
  if (!text) return std::nullopt;
  const auto json = parse_json(*text);
  if (!json || !json->is_object()) return std::nullopt;
  const auto string_at = [&](const char* key) {
    return json->contains(key) && json->at(key).is_string() ? json->at(key).get<std::string>() : std::string();
  };
  const auto number_at = [&](const char* key) {
    return json->contains(key) && json->at(key).is_number() ? json->at(key).get<double>() : 0.0;
  };
  constexpr double kMost = 1e11;
  Record record;
  record.holder = {.host = string_at("host"),
                   .pid = static_cast<int64_t>(std::clamp(number_at("pid"), 0.0, 1e9)),
                   .since = std::clamp(number_at("since"), 0.0, kMost)};
  record.machine = string_at("machine");
  record.bytes = std::move(*text);
  if (auto format = format_of(*json, kFormat); !format) record.format = std::move(format).error();
  return record;
}

Status in_use(const fs::path& folder, const std::optional<Record>& by) {
  return Status::invalid(fmt::format("is in use by {}", by ? by->holder.to_string() : "another process"))
      .at(folder.string())
      .hint("wait for its end, or choose another folder");
}

}  // namespace

std::string LockHolder::to_string() const {
  return fmt::format("process {} on {}, since {:%Y-%m-%dT%H:%M:%SZ}", pid, host,
                     fmt::gmtime(static_cast<std::time_t>(since)));
}

bool may_lock_one_machine_alone(uint64_t file_system) {
  return std::find(kShared.begin(), kShared.end(), file_system) != kShared.end();
}

struct FolderLock::State {
  fs::path folder;
  FileDescriptor lock, record;
  ino_t inode = 0;  // of the record
  bool is_shared = false;
  std::string head;  // of the record, before the count
  uint64_t count = 0;
  std::mutex mutex;
  std::condition_variable_any ends;
  std::jthread beats;

  ~State() {
    if (beats.joinable()) {
      beats.request_stop();
      beats.join();
    }
    if (record && is_ours()) ::unlinkat(lock.get(), kRecord, 0);  // wherever it was moved to
  }

  // The text has one length, so that counting needs no more room on the disk.
  std::string text() const { return fmt::format("{}, \"count\": {:>20}}}\n", head, count); }

  bool is_ours() const {
    struct stat there {};
    return ::fstatat(lock.get(), kRecord, &there, 0) == 0 && there.st_ino == inode;
  }

  Status write_record() {
    const fs::path path = folder / kRecord;
    TRY(write_file(path, text()));
    record = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat there {};
    if (!record || ::fstat(record.get(), &there) != 0) return Status::from_errno(path.string(), errno);
    inode = there.st_ino;
    return {};
  }

  void beat(Duration every, const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (!ends.wait_for(lock, stop, every, [] { return false; }) && !stop.stop_requested()) {
      ++count;
      const std::string words = text();
      // One that is missed is seen as no more than a pause.
      if (::pwrite(record.get(), words.data(), words.size(), 0) > 0) ::fdatasync(record.get());
    }
  }
};

FolderLock::FolderLock(std::unique_ptr<State> state) : state_(std::move(state)) {}
FolderLock::FolderLock(FolderLock&&) noexcept = default;
FolderLock& FolderLock::operator=(FolderLock&&) noexcept = default;
FolderLock::~FolderLock() = default;

Result<FolderLock> FolderLock::claim(const fs::path& folder, const Clock& clock, const FolderLockSettings& settings) {
  auto state = std::make_unique<State>();
  std::error_code error;
  state->folder = fs::absolute(folder, error);
  state->lock = FileDescriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!state->lock) return fail(Status::from_errno(folder.string(), errno));
  while (::flock(state->lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return fail(in_use(folder, read_record(folder)));
    return fail(Status::unfit(fmt::format("cannot be locked: {}", Status::from_errno("flock", errno).message()))
                    .at(folder.string())
                    .hint("choose a folder on a file system with locks"));
  }
  const auto type = settings.file_system ? settings.file_system : kernels_type_of;
  state->is_shared = may_lock_one_machine_alone(type(state->lock.get()));
  const auto machine = settings.machine.empty() ? this_machine() : settings.machine;
  const auto first = read_record(folder);
  if (first && !first->format) {
    return fail(Status(first->format)
                    .at((folder / kRecord).string())
                    .hint("use the version that wrote it; where no process has the folder, the file may be removed"));
  }
  if (state->is_shared && first && first->machine != machine) {
    for (const Time limit = clock.now() + settings.patience; clock.now() < limit;) {
      std::this_thread::sleep_for(std::min<Duration>(settings.beat / 4, std::chrono::milliseconds(500)));
      const auto now = read_record(folder);
      if (!now) break;  // released
      if (now->bytes != first->bytes) return fail(in_use(folder, now));
    }
  }
  const Json holder = {
      {"host", this_host()}, {"pid", ::getpid()}, {"since", clock.unix_seconds()}, {"machine", machine}};
  state->head = dump_json(with_format(holder, kFormat));
  state->head.pop_back();  // its brace: the count follows
  // On one machine the kernel's lock is enough: a disk that is full costs no more than the name.
  if (Status written = state->write_record(); !written.ok() && state->is_shared) return fail(std::move(written));
  if (state->is_shared) {
    State* const own = state.get();
    own->beats = std::jthread([own, every = settings.beat](const std::stop_token& stop) { own->beat(every, stop); });
  }
  return FolderLock(std::move(state));
}

Status FolderLock::check() const {
  if (!state_ || !state_->is_shared || state_->is_ours()) return {};
  const auto now = lock_holder_of(state_->folder);
  return Status::unavailable(
             fmt::format("was taken by {} while this one stood still", now ? now->to_string() : "another process"))
      .at(state_->folder.string());
}

std::optional<LockHolder> lock_holder_of(const fs::path& folder) {
  if (auto record = read_record(folder)) return record->holder;
  return std::nullopt;
}

}  // namespace tandem
