// Which paths a pattern names: the globs that shells and editors have.
//
// `*` and `?` stay within one name, `**` as a whole name stands for any number of folders, `[a-z]` and `[!a-z]` for one
// character, `{py,pyi}` for each of several texts, and a backslash takes the next character as it is. As in shells,
// braces without a comma are text. Names that begin with a dot are names like others.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tandem::envs {

// All that a model may mean by a pattern, as patterns without braces: each text of its braces, and brackets both as a
// set and as what they are, since folders are called [id]. kInvalid as Glob::parse.
Result<std::vector<std::string>> glob_meanings(std::string_view pattern);

// Value type. Thread safety: matches may be called from several threads.
class Glob {
 public:
  // kInvalid, with a message for a model, for brackets and braces that are not closed, for more than 256 alternatives
  // and for more than 4096 characters.
  static Result<Glob> parse(std::string_view pattern);

  // Whether the whole of `path`, with slashes between its names, is what the pattern says. Takes time in proportion to
  // the product of both lengths, whatever they hold.
  bool matches(std::string_view path) const;

 private:
  enum class Kind : uint8_t {
    kCharacter,  // `low`
    kAny,        // one, no slash
    kSet,        // one of `set`, no slash
    kName,       // any number, no slash
    kFolders,    // any number of whole names, each with its slash
    kRest,       // any number, slashes too
  };
  struct Token {
    Kind kind = Kind::kCharacter;
    char character = 0;
    std::vector<bool> set = {};
  };
  using Tokens = std::vector<Token>;

  static Result<Tokens> tokens_of(std::string_view pattern);
  static bool match(const Tokens& tokens, std::string_view path);

  std::vector<Tokens> alternatives_;
};

}  // namespace tandem::envs
