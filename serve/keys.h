// API keys of a server, with their limits.
//
// A file of keys has one on each line; empty lines and lines that begin with # count for nothing. A book of keys is
// YAML: a name for each, the SHA-256 of its text, and what it may. Either is read again when it changes; one that
// cannot be read then leaves the keys as they are. Texts of keys are not kept, only their SHA-256. Thread safety: none.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "serve/priority.h"
#include "wire/http_server.h"

namespace tandem::serve {

struct KeyTerms {
  std::string name;                            // "key 2", by its line, or as the book has it
  Priority highest = Priority::kAutocomplete;  // a request of a class above is of this one
  // Tokens of answers and prompts; 0: no limit.
  double requests_per_minute = 0, tokens_per_minute = 0, tokens_per_day = 0;
  bool admin = false;               // it may change the server
  std::vector<std::string> models;  // that it may use; none: all
};

class Keys {
 public:
  // kInvalid, naming file and line, for a key with white space or longer than 4096 bytes, or a file without keys.
  static Result<Keys> read(const fs::path& path);
  // kInvalid with all mistakes, each with its line.
  static Result<Keys> read_book(const fs::path& path);

  // The terms of the key that the request brings, as Authorization: Bearer or X-Api-Key; null: it brings none of these.
  std::shared_ptr<const KeyTerms> terms_of(const wire::HttpRequest& request) const;
  std::shared_ptr<const KeyTerms> terms_named(std::string_view name) const;  // null: there is none
  bool has_admin() const;
  // True where the file was read again; at once where `surely`, else where it has changed.
  Result<bool> refresh(bool surely = false);

 private:
  using Sum = std::array<unsigned char, 32>;
  struct Key {
    Sum sum{};
    std::shared_ptr<const KeyTerms> terms;
  };
  Keys(fs::path path, bool book) : path_(std::move(path)), book_(book) {}
  Status read_lines();
  Status read_entries();
  static Sum sum_of(std::string_view text);

  fs::path path_;
  bool book_;
  fs::file_time_type changed_;
  std::vector<Key> keys_;
};

// For a new key: a random text of 43 characters, and the entry for a book that knows it.
struct NewKey {
  std::string text, sha256;
};
NewKey make_key();

}  // namespace tandem::serve
