#include "envs/tasks/dockerfile_text.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "envs/tasks/dockerfile_parts.h"
#include "envs/tasks/python_packages.h"

namespace tandem::envs {
namespace {

bool is_name_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string in_capitals(std::string_view text) {
  std::string capitals(text);
  for (char& c : capitals) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return capitals;
}

// Names behind << in a line, where it is no <<<.
std::vector<TextInPlace> texts_announced(std::string_view line) {
  std::vector<TextInPlace> texts;
  for (size_t at = line.find("<<"); at != std::string_view::npos; at = line.find("<<", at)) {
    at += 2;
    if (at < line.size() && line[at] == '<') {
      ++at;
      continue;
    }
    TextInPlace text;
    text.has_dash = at < line.size() && line[at] == '-';
    if (text.has_dash) ++at;
    const char quote = at < line.size() && (line[at] == '"' || line[at] == '\'') ? line[at] : 0;
    if (quote != 0) ++at;
    while (at < line.size() && is_name_letter(line[at])) text.name += line[at++];
    text.is_literal = quote != 0;
    if (!text.name.empty() && !std::isdigit(static_cast<unsigned char>(text.name[0]))) texts.push_back(std::move(text));
  }
  return texts;
}

// What a shell separates commands by, outside of quotes: pieces, each with what stands before it ("" for the first).
struct Piece {
  std::string before, text;
};
std::vector<Piece> pieces_of(std::string_view command) {
  std::vector<Piece> pieces(1);
  char quote = 0;
  for (size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (c == '\\' && quote != '\'' && i + 1 < command.size()) {
      pieces.back().text += c;
      pieces.back().text += command[++i];
      continue;
    }
    if (quote != 0 ? c == quote : c == '"' || c == '\'') quote = quote == 0 ? c : 0;
    const bool both = quote == 0 && c == '&' && i + 1 < command.size() && command[i + 1] == '&';
    if (both || (quote == 0 && (c == ';' || c == '\n'))) {
      pieces.push_back({both ? " && " : "\n", ""});
      i += both ? 1 : 0;
    } else {
      pieces.back().text += c;
    }
  }
  return pieces;
}

// Whether a shell's text is a plain sequence of commands, without compounds.
bool is_sequence(std::string_view command) {
  constexpr std::string_view kCompounds[] = {"for", "while", "until", "if",   "case", "do", "then",    "else",
                                             "fi",  "done",  "esac",  "elif", "{",    "}",  "function"};
  if (command.find("||") != std::string_view::npos || command.find("<<") != std::string_view::npos) return false;
  for (const auto& piece : pieces_of(command)) {
    const auto text = trim(piece.text);
    const auto first = text.substr(0, text.find_first_of(" \t"));
    if (text.starts_with('(') || std::find(std::begin(kCompounds), std::end(kCompounds), first) != std::end(kCompounds))
      return false;
  }
  return true;
}

// The text that `bash -lc "TEXT"` and the like run; nothing where it is no such command.
std::optional<std::string> inner_command(std::string_view command) {
  const auto words = docker_words(std::string(command));
  if (!words || words->size() < 3) return std::nullopt;
  const auto program = (*words)[0].substr((*words)[0].rfind('/') + 1);
  if (program != "bash" && program != "sh" && program != "dash") return std::nullopt;
  std::string settings;
  for (size_t i = 1; i < words->size(); ++i) {
    const auto& word = (*words)[i];
    if (!word.starts_with('-')) return std::nullopt;
    if (word == "-o" && i + 1 < words->size()) {
      settings += "set -o " + (*words)[++i] + "; ";
    } else if (word.ends_with('c') && !word.starts_with("--")) {
      if (i + 2 != words->size()) return std::nullopt;
      if (word.find('e') != std::string::npos) settings += "set -e; ";
      return settings + (*words)[i + 1];
    }
  }
  return std::nullopt;
}

// The words of one command, parted at spaces, as they stand.
std::vector<std::string> plain_words(std::string_view command) {
  std::vector<std::string> words;
  for (const auto line : split(command, ' ')) {
    for (const auto word : split(line, '\t')) {
      if (!trim(word).empty()) words.emplace_back(trim(word));
    }
  }
  return words;
}

// The packages of one command of apt; nothing where it is another command, or does something else.
std::optional<std::vector<std::string>> packages_of(std::string_view command) {
  auto words = plain_words(command);
  for (size_t i = 0; i + 1 < words.size(); ++i) {  // options with a value
    constexpr std::string_view kValued[] = {"-t", "--target-release", "-o", "--option"};
    if (std::ranges::find(kValued, words[i]) != std::end(kValued)) words[i + 1] = "-";
  }
  std::erase_if(words, [](const auto& word) { return word.starts_with('-') || word == "sudo"; });
  while (!words.empty() && words[0].starts_with("DEBIAN_FRONTEND=")) words.erase(words.begin());
  if (words.size() < 2 || (words[0] != "apt-get" && words[0] != "apt")) return std::nullopt;
  constexpr std::string_view kQuiet[] = {"update", "clean", "upgrade", "autoremove", "autoclean", "dist-upgrade"};
  if (std::find(std::begin(kQuiet), std::end(kQuiet), words[1]) != std::end(kQuiet)) return std::vector<std::string>();
  if (words[1] != "install") return std::nullopt;
  std::vector<std::string> packages;
  for (size_t i = 2; i < words.size(); ++i) {
    auto name = words[i].substr(0, words[i].find_first_of("=/"));
    for (const auto& mine : {":" + machine_architecture(), std::string(":native"), std::string(":any")}) {
      if (name.ends_with(mine)) name.resize(name.size() - mine.size());
    }
    packages.push_back(std::move(name));
  }
  const bool plain = std::all_of(packages.begin(), packages.end(), [](const auto& name) {
    return !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '+' || c == '-' || c == ':';
    });
  });
  return plain ? std::optional(packages) : std::nullopt;
}

