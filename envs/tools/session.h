// State of a sandbox between calls, beside its files. Values.
//
// The first process of a sandbox keeps the session, out of reach of the commands in it. Of concurrent calls, the last
// to end wins.
#pragma once

#include <string>
#include <vector>

namespace tandem::envs {

// Where the next command starts, and with which exported variables; both empty until a command has changed them.
struct ShellState {
  std::string directory;
  std::vector<std::string> environment;  // "NAME=value"
  friend bool operator==(const ShellState&, const ShellState&) = default;
};

struct Todo {
  std::string id, content, status;
  friend bool operator==(const Todo&, const Todo&) = default;
};

struct Session {
  ShellState shell;
  std::vector<Todo> todos;
  friend bool operator==(const Session&, const Session&) = default;
};

}  // namespace tandem::envs
