#include "envs/tools/file_change.h"

#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "base/digest.h"
#include "base/file.h"
#include "envs/tools/functions.h"

namespace tandem::envs {
namespace {

uint64_t digest_or_one(std::string_view text) { return std::max<uint64_t>(digest_of(text).low, 1); }

uint64_t digest_of_lines(std::string_view lines) { return lines.empty() ? 0 : digest_or_one(lines); }

// Bytes of the whole lines that both begin with.
size_t common_beginning(std::string_view a, std::string_view b) {
  const auto differ = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  const auto same = static_cast<size_t>(differ - a.begin());
  if (same == a.size() && same == b.size()) return same;
  const size_t end = same == 0 ? std::string_view::npos : a.rfind('\n', same - 1);
  return end == std::string_view::npos ? 0 : end + 1;
}

// Bytes of the whole lines that both end with; each begins behind a line end, or is all that is left.
size_t common_end(std::string_view a, std::string_view b) {
  const auto differ = std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first;
  auto same = static_cast<size_t>(differ - a.rbegin());
  const auto begins_line = [same](std::string_view text) {
    return same == text.size() || text[text.size() - same - 1] == '\n';
  };
  if (begins_line(a) && begins_line(b)) return same;
  const std::string_view tail = a.substr(a.size() - same);
  const size_t end = tail.find('\n');
  return end == std::string_view::npos ? 0 : tail.size() - end - 1;
}

}  // namespace

FileChange change_of(const std::filesystem::path& path, std::optional<std::string_view> before,
                     std::optional<std::string_view> after) {
  FileChange change{.file = digest_or_one(path.native())};
  if (before) change.before = digest_or_one(*before);
  if (after) change.after = digest_or_one(*after);
  std::string_view was = before.value_or(""), is = after.value_or("");
  const size_t beginning = common_beginning(was, is);
  was.remove_prefix(beginning);
  is.remove_prefix(beginning);
  const size_t end = common_end(was, is);
  change.taken = digest_of_lines(was.substr(0, was.size() - end));
  change.put = digest_of_lines(is.substr(0, is.size() - end));
  return change;
}

std::optional<std::string> readable_content(const std::filesystem::path& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  auto content = read_file(path, kLargestFile);
  return content ? std::optional(std::move(*content)) : std::nullopt;
}

bool takes_back(const FileChange& later, const FileChange& earlier) {
  return later.file == earlier.file && later.taken == earlier.put && later.put == earlier.taken;
}

Json to_json(const FileChange& change) { return {change.file, change.before, change.after, change.taken, change.put}; }

Result<FileChange> file_change_from_json(const Json& json) {
  FileChange change;
  uint64_t* const fields[] = {&change.file, &change.before, &change.after, &change.taken, &change.put};
  bool fits = json.is_array() && json.size() == std::size(fields);
  for (size_t i = 0; fits && i < std::size(fields); ++i) {
    fits = json.at(i).is_number_unsigned();
    if (fits) *fields[i] = json.at(i).get<uint64_t>();
  }
  if (!fits) return fail(Status::corrupt("a change of a file is no list of five digests"));
  return change;
}

}  // namespace tandem::envs
