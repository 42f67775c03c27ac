// References to variables in a text, as Dockerfiles and docker-compose have them. Pure functions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tandem::envs {

// How "$NAME" and "${NAME}" expand where NAME is not set.
enum class Unset : uint8_t {
  kEmpty,
  kRefused,
  kKept,  // for a shell that reads the text later: what is escaped stays so, and values are escaped
};

struct ReferenceRules {
  char escape;  // in front of a dollar that is one: '\\' in Dockerfiles, '$' in docker-compose
  Unset unset;
  bool escapes_itself = false;  // two of them are one
};

// The value of a variable; nothing where it is not set.
using ValueOf = std::function<std::optional<std::string>(std::string_view name)>;

// Replaces "$NAME", "${NAME}", and with a text behind the name "${NAME:-TEXT}", "${NAME-TEXT}", "${NAME:+TEXT}",
// "${NAME+TEXT}", "${NAME:?TEXT}" and "${NAME?TEXT}"; a TEXT has references, too. The colon takes what is empty for not
// set. An error, where a reference is refused or is none of these, names it. A dollar that begins no reference stays in
// Dockerfiles, where parameters of a shell ("$1", "$$") are not set, and is an error in docker-compose.
Result<std::string> without_references(std::string_view text, const ReferenceRules& rules, const ValueOf& value_of);

}  // namespace tandem::envs
