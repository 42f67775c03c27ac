#include "trainer/learn/checkpoints.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>

namespace tandem::trainer {

std::vector<std::pair<uint64_t, fs::path>> checkpoints_of(const fs::path& folder) {
  std::vector<std::pair<uint64_t, fs::path>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints", error)) {
    const std::string name = entry.path().filename();
    uint64_t step = 0;
    if (!name.starts_with("step_") ||
        std::from_chars(name.data() + 5, name.data() + name.size(), step).ec != std::errc())
      continue;
    if (fs::exists(entry.path() / "learner.json")) found.emplace_back(step, entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

fs::path checkpoint_path(const fs::path& folder, uint64_t step) {
  return folder / "checkpoints" / fmt::format("step_{}", step);
}

std::set<fs::path> linked_checkpoints(const fs::path& folder) {
  std::set<fs::path> linked;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints", error)) {
    std::error_code broken;
    if (!entry.is_symlink(broken)) continue;
    const fs::path target = fs::canonical(entry.path(), broken);
    if (!broken) linked.insert(target);
  }
  return linked;
}

void keep_newest_checkpoints(const fs::path& folder, uint64_t step, size_t kept, uint64_t needed) {
  std::error_code ignored;
  const fs::path link = folder / "checkpoints" / ".latest.tmp";
  fs::remove(link, ignored);
  fs::create_symlink(fmt::format("step_{}", step), link, ignored);
  fs::rename(link, folder / "checkpoints" / "latest", ignored);
  const auto linked = linked_checkpoints(folder);
  const auto all = checkpoints_of(folder);
  for (size_t i = 0; i + std::min(kept, all.size()) < all.size(); ++i) {
    const auto& [number, path] = all[i];
    if (number != needed && !linked.contains(fs::canonical(path, ignored))) fs::remove_all(path, ignored);
  }
}

void sweep_unfinished(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with('.') || !name.ends_with(".tmp")) continue;
    fs::remove_all(entry.path(), error);
    spdlog::info("swept {}, which was not finished", entry.path().string());
  }
}

}  // namespace tandem::trainer
