// Names of tools for servers that take only letters, digits, dashes and underscores, 64 at most, as OpenAI's do.
//
// A value; pure. Every tool has one name there, and no two the same: those that fit keep theirs.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace tandem::rollout {

class EndpointNames {
 public:
  EndpointNames() = default;
  // `tools` is OpenAI's array.
  explicit EndpointNames(const Json& tools);

  // The same tools by the names that they have there.
  Json renamed(const Json& tools) const;
  // A tool's name there; of what is no tool's, such as a name that a model has made up, one that fits.
  std::string there(const std::string& name) const;
  // The tool that has a name there; other names stand for themselves.
  std::string here(const std::string& name) const;

 private:
  std::map<std::string, std::string> there_, here_;  // of those that differ
};

}  // namespace tandem::rollout
