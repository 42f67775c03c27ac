#include "cli/model/reward_scorer.h"

#include <fmt/format.h>

#include <array>

#include "trainer/learn/tape.h"
#include "trainer/sft/preference.h"

namespace tandem::cli {

namespace {

constexpr std::array<std::string_view, 8> kRewardKeys = {
    "messages", "tools", "chat_template_kwargs", "prompt", "chosen", "rejected", "margin", "tokens"};

Result<std::vector<int32_t>> given_tokens(const Json& line) {
  if (!line["tokens"].is_array()) return fail(Status::invalid("\"tokens\" must be a list of token ids"));
  std::vector<int32_t> tokens;
  for (const Json& token : line["tokens"]) {
    if (!token.is_number_integer() || token.get<double>() < 0 || token.get<double>() > INT32_MAX)
      return fail(Status::invalid(fmt::format("tokens[{}] is {}, not a token id", tokens.size(), dump_json(token))));
    tokens.push_back(token.get<int32_t>());
  }
  return tokens;
}

}  // namespace

std::span<const std::string_view> reward_keys() { return kRewardKeys; }

Json RewardedPairs::to_json() const {
  Json json = {{"pairs", pairs}};
  if (pairs == 0) return json;
  json["accuracy"] = right / static_cast<double>(pairs);
  json["margin"] = margins / static_cast<double>(pairs);
  return json;
}

Result<RewardScorer> RewardScorer::create(const ModelOptions& options, int threads, bool by_trainer) {
  const auto place = TRY(place_of(options.device, threads));
  if (!place.device.on_cpu()) {
    return fail(
        Status::invalid(fmt::format("--reward does not go with --device {}: it computes on the CPU", options.device))
            .hint("leave --device out"));
  }
  auto stream = TRY(place.host_stream());
  const fs::path directory = options.model;
  auto weights = TRY(load_model(stream, options));
  auto head = TRY(model::read_reward_head(directory, weights.config().width));
  if (!head) {
    return fail(Status::invalid(fmt::format("has no {}: it is no reward model", model::kRewardHeadFile))
                    .at(directory.string())
                    .hint("train one with tandem sft preference.loss=reward"));
  }
  auto reader = TRY(trainer::RewardReader::load(directory, *head));
  TRY(weights.pack(stream));
  auto shared = std::make_shared<const model::Weights>(std::move(weights));
  auto model = TRY(model::RewardModel::create(shared, TRY(place.host_stream()), std::move(*head)));
  return RewardScorer(std::move(shared), std::move(stream), std::move(model), std::move(reader), by_trainer);
}

Result<double> RewardScorer::reward(std::span<const int32_t> tokens) {
  const auto by_engine = model_.reward(tokens);
  if (!by_engine || !by_trainer_) return by_engine;
  trainer::Tape tape(weights_->config(), weights_->config().max_positions, weights_->format());
  const auto tree = trainer::merge(std::span(&tokens, 1));
  const std::array<trainer::TokenPick, 1> last = {{{static_cast<int32_t>(tokens.size()) - 1, tokens.back()}}};
  TRY(tape.forward(stream_, *weights_, tree, last));
  return model_.head().reward(TRY(tape.states()));
}

Result<Json> RewardScorer::answer(const Json& line) {
  const bool is_tokens = line.contains("tokens");
  if (is_tokens || line.contains("messages")) {
    const auto tokens = TRY(is_tokens ? given_tokens(line) : reader_.tokens(line));
    const double score = TRY(reward(tokens));
    return Json{{"reward", score}, {"tokens", tokens.size()}};
  }
  if (!line.contains("chosen") && !line.contains("rejected"))
    return fail(Status::invalid("has neither messages, nor chosen and rejected, nor tokens"));
  const auto pair = TRY(trainer::read_preference(line));
  TRY(trainer::read_margin(line));  // as `sft` reads it, though nothing is made of it here
  double rewards[2] = {};
  for (const auto& [place, name, chat] : {std::tuple{0, "chosen", &pair.chosen}, {1, "rejected", &pair.rejected}}) {
    const auto tokens = reader_.tokens(*chat);
    if (!tokens) return fail(Status(tokens.error()).at(name));
    const auto one = reward(*tokens);
    if (!one) return fail(Status(one.error()).at(name));
    rewards[place] = *one;
  }
  ++pairs_.pairs;
  pairs_.right += rewards[0] > rewards[1] ? 1 : rewards[0] == rewards[1] ? 0.5 : 0;
  pairs_.margins += rewards[0] - rewards[1];
  return Json{{"chosen", rewards[0]}, {"rejected", rewards[1]}, {"margin", rewards[0] - rewards[1]}};
}

}  // namespace tandem::cli
