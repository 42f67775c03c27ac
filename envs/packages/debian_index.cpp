#include "envs/packages/debian_index.h"

#include <charconv>

#include "base/text.h"
#include "envs/packages/url.h"

namespace tandem::envs {
namespace {

bool read_bytes(std::string_view text, uint64_t& bytes) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<std::map<std::string, DebianFile>> parse_release(std::string_view text) {
  std::map<std::string, DebianFile> lists;
  bool is_in_section = false, has_section = false;
  for (const auto line : split_lines(text)) {
    if (!line.starts_with(' ')) {
      is_in_section = trim(line) == "SHA256:";
      has_section = has_section || is_in_section;
      continue;
    }
    if (!is_in_section) continue;
    std::string_view words[3], rest = line;
    for (auto& word : words) {
      rest = trim(rest);
      word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(word.size());
    }
    DebianFile file{.digest = PackageDigest::sha256(words[0])};
    if (file.digest && read_bytes(words[1], file.bytes) && is_plain_path(words[2]))
      lists.emplace(words[2], std::move(file));
  }
  if (!has_section) return fail(Status::invalid("it is no Release of a Debian archive with digests of SHA-256"));
  return lists;
}

Result<std::map<std::string, DebianFile>> parse_packages(std::string_view text) {
  std::map<std::string, DebianFile> files;
  std::string path;
  DebianFile file;
  bool has_fields = trim(text).empty();
  const auto end_paragraph = [&] {
    if (is_plain_path(path) && file.digest) files.emplace(std::move(path), std::move(file));
    path.clear();
    file = {};
  };
  for (const auto line : split_lines(text)) {
    if (line.empty()) end_paragraph();
    const auto value = [&](std::string_view name) { return trim(line.substr(name.size())); };
    if (line.starts_with("Package:")) has_fields = true;
    if (line.starts_with("Filename:")) {
      path = value("Filename:");
      if (path.starts_with("./")) path.erase(0, 2);
    }
    if (line.starts_with("Size:") && !read_bytes(value("Size:"), file.bytes)) file.bytes = 0;
    if (line.starts_with("SHA256:")) file.digest = PackageDigest::sha256(value("SHA256:"));
  }
  end_paragraph();
  if (!has_fields) return fail(Status::invalid("it is no list of packages of a Debian archive"));
  return files;
}

}  // namespace tandem::envs
