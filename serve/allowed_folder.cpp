#include "serve/allowed_folder.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::serve {
namespace {

bool is_below(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

bool is_below_any(const fs::path& path, const std::vector<fs::path>& folders) {
  return std::ranges::any_of(folders, [&](const fs::path& folder) {
    std::error_code error;
    const fs::path top = fs::canonical(folder, error);
    return !error && is_below(path, top);
  });
}

}  // namespace

Result<fs::path> allowed_folder(const std::vector<fs::path>& allowed, const std::string& folder) {
  if (allowed.empty()) {
    return fail(Status::invalid("is refused: serve.candidate_folders names no folder that it may lie below")
                    .hint("start the server with --candidates DIR"));
  }
  std::error_code error;
  const fs::path whole = fs::canonical(folder, error);
  if (error || !fs::is_directory(whole, error)) return fail(Status::invalid("is no folder that this server can see"));
  if (is_below_any(whole, allowed)) return whole;
  return fail(Status::invalid("is not below a folder of serve.candidate_folders"));
}

Status check_links(const std::vector<fs::path>& allowed, const fs::path& folder, std::span<const char* const> files) {
  for (const char* const file : files) {
    std::error_code error;
    const fs::path whole = fs::canonical(folder / file, error);
    if (error || is_below_any(whole, allowed)) continue;  // what is missing is missed by who reads it
    return Status::invalid(
        fmt::format("has {}, a link to what is not below a folder of serve.candidate_folders", file));
  }
  return {};
}

}  // namespace tandem::serve
