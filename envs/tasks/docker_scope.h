// The variables of a Dockerfile: what ENV and ARG have set so far.
#pragma once

#include <map>
#include <string>

#include "envs/tasks/dockerfile_parts.h"
#include "envs/tasks/dockerfile_text.h"

namespace tandem::envs {

// Of a build of one stage, whose instructions are noted in their order. Not thread-safe. `arguments`, which are given
// for ARG from outside, must outlive it.
class DockerScope {
 public:
  explicit DockerScope(const std::map<std::string, std::string>& arguments) : arguments_(&arguments) {}

  // FROM: what ARG says before it is known to FROM, and to an ARG of the name alone behind it.
  void begin() { has_begun_ = true; }
  bool has_begun() const { return has_begun_; }

  // Of an ENV or ARG: NAME=VALUE pairs, or NAME and VALUE with a space between; of ARG the values need not be there.
  // Values of ENV may name variables; they are returned as they stand.
  DockerVariables note(const DockerInstruction& instruction);

  std::string expanded(const std::string& text) const { return docker_expanded(text, variables_); }

  // The first that makes pip another one than the system's; "" where none is set.
  std::string variable_of_pip() const;

  // The first folder of a PATH that by its name, or by VIRTUAL_ENV, has the Python of a virtual environment; "" where
  // none has.
  std::string virtual_environment_on(const std::string& path) const;

 private:
  const std::map<std::string, std::string>* arguments_;
  std::map<std::string, std::string> variables_;  // of ENV and ARG
  std::map<std::string, std::string> of_from_;    // of ARG before FROM
  bool has_begun_ = false;
};

}  // namespace tandem::envs
