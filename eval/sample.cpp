#include "eval/sample.h"

namespace tandem::eval {

Json to_json(const SampleResult& s) {
  const bool verdict = s.has_verdict();
  const auto& b = s.behaviour;
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
               {"attempt", s.attempt},
               {"began", s.began},
               {"end", s.end},
               {"why", s.why},
               {"behaviour",
                {{"edits", b.edits},
                 {"reads_before_edit", b.reads_before_edit},
                 {"searches", b.searches},
                 {"parallel_turns", b.parallel_turns},
                 {"refused_calls", b.refused_calls},
                 {"seconds_to_edit", b.seconds_to_edit}}},
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
    const Json& b = json.at("behaviour");
    s.behaviour = {.edits = b.at("edits").get<int>(),
                   .reads_before_edit = b.at("reads_before_edit").get<int>(),
                   .searches = b.at("searches").get<int>(),
                   .parallel_turns = b.at("parallel_turns").get<int>(),
                   .refused_calls = b.at("refused_calls").get<int>(),
                   .seconds_to_edit = b.at("seconds_to_edit").get<double>()};
    s.flags = json.at("flags").get<std::vector<std::string>>();
    s.transcript = json.at("transcript").get<std::string>();
    s.answered_as = json.value("answered_as", "");
    constexpr double kMost = 1e11;  // seconds: three thousand years
    for (const double number : {s.seconds, s.began, s.behaviour.seconds_to_edit}) {
      if (number < 0 || number > kMost)
        return fail(Status::corrupt("no sample of an evaluation: a time is out of range"));
    }
  } catch (const Json::exception& error) {
    return fail(Status::corrupt(std::string("no sample of an evaluation: ") + error.what()));
  }
  return s;
}

}  // namespace tandem::eval
