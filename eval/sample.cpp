#include "eval/sample.h"

namespace tandem::eval {
namespace {

constexpr double kMostTime = 1e11;  // seconds: three thousand years

Json known_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

// Nothing where it is null, or of a version that did not count it.
std::optional<double> number_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? std::nullopt : std::optional(found->get<double>());
}

Json behaviour_json(const SampleResult& s) {
  Json json = to_json(s.behaviour);
  for (const auto& name : s.not_counted) json.erase(name);
  return json;
}

// Fields of a behaviour that are missing.
std::vector<std::string> missing_fields(const Json& behaviour) {
  std::vector<std::string> names;
  const Json whole = to_json(Behaviour());
  for (const auto& [name, value] : whole.items()) {
    if (!behaviour.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace

ComputeUse& ComputeUse::operator+=(const ComputeUse& other) {
  const auto add = [](std::optional<double>& sum, const std::optional<double>& part) {
    sum = sum && part ? std::optional(*sum + *part) : std::nullopt;
  };
  add(sandbox_cores, other.sandbox_cores);
  add(model_cores, other.model_cores);
  add(model_gpus, other.model_gpus);
  return *this;
}

std::optional<double> ComputeUse::cores() const {
  return sandbox_cores && model_cores ? std::optional(*sandbox_cores + *model_cores) : std::nullopt;
}

Json to_json(const SampleResult& s) {
  const bool verdict = s.has_verdict();
  Json json = {{"task", s.task},
               {"sample", s.sample},
               {"outcome", rollout::to_string(s.outcome)},
               {"reward", verdict ? Json(s.reward) : Json()},
               {"passed", verdict ? Json(s.passed()) : Json()},
               {"seconds", s.seconds},
               {"turns", s.turns},
               {"tool_calls", s.tool_calls},
               {"tokens", s.tokens()},
               {"prompt_tokens", s.prompt_tokens},
               {"completion_tokens", s.completion_tokens},
               {"sandbox_core_seconds", known_or_null(s.use.sandbox_cores)},
               {"model_core_seconds", known_or_null(s.use.model_cores)},
               {"model_gpu_seconds", known_or_null(s.use.model_gpus)},
               {"attempt", s.attempt},
               {"began", s.began},
               {"end", s.end},
               {"why", s.why},
               {"behaviour", behaviour_json(s)},
               {"diff", to_json(s.diff)},
               {"flags", s.flags},
               {"transcript", s.transcript}};
  if (!s.answered_as.empty()) json["answered_as"] = s.answered_as;
  return json;
}

Result<SampleResult> sample_from_json(const Json& json) {
  SampleResult s;
  try {
    s.task = json.at("task").get<std::string>();
    s.sample = json.at("sample").get<int>();
    s.outcome = TRY(rollout::outcome_from(json.at("outcome").get<std::string>()));
    if (s.has_verdict()) s.reward = json.at("reward").get<double>();
    s.seconds = json.at("seconds").get<double>();
    s.turns = json.at("turns").get<int>();
    s.tool_calls = json.at("tool_calls").get<int>();
    s.prompt_tokens = json.at("prompt_tokens").get<uint64_t>();
    s.completion_tokens = json.at("completion_tokens").get<uint64_t>();
    s.attempt = json.at("attempt").get<int>();
    s.began = json.at("began").get<double>();
    s.end = json.at("end").get<std::string>();
    s.why = json.at("why").get<std::string>();
    s.behaviour = TRY(behaviour_from_json(json.at("behaviour")));
    s.not_counted = missing_fields(json.at("behaviour"));
    if (const auto diff = json.find("diff"); diff != json.end()) s.diff = TRY(work_size_from_json(*diff));
    s.flags = json.at("flags").get<std::vector<std::string>>();
    s.transcript = json.at("transcript").get<std::string>();
    s.answered_as = json.value("answered_as", "");
    s.use = {number_in(json, "sandbox_core_seconds"), number_in(json, "model_core_seconds"),
             number_in(json, "model_gpu_seconds")};
    for (const double number : {s.seconds, s.began, s.use.sandbox_cores.value_or(0), s.use.model_cores.value_or(0),
                                s.use.model_gpus.value_or(0)}) {
      if (number < 0 || number > kMostTime)
        return fail(Status::corrupt("no sample of an evaluation: a time is out of range"));
    }
  } catch (const Json::exception& error) {
    return fail(Status::corrupt(std::string("no sample of an evaluation: ") + error.what()));
  }
  return s;
}

}  // namespace tandem::eval
