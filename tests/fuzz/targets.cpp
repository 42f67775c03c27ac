#include "tests/fuzz/targets.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "base/file.h"

namespace tandem::fuzz {

std::vector<Target> targets() {
  std::vector<Target> all;
  for (const auto some :
       {base_targets(), kernels_targets(), model_targets(), envs_targets(), rollout_targets(), trainer_targets()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

MemoryFile::MemoryFile(std::string_view bytes) : fd_(memfd_create("tandem-fuzz", MFD_CLOEXEC)) {
  path_ = "/proc/self/fd/" + std::to_string(fd_);
  if (fd_ < 0 || !write_all(fd_, bytes, path_)) abort();
}

MemoryFile::~MemoryFile() { close(fd_); }

}  // namespace tandem::fuzz
