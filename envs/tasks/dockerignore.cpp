#include "envs/tasks/dockerignore.h"

#include <filesystem>

#include "base/text.h"

namespace tandem::envs {

namespace fs = std::filesystem;

DockerIgnore::DockerIgnore(std::string_view text) {
  for (auto line : split(text, '\n')) {
    line = trim(line);
    if (line.empty() || line.starts_with('#')) continue;
    const bool brings_back = line.starts_with('!');
    auto pattern =
        fs::path(std::string(trim(brings_back ? line.substr(1) : line))).lexically_normal().relative_path().string();
    if (pattern.ends_with('/')) pattern.pop_back();
    // Braces are letters here.
    std::string plain;
    for (const char c : pattern) plain += c == '{' || c == '}' ? std::string("\\") + c : std::string(1, c);
    if (auto glob = Glob::parse(plain)) lines_.push_back({std::move(*glob), brings_back});
  }
}

bool DockerIgnore::leaves_out(std::string_view path) const {
  bool is_out = false;
  for (const auto& line : lines_) {
    for (fs::path part = path; !part.empty(); part = part.parent_path()) {
      if (!line.glob.matches(part.string())) continue;
      is_out = !line.brings_back;
      break;
    }
  }
  return is_out;
}

}  // namespace tandem::envs