// `ln -s PROGRAM NAME` where NAME lies among the system's programs; nothing where it is another command.
std::optional<std::pair<std::string, std::string>> program_name_of(std::string_view command) {
  const auto words = plain_words(command);
  if (words.size() != 4 || words[0] != "ln" || (words[1] != "-s" && words[1] != "-sf" && words[1] != "-fs"))
    return std::nullopt;
  const fs::path program(words[2]), name(words[3]);
  constexpr std::string_view kFolders[] = {"/usr/bin", "/usr/local/bin", "/bin"};
  const bool of_system = std::ranges::find(kFolders, name.parent_path().string()) != std::end(kFolders);
  const bool plain = words[2].find_first_of("$*`\"'") == std::string::npos && can_be_folder(name.filename().string());
  if (!of_system || !plain || !program.is_absolute()) return std::nullopt;
  return std::pair(name.filename().string(), program.string());
}

// What is left to do of `rm` that tidies what apt has left: caches of the system are this machine's, and what lies in
// /tmp is ours. Nothing where it is another command.
std::optional<std::string> beside_tidying(std::string_view command) {
  if (!command.starts_with("rm ") || command.find("/var/lib/apt") == std::string_view::npos) return std::nullopt;
  bool does_something = false;
  std::string rest;
  for (const auto& word : plain_words(command)) {
    const bool of_system = word.starts_with("/var/") || word.starts_with("/usr/") || word.starts_with("/root/.cache") ||
                           word == "/tmp/*" || word == "/tmp/";
    if (of_system) continue;
    does_something |= !rest.empty() && !word.starts_with('-');
    rest += (rest.empty() ? "" : " ") + word;
  }
  return does_something ? rest : "";
}

// Whether a command does nothing else: output that is thrown away says nothing.
bool stands_alone(std::string_view command) {
  std::string rest(command);
  for (const std::string_view silence :
       {"2>/dev/null", "2> /dev/null", "&>/dev/null", ">/dev/null", "> /dev/null", "2>&1"}) {
    for (size_t at = rest.find(silence); at != std::string::npos; at = rest.find(silence))
      rest.erase(at, silence.size());
  }
  return rest.find_first_of("|&<>`") == std::string::npos && rest.find("$(") == std::string::npos;
}

