#include <fmt/format.h>

#include <numeric>
#include <thread>

#include "cli/command.h"
#include "cli/json_lines.h"
#include "model/forward.h"
#include "trainer/tape.h"

namespace tandem::cli {

namespace {

struct Options {
  JsonLinesOptions lines;
  std::string model;
  std::string path = "engine";
  std::string dtype = "bfloat16";
  std::string weights = "bf16";
  int threads = static_cast<int>(std::thread::hardware_concurrency());
};

struct Scores {
  std::vector<float> logprobs;  // of tokens 1..n
  std::vector<int32_t> argmax;  // after every token
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

std::vector<kernels::TokenPick> next_tokens(std::span<const int32_t> tokens) {
  std::vector<kernels::TokenPick> picks;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) picks.push_back({static_cast<int32_t>(i), tokens[i + 1]});
  return picks;
}

// As the engine samples: paged keys and values, prefilled in chunks.
Result<Scores> score_by_engine(kernels::Stream& stream, const model::Weights& weights, model::Forward& forward,
                               std::span<const int32_t> tokens) {
  constexpr size_t kChunk = 512;
  const auto& config = weights.config();
  const int count = static_cast<int>((tokens.size() + kernels::kPageTokens - 1) / kernels::kPageTokens);
  auto pool = TRY(model::KvPool::create(config, count));
  std::vector<int> pages(count);
  std::iota(pages.begin(), pages.end(), 0);
  Scores scores;
  for (size_t first = 0; first < tokens.size(); first += kChunk) {
    const auto chunk = tokens.subspan(first, std::min(kChunk, tokens.size() - first));
    model::ForwardBatch batch;
    batch.add(chunk, static_cast<int>(first), pages);
    const auto hidden = TRY(forward.run(stream, weights, pool, batch));
    const auto picks = next_tokens(tokens.subspan(first, std::min(kChunk + 1, tokens.size() - first)));
    std::vector<float> logprobs(picks.size()), log_sum(chunk.size());
    std::vector<int32_t> argmax(chunk.size());
    TRY(kernels::lm_head(stream,
                         {.hidden = hidden.data,
                          .head = weights.packed(weights.layout().head),
                          .rows = static_cast<int>(chunk.size()),
                          .width = config.width,
                          .vocabulary = config.vocabulary,
                          .log_sum = log_sum.data(),
                          .argmax = argmax.data()},
                         picks, logprobs));
    scores.logprobs.insert(scores.logprobs.end(), logprobs.begin(), logprobs.end());
    scores.argmax.insert(scores.argmax.end(), argmax.begin(), argmax.end());
  }
  return scores;
}

// As the trainer's forward pass: a prefix tree with one branch.
Result<Scores> score_by_trainer(kernels::Stream& stream, const model::Weights& weights, trainer::Tape& tape,
                                std::span<const int32_t> tokens) {
  const auto tree = trainer::merge(std::span(&tokens, 1));
  Scores scores;
  scores.logprobs = TRY(tape.forward(stream, weights, tree, next_tokens(tokens)));
  std::vector<int> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  scores.argmax = TRY(tape.argmax(rows));
  return scores;
}

Result<int> run(const Options& options) {
  if (options.dtype != "bfloat16" || options.weights != "bf16") {
    return fail(Status::invalid(fmt::format("--dtype {} --weights {}: the kernels compute bfloat16 with bf16 weights",
                                            options.dtype, options.weights)));
  }
  auto stream = TRY(kernels::Stream::cpu(options.threads));
  auto weights = TRY(model::load_weights(options.model, false));
  TRY(weights.pack(stream));
  const int positions = weights.config().max_positions;
  model::Forward forward(weights.config(), positions);
  trainer::Tape tape(weights.config(), positions);
  static constexpr std::array<std::string_view, 1> kKeys = {"tokens"};
  return run_json_lines(options.lines, kKeys, [&](const Json& line) -> Result<Json> {
    const auto tokens = TRY(tokens_of(line, weights.config().vocabulary, positions));
    const Scores scores = options.path == "engine" ? TRY(score_by_engine(stream, weights, forward, tokens))
                                                   : TRY(score_by_trainer(stream, weights, tape, tokens));
    Json logprobs = Json::array({nullptr});
    for (const float logprob : scores.logprobs) logprobs.push_back(logprob);
    return Json{{"logprobs", logprobs}, {"argmax", scores.argmax}};
  });
}

}  // namespace

Action add_score(CLI::App& command) {
  auto options = std::make_shared<Options>();
  add_json_lines_options(command, options->lines);
  command.add_option("--model", options->model, "Model directory (Hugging Face layout)")->required();
  command.add_option("--path", options->path, "Which code computes: both give the same bits")
      ->check(CLI::IsMember({"trainer", "engine"}));
  command.add_option("--dtype", options->dtype, "Number format of activations");
  command.add_option("--weights", options->weights, "Number format of weights");
  command.add_option("--threads", options->threads, "Threads to compute with");
  command.footer(
      "Example:\n  echo '{\"tokens\":[504,3575,282]}' | tandem score --model models/SmolLM2-135M-Instruct --path "
      "trainer");
  return [options] { return run(*options); };
}

}  // namespace tandem::cli
