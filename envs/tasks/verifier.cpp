#include "envs/tasks/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr int kOutOfTime = 124;
// What a shell ends with where its last program was killed by a signal; what it ends with by itself is above or below.
constexpr int kSignals = 128, kMostSignals = 64;

// Of a metric whose name a term of ours has.
std::string metric_name(const std::string& name) {
  constexpr std::string_view kTaken[] = {"files",        "contents",     "answer", "tests",
                                         "tests_passed", "unread_calls", "lints"};
  const bool taken = std::find(std::begin(kTaken), std::end(kTaken), name) != std::end(kTaken);
  return taken ? name + " (metric)" : name;
}

Status check_reward(double value) {
  if (std::isfinite(value) && value >= 0 && value <= 1) return {};
  return Status::invalid(fmt::format("the tests left a reward of {}, which is not from 0 to 1", value));
}

// A byte order mark, which some editors and shells begin a file with.
std::string_view without_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

// A number as Python has it: true and false are some.
std::optional<double> number_of(const Json& json) {
  if (json.is_boolean()) return json.get<bool>() ? 1 : 0;
  if (json.is_number()) return json.get<double>();
  return std::nullopt;
}

Result<Rewards> read_json_rewards(std::string_view text) {
  const auto json = parse_json(trim(without_mark(text)));
  if (!json) return fail(Status::invalid("/logs/verifier/reward.json is no JSON: " + json.error().message()));
  Rewards rewards;
  if (const auto number = number_of(*json)) {
    rewards.reward = *number;
    TRY(check_reward(rewards.reward));
    return rewards;
  }
  if (!json->is_object() || json->empty())
    return fail(Status::invalid("/logs/verifier/reward.json is neither a number nor an object of numbers"));
  std::optional<double> reward;
  for (const auto& [name, value] : json->items()) {
    const auto number = number_of(value);
    if (!number && value.is_string() && json->contains("reward") && name != "reward") continue;
    if (!number || !std::isfinite(*number))
      return fail(Status::invalid(fmt::format("/logs/verifier/reward.json: \"{}\" is no number", name)));
    if (name == "reward" || json->size() == 1)
      reward = *number;
    else
      rewards.metrics[metric_name(name)] = *number;
  }
  if (!reward) {
    return fail(Status::invalid(
        "/logs/verifier/reward.json has several numbers, and none is called \"reward\": which of them counts is not "
        "known"));
  }
  rewards.reward = *reward;
  TRY(check_reward(rewards.reward));
  return rewards;
}

Result<Rewards> read_text_reward(std::string_view text) {
  text = trim(without_mark(text));
  if (text.starts_with('+')) text.remove_prefix(1);
  Rewards rewards;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rewards.reward);
  if (error != std::errc() || end != text.data() + text.size()) {
    return fail(Status::invalid(
        fmt::format("/logs/verifier/reward.txt holds \"{}\" in place of a number", text.substr(0, 100))));
  }
  TRY(check_reward(rewards.reward));
  return rewards;
}

constexpr std::string_view kLine = ": line ";

// "/tests/test.sh: line 3: " or "/usr/bin/bash: line 1: ", with what follows.
std::string_view said_by_script(std::string_view line) {
  const size_t mark = line.find(kLine);
  if (mark == std::string_view::npos) return {};
  const auto script = line.substr(0, mark);
  if (script != "bash" && !script.ends_with("/bin/bash") && !script.starts_with("/tests/")) return {};
  const auto rest = line.substr(mark + kLine.size());
  const size_t colon = rest.find(": ");
  const bool numbered = colon != std::string_view::npos && colon > 0 &&
                        std::all_of(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(colon),
                                    [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; });
  return numbered ? rest.substr(colon + 2) : std::string_view();
}

// What makes bash stumble over a script of this check: the end of its first line.
bool has_windows_lines(const CommandCheck& check) {
  return std::any_of(check.files.begin(), check.files.end(), [](const auto& file) {
    return file.first.ends_with(".sh") && file.second.find("\r\n") != std::string::npos;
  });
}

}  // namespace

