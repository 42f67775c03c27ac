// The text of a Dockerfile as instructions, words and variables. Pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::envs {

// A text in place: what stands between "<<NAME" and a line that is NAME.
struct TextInPlace {
  std::string name;
  std::string content;      // with its line ends
  bool is_literal = false;  // its name is quoted: no variables in it
  bool has_dash = false;    // <<-: tabs in front of its lines are none of it
};

struct DockerInstruction {
  int line = 0;      // where it begins, from 1
  std::string name;  // in capitals
  std::string rest;  // one line
  std::vector<TextInPlace> texts = {};
  char escape = '\\';  // what `# escape=` says
};

// Continued lines are joined without anything between, and comments and empty lines among them are gone. A text in
// place without an end ends with the file.
std::vector<DockerInstruction> docker_instructions(std::string_view text);

// Splits the words of an instruction: removes quotes, and reads the form with brackets.
std::optional<std::vector<std::string>> docker_words(const std::string& rest);

// What a RUN leaves to do, and the packages of Debian and of Python that it would install. A command in a shell of
// its own (`bash -lc "..."`) is what that runs. What makes users or gives files to them is left out.
struct DockerRun {
  std::string command;  // empty: nothing
  std::vector<std::string> packages;
  std::vector<std::string> python_packages;  // python_packages_of
  // Programs that get another name in the system's folders, which belong to this machine: what a name stands for.
  std::map<std::string, std::string> names;
  bool has_own_shell = false;  // it was that of a shell of its own
};
DockerRun docker_run(std::string_view command);

// The folders of the root that a text names ("/data", of "/data/in.csv"), but for those of the system and those that
// graders bring in.
std::vector<std::string> named_folders(std::string_view text);

// Whether what lies at an absolute path is this machine's, or the image's, whatever a model does.
bool is_of_system(std::string_view path);

// Whether a task can have a folder of this name in the root.
bool can_be_folder(std::string_view name);

}  // namespace tandem::envs
