// The variables of a Dockerfile: what ENV and ARG have set so far.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/status.h"
#include "envs/tasks/dockerfile_parts.h"
#include "envs/tasks/dockerfile_text.h"
#include "envs/tasks/references.h"

namespace tandem::envs {

// Variables of a build of one stage, whose instructions are noted in their order. Not thread-safe. `given`, the values
// of ARG from outside, must outlive it.
class DockerScope {
 public:
  explicit DockerScope(const std::map<std::string, std::string>& given) : given_(&given) {}

  // FROM: what ARG says before it is known to FROM, and to an ARG of the name alone behind it.
  void begin() { has_begun_ = true; }

  // Reads an ENV or ARG: NAME=VALUE pairs, or NAME and VALUE with a space between; ARG may have no values,
  // and those of BuildKit (TARGETARCH) are this machine's. Values are returned in the form of docker_value, for a shell
  // that has what ENV has set, and no ARG: references to these are replaced. An error where Docker has one.
  Result<DockerVariables> note(const DockerInstruction& instruction);

  // References replaced, by what ENV and ARG say; those to other variables are empty. An error where one cannot be
  // read.
  Result<std::string> replaced(std::string_view text) const;
  // The same; "" where one cannot be read.
  std::string expanded(std::string_view text) const { return replaced(text).value_or(""); }
  // The same of a value that `note` returned.
  std::string value(std::string_view noted) const;

  // Commands that export what ARG alone has set, for RUN.
  std::string exports() const;

  // The first that makes pip another one than the system's; "" where none is set.
  std::string variable_of_pip() const;

  // The first folder of a PATH that by its name, or by VIRTUAL_ENV, has the Python of a virtual environment; "" where
  // none has.
  std::string virtual_environment_on(const std::string& path) const;

 private:
  const std::string* value_of(std::string_view name) const;
  Result<std::string> replaced_by(std::string_view text, const ReferenceRules& rules) const;
  std::string without_arguments(std::string_view text) const;

  using Values = std::map<std::string, std::string, std::less<>>;
  const std::map<std::string, std::string>* given_;
  Values before_from_;  // of ARG
  Values arguments_;    // of ARG, where ENV says nothing: that goes first, wherever it stands
  Values environment_;
  bool has_begun_ = false;
};

}  // namespace tandem::envs
