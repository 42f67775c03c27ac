// Landlock: what a process may do with files, by where they lie, whatever mounts and modes say.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/file.h"
#include "envs/sandbox/confine.h"

namespace tandem::envs {
namespace {

// As the kernel has them; the headers of Debian 12 end before the youngest.
constexpr uint64_t kExecute = 1 << 0, kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadFolder = 1 << 3;
constexpr uint64_t kMakeCharacterDevice = 1 << 6, kMakeBlockDevice = 1 << 11;
constexpr uint64_t kMove = 1 << 13, kTruncate = 1 << 14, kDeviceRequests = 1 << 15;  // versions 2, 3 and 5
constexpr uint64_t kScopes = 3;  // abstract sockets, signals: version 6
constexpr uint64_t kOfFiles = kExecute | kWriteFile | kReadFile | kTruncate | kDeviceRequests;
constexpr unsigned kRuleOfPath = 1, kVersionFlag = 1;

struct Ruleset {
  uint64_t files = 0, network = 0, scopes = 0;
};
struct __attribute__((packed)) PathRule {
  uint64_t allowed = 0;
  int32_t folder = -1;
};

int create(const Ruleset& rules, size_t size) {
  return static_cast<int>(syscall(SYS_landlock_create_ruleset, &rules, size, 0));
}

uint64_t accesses(int version) {
  uint64_t all = (1 << 14) - 1;
  if (version >= 3) all |= kTruncate;
  if (version >= 5) all |= kDeviceRequests;
  return all;
}

Status allow(const FileDescriptor& rules, const char* path, uint64_t what) {
  FileDescriptor place(open(path, O_PATH | O_CLOEXEC));
  if (!place) return errno == ENOENT ? Status() : Status::from_errno(path, errno);
  const PathRule rule{what, place.get()};
  if (syscall(SYS_landlock_add_rule, rules.get(), kRuleOfPath, &rule, 0) == 0) return {};
  return Status::from_errno(std::string("Landlock: ") + path, errno);
}

}  // namespace

int landlock_version() {
  const long version = syscall(SYS_landlock_create_ruleset, nullptr, 0, kVersionFlag);
  return version < 2 ? 0 : static_cast<int>(version);
}

Status restrict_files(const Links& links) {
  const int version = landlock_version();
  if (version == 0) return {};
  const uint64_t all = accesses(version);
  Ruleset wanted;
  wanted.files = all;
  wanted.scopes = version >= 6 ? kScopes : 0;
  const size_t size = version >= 6 ? sizeof wanted : version >= 4 ? 16 : 8;
  const FileDescriptor rules(create(wanted, size));
  if (!rules) return Status::from_errno("Landlock", errno);
  TRY(allow(rules, "/", all & (kExecute | kReadFile | kReadFolder)));
  for (const char* folder : {"/workspace", "/tmp", "/dev/shm"}) {
    TRY(allow(rules, folder, all & ~(kMakeCharacterDevice | kMakeBlockDevice)));
  }
  for (const auto& [path, target] : links) {
    TRY(allow(rules, path.c_str(), all & ~(kMakeCharacterDevice | kMakeBlockDevice)));
  }
  for (const char* device :
       {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts"}) {
    TRY(allow(rules, device, all & kOfFiles));
  }
  if (syscall(SYS_landlock_restrict_self, rules.get(), 0) == 0) return {};
  return Status::from_errno("Landlock", errno);
}

}  // namespace tandem::envs
