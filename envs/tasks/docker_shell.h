// The commands of RUN in a Dockerfile, and their shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "envs/tasks/dockerfile_text.h"

namespace tandem::envs {

// The command of a RUN, without its flags.
struct DockerCommand {
  std::string text;              // for bash
  std::string texts;             // in place, which belong behind it
  bool is_script = false;        // `text` is a text in place that stands by itself
  bool has_own_program = false;  // words in brackets, or a script with a #! of its own: SHELL says nothing of it
};
Result<DockerCommand> docker_command(const DockerInstruction& run);

// The shell of RUN: bash in place of the usual ones, else the program that SHELL names. Not thread-safe.
class DockerShell {
 public:
  void begin(std::string_view image);         // FROM
  Status change(const std::string& program);  // SHELL

  // A command for bash that does what is left to do of a command.
  std::string line(const DockerCommand& command, const DockerRun& run) const;

 private:
  bool is_dash_for(const DockerCommand& command) const;

  bool image_has_dash_ = true;
  bool is_dash_ = true;             // what RUN runs in: its echo reads \n and the like, where that of bash does not
  std::vector<std::string> words_;  // of SHELL, where it is more than a usual shell with -c; else empty
};

}  // namespace tandem::envs
