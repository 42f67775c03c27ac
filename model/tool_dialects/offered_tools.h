// The names of the tools that a model was offered, and of their parameters: what tells a call from a text that looks
// like one.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"

namespace tandem::model {

class OfferedTools {
 public:
  // `tools`: OpenAI's array; what is none: it is not known what was offered.
  explicit OfferedTools(const Json& tools);

  bool known() const { return known_; }
  // Whether a call of this name is to be expected: it was offered, or nothing is known.
  bool may_call(std::string_view name) const { return !known_ || parameters_.contains(name); }
  bool offers(std::string_view name) const { return known_ && parameters_.contains(name); }
  // Whether the tool has the parameter, or may have it: its parameters are not described.
  bool may_take(std::string_view tool, std::string_view parameter) const;
  // Whether a tool was offered whose parameters are described with this one among them.
  bool any_takes(std::string_view parameter) const;
  // "read_file, write"; cut after a few hundred bytes.
  std::string names() const;

 private:
  bool known_ = false;
  std::map<std::string, std::set<std::string, std::less<>>, std::less<>> parameters_;  // by tool; empty: not described
};

}  // namespace tandem::model
