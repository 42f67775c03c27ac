#include "envs/tasks/script_failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "envs/tasks/called_programs.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kLine = ": line ";

// What bash says of a line: what follows "/tests/test.sh: line 3: ", or "check.sh: line 1: ".
std::string_view said_by_bash(std::string_view line) {
  const size_t mark = line.find(kLine);
  if (mark == std::string_view::npos) return {};
  const auto rest = line.substr(mark + kLine.size());
  const size_t colon = rest.find(": ");
  const bool numbered = colon != std::string_view::npos && colon > 0 &&
                        std::all_of(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(colon),
                                    [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
  return numbered ? rest.substr(colon + 2) : std::string_view();
}

// The same, of a script of the check or a command line alone.
std::string_view said_by_script(std::string_view line) {
  const auto script = line.substr(0, std::min(line.find(kLine), line.size()));
  const bool is_ours = script == "bash" || script.ends_with("/bin/bash") || script.starts_with("/tests/");
  return is_ours ? said_by_bash(line) : std::string_view();
}

constexpr size_t kMostPassedOver = 4096;
constexpr std::string_view kNotFound = ": command not found", kNoFile = ": No such file or directory";

// By its whole path: where programs are installed, for all or for one user.
bool is_program_of_system(std::string_view path) {
  constexpr std::array<std::string_view, 7> kFolders = {"/usr/bin/", "/usr/local/bin/", "/bin/", "/usr/sbin/",
                                                        "/sbin/",    "/usr/games/",     "/opt/"};
  return std::ranges::any_of(kFolders, [&](std::string_view folder) { return path.starts_with(folder); }) ||
         path.find("/.local/bin/") != std::string_view::npos || path.find("/.cargo/bin/") != std::string_view::npos;
}

// "'jq'", in whatever quotes.
std::string_view without_quotes(std::string_view text) {
  for (const std::string_view quote : {"\u2018", "\u2019", "'", "\"", "`"}) {
    if (text.starts_with(quote)) text.remove_prefix(quote.size());
    if (text.ends_with(quote)) text.remove_suffix(quote.size());
  }
  return text;
}

// A program that is looked for in PATH, not a file.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.find_first_of("/ \t") == std::string_view::npos;
}

// What dash says: "sh: 1: jq: not found", "/tests/a.sh: 3: jq: not found".
std::string_view not_found_by_dash(std::string_view line) {
  constexpr std::string_view kEnd = ": not found";
  if (!line.ends_with(kEnd)) return {};
  line.remove_suffix(kEnd.size());
  const size_t first = line.find(": "), second = line.find(": ", first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return {};
  const auto number = line.substr(first + 2, second - first - 2);
  const bool is_numbered = !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
  return is_numbered ? line.substr(second + 2) : std::string_view();
}

// What bash says of `exec NAME`: "exec: uvx: not found".
std::string_view not_executed(std::string_view said) {
  constexpr std::string_view kExec = "exec: ", kEnd = ": not found";
  if (!said.starts_with(kExec) || !said.ends_with(kEnd)) return {};
  return said.substr(kExec.size(), said.size() - kExec.size() - kEnd.size());
}

// What stands between two marks; empty where they do not.
std::string_view between(std::string_view line, std::string_view begin, std::string_view end) {
  const size_t at = line.find(begin);
  if (at == std::string_view::npos) return {};
  const auto rest = line.substr(at + begin.size());
  const size_t stop = rest.find(end);
  return stop == std::string_view::npos ? std::string_view() : rest.substr(0, stop);
}

// What node and Perl say: "Error: spawnSync jqq ENOENT", 'Can\'t exec "jqq": No such file ...'.
std::string_view not_spawned(std::string_view line) {
  for (const std::string_view begin : {"Error: spawnSync ", "Error: spawn "}) {
    if (const auto name = between(line, begin, " ENOENT"); is_plain_name(name)) return name;
  }
  const auto name = between(line, "Can't exec \"", "\": No such file");
  return is_plain_name(name) ? name : std::string_view();
}

// What programs say that a script starts others by: "xargs: jq: No such file or directory", "timeout: failed to run
// command 'jq': ...". Not make: its file may be what is tested.
std::string_view not_started(std::string_view line) {
  if (!line.ends_with(kNoFile)) return {};
  line.remove_suffix(kNoFile.size());
  for (const std::string_view starter : {"xargs: ", "timeout: ", "nohup: ", "nice: ", "stdbuf: ", "env: ",
                                         "/usr/bin/env: ", "time: ", "setsid: ", "flock: ", "find: "}) {
    if (!line.starts_with(starter)) continue;
    auto name = line.substr(starter.size());
    for (const std::string_view failed : {"failed to run command ", "failed to execute "}) {
      if (name.starts_with(failed)) name.remove_prefix(failed.size());
    }
    name = without_quotes(name);
    return is_plain_name(name) ? name : std::string_view();
  }
  return {};
}

// Goes through an output line by line, and says of each what program it says is not there; "" for none.
class MissingPrograms {
 public:
  std::string_view step(std::string_view line) {
    constexpr std::string_view kNoModule = ": No module named ";
    constexpr std::string_view kNoFileOfPython = "FileNotFoundError: [Errno 2] No such file or directory: ";
    const auto said = said_by_bash(line);
    if (const auto name = not_executed(said); !name.empty()) return name;
    if (said.ends_with(kNotFound)) return said.substr(0, said.size() - kNotFound.size());
    // By its whole path.
    if (said.ends_with(kNoFile) && is_program_of_system(said)) return said.substr(0, said.size() - kNoFile.size());
    if (const auto name = not_found_by_dash(line); !name.empty()) return name;
    if (const auto name = not_started(line); !name.empty()) return name;
    if (const auto name = not_spawned(line); !name.empty()) return name;
    if (line.starts_with("File \"") && line.find("/subprocess.py\"") == std::string_view::npos &&
        line.find("/asyncio/") == std::string_view::npos)
      is_of_tests_ = line.starts_with("File \"/tests/") || line.starts_with("File \"<string>\"") ||
                     line.starts_with("File \"<stdin>\"");
    is_starting_ |= is_of_tests_ && line.find("in _execute_child") != std::string_view::npos;
    if (line.starts_with(kNoFileOfPython)) {
      const auto name = without_quotes(line.substr(kNoFileOfPython.size()));
      if (std::exchange(is_starting_, false) && is_plain_name(name)) return name;
    }
    // `python3 -m pytest` where there is no pytest.
    const size_t module = line.find(kNoModule);
    if (module == std::string_view::npos || line.find("python") > module || line.find(' ') < module) return {};
    const auto name = line.substr(module + kNoModule.size());
    return name == "pytest" || name == "uv" || name == "nose" || name == "tox" ? name : std::string_view();
  }

 private:
  bool is_of_tests_ = false, is_starting_ = false;  // in a traceback of Python's: from a test to what starts programs
};

// What a check calls, with the text in which it does.
class CalledByCheck {
 public:
  explicit CalledByCheck(const CommandCheck& check) {
    for (const auto& [path, content] : check.files) {
      if (!path.ends_with(".py")) functions_.merge(functions_of(std::string_view(content).substr(0, kMostRead)));
    }
    for (const auto& command : check.commands) add(command.command, false);
    for (const auto& [path, content] : check.files) add(content, path.ends_with(".py"));
  }
  bool calls(std::string_view program) const {
    return std::ranges::any_of(texts_, [&](const auto& one) {
      return std::ranges::any_of(one.called, [&](const auto& word) { return may_be(word, one.text, program); });
    });
  }

 private:
  static constexpr size_t kMostRead = 1 << 16;  // bytes of a file; scripts have less
  static constexpr size_t kMostWithVariables = 64;
  struct Text {
    std::string_view text;
    std::vector<std::string> called;
  };

  void add(std::string_view text, bool is_python) {
    text = text.substr(0, kMostRead);
    auto called = is_python ? called_by_python(text) : called_by_shell(text, functions_);
    // Those with variables cost a search of the text each.
    size_t with_variables = 0;
    std::erase_if(called, [&](const auto& word) {
      return word.find('$') != std::string::npos && ++with_variables > kMostWithVariables;
    });
    texts_.push_back({.text = text, .called = std::move(called)});
  }

  std::set<std::string> functions_;  // of all its scripts, which may read each other
  std::vector<Text> texts_;
};

}  // namespace

std::string missing_program(const CommandCheck& check, std::string_view output,
                            const std::function<bool(const std::string&)>& counts) {
  MissingPrograms missing;
  std::optional<CalledByCheck> called;
  std::set<std::string> passed_over;
  for (const auto line : split(output, '\n')) {
    const std::string name(missing.step(trim(line)));
    if (name.empty() || passed_over.contains(name)) continue;
    if (!called) called.emplace(check);
    if (called->calls(name) && counts(name)) return name;
    if (passed_over.size() < kMostPassedOver) passed_over.insert(name);
  }
  return "";
}

bool has_windows_lines(const CommandCheck& check) {
  return std::any_of(check.files.begin(), check.files.end(), [](const auto& file) {
    return file.first.ends_with(".sh") && file.second.find("\r\n") != std::string::npos;
  });
}

namespace {

// Tests stand in this folder of the check, and in /tests while they run.
constexpr std::string_view kTests = "/tests/", kTestsOfCheck = "tandem-tests/";

// The file of the check that is "/tests/NAME" while tests run; end() where there is none.
Files::const_iterator test_file(const CommandCheck& check, std::string_view path) {
  if (!path.starts_with(kTests)) return check.files.end();
  return check.files.find(std::string(kTestsOfCheck) + std::string(path.substr(kTests.size())));
}

// Whether `script` is a file of the check, and "/tests/a.sh: line 3: ..." is said of a line that calls it by itself.
bool is_called(const CommandCheck& check, std::string_view said, std::string_view script) {
  const size_t mark = said.find(kLine);
  const auto caller = test_file(check, said.substr(0, std::min(mark, said.size())));
  if (caller == check.files.end() || test_file(check, script) == check.files.end()) return false;
  const auto lines = split_lines(caller->second);
  size_t number = 0;
  std::from_chars(said.data() + mark + kLine.size(), said.data() + said.size(), number);
  const auto name = script.substr(script.rfind('/') + 1);
  if (number == 0 || number > lines.size()) return false;
  return std::ranges::any_of(called_by_shell(lines[number - 1]),
                             [&](const auto& word) { return may_be(word, caller->second, name); });
}

}  // namespace

std::string failure_of_script(const CommandCheck& check, std::string_view output) {
  for (auto line : split(output, '\n')) {
    line = trim(line);
    const auto said = said_by_script(line);
    if (said.empty()) continue;
    // Bash stumbles over line ends that it does not read, and goes on.
    if (has_windows_lines(check)) return "stumbled over its line ends";
    constexpr std::string_view kDenied = ": Permission denied", kBad = ": bad interpreter: ",
                               kNotThere = ": cannot execute: required file not found";  // of bash from 5.2 on
    const auto before = [&](size_t end) { return said.substr(0, std::min(end, said.size())); };
    if (const auto script = before(said.rfind(kDenied)); said.ends_with(kDenied) && is_called(check, line, script) &&
                                                         !check.programs.contains(test_file(check, script)->first))
      return fmt::format("could not run {}, which has no mode of a program", script);
    // The older ones name the interpreter behind the script.
    const auto named = before(said.find(kBad));
    const auto script = said.ends_with(kNotThere) ? before(said.rfind(kNotThere)) : named.substr(0, named.rfind(": "));
    if (script.size() < said.size() && is_called(check, line, script))
      return fmt::format("could not run {}, whose interpreter is not there", script);
  }
  return "";
}

}  // namespace tandem::envs
