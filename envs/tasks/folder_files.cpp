#include "envs/tasks/folder_files.h"

#include <fmt/format.h>

#include "base/text.h"
#include "envs/tasks/mistakes.h"

namespace tandem::envs {
namespace {

Status add_file(const fs::path& source, const std::string& target, Files& files, std::set<std::string>& programs) {
  if (const auto why = why_no_workspace_path(target); !why.empty()) {
    return Status::invalid(fmt::format("{}: \"{}\" {}", source.string(), target, why));
  }
  files[target] = TRY(read_file(source, kMostTaskBytes));
  std::error_code error;
  const auto modes = fs::status(source, error).permissions();
  if (!error && (modes & fs::perms::owner_exec) != fs::perms::none) programs.insert(target);
  return {};
}

}  // namespace

Status check_size(const Files& files) {
  uint64_t bytes = 0;
  for (const auto& [path, content] : files) bytes += content.size();
  if (files.size() > kMostTaskFiles) {
    return Status::invalid(fmt::format("more than {} files for one task", kMostTaskFiles));
  }
  if (bytes > kMostTaskBytes) {
    return Status::invalid(fmt::format("more than {} of files for one task", format_bytes(kMostTaskBytes)));
  }
  return {};
}

Status add_folder_files(const fs::path& source, const std::string& target, Files& files,
                        std::set<std::string>& programs) {
  std::error_code error;
  const auto status = fs::symlink_status(source, error);
  if (error || status.type() == fs::file_type::not_found) {
    return Status::not_found("there is no file or folder " + source.string());
  }
  if (status.type() == fs::file_type::regular) {
    TRY(add_file(source, target, files, programs));
    return check_size(files);
  }
  if (status.type() != fs::file_type::directory) {
    return Status::invalid(source.string() + " is neither a file nor a folder; links are not followed");
  }
  size_t added = 0;
  uint64_t bytes = 0;
  auto entry = fs::recursive_directory_iterator(source, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const auto name = entry->path().filename();
    const auto type = entry->symlink_status(error).type();
    if (error) break;
    if (name == ".git" || name == "__pycache__") {
      entry.disable_recursion_pending();
      continue;
    }
    if (type == fs::file_type::directory) continue;
    if (type != fs::file_type::regular) {
      return Status::invalid(entry->path().string() + " is neither a file nor a folder; links are not followed");
    }
    const auto below = entry->path().lexically_relative(source).string();
    const auto path = target.empty() ? below : target + "/" + below;
    TRY(add_file(entry->path(), path, files, programs));
    bytes += files[path].size();
    if (++added > kMostTaskFiles || bytes > kMostTaskBytes) break;  // however much more there is
  }
  if (error) return Status::from_errno(source.string(), error.value());
  return check_size(files);
}

}  // namespace tandem::envs
