#include "tests/fuzz/targets.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace tandem::fuzz {

std::vector<Target> targets() {
  std::vector<Target> all;
  for (const auto some :
       {base_targets(), kernels_targets(), model_targets(), envs_targets(), packages_targets(), tasks_targets(),
        rollout_targets(), trainer_targets(), serve_targets(), gateway_targets(), eval_targets()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

Folder::Folder() {
  std::string name = fs::temp_directory_path() / "fuzz-XXXXXX";
  if (!mkdtemp(name.data())) abort();
  path_ = name;
}

Folder::~Folder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

void Folder::put(const std::string& name, std::string_view bytes) {
  std::error_code error;
  fs::create_directories((path_ / name).parent_path(), error);
  fs::remove(path_ / name, error);  // what is cut short and written again, ext4 sends to the disk at once
  if (!(std::ofstream(path_ / name, std::ios::binary) << bytes)) abort();  // base/file.h would wait for the disk
}

void Folder::clear() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path_)) fs::remove_all(entry, error);
}

MemoryFile::MemoryFile(std::string_view bytes) : fd_(memfd_create("tandem-fuzz", MFD_CLOEXEC)) {
  path_ = "/proc/self/fd/" + std::to_string(fd_);
  if (fd_ < 0 || !write_all(fd_, bytes, path_)) abort();
}

MemoryFile::~MemoryFile() { close(fd_); }

}  // namespace tandem::fuzz
