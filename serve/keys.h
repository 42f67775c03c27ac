// Who may use a server: keys from a file, one a line.
//
// Empty lines and lines that begin with # count for nothing. The file is read again when it changes; one that cannot be
// read then leaves the keys as they are. Thread safety: none.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "wire/http_server.h"

namespace tandem::serve {

class Keys {
 public:
  // kInvalid, naming file and line, for a key with white space or longer than 4096 bytes, or a file without keys.
  static Result<Keys> read(const fs::path& path);

  // The name of the key that the request brings ("key 2", by its line), as Authorization: Bearer or X-Api-Key.
  std::optional<std::string> name_of(const wire::HttpRequest& request) const;
  // True where the file was read again.
  Result<bool> refresh();

 private:
  explicit Keys(fs::path path) : path_(std::move(path)) {}
  struct Key {
    std::string name, text;
  };
  fs::path path_;
  fs::file_time_type changed_;
  std::vector<Key> keys_;
};

}  // namespace tandem::serve