std::string print_rewards_command() {
  // What cannot be written any more, or leads elsewhere, is not what a script of tests leaves. Where both files are
  // there, the second one is said in front.
  // By the system's programs, whatever PATH the script left.
  return "PATH=/usr/local/bin:/usr/bin:/bin; unset LD_LIBRARY_PATH LD_PRELOAD; cd /logs/verifier || exit 1; test -w . "
         "|| echo locked; for f in reward.json reward.txt; do "
         "if test -L $f || { test -e $f && ! { test -f $f && test -w $f; }; }; then echo locked; fi; done; "
         "if test -e reward.json && test -e reward.txt; then echo \"also $(head -c 100 reward.txt | tr '\\n' ' ')\"; "
         "fi; "
         "if test -e reward.json; then echo json; cat reward.json; "
         "elif test -e reward.txt; then echo text; cat reward.txt; else echo none; fi";
}

Result<Rewards> read_rewards(std::string_view printed) {
  constexpr std::string_view kAlso = "also ";
  if (printed.starts_with("locked\n")) {
    return fail(
        Status::invalid("/logs/verifier was left so that nobody can write to it; did the code under test do that?"));
  }
  if (printed.starts_with(kAlso)) {
    const size_t end = std::min(printed.find('\n'), printed.size());
    const auto other = read_text_reward(printed.substr(kAlso.size(), end - kAlso.size()));
    auto rewards = TRY(read_rewards(printed.substr(std::min(end + 1, printed.size()))));
    // The code under test may have written one of them.
    if (other && other->reward == rewards.reward) return rewards;
    return fail(Status::invalid("reward.json and reward.txt say different rewards"));
  }
  const size_t line = std::min(printed.find('\n'), printed.size());
  const auto kind = printed.substr(0, line), text = printed.substr(std::min(line + 1, printed.size()));
  if (kind == "json") return read_json_rewards(text);
  if (kind == "text") return read_text_reward(text);
  return fail(Status::invalid("the tests left no reward in /logs/verifier/reward.json or reward.txt"));
}

std::string last_lines(std::string_view output) {
  constexpr size_t kMost = 1500;
  output = trim(output);
  if (output.size() <= kMost) return std::string(output);
  return "... " + std::string(output.substr(output.size() - kMost));
}

namespace {

constexpr std::string_view kNotFound = ": command not found", kNoFile = ": No such file or directory";

bool is_program_of_system(std::string_view path) {
  return std::ranges::any_of(
      std::array<std::string_view, 6>{"/usr/bin/", "/usr/local/bin/", "/bin/", "/usr/sbin/", "/sbin/", "/usr/games/"},
      [&](std::string_view folder) { return path.starts_with(folder); });
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
  const auto script = line.substr(0, first), number = line.substr(first + 2, second - first - 2);
  const bool is_ours = script == "sh" || script == "/bin/sh" || script == "dash" || script == "/bin/dash" ||
                       script.starts_with("/tests/");
  const bool is_numbered = !number.empty() && number.find_first_not_of("0123456789") == std::string_view::npos;
  return is_ours && is_numbered ? line.substr(second + 2) : std::string_view();
}

// What programs say that a script starts others by: "xargs: jq: No such file or directory", "timeout: failed to run
// command 'jq': ...". Not make: its file may be what is tested.
std::string_view not_started(std::string_view line) {
  if (!line.ends_with(kNoFile)) return {};
  line.remove_suffix(kNoFile.size());
  constexpr std::string_view kFailed = "failed to run command ";
  for (const std::string_view starter :
       {"xargs: ", "timeout: ", "nohup: ", "nice: ", "stdbuf: ", "env: ", "/usr/bin/env: ", "time: ", "setsid: "}) {
    if (!line.starts_with(starter)) continue;
    auto name = line.substr(starter.size());
    if (name.starts_with(kFailed)) name.remove_prefix(kFailed.size());
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
    const auto said = said_by_script(line);
    if (said.ends_with(kNotFound)) return said.substr(0, said.size() - kNotFound.size());
    // By its whole path.
    if (said.ends_with(kNoFile) && is_program_of_system(said)) return said.substr(0, said.size() - kNoFile.size());
    if (const auto name = not_found_by_dash(line); !name.empty()) return name;
    if (const auto name = not_started(line); !name.empty()) return name;
    if (line.starts_with("File \"") && line.find("/subprocess.py\"") == std::string_view::npos)
      is_of_tests_ = line.starts_with("File \"/tests/");
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

}  // namespace

bool names_program(const CommandCheck& check, std::string_view program) {
  const auto word = program.substr(program.rfind('/') + 1);
  const auto goes_on = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; };
  const auto is_in = [&](std::string_view text) {
    for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
      const size_t end = at + word.size();
      if ((at == 0 || !goes_on(text[at - 1])) && (end == text.size() || !goes_on(text[end]))) return true;
    }
    return false;
  };
  return !word.empty() && (std::ranges::any_of(check.commands, [&](const auto& one) { return is_in(one.command); }) ||
                           std::ranges::any_of(check.files, [&](const auto& file) { return is_in(file.second); }));
}

