#include "envs/tasks/docker_shell.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "envs/tasks/dockerfile_parts.h"
#include "envs/tools/process.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

std::string name_of_program(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_there(const std::string& program) {
  return program.find('/') == std::string::npos ? !find_program(program).empty() : access(program.c_str(), X_OK) == 0;
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

}  // namespace

Result<DockerCommand> docker_command(const DockerInstruction& run) {
  DockerCommand made{.text = run.rest};
  while (made.text.starts_with("--")) {
    const size_t end = std::min(made.text.find_first_of(" \t"), made.text.size());
    const auto flag = made.text.substr(0, end);
    const bool silent = flag.starts_with("--mount=type=cache") || flag.starts_with("--mount=type=tmpfs");
    if (!silent) return fail(Status::invalid(flag + " is not supported"));
    made.text = std::string(trim(std::string_view(made.text).substr(end)));
  }
  if (made.text.starts_with('[')) {
    const auto words = docker_words(made.text);
    if (!words) return fail(Status::invalid("is neither a command nor a list of words"));
    made.text.clear();
    for (const auto& word : *words) made.text += (made.text.empty() ? "" : " ") + shell_quoted(word);
    made.has_own_program = true;
  }
  // `<<EOT` alone is a script; `<<EOT cat > x` gives the text to a program.
  made.is_script =
      made.text.starts_with("<<") && run.texts.size() == 1 && made.text.find_first_of(" \t") == std::string::npos;
  if (made.is_script) {
    made.text = run.texts[0].content;
    made.has_own_program = made.text.starts_with("#!");
    const auto first = first_line(made.text);
    if (made.has_own_program && !trim(first).ends_with("sh") && first.find("sh ") == std::string_view::npos)
      return fail(Status::invalid(std::string(first) + " is no shell"));
  } else {
    for (const auto& text : run.texts) made.texts += "\n" + text.content + text.name;
  }
  return made;
}

void DockerShell::begin(std::string_view image) {
  image_has_dash_ = is_dash_ = image_has_dash(image);
  words_.clear();
}

Status DockerShell::change(const std::string& program) {
  auto words = docker_words(program).value_or(std::vector<std::string>());
  if (words.empty() || !words[0].ends_with("sh")) return Status::invalid("commands run in bash here");
  constexpr std::string_view kUsual[] = {"bash", "sh", "dash", "ash"};
  const auto name = name_of_program(words[0]);
  const bool is_usual = std::ranges::find(kUsual, name) != std::end(kUsual);
  words_.clear();
  is_dash_ = name == "sh";
  if (is_usual && words.size() == 2 && words[1] == "-c") return {};
  if (name == "ash" && !is_there(words[0])) words[0] = "bash";  // of Alpine
  if (!is_there(words[0]))
    return Status::invalid(fmt::format("{} is not on this machine, whose programs run here", words[0]));
  // The sh of Alpine and Fedora has options that dash lacks (pipefail).
  if (name == "sh" && !image_has_dash_) words[0] = "bash";
  words_ = std::move(words);
  return {};
}

std::string DockerShell::line(const DockerCommand& command, const DockerRun& run) const {
  const auto whole = run.command + command.texts;
  if (!words_.empty() && !command.has_own_program && !run.has_own_shell) {
    std::string line;
    for (const auto& word : words_) line += shell_quoted(word) + " ";
    return line + shell_quoted(whole);
  }
  const bool reads_letters = is_dash_for(command) && run.command.find("echo") != std::string::npos &&
                             run.command.find('\\') != std::string::npos;
  return fmt::format("{{ {}{}\n}}", reads_letters ? "shopt -s xpg_echo\n" : "", whole);
}

bool DockerShell::is_dash_for(const DockerCommand& command) const {
  if (command.is_script) return command.has_own_program ? first_line(command.text).ends_with("/sh") : is_dash_;
  const auto words = docker_words(command.text);
  const auto program = words && !words->empty() ? name_of_program(words->at(0)) : "";
  if (program == "bash") return false;
  return program == "sh" || program == "dash" || (is_dash_ && !command.has_own_program);
}

}  // namespace tandem::envs
