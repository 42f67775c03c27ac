#include "cli/run/teacher_probe.h"

#include <fmt/format.h>

#include <optional>

#include "base/clock.h"
#include "model/tokenizer.h"
#include "run/teacher.h"
#include "trainer/teacher_client.h"

namespace tandem::cli {

Result<Json> probe_teacher(const run::RunConfig& config, const fs::path& model) {
  const auto& endpoint = config.algorithm.teacher.endpoint;
  if (!config.algorithm.teacher.is_remote()) return Json();
  const SystemClock clock;
  const Time start = clock.now();
  std::optional<model::Tokenizer> tokenizer;
  if (!model.empty()) tokenizer = TRY(model::Tokenizer::load(model));
  trainer::TeacherClient client(endpoint, TRY(run::teacher_key(config)), clock);
  TRY(client.prepare(tokenizer ? &*tokenizer : nullptr, config.rollout.max_tokens));
  return Json{{"form", to_string(*client.form())},
              {"tokens_compared", tokenizer.has_value()},
              {"seconds", to_seconds(clock.now() - start)}};
}

std::string describe_teacher(const run::RunConfig& config, const Json& tried) {
  const auto& endpoint = config.algorithm.teacher.endpoint;
  return fmt::format("{} at {}, asked by \"{}\"; {}, {:.2f} s", endpoint.model, endpoint.url,
                     tried.at("form").get<std::string>(),
                     tried.at("tokens_compared").get<bool>() ? "it has the model's tokens"
                                                             : "its tokens are compared when the model is made",
                     tried.at("seconds").get<double>());
}

}  // namespace tandem::cli
