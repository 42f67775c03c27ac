#include "envs/tools/ignore_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/file.h"

namespace tandem::envs {
namespace {

constexpr std::array kIgnoreFiles = {".gitignore", ".ignore", ".rgignore"};
constexpr const char* kExclude = ".git/info/exclude";

Status check_ignore_file(const ToolContext& context, const fs::path& file) {
  std::error_code error;
  const auto type = fs::status(file, error).type();
  const char* what = nullptr;
  if (type == fs::file_type::fifo) what = "pipe";
  if (type == fs::file_type::socket) what = "socket";
  if (type == fs::file_type::character || type == fs::file_type::block) what = "device";
  if (what == nullptr) return {};
  return Status::invalid(
      fmt::format("\"{}\" is a {}, which a search cannot read its rules from; remove it or make it a "
                  "file",
                  file.lexically_relative(context.root).string(), what));
}

Status check_ignore_files_of(const ToolContext& context, const fs::path& folder) {
  for (const char* name : kIgnoreFiles) TRY(check_ignore_file(context, folder / name));
  return check_ignore_file(context, folder / kExclude);
}

}  // namespace

Status check_ignore_files(const ToolContext& context, const fs::path& folder, size_t most_entries) {
  // Rules of the folders above count too.
  fs::path above = context.root;
  TRY(check_ignore_files_of(context, above));
  const auto below = shown(context, folder);
  for (const auto& name : fs::path(below)) {
    if (name == ".") continue;
    above /= name;
    TRY(check_ignore_files_of(context, above));
  }
  std::error_code error;
  fs::recursive_directory_iterator entry(above, fs::directory_options::skip_permission_denied, error);
  for (size_t i = 0; !error && entry != fs::recursive_directory_iterator() && i < most_entries; ++i) {
    const auto name = entry->path().filename();
    if (std::ranges::find(kIgnoreFiles, name) != kIgnoreFiles.end()) TRY(check_ignore_file(context, entry->path()));
    if (name == ".git") {
      TRY(check_ignore_file(context, entry->path().parent_path() / kExclude));
      entry.disable_recursion_pending();
    }
    entry.increment(error);
  }
  return {};
}

}  // namespace tandem::envs
