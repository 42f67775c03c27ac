#include "trainer/sft/whole_directory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace tandem::trainer {

Status write_whole_directory(const fs::path& directory, const std::function<Status(const fs::path&)>& write) {
  const fs::path out = fs::absolute(directory).lexically_normal();
  const fs::path aside = out.parent_path() / fmt::format(".{}.{}.tmp", out.filename().string(), ::getpid());
  std::error_code ignored;
  // Those of processes that were killed while they wrote, too.
  std::vector<fs::path> left;
  fs::directory_iterator entry(out.parent_path(), ignored);
  for (; !ignored && entry != fs::directory_iterator(); entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    if (name.starts_with("." + out.filename().string() + ".") && name.ends_with(".tmp")) left.push_back(entry->path());
  }
  for (const auto& each : left) fs::remove_all(each, ignored);
  Status written = write(aside);
  if (written.ok()) {
    fs::remove_all(out, ignored);
    if (::rename(aside.c_str(), out.c_str()) != 0)
      written = Status::from_errno(fmt::format("rename {} to {}", aside.string(), out.string()), errno);
  }
  if (!written.ok()) fs::remove_all(aside, ignored);
  return written;
}

}  // namespace tandem::trainer