// Whether pip would install elsewhere than for python3 of the system, or take packages from elsewhere.
bool turns_pip_away(std::string_view command) {
  for (const std::string_view mark : {"bin/activate", "-m venv", "virtualenv", "uv venv", "pip config", "pip.conf",
                                      "INDEX_URL", "UV_INDEX", "PIP_FIND_LINKS", "PIP_CONSTRAINT", "PIP_TARGET"}) {
    if (command.find(mark) != std::string_view::npos) return true;
  }
  return false;
}

// What makes users, or gives files to them: there is one here, who has all files.
bool is_about_users(std::string_view command) {
  constexpr std::string_view kPrograms[] = {"useradd", "adduser",  "groupadd", "addgroup", "usermod",
                                            "chown",   "chpasswd", "chgrp",    "gpasswd"};
  if (command.starts_with("sudo ")) command = trim(command.substr(5));
  const auto program = command.substr(0, command.find_first_of(" \t"));
  const auto name = program.substr(program.rfind('/') + 1);
  return stands_alone(command) && std::find(std::begin(kPrograms), std::end(kPrograms), name) != std::end(kPrograms);
}

}  // namespace

namespace {

// What goes on in the next line: a backslash at its end, or what `# escape=` says, with no other in front. Nothing
// where it does not.
std::optional<std::string_view> goes_on(std::string_view line, char escape) {
  const size_t last = line.find_last_not_of(" \t");
  if (last == std::string_view::npos || line[last] != escape || (last > 0 && line[last - 1] == escape))
    return std::nullopt;
  return line.substr(0, last);
}

// The letter of `# escape=`, which may stand above the first instruction.
char escape_letter(std::string_view text) {
  for (const auto line : split(text, '\n')) {
    auto words = trim(line);
    if (!words.starts_with('#')) break;
    words = trim(words.substr(1));
    if (words.starts_with("escape=") && words.size() == 8) return words[7];
  }
  return '\\';
}

}  // namespace

std::vector<DockerInstruction> docker_instructions(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  const char escape = escape_letter(text);
  std::vector<DockerInstruction> found;
  std::string open;
  int first = 0;
  const auto lines = split(text, '\n');
  const auto without_return = [&](size_t i) {
    auto line = lines[i];
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto line = without_return(i);
    const bool is_last = i + 1 == lines.size();
    const bool is_silent = trim(line).starts_with('#') || trim(line).empty();
    if (is_silent && (open.empty() || !is_last)) continue;
    if (open.empty()) first = static_cast<int>(i) + 1;
    const auto begin = is_silent ? std::nullopt : goes_on(line, escape);
    if (!is_silent) open.append(begin.value_or(line));
    if (begin && !is_last) continue;
    const auto whole = trim(open);
    const size_t end = std::min(whole.find_first_of(" \t"), whole.size());
    DockerInstruction instruction{.line = first,
                                  .name = in_capitals(whole.substr(0, end)),
                                  .rest = std::string(trim(whole.substr(end))),
                                  .escape = escape};
    if (instruction.name == "RUN" || instruction.name == "COPY" || instruction.name == "ADD")
      instruction.texts = texts_announced(instruction.rest);
    for (auto& place : instruction.texts) {
      for (++i; i < lines.size(); ++i) {
        auto inner = without_return(i);
        if (place.has_dash) inner.remove_prefix(std::min(inner.find_first_not_of('\t'), inner.size()));
        if (inner == place.name) break;
        place.content.append(inner).append("\n");
      }
    }
    if (!instruction.name.empty()) found.push_back(std::move(instruction));
    open.clear();
  }
  return found;
}

