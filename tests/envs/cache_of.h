// $XDG_CACHE_HOME is a folder of the test's own while this lives.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace tandem::envs {

class CacheOf {
 public:
  explicit CacheOf(const std::filesystem::path& folder) {
    if (const char* before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  }
  ~CacheOf() {
    if (before_)
      setenv("XDG_CACHE_HOME", before_->c_str(), 1);
    else
      unsetenv("XDG_CACHE_HOME");
  }
  CacheOf(const CacheOf&) = delete;

 private:
  std::optional<std::string> before_;
};

}  // namespace tandem::envs
