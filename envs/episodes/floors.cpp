#include "envs/episodes/floors.h"

#include <array>
#include <optional>
#include <regex>

#include "base/text.h"
#include "envs/episodes/demonstration.h"

namespace tandem::envs {
namespace {

constexpr std::array kFloors = {Floor::kNothing, Floor::kRandomCall, Floor::kRegexScript};

std::optional<std::smatch> match(const std::string& text, const char* pattern) {
  std::smatch found;
  if (std::regex_search(text, found, std::regex(pattern, std::regex::icase))) return found;
  return std::nullopt;
}

struct Script {
  Episode& episode;
  const std::string& text;         // the instruction
  std::vector<std::string> files;  // as listed
  std::string file;                // the first listed file that the instruction names
  std::string answer;

  Result<std::string> call(const char* name, const Json& arguments) {
    return TRY(episode.call(name, arguments)).output;
  }

  Status run_command(const std::string& command) {
    const auto output = TRY(call("run_terminal_cmd", {{"command", command}}));
    std::smatch number;
    for (auto rest = output; std::regex_search(rest, number, std::regex("[0-9]+")); rest = number.suffix())
      answer = number[0];
    return {};
  }

  Status play() {
    if (auto command = match(text, "`([^`]+)`")) return run_command((*command)[1]);
    if (auto script = match(file, "\\.(py|sh|bash|pl|awk)$"); script && match(text, "number|print")) {
      const std::string extension = (*script)[1];
      const std::string program = extension == "py"    ? "python3 "
                                  : extension == "pl"  ? "perl "
                                  : extension == "awk" ? "awk -f "
                                                       : extension + " ";
      return run_command(program + file);
    }
    if (auto quoted = match(text, "\"([^\"]+)\"")) {
      const std::string content = (*quoted)[1];
      if (file.empty()) {
        if (auto path = match(text, "([A-Za-z0-9_/]+\\.[a-z]+)\\b")) {
          TRY(call("write", {{"file_path", (*path)[1].str()}, {"contents", content + "\n"}}));
          return {};
        }
      }
      if (match(text, "\\b(end|bottom|last|foot|below|behind)\\b")) {
        TRY(call("run_terminal_cmd", {{"command", "echo '" + content + "' >> " + file}}));
        return {};
      }
    }
    if (auto names = match(text, "\\b([a-z]+_[a-z]+)\\b.*?\\b([a-z]+_[a-z]+)\\b"); names && file.empty()) {
      std::string command = "sed -i 's/" + (*names)[1].str() + "/" + (*names)[2].str() + "/g'";
      for (const auto& each : files) command += " " + each;
      TRY(call("run_terminal_cmd", {{"command", command}}));
      return {};
    }
    if (auto words = match(text, "\"?(\\w+)\"? (?:with|by|for|to|into|->) \"?(\\w+)\"?"); words && !file.empty()) {
      TRY(call("search_replace", {{"file_path", file},
                                  {"old_string", (*words)[1].str()},
                                  {"new_string", (*words)[2].str()},
                                  {"replace_all", true}}));
      return {};
    }
    if (auto key = match(text, "\\b([a-z]+_[a-z]+)\\b")) {
      const auto output = TRY(call("grep", {{"pattern", (*key)[1].str()}}));
      if (auto value = match(output, "(?:=|: )\\s*(\\w+)\\s*$")) answer = (*value)[1];
    }
    return {};
  }
};

}  // namespace

std::span<const Floor> floors() { return kFloors; }

std::string_view to_string(Floor floor) {
  switch (floor) {
    case Floor::kNothing:
      return "nothing";
    case Floor::kRandomCall:
      return "random_call";
    case Floor::kRegexScript:
      return "regex_script";
  }
  return "";
}

Result<Grade> play_floor(Floor floor, const Task& task, SandboxBackend& backend) {
  auto episode = TRY(Episode::open(task, backend));
  Random random(derive_seed(task.spec.seed, to_string(floor)));
  if (floor == Floor::kRandomCall) {
    const auto call = random_call(task, random);
    TRY(episode->call(call.name, call.arguments));
    return episode->score(episode->over() ? "" : std::string(random.pick(split(task.instruction, ' '))));
  }
  if (floor == Floor::kRegexScript) {
    Script script{*episode, task.instruction, {}, "", ""};
    size_t first = std::string::npos;
    for (const auto& [path, content] : task.files) {
      script.files.push_back(path);
      if (const size_t at = task.instruction.find(path); at < first) {
        first = at;
        script.file = path;
      }
    }
    TRY(script.play());
    return episode->score(script.answer);
  }
  return episode->score("");
}

}  // namespace tandem::envs
