#include "envs/tasks/mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "base/text.h"

namespace tandem::envs {

void Mistakes::add(const std::string& file, int line, const std::string& why) {
  constexpr size_t kMostShown = 100;
  if (++count_ > kMostShown) return;
  // What could not be read may be named by the reason already.
  const auto what = why.starts_with(file + ": ") ? why.substr(file.size() + 2) : why;
  const bool has_place = line == 0 && why.starts_with(file + "/");
  lines_.push_back(line > 0    ? fmt::format("{}:{}: {}", file, line, what)
                   : has_place ? what
                               : fmt::format("{}: {}", file, what));
}

std::vector<std::string> Mistakes::take() {
  count_ = 0;
  return std::exchange(lines_, {});
}

Status Mistakes::status() const {
  if (empty()) return {};
  std::string text = join(lines_, "\n");
  if (count_ > lines_.size()) text += fmt::format("\n... and {} more", count_ - lines_.size());
  return Status::invalid(std::move(text));
}

std::string why_no_workspace_path(std::string_view path) {
  if (path.empty()) return "is empty";
  if (path.size() > 255) return "is longer than 255 bytes";
  if (path.front() == '/') return "must be relative to the workspace, without a slash in front";
  if (path.back() == '/') return "names a folder; a file is meant";
  const bool control = std::any_of(path.begin(), path.end(), [](char c) { return static_cast<unsigned char>(c) < 32; });
  if (control) return "has a control character in it";
  for (const auto part : split(path, '/')) {
    if (part == "..") return "leads out of the workspace";
    if (part.empty() || part == ".") return "is not in its shortest form; leave out \".\" and doubled slashes";
  }
  return "";
}

std::string why_no_kind(std::string_view word) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  if (word.empty() || word.size() > 64) return "must have 1 to 64 characters";
  if (!std::all_of(word.begin(), word.end(), fits)) return "may have letters, digits, '.', '_' and '-' alone";
  return "";
}

}  // namespace tandem::envs
