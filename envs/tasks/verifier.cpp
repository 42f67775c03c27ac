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
#include "base/utf8.h"
#include "envs/tasks/script_failures.h"

namespace tandem::envs {
namespace {

constexpr int kOutOfTime = 124;
// What a shell ends with where its last program was killed by a signal; what it ends with by itself is above or below.
constexpr int kSignals = 128, kMostSignals = 64;

// Renames a metric whose name a term of ours has.
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

Result<VerifierRewards> read_json_rewards(std::string_view text) {
  const auto json = parse_json(trim(without_mark(text)));
  if (!json) return fail(Status::invalid("/logs/verifier/reward.json is no JSON: " + json.error().message()));
  VerifierRewards rewards;
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

Result<VerifierRewards> read_text_reward(std::string_view text) {
  text = trim(without_mark(text));
  if (text.starts_with('+')) text.remove_prefix(1);
  VerifierRewards rewards;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rewards.reward);
  if (error != std::errc() || end != text.data() + text.size()) {
    return fail(Status::invalid(
        fmt::format("/logs/verifier/reward.txt holds \"{}\" in place of a number", text.substr(0, 100))));
  }
  TRY(check_reward(rewards.reward));
  return rewards;
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

Result<VerifierRewards> read_rewards(std::string_view printed) {
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
  return "... " + replace_invalid_utf8(output.substr(output.size() - kMost));  // it may begin within a character
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
  if (const auto missing = missing_program(check, output, [](const std::string&) { return true; }); !missing.empty())
    text += fmt::format("; it needs {}, which this machine does not have", missing);
  if (has_windows_lines(check)) text += "; it has line ends of Windows (CRLF), which bash does not read";
  const auto end = last_lines(output);
  return Status::invalid(text + (end.empty() ? "; it printed nothing" : "; its output ends:\n" + end));
}

}  // namespace tandem::envs
