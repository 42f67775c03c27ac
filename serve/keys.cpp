#include "serve/keys.h"

#include <fmt/format.h>

#include "base/text.h"

namespace tandem::serve {
namespace {
constexpr uint64_t kMostBytes = uint64_t{16} << 20;
constexpr size_t kLongestKey = 4096;
}  // namespace

Result<Keys> Keys::read(const fs::path& path) {
  Keys keys(path);
  std::error_code error;
  keys.changed_ = fs::last_write_time(path, error);
  const std::string text = TRY(read_file(path, kMostBytes));
  int number = 0;
  for (const auto raw : split_lines(text)) {
    ++number;
    const auto line = trim(raw);
    if (line.empty() || line.starts_with('#')) continue;
    if (line.size() > kLongestKey || line.find_first_of(" \t") != std::string_view::npos)
      return fail(Status::invalid("a key is one word of at most 4096 bytes").at(path.string(), number));
    keys.keys_.push_back({fmt::format("key {}", number), std::string(line)});
  }
  if (keys.keys_.empty()) return fail(Status::invalid("holds no key: write one a line").at(path.string()));
  return keys;
}

std::optional<std::string> Keys::name_of(const wire::HttpRequest& request) const {
  std::string_view given = request.header("x-api-key");
  constexpr std::string_view kBearer = "Bearer ";
  if (const auto header = request.header("authorization"); header.starts_with(kBearer))
    given = header.substr(kBearer.size());
  std::optional<std::string> found;
  // All are compared, whichever fits.
  for (const Key& key : keys_) {
    if (equal_in_constant_time(given, key.text)) found = key.name;
  }
  return found;
}

Result<bool> Keys::refresh() {
  std::error_code error;
  const auto changed = fs::last_write_time(path_, error);
  if (error || changed == changed_) return false;
  changed_ = changed;
  keys_ = TRY(read(path_)).keys_;
  return true;
}

}  // namespace tandem::serve
