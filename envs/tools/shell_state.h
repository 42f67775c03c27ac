// Carries the folder and the exported variables of a shell from one command to the next.
//
// Every command has a bash of its own, so a command that is killed takes nothing down that the next one needs. Bash
// itself writes down its folder and variables as it exits: a trap says so, set by a text that bash reads from its input
// before the command (BASH_ENV), so that the command stays as it was written, line numbers and all. Commands whose text
// cannot change either are run without.
//
// What a shell has beside these (functions, options, aliases, variables that are not exported) ends with its command;
// so does everything of a command that is killed, replaces the shell (exec) or sets a trap on EXIT of its own.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "envs/tools/process.h"
#include "envs/tools/session.h"

namespace tandem::envs {

// Whether the text may change the folder or an exported variable: whether it has an assignment or names a builtin that
// does. Errs on the side of yes, but for variables that loops, `printf -v` or names made of parts (c""d) change.
bool may_change_shell(std::string_view command);

// Whether a shell can start in this folder.
bool can_start_in(const std::string& folder);

// One command's shell. Owns the file that bash leaves behind, which is gone when this is.
class ShellKeeper {
 public:
  // Makes the bash of `spec` write down its state.
  explicit ShellKeeper(ProcessSpec& spec);
  ~ShellKeeper();
  ShellKeeper(const ShellKeeper&) = delete;
  ShellKeeper& operator=(const ShellKeeper&) = delete;

  // Reads the state that bash wrote; empty where it is missing, incomplete or larger than 1 MiB.
  std::optional<ShellState> take() const;

 private:
  std::string file_;
};

}  // namespace tandem::envs
