// URLs of registries and of the files that their indexes name: parsed strictly, so that what is checked is what is
// asked. Values; pure.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace tandem::envs {

struct Url {
  std::string scheme;  // http, https
  std::string host;    // in small letters, with :PORT where it is not the usual one
  std::string path;    // begins with a slash; with the query, without a fragment

  // kInvalid for other schemes, names and passwords, and bytes that readers take differently.
  static Result<Url> parse(std::string_view text);
  // Resolves `reference` of a page at this address. A path that leads above the root is kInvalid.
  Result<Url> resolve(std::string_view reference) const;
  std::string to_string() const { return scheme + "://" + host + path; }
  friend bool operator==(const Url&, const Url&) = default;
};

// Whether a path of a registry is plain: letters, digits and a few marks between slashes; no "." or "..", no empty
// part.
bool is_plain_path(std::string_view path);

// %41 is A. Empty where that is malformed or gives a control character.
std::string percent_decoded(std::string_view text);

}  // namespace tandem::envs
