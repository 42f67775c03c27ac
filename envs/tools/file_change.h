// What a tool did to a file, by digests: enough to tell a later change that takes it back, without the content.
//
// Values; pure functions but for readable_content.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace tandem::envs {

struct FileChange {
  uint64_t file = 0;               // of its path
  uint64_t before = 0, after = 0;  // of the content; 0: there is no file
  // Of the lines that differ, from the first to the last; 0: there are none.
  uint64_t taken = 0, put = 0;
  friend bool operator==(const FileChange&, const FileChange&) = default;
};

// `before` and `after` are the contents; none: there is no file.
FileChange change_of(const std::filesystem::path& path, std::optional<std::string_view> before,
                     std::optional<std::string_view> after);

// The content of a regular file that tools can read; else none.
std::optional<std::string> readable_content(const std::filesystem::path& path);

// Whether `later`, of the same file, puts back exactly the lines that `earlier` took, in place of exactly those that it
// put there.
bool takes_back(const FileChange& later, const FileChange& earlier);

Json to_json(const FileChange& change);
Result<FileChange> file_change_from_json(const Json& json);

}  // namespace tandem::envs
