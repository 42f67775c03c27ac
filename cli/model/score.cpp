// `tandem score`.
#include <fmt/format.h>

#include <array>
#include <thread>

#include "base/json_line.h"
#include "cli/command.h"
#include "cli/json_lines.h"
#include "cli/model/model_options.h"
#include "cli/model/reward_scorer.h"
#include "cli/model/scorer.h"
#include "rollout/engine/no_numbers.h"
#include "run/run_step.h"
#include "trainer/torch/oracle.h"

namespace tandem::cli {

namespace {

constexpr std::array<std::string_view, 1> kScoreKeys = {"tokens"};

struct ScoreOptions {
  JsonLinesOptions lines;
  ModelOptions model;
  std::string path = "engine";
  bool reward = false, json = false;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
};

Result<std::vector<int32_t>> tokens_of(const Json& line, int vocabulary, int max_positions) {
  if (!line.contains("tokens") || !line["tokens"].is_array())
    return fail(Status::invalid("\"tokens\" must be a list of token ids"));
  std::vector<int32_t> tokens;
  for (const Json& token : line["tokens"]) {
    if (!token.is_number_integer() || token.get<int64_t>() < 0 || token.get<int64_t>() >= vocabulary) {
      return fail(Status::invalid(
          fmt::format("tokens[{}] is {}, expected 0 to {}", tokens.size(), token.dump(), vocabulary - 1)));
    }
    tokens.push_back(token.get<int32_t>());
  }
  if (tokens.empty()) return fail(Status::invalid("\"tokens\" is empty"));
  if (static_cast<int>(tokens.size()) > max_positions) {
    return fail(Status::invalid(fmt::format("{} tokens, the model takes at most {}", tokens.size(), max_positions)));
  }
  return tokens;
}

Result<Json> answer_of(const std::vector<float>& of_tokens, const std::vector<int32_t>& argmax) {
  TRY(rollout::check_are_numbers(of_tokens));
  Json logprobs = Json::array({nullptr});
  for (const float logprob : of_tokens) logprobs.push_back(logprob);
  return Json{{"logprobs", logprobs}, {"argmax", argmax}};
}

// What only our kernels do.
Status check_for_torch(const ModelOptions& options) {
  const auto refused = [](const std::string& option, const char* why) {
    return Status::invalid(fmt::format("--path torch does not go with {}: {}", option, why));
  };
  if (options.format.dtype == "bfloat16") return refused("--dtype bfloat16", "it computes in float32");
  if (!options.format.weights.empty())
    return refused("--weights " + options.format.weights, "it computes in float32, with the weights of the checkpoint");
  if (options.live) return refused("--live", "the adapter is added to the weights");
  if (options.device != "cpu") return refused("--device " + options.device, "it computes on the CPU");
  return {};
}

Result<int> score_by_torch(const ScoreOptions& options) {
  TRY(check_for_torch(options.model));
  const auto oracle = TRY(trainer::Oracle::open(options.model.model, options.model.adapter, options.threads));
  const auto& config = oracle->config();
  return run_json_lines(options.lines, kScoreKeys, [&](const Json& line) -> Result<Json> {
    const auto scores = TRY(oracle->score(TRY(tokens_of(line, config.vocabulary, config.max_positions))));
    return answer_of(scores.logprobs, scores.likeliest);
  });
}

// Lines are answered as ever; what all pairs come to follows on stderr, or with --json as a line on stdout.
Result<int> score_rewards(const ScoreOptions& options) {
  if (options.path == "torch")
    return fail(Status::invalid("--reward does not go with --path torch")
                    .hint("take --path trainer or engine, which give the same bits"));
  auto scorer = TRY(RewardScorer::create(options.model, options.threads, options.path == "trainer"));
  const int exit =
      TRY(run_json_lines(options.lines, reward_keys(), [&](const Json& line) { return scorer.answer(line); }));
  const RewardedPairs& pairs = scorer.pairs();
  if (options.json) {
    fmt::print("{}\n", dump_json_line(pairs.to_json()));
  } else if (pairs.pairs > 0) {
    const auto count = static_cast<double>(pairs.pairs);
    fmt::print(stderr, "{} pairs: right {:.1f} %, margin {:.3f}\n", pairs.pairs, 100 * pairs.right / count,
               pairs.margins / count);
  }
  return exit;
}

Result<int> run_score(ScoreOptions options) {
  options.model.model = TRY(run::model_directory(options.model.model)).string();
  if (options.reward) return score_rewards(options);
  if (options.json) return fail(Status::invalid("--json is of --reward: lines are JSON anyway"));
  if (options.path == "torch") return score_by_torch(options);
  const auto place = TRY(place_of(options.model.device, options.threads));
  auto stream = TRY(place.host_stream());
  const auto scorer = TRY(Scorer::create(TRY(load_model(stream, options.model)), place));
  const auto& config = scorer->weights().config();
  return run_json_lines(options.lines, kScoreKeys, [&](const Json& line) -> Result<Json> {
    const auto tokens = TRY(tokens_of(line, config.vocabulary, config.max_positions));
    const Scores scores = TRY(options.path == "engine" ? scorer->by_engine(tokens) : scorer->by_trainer(tokens));
    return answer_of(scores.logprobs, scores.argmax);
  });
}

}  // namespace

Action add_score(CLI::App& command) {
  auto options = std::make_shared<ScoreOptions>();
  add_json_lines_options(command, options->lines);
  add_model_options(command, options->model);
  command
      .add_option(
          "--path", options->path,
          "Which code computes: trainer and engine give the same bits; torch is LibTorch in float32, close to them")
      ->check(CLI::IsMember({"trainer", "engine", "torch"}));
  command.add_option("--threads", options->threads, "Threads to compute with");
  command.add_flag("--reward", options->reward,
                   "Rewards by a reward model, of lines with messages, with chosen and rejected, or with tokens");
  command.add_flag("--json", options->json, "With --reward: at the end, the accuracy over pairs as a line of JSON");
  command.footer(
      "Examples:\n  echo '{\"tokens\":[504,3575,282]}' | tandem score --model models/SmolLM2-135M-Instruct --path "
      "trainer\n"
      "  tandem score --model models/SmolLM2-135M-Instruct --adapter adapters/mine --input texts.jsonl\n"
      "  tandem score --model models/judge --reward --input pairs.jsonl\n"
      "  tandem score --model models/SmolLM2-135M-Instruct --path torch --input texts.jsonl   # scripts/with-torch "
      "builds it");
  return [options] { return run_score(*options); };
}

}  // namespace tandem::cli
