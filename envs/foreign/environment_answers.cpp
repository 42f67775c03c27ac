#include "envs/foreign/environment_answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <set>

#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr double kLargestReward = 1e6;
constexpr int kMostTurns = 1000;

Failure not_right(const std::string& words) { return fail(Status::corrupt(words)); }

Status check_keys(const Json& json, const char* what, std::initializer_list<std::string_view> known) {
  if (!json.is_object()) return Status::corrupt(fmt::format("{} answered {}, not an object", what, json.type_name()));
  for (const auto& [key, value] : json.items()) {
    if (std::find(known.begin(), known.end(), std::string_view(key)) == known.end())
      return Status::corrupt(fmt::format("{} answered with an unknown key {}{}", what, key, did_you_mean(key, known)));
  }
  return {};
}

Result<std::string> text_of(const Json& json, const char* key) {
  if (!json.contains(key) || json.at(key).is_null()) return std::string();
  if (json.at(key).is_string()) return json.at(key).get<std::string>();
  return not_right(fmt::format("{} is {}, not a text", key, json.at(key).type_name()));
}

Result<double> reward_of(const Json& value, const std::string& name) {
  if (!value.is_number()) return not_right(fmt::format("{} is {}, not a number", name, value.type_name()));
  const double reward = value.get<double>();
  if (std::isfinite(reward) && std::abs(reward) <= kLargestReward) return reward;
  return not_right(fmt::format("{} is {}; it must be within {:.0f}", name, reward, kLargestReward));
}

Result<bool> flag_of(const Json& json, const char* key) {
  if (!json.contains(key)) return false;
  if (json.at(key).is_boolean()) return json.at(key).get<bool>();
  return not_right(fmt::format("{} is {}, not true or false", key, json.at(key).type_name()));
}

bool is_tool_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  });
}

// OpenAI's array.
Result<std::vector<ForeignTool>> tools_of(const Json& list) {
  std::vector<ForeignTool> tools;
  if (!list.is_array() || list.size() > kMostForeignTools || dump_json(list).size() > kMostForeignBytes)
    return not_right(
        fmt::format("tools must be a list of at most {} tools in {} bytes", kMostForeignTools, kMostForeignBytes));
  std::set<std::string> names;
  for (const Json& each : list) {
    const Json tool = each.is_object() && each.contains("function") ? each.at("function") : Json();
    if (!tool.is_object()) return not_right("a tool is no {\"type\": \"function\", \"function\": {...}}");
    const auto name = TRY(text_of(tool, "name"));
    const Json parameters = tool.contains("parameters") ? tool.at("parameters") : Json{{"type", "object"}};
    if (!is_tool_name(name) || !names.insert(name).second)
      return not_right(fmt::format("\"{}\" is no name of a tool, or one that stands twice", name));
    if (!parameters.is_object()) return not_right(fmt::format("the parameters of {} are no JSON schema", name));
    auto description = TRY(text_of(tool, "description"));
    tools.push_back({.name = name, .tool = name, .description = std::move(description), .parameters = parameters});
  }
  return tools;
}

}  // namespace

Result<ResetAnswer> read_reset(const Json& json) {
  TRY(check_keys(json, "reset", {"episode", "system", "instruction", "tools", "max_turns", "score"}));
  ResetAnswer answer;
  answer.system = TRY(text_of(json, "system"));
  answer.instruction = TRY(text_of(json, "instruction"));
  if (answer.instruction.empty()) return not_right("reset answered without an instruction");
  if (json.contains("tools")) answer.tools = TRY(tools_of(json.at("tools")));
  if (json.contains("max_turns")) {
    const Json& turns = json.at("max_turns");
    if (!turns.is_number_integer() || turns.get<double>() < 1 || turns.get<double>() > kMostTurns)
      return not_right(fmt::format("max_turns must be a whole number from 1 to {}", kMostTurns));
    answer.max_turns = turns.get<int>();
  }
  const auto score = TRY(text_of(json, "score"));
  if (!score.empty() && score != "asked" && score != "sum")
    return not_right(fmt::format("score is \"{}\", neither asked nor sum", score));
  answer.sums_steps = score == "sum";
  return answer;
}

Result<StepAnswer> read_step(const Json& json, size_t calls) {
  TRY(check_keys(json, "step", {"episode", "observation", "results", "reward", "done"}));
  StepAnswer answer;
  answer.done = TRY(flag_of(json, "done"));
  if (json.contains("reward") && !json.at("reward").is_null())
    answer.reward = TRY(reward_of(json.at("reward"), "the reward of a step"));
  answer.observation = TRY(text_of(json, "observation"));
  if (json.contains("results")) {
    if (!json.at("results").is_array()) return not_right("results must be a list of texts");
    for (const Json& result : json.at("results")) {
      if (!result.is_string()) return not_right("results must be a list of texts");
      answer.results.push_back(result.get<std::string>());
    }
  } else if (calls == 1) {
    answer.results = {answer.observation};
  } else if (calls > 1 && answer.done) {
    answer.results.assign(calls, answer.observation);
  }
  if (answer.results.size() != calls)
    return not_right(fmt::format("step answered {} results to {} calls", answer.results.size(), calls));
  if (calls == 0 && !answer.done && answer.observation.empty())
    return not_right("step answered neither done nor an observation, and the model has nothing to go on with");
  return answer;
}

Result<ScoreAnswer> read_score(const Json& json) {
  TRY(check_keys(json, "score", {"episode", "reward", "terms"}));
  if (!json.contains("reward")) return not_right("score answered without a reward");
  ScoreAnswer answer{.reward = TRY(reward_of(json.at("reward"), "the reward")), .terms = {}};
  if (!json.contains("terms")) return answer;
  const Json& terms = json.at("terms");
  if (!terms.is_object() || terms.size() > 64) return not_right("terms must be at most 64 numbers by name");
  for (const auto& [name, value] : terms.items()) {
    if (!is_tool_name(name)) return not_right(fmt::format("\"{}\" is no name of a term", name));
    answer.terms[name] = TRY(reward_of(value, fmt::format("the term {}", name)));
  }
  return answer;
}

Status check_episode(const Json& json, const std::string& episode) {
  if (!json.is_object() || !json.contains("episode")) return {};
  if (json.at("episode").is_string() && json.at("episode").get<std::string>() == episode) return {};
  return Status::corrupt(
      fmt::format("it answered for the episode {}, asked was about \"{}\"", dump_json(json.at("episode")), episode));
}

}  // namespace tandem::envs
