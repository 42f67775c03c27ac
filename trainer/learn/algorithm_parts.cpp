#include "trainer/learn/algorithm_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/text.h"

namespace tandem::trainer {

namespace {

constexpr double kMostWeight = 1000;

// A number, true, false or null as JSON has it; anything else is a name.
Json value_of(std::string_view text) {
  auto json = parse_json(text);
  return json && !json->is_structured() ? *std::move(json) : Json(text);
}

// The object with `key`, such as kl.clamp, set to `value`.
Status put(Json& object, std::string_view key, Json value) {
  Json* at = &object;
  for (const std::string_view name : split(key, '.')) {
    if (name.empty() || !(at->is_object() || at->is_null()))
      return Status::invalid(fmt::format("\"{}\" is no key of the algorithm section", key));
    at = &(*at)[std::string(name)];
  }
  if (!at->is_null()) return Status::invalid(fmt::format("{} is given twice", key));
  *at = std::move(value);
  return {};
}

Status read_keys(std::span<const std::string_view> words, Json& object) {
  for (const std::string_view word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return Status::invalid(fmt::format("\"{}\" is not KEY=VALUE", word));
    TRY(put(object, word.substr(0, equals), value_of(word.substr(equals + 1))));
  }
  return {};
}

Result<double> take_weight(Json& object) {
  if (!object.contains("weight")) return 1.0;
  const Json value = object["weight"];
  object.erase("weight");
  const double weight = value.is_number() ? value.get<double>() : 0;
  if (weight > 0 && weight <= kMostWeight) return weight;
  return fail(
      Status::invalid(fmt::format("weight is {}, not a number above 0 and up to {}", dump_json(value), kMostWeight)));
}

// Name and keys of a line as the algorithm section has them.
Result<Json> object_of(std::string_view line) {
  const size_t equals = line.find('=');
  std::string text(equals == std::string_view::npos ? "" : line.substr(equals + 1));
  std::ranges::replace_if(
      text, [](char c) { return c == '\t' || c == '\n' || c == '\r'; }, ' ');
  std::vector<std::string_view> words;
  for (const std::string_view word : split(text, ' ')) {
    if (!word.empty()) words.push_back(word);
  }
  if (words.empty()) return fail(Status::invalid("is not KIND[,KIND...]=NAME [KEY=VALUE...]"));
  Json object = Json::object();
  object["name"] = words.front();
  TRY(read_keys(std::span(words).subspan(1), object));
  return object;
}

// The value of a field such as algorithm.kl.clamp in the object of the section; null where it has none.
Json* find(Json& object, std::string_view path) {
  Json* at = &object;
  for (const std::string_view name : split(path.substr(path.find('.') + 1), '.')) {
    const auto found = at->is_object() ? at->find(std::string(name)) : at->end();
    if (!at->is_object() || found == at->end()) return nullptr;
    at = &*found;
  }
  return at;
}

// Numbers as the section of a run takes them. What stands for no value becomes null.
Status hold_to_limits(Json& object) {
  AlgorithmConfig config;
  Schema schema;
  add_algorithm_fields(schema, config);
  for (const Field& field : schema.fields()) {
    Json* value = find(object, field.path);
    if (value == nullptr || !value->is_number() || !(field.least < field.most)) continue;
    const auto number = value->get<double>();
    if (field.unset == number) {
      *value = Json();
    } else if (number < field.least || number > field.most) {
      return Status::invalid(
          fmt::format("{} is {}, not a number from {} to {}", field.path, dump_json(*value), field.least, field.most));
    }
  }
  return {};
}

Result<Algorithm> part_from(std::string_view line, const Algorithm& main, std::set<std::string>& taken) {
  Json object = TRY(object_of(line));
  const double weight = TRY(take_weight(object));
  TRY(hold_to_limits(object));
  // `weight` is a key of a line alone, which the reader of the section does not know.
  constexpr std::string_view kWeight[] = {"weight"};
  for (const auto& [key, value] : object.items()) {
    if (!nearest(key, kWeight).empty())
      return fail(Status::invalid(fmt::format("unknown key \"{}\"; did you mean \"weight\"?", key)));
  }
  const Json teacher = object.value("teacher", Json::object());
  for (const char* key :
       {"path", "url", "model", "key_env", "key_file", "seconds", "retries", "concurrency", "hint", "hint_tokens"}) {
    if (!teacher.contains(key)) continue;
    return fail(
        Status::invalid(fmt::format("teacher.{} is of algorithm.teacher alone: one model teaches all kinds", key)));
  }
  const Json entropy = object.value("entropy", Json::object());
  for (const char* key : {"target", "step", "most"}) {
    if (!entropy.contains(key)) continue;
    return fail(Status::invalid(fmt::format("entropy.{} is of algorithm.entropy alone: the policy has one", key)));
  }
  Algorithm part = TRY(algorithm_from_json(object));
  if (part.advantage == AdvantageKind::kTorch)
    return fail(Status::invalid("torch is of algorithm.advantage alone: a function of one's own is for the whole run"));
  if (is_function(part))
    return fail(Status::invalid("torch is of algorithm.name alone: a function of one's own is for the whole run"));
  part.teacher.path = main.teacher.path;
  part.teacher.endpoint = main.teacher.endpoint;
  part.teacher.hint = main.teacher.hint;
  part.teacher.hint_tokens = main.teacher.hint_tokens;
  if (!teacher.contains("weight")) part.teacher.weight = main.teacher.weight;
  if (!teacher.contains("clamp")) part.teacher.clamp = main.teacher.clamp;
  part.weight = weight;
  const std::string_view kinds = line.substr(0, line.find('='));
  for (const std::string_view each : split(kinds, ',')) {
    const std::string kind(trim(each));
    if (kind.empty()) return fail(Status::invalid("names no kind of task before the first ="));
    if (kind == kOtherKinds) {
      return fail(Status::invalid(fmt::format("\"{}\" stands for the kinds without an algorithm of their own", kind))
                      .hint("give that kind of task another name"));
    }
    if (!taken.insert(kind).second) return fail(Status::invalid(fmt::format("{} has an algorithm already", kind)));
    part.kinds.push_back(kind);
  }
  return part;
}

// There is one critic.
Status check_critics(const Algorithm& algorithm) {
  const Algorithm* first = nullptr;
  for (size_t i = 0; i <= algorithm.parts.size(); ++i) {
    const Algorithm& part = part_of(algorithm, i);
    if (!needs_critic(part)) continue;
    if (first != nullptr && !(part.critic == first->critic))
      return Status::invalid("algorithm.kinds: the algorithms with a critic differ in value.*, and there is one critic")
          .hint("give all of them the same value.learning_rate, value.coefficient and value.trunk");
    first = &part;
  }
  return {};
}

}  // namespace

Status set_parts(std::span<const std::string> lines, Algorithm& algorithm) {
  std::set<std::string> taken;
  std::vector<Algorithm> parts;
  for (const std::string& line : lines) {
    auto part = part_from(line, algorithm, taken);
    if (!part) return Status(part.error()).at(fmt::format("algorithm.kinds: \"{}\"", line));
    parts.push_back(std::move(*part));
  }
  algorithm.parts = std::move(parts);
  return check_critics(algorithm);
}

PartKeys keys_of_part(std::string_view line) {
  PartKeys keys;
  auto object = object_of(line);
  if (!object) return keys;
  Schema schema;
  add_algorithm_fields(schema, keys.config);
  for (const Field& field : schema.fields()) {
    const Json* value = find(*object, field.path);
    if (value == nullptr || value->is_null() || value->is_object()) continue;
    keys.given.push_back(field.path);
  }
  for (const std::string& path : keys.given) {
    Json said = Json::object();
    if (!put(said, path, *find(*object, path)) || !schema.apply_resolved(said)) return {};
  }
  return keys;
}

}  // namespace tandem::trainer
