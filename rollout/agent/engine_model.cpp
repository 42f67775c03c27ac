#include "rollout/agent/engine_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "rollout/agent/compaction.h"
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
  auto conversation = TRY(Conversation::load(settings.model, settings.conversation));
  auto source = std::make_unique<OwnEngine>(TRY(Engine::create(weights, 0, settings.place, engine)));
  return LoadedModel{.name = (error ? settings.model : whole).filename().string(),
                     .conversation = std::move(conversation),
                     .source = std::move(source)};
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

Result<std::vector<int32_t>> EngineModel::opening_tokens() const {
  auto prompt = TRY(conversation_.prompt(opening_));
  if (static_cast<int>(prompt.size()) < source_.max_tokens()) return prompt;
  return fail(
      Status::invalid(fmt::format("the task and the list of files take {} tokens, and the model has room for {}",
                                  prompt.size(), source_.max_tokens())));
}

Result<EngineModel::Piece> EngineModel::sample(std::span<const int32_t> next,
                                               const std::function<void(const Piece&)>& on_token,
                                               const std::stop_token& stop) {
  const auto no_room = fmt::format("the {} tokens that all turns have together", source_.max_tokens());
  trajectory_.append(next);
  const auto tokens = trajectory_.last_tokens();
  Piece piece{.prompt = {tokens.begin(), tokens.end()}, .tokens = {}, .logprobs = {}, .cut_by = {}};
  const TurnRequest request{.max_new_tokens = settings_.max_new_tokens,
                            .sampling = settings_.sampling,
                            .seed = seed_of_segment(settings_.seed, trajectory_.later_segments.size()),
                            .stop_tokens = conversation_.end_tokens()};
  const auto take = [&](const SampledToken& token) {
    trajectory_.append_sampled(token.token, token.logprob, token.version);
    piece.tokens.push_back(token.token);
    piece.logprobs.push_back(token.logprob);
    if (token.turn_ended && token.end == TurnEnd::kLength)
      piece.cut_by = fmt::format("the {} tokens of a turn", settings_.max_new_tokens);
    if (token.turn_ended && token.end == TurnEnd::kContext) piece.cut_by = no_room;
    on_token(piece);
  };
  Status status = source_.sample(settings_.conversation, piece.prompt, request, take, stop);
  if (status.code() == Code::kExhausted)
    piece.cut_by = no_room;
  else
    TRY(std::move(status));
  return piece;
}

// What the summary cost is part of the turn that follows.
Result<std::vector<int32_t>> EngineModel::compact(const Reply& reply, AgentTurn& turn, const TurnListener& listener,
                                                  const std::stop_token& stop) {
  if (listener.trouble)
    listener.trouble(fmt::format("the conversation has {} tokens: it is summed up", trajectory_.last_tokens().size()));
  const auto asked =
      TRY(ask_for_summary(conversation_, settings_.compaction, last_turn_, said_, reply, opening_.tools));
  const Piece piece = TRY(sample(
      asked.tokens, [](const Piece&) {}, stop));
  turn.use.completion = piece.tokens.size();
  turn.summary = summary_in(conversation_, piece.tokens, opening_.tools);
  turn.cut_by = piece.cut_by;
  if (turn.cut_by.empty() && turn.summary.empty()) turn.cut_by = "a summary without a word";
  if (!turn.cut_by.empty()) return std::vector<int32_t>();
  source_.forget(settings_.conversation);
  auto next = TRY(conversation_.prompt(opening_after(opening_, settings_.compaction, turn.summary, "")));
  trajectory_.begin_segment();
  return next;
}

Result<AgentTurn> EngineModel::turn(std::span<const envs::ToolOutcome> replies, const TurnListener& listener,
                                    const std::stop_token& stop) {
  AgentTurn turn{.model = settings_.name};
  turn.use.completion = 0;
  std::vector<int32_t> next;
  if (++turns_ == 1) {
    next = TRY(opening_tokens());
  } else {
    Reply reply;
    for (const auto& outcome : replies) reply.results.push_back(outcome.output);
    next = std::move(TRY(conversation_.next_turn(last_turn_, said_, reply, opening_.tools)).tokens);
    const size_t tokens = trajectory_.last_tokens().size() + next.size();
    if (is_compaction_due(settings_.compaction, tokens, static_cast<uint32_t>(trajectory_.later_segments.size())))
      next = TRY(compact(reply, turn, listener, stop));
    if (!turn.cut_by.empty()) return turn;
  }
  SpokenText spoken(conversation_.format(), opening_.tools);
  const auto say = [&](const Piece& piece) {
    if (!listener.text) return;
    if (const auto text = spoken.grow(conversation_.text_of(piece.tokens)); !text.empty()) listener.text(text);
  };
  Piece piece = TRY(sample(next, say, stop));
  turn.prompt_ids = std::move(piece.prompt);
  turn.cut_by = std::move(piece.cut_by);
  turn.completion_ids = std::move(piece.tokens);
  turn.logprobs = std::move(piece.logprobs);
  if (turn.completion_ids.empty()) {
    if (turn.use.completion == 0u) turn.use.completion.reset();
    return turn;
  }
  turn.use.prompt = turn.prompt_ids.size();
  *turn.use.completion += turn.completion_ids.size();
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
