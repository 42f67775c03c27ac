// read_file, write, delete_file and list_dir.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "envs/tools/editable_text.h"
#include "envs/tools/functions.h"
#include "envs/tools/paths.h"

namespace tandem::envs {

std::string numbered(size_t line, std::string_view text) {
  char number[32];
  snprintf(number, sizeof number, "%6zu|", line);
  return number + std::string(text) + "\n";
}

Status replace_content(const fs::path& path, std::string_view content) {
  struct stat old {};
  const bool exists = stat(path.c_str(), &old) == 0;
  const auto temporary = name_beside(path, ".tandem-new");
  unlink(temporary.c_str());  // whatever has the name, a pipe among others, which opening would wait for
  {
    FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (!file) return Status::from_errno(path.filename().string(), errno);
    Status written = write_all(file.get(), content, path.filename().string());
    if (written && exists && fchmod(file.get(), old.st_mode & 07777) != 0) {
      written = Status::from_errno(path.filename().string(), errno);
    }
    if (!written) {
      unlink(temporary.c_str());
      return written;
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    return Status::from_errno(path.filename().string(), error);
  }
  return {};
}

ToolOutcome read_lines_of(const ToolContext& context, const std::string& name, const LineRange& range) {
  const auto path = resolve(context, name);
  if (!path) return ToolOutcome::refused(path.error().message());
  std::error_code error;
  if (fs::is_directory(*path, error)) {
    return ToolOutcome::refused("\"" + name + "\" is a folder; use list_dir to see what it holds");
  }
  if (!fs::exists(*path, error)) return ToolOutcome::refused(missing_file(context, name));
  if (!fs::is_regular_file(*path, error)) return ToolOutcome::refused("\"" + name + "\" is not a regular file");
  const auto content = read_file(*path, kLargestFile);
  if (!content) return ToolOutcome::refused(content.error().message());
  if (content->empty()) return ToolOutcome::done("File is empty.");
  if (const auto why = why_utf16(*content, name); !why.empty()) return ToolOutcome::refused(why);

  auto lines = split(*content, '\n');
  if (lines.back().empty()) lines.pop_back();
  if (range.first > lines.size()) {
    return ToolOutcome::refused(std::string(range.first_name) + " " + std::to_string(range.first) +
                                " is past the end; the file has " + std::to_string(lines.size()) + " lines");
  }
  const size_t begin = std::max<size_t>(range.first, 1) - 1;
  const size_t end = std::min(lines.size(), begin + std::min(range.count, lines.size()));
  std::string text;
  for (size_t i = begin; i < end; ++i) text += numbered(i + 1, lines[i]);
  if (end < lines.size()) text += "... " + std::to_string(lines.size() - end) + " more lines\n";
  return ToolOutcome::done(std::move(text));
}

ToolOutcome tool_read_file(const ToolContext& context, const Json& arguments) {
  LineRange range;
  if (arguments.contains("offset")) range.first = arguments.at("offset").get<size_t>();
  if (arguments.contains("limit")) range.count = arguments.at("limit").get<size_t>();
  return read_lines_of(context, arguments.at("target_file").get<std::string>(), range);
}

ToolOutcome tool_write(const ToolContext& context, const Json& arguments) {
  const auto name = arguments.at("file_path").get<std::string>();
  auto contents = arguments.at("contents").get<std::string>();
  const auto path = resolve(context, name);
  if (!path) return ToolOutcome::refused(path.error().message());
  std::error_code error;
  if (fs::is_directory(*path, error)) return ToolOutcome::refused("\"" + name + "\" is a folder; name a file in it");
  const bool exists = fs::exists(*path, error);
  if (exists && !fs::is_regular_file(*path, error))
    return ToolOutcome::refused("\"" + name + "\" is not a regular file");
  std::optional<std::string> before;
  if (exists) {
    auto old = read_file(*path, kLargestFile);
    // Who writes a file anew does not see the mark in front of it.
    if (old && old->starts_with(kByteOrderMark) && !contents.starts_with(kByteOrderMark))
      contents.insert(0, kByteOrderMark);
    if (old && *old == contents) {
      return ToolOutcome::done("\"" + name + "\" already has exactly these contents; nothing was changed.");
    }
    if (old) before = std::move(*old);
  }
  fs::create_directories(path->parent_path(), error);
  if (error) return ToolOutcome::refused("the folder of \"" + name + "\" cannot be made: " + error.message());
  if (auto status = replace_content(*path, contents); !status) return ToolOutcome::refused(status.message());
  std::vector<FileChange> changes;
  if (!exists || before) changes.push_back(change_of(*path, before, contents));
  return ToolOutcome::edited(
      (exists ? "Replaced " : "Created ") + shown(context, *path) + " (" + std::to_string(contents.size()) + " bytes).",
      std::move(changes));
}

ToolOutcome tool_delete_file(const ToolContext& context, const Json& arguments) {
  const auto name = arguments.at("target_file").get<std::string>();
  const auto path = resolve_entry(context, name);
  if (!path) return ToolOutcome::refused(path.error().message());
  std::error_code error;
  const auto type = fs::symlink_status(*path, error).type();
  if (type == fs::file_type::directory) {
    return ToolOutcome::refused("\"" + name + "\" is a folder; delete_file deletes one file");
  }
  if (type == fs::file_type::not_found) return ToolOutcome::refused(missing_file(context, name));
  const auto before = readable_content(*path);
  if (unlink(path->c_str()) != 0) return ToolOutcome::refused(Status::from_errno(name, errno).message());
  std::vector<FileChange> changes;
  if (before) changes.push_back(change_of(*path, before, std::nullopt));
  return ToolOutcome::edited("Deleted " + shown(context, *path) + ".", std::move(changes));
}

ToolOutcome tool_list_dir(const ToolContext& context, const Json& arguments) {
  const auto name = arguments.at("target_directory").get<std::string>();
  const auto path = resolve(context, name);
  if (!path) return ToolOutcome::refused(path.error().message());
  std::error_code error;
  if (fs::is_regular_file(*path, error)) {
    return ToolOutcome::refused("\"" + name + "\" is a file; use read_file to see what it holds");
  }
  if (!fs::is_directory(*path, error)) {
    return ToolOutcome::refused("there is no folder \"" + name + "\"; use \".\" for the workspace itself");
  }
  std::vector<std::string> names;
  for (fs::directory_iterator entry(*path, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const auto file_name = entry->path().filename().string();
    std::error_code ignored;
    if (file_name != ".git") names.push_back(file_name + (entry->is_directory(ignored) ? "/" : ""));
  }
  std::sort(names.begin(), names.end());
  if (names.empty()) return ToolOutcome::done("The folder is empty.");
  return ToolOutcome::done(join(names, "\n") + "\n");
}

}  // namespace tandem::envs
