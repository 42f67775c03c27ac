#include "rollout/agent/engine_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "rollout/agent/spoken_text.h"

namespace tandem::rollout {

Result<LoadedModel> load_model(const LoadSettings& settings) {
  constexpr int kMostContext = 8192;
  auto weights = std::make_shared<model::Weights>(TRY(model::load_weights(settings.model, false, settings.format)));
  TRY(settings.place.ready(*weights));
  EngineSettings engine{.slots = 1, .speculation = Speculation::kNgram};
  engine.max_tokens =
      settings.max_tokens > 0 ? settings.max_tokens : std::min(weights->config().max_positions, kMostContext);
  std::error_code error;
  const auto whole = fs::canonical(settings.model, error);
  return LoadedModel{.name = (error ? settings.model : whole).filename().string(),
                     .conversation = TRY(Conversation::load(settings.model, settings.conversation)),
                     .source = std::make_unique<OwnEngine>(TRY(Engine::create(weights, 0, settings.place, engine)))};
}

EngineModel::EngineModel(TurnSource& source, const Conversation& conversation, const EngineModelSettings& settings,
                         const envs::Task& task)
    : source_(source),
      conversation_(conversation),
      settings_(settings),
      opening_(envs::opening(task, settings.tools, settings.foreign_tools, conversation.listing(), settings.system)) {
  trajectory_.key = {1, 1};
  trajectory_.numerics_id = source.numerics_id();
}

Result<std::vector<int32_t>> EngineModel::next_tokens(std::span<const envs::ToolOutcome> replies) const {
  if (turns_ == 1) {
    auto prompt = TRY(conversation_.prompt(opening_));
    if (static_cast<int>(prompt.size()) < source_.max_tokens()) return prompt;
    return fail(
        Status::invalid(fmt::format("the task and the list of files take {} tokens, and the model has room for {}",
                                    prompt.size(), source_.max_tokens())));
  }
  Reply reply;
  for (const auto& outcome : replies) reply.results.push_back(outcome.output);
  return std::move(TRY(conversation_.next_turn(last_turn_, said_, reply, opening_.tools)).tokens);
}

Result<AgentTurn> EngineModel::turn(std::span<const envs::ToolOutcome> replies, const TurnListener& listener,
                                    const std::stop_token& stop) {
  AgentTurn turn{.model = settings_.name};
  ++turns_;
  const auto no_room = fmt::format("the {} tokens that all turns have together", source_.max_tokens());
  trajectory_.append(TRY(next_tokens(replies)));
  turn.prompt_ids = trajectory_.tokens;
  SpokenText spoken(conversation_.format(), opening_.tools);
  const TurnRequest request{.max_new_tokens = settings_.max_new_tokens,
                            .sampling = settings_.sampling,
                            .seed = settings_.seed,
                            .stop_tokens = conversation_.end_tokens()};
  const auto on_token = [&](const SampledToken& token) {
    trajectory_.append_sampled(token.token, token.logprob, token.version);
    turn.completion_ids.push_back(token.token);
    turn.logprobs.push_back(token.logprob);
    if (token.turn_ended && token.end == TurnEnd::kLength)
      turn.cut_by = fmt::format("the {} tokens of a turn", settings_.max_new_tokens);
    if (token.turn_ended && token.end == TurnEnd::kContext) turn.cut_by = no_room;
    if (!listener.text) return;
    if (const auto piece = spoken.grow(conversation_.text_of(turn.completion_ids)); !piece.empty())
      listener.text(piece);
  };
  Status status = source_.sample(settings_.conversation, turn.prompt_ids, request, on_token, stop);
  if (status.code() == Code::kExhausted) {
    turn.cut_by = no_room;
    return turn;
  }
  TRY(std::move(status));
  turn.use = {.prompt = turn.prompt_ids.size(), .cached = std::nullopt, .completion = turn.completion_ids.size()};
  last_turn_ = turn.completion_ids;
  said_ = conversation_.read(last_turn_, opening_.tools);
  turn.text = said_.text;
  turn.reasoning = said_.reasoning;
  turn.calls = said_.calls;
  for (size_t i = 0; i < turn.calls.size(); ++i) {
    const auto& id = turn.calls[i].id;
    turn.call_ids.push_back(id.empty() ? fmt::format("call_{}_{}", turns_, i + 1) : id);
  }
  return turn;
}

}  // namespace tandem::rollout