std::optional<std::vector<std::string>> docker_words(const std::string& rest) {
  std::vector<std::string> words;
  const auto whole = trim(rest);
  if (whole.starts_with('[')) {
    const auto json = parse_json(whole);
    if (!json || !json->is_array()) return std::nullopt;
    for (const auto& word : *json) {
      if (!word.is_string()) return std::nullopt;
      words.push_back(word.get<std::string>());
    }
    return words;
  }
  char quote = 0;
  bool open = false;
  for (size_t i = 0; i < whole.size(); ++i) {
    const char c = whole[i];
    if (quote == 0 && (c == ' ' || c == '\t')) {
      open = false;
      continue;
    }
    if (!open) words.emplace_back();
    open = true;
    if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'' && i + 1 < whole.size() &&
               (quote == 0 || std::string_view("\"\\$`").find(whole[i + 1]) != std::string_view::npos)) {
      words.back() += whole[++i];
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) return std::nullopt;
  return words;
}

DockerRun docker_run(std::string_view command) {
  if (const auto inner = inner_command(command)) {
    auto run = docker_run(*inner);
    run.has_own_shell = true;
    return run;
  }
  DockerRun run;
  if (!is_sequence(command)) {
    run.command = trim(command);
    return run;
  }
  bool does_something = false;
  std::string rest, before_dropped;  // what stood before commands that were taken as done since the last of `rest`
  const bool plain_pip = !turns_pip_away(command);
  for (const auto& [before, text] : pieces_of(command)) {
    std::string piece(trim(text));
    if (piece.empty()) continue;
    // `a; b && c` without b is `a; c`.
    if (before_dropped != "\n") before_dropped = before;
    if (const auto packages = packages_of(piece)) {
      run.packages.insert(run.packages.end(), packages->begin(), packages->end());
      continue;
    }
    if (const auto packages = plain_pip ? python_packages_of(piece) : std::nullopt) {
      run.python_packages.insert(run.python_packages.end(), packages->begin(), packages->end());
      continue;
    }
    if (const auto name = program_name_of(piece)) {
      run.names.insert(*name);
      continue;
    }
    if (is_about_users(piece)) continue;
    if (const auto left = beside_tidying(piece)) piece = *left;
    if (piece.empty()) continue;
    does_something |= !piece.starts_with("set ");
    rest += (rest.empty() ? "" : before_dropped) + piece;
    before_dropped.clear();
  }
  if (does_something) run.command = rest;
  return run;
}

bool is_of_system(std::string_view path) {
  if (path.find("..") != std::string_view::npos || path.starts_with("/usr/src/")) return false;
  return path.starts_with("/usr/") || path.starts_with("/bin/") || path.starts_with("/lib/") || path == "/bin";
}

bool can_be_folder(std::string_view name) {
  constexpr std::string_view kTaken[] = {"usr",       "bin",   "sbin", "lib",      "lib32",  "lib64",      "libx32",
                                         "etc",       "dev",   "proc", "sys",      "run",    "tmp",        "boot",
                                         "workspace", "tests", "logs", "solution", "oracle", "nonexistent"};
  const bool plain =
      std::all_of(name.begin(), name.end(), [](char c) { return is_name_letter(c) || c == '.' || c == '-'; });
  return plain && !name.empty() && name.size() <= 64 && is_name_letter(name[0]) &&
         std::find(std::begin(kTaken), std::end(kTaken), name) == std::end(kTaken);
}

std::vector<std::string> named_folders(std::string_view text) {
  constexpr std::string_view kBefore = " \t\n\r\"'`=(:><,;[{&|";
  std::set<std::string> found;
  for (size_t at = text.find('/'); at != std::string_view::npos; at = text.find('/', at + 1)) {
    if (at > 0 && kBefore.find(text[at - 1]) == std::string_view::npos) continue;
    size_t end = at + 1;
    while (end < text.size() && (is_name_letter(text[end]) || text[end] == '.' || text[end] == '-')) ++end;
    auto name = text.substr(at + 1, end - at - 1);
    while (name.ends_with('.')) name.remove_suffix(1);  // of a sentence
    if (can_be_folder(name)) found.insert("/" + std::string(name));
  }
  return {found.begin(), found.end()};
}

}  // namespace tandem::envs
