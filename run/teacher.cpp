#include "run/teacher.h"

#include <fmt/format.h>

#include "wire/http_client.h"
#include "wire/json_request.h"

namespace tandem::run {

std::vector<std::string> teacher_mistakes(const RunConfig& c) {
  const trainer::Teacher& teacher = c.algorithm.teacher;
  std::vector<std::string> mistakes;
  const auto refuse = [&](bool wrong, std::string words) {
    if (wrong) mistakes.push_back(std::move(words));
  };
  refuse(teacher.is_hinted() && (teacher.is_remote() || !teacher.path.empty()),
         "algorithm.teacher.hint makes the model its own teacher: leave it out, or algorithm.teacher.path and "
         "algorithm.teacher.url");
  if (!teacher.is_remote()) return mistakes;
  if (const Status url = wire::check_url(teacher.endpoint.url); !url)
    mistakes.push_back("algorithm.teacher.url: " + url.message());
  refuse(!teacher.path.empty(), "algorithm.teacher.path and algorithm.teacher.url name a teacher each: leave one out");
  refuse(teacher.endpoint.model.empty(),
         "algorithm.teacher.model is empty: give the name that the endpoint has for the model");
  refuse(!teacher.endpoint.key_env.empty() && !teacher.endpoint.key_file.empty(),
         "algorithm.teacher.key_env and algorithm.teacher.key_file both say where the key is: leave one out");
  refuse(c.rollout.temperature != 1,
         fmt::format("algorithm.teacher.url: an endpoint says logprobs at temperature 1, and rollout.temperature is "
                     "{}: the two cannot be compared; set it to 1, or name the teacher's directory by "
                     "algorithm.teacher.path",
                     c.rollout.temperature));
  refuse(truncation_of(c).any(),
         "algorithm.teacher.url: an endpoint says logprobs among all tokens, and rollout.top_k, rollout.top_p or "
         "rollout.min_p cuts some off: leave them out, or name the teacher's directory by algorithm.teacher.path");
  return mistakes;
}

Result<std::string> teacher_key(const RunConfig& c) {
  const auto& endpoint = c.algorithm.teacher.endpoint;
  auto key = wire::read_server_key(endpoint.key_env, endpoint.key_file);
  if (!key) return fail(Status(key.error()).at("algorithm.teacher.url"));
  return key;
}

}  // namespace tandem::run