std::string missing_program(std::string_view output, const std::function<bool(const std::string&)>& counts) {
  MissingPrograms missing;
  for (const auto line : split(output, '\n')) {
    const std::string name(missing.step(trim(line)));
    if (!name.empty() && counts(name)) return name;
  }
  return "";
}

namespace {

// Tests stand in this folder of the check, and in /tests while they run.
constexpr std::string_view kTests = "/tests/", kTestsOfCheck = "tandem-tests/";

// The file of the check that is "/tests/NAME" while tests run; end() where there is none.
Files::const_iterator test_file(const CommandCheck& check, std::string_view path) {
  if (!path.starts_with(kTests)) return check.files.end();
  return check.files.find(std::string(kTestsOfCheck) + std::string(path.substr(kTests.size())));
}

// Whether `script` is a file of the check, and "/tests/a.sh: line 3: ..." is said of a line that names it, which what
// is tested cannot have written.
bool is_called(const CommandCheck& check, std::string_view said, std::string_view script) {
  const size_t mark = said.find(kLine);
  const auto caller = test_file(check, said.substr(0, std::min(mark, said.size())));
  if (caller == check.files.end() || test_file(check, script) == check.files.end()) return false;
  const auto lines = split_lines(caller->second);
  size_t number = 0;
  std::from_chars(said.data() + mark + kLine.size(), said.data() + said.size(), number);
  const auto name = script.substr(script.rfind('/') + 1);
  return number > 0 && number <= lines.size() && lines[number - 1].find(name) != std::string_view::npos;
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

bool is_out_of_time(const ToolOutcome& outcome) {
  return outcome.exit_code == kOutOfTime && outcome.output.find("[ended after the time limit of") != std::string::npos;
}

bool is_cut_short(const CheckCommand& command, const ToolOutcome& outcome) {
  return outcome.seconds < command.seconds - 1;
}

Status check_verifier(const CommandCheck& check, const CheckCommand& command, const ToolOutcome& outcome) {
  if (is_out_of_time(outcome)) {
    return no_verdict(
        check,
        fmt::format("was still running after {:.3g} s", std::max(outcome.seconds, 0.001)) +
            (is_cut_short(command, outcome)
                 ? fmt::format(", the longest that is waited for a grade here; the task gives it {} s", command.seconds)
                 : ", the time that the task gives it"),
        outcome.output);
  }
  if (outcome.exit_code > kSignals && outcome.exit_code <= kSignals + kMostSignals)
    return no_verdict(check, fmt::format("was ended by signal {}", outcome.exit_code - kSignals), outcome.output);
  if (!outcome.ok) return no_verdict(check, "could not be run", outcome.output);
  return {};
}

Status no_verdict(const CommandCheck& check, const std::string& why, std::string_view output) {
  std::string text = fmt::format("no grade: {} {}", check.verifier, why);
  const auto is_needed = [&](const std::string& program) { return names_program(check, program); };
  if (const auto missing = missing_program(output, is_needed); !missing.empty())
    text += fmt::format("; it needs {}, which this machine does not have", missing);
  if (has_windows_lines(check)) text += "; it has line ends of Windows (CRLF), which bash does not read";
  const auto end = last_lines(output);
  return Status::invalid(text + (end.empty() ? "; it printed nothing" : "; its output ends:\n" + end));
}

}  // namespace tandem::envs
