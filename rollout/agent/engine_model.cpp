#include "rollout/agent/engine_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/chat_template.h"
#include "rollout/agent/spoken_text.h"

namespace tandem::rollout {
namespace {

constexpr SequenceId kSequence = 1;
constexpr int kMostContext = 8192;

}  // namespace

Result<std::unique_ptr<EngineModel>> EngineModel::load(const EngineModelSettings& settings, const envs::Task& task) {
  auto packing = TRY(kernels::Stream::cpu(settings.threads));
  auto weights = std::make_shared<model::Weights>(TRY(model::load_weights(settings.model, false, settings.format)));
  TRY(weights->pack(packing));
  const int made_for = weights->config().max_positions;
  EngineSettings engine{.slots = 1};
  engine.max_tokens = settings.max_tokens > 0 ? settings.max_tokens : std::min(made_for, kMostContext);
  auto conversation = TRY(Conversation::load(settings.model));
  std::unique_ptr<EngineModel> made(new EngineModel(
      TRY(Engine::create(weights, 0, TRY(kernels::Stream::cpu(settings.threads)), engine)), std::move(conversation)));
  made->dialect_ = model::dialect_of_template(TRY(model::ChatTemplate::load(settings.model)).source(false));
  made->request_ = {.max_new_tokens = settings.max_new_tokens,
                    .sampling = settings.sampling,
                    .seed = settings.seed,
                    .stop_tokens = made->conversation_.end_tokens()};
  std::error_code error;
  const auto whole = fs::canonical(settings.model, error);
  made->name_ = (error ? settings.model : whole).filename().string();
  made->opening_ = envs::prompt(task, settings.tools, settings.foreign_tools);
  made->tools_ = envs::tool_schemas(settings.tools);
  for (auto& tool : envs::tool_schemas(settings.foreign_tools)) made->tools_.push_back(std::move(tool));
  made->trajectory_.key = {1, 1};
  made->trajectory_.numerics_id = made->engine_.numerics_id();
  return made;
}

Status EngineModel::begin_turn(std::span<const envs::ToolOutcome> replies) {
  if (!engine_.knows(kSequence)) {
    std::vector<ChatMessage> messages;
    for (const auto& message : opening_) messages.push_back({message.role, message.content});
    auto prompt = TRY(conversation_.prompt(messages));
    if (static_cast<int>(prompt.size()) >= engine_.settings().max_tokens) {
      return Status::invalid(fmt::format("the task and the list of files take {} tokens, and the model has room for {}",
                                         prompt.size(), engine_.settings().max_tokens));
    }
    TRY(engine_.add(kSequence, prompt, request_));
    trajectory_.append(prompt);
    return {};
  }
  const auto message = envs::render_responses(replies);
  const auto tokens = TRY(conversation_.next_turn({message.role, message.content}));
  TRY(engine_.extend(kSequence, tokens, request_));
  trajectory_.append(tokens);
  return {};
}

Result<AgentTurn> EngineModel::turn(std::span<const envs::ToolOutcome> replies, const TurnListener& listener,
                                    const std::stop_token& stop) {
  AgentTurn turn{.model = name_};
  ++turns_;
  const auto no_room = fmt::format("the {} tokens that all turns have together", engine_.settings().max_tokens);
  if (Status status = begin_turn(replies); !status.ok()) {
    if (status.code() != Code::kExhausted) return fail(std::move(status));
    turn.cut_by = no_room;
    return turn;
  }
  turn.prompt_ids = trajectory_.tokens;
  SpokenText spoken(dialect_);
  for (bool ended = false; !ended;) {
    if (stop.stop_requested()) return fail(Status::cancelled("the turn was cancelled"));
    for (const SampledToken& token : TRY(engine_.step())) {
      trajectory_.append_sampled(token.token, token.logprob, token.version);
      turn.completion_ids.push_back(token.token);
      turn.logprobs.push_back(token.logprob);
      ended = token.turn_ended;
      if (ended && token.end == TurnEnd::kLength)
        turn.cut_by = fmt::format("the {} tokens of a turn", request_.max_new_tokens);
      if (ended && token.end == TurnEnd::kContext) turn.cut_by = no_room;
    }
    if (const auto piece = spoken.grow(conversation_.text_of(turn.completion_ids)); !piece.empty() && listener.text)
      listener.text(piece);
  }
  turn.use = {.prompt = turn.prompt_ids.size(), .cached = std::nullopt, .completion = turn.completion_ids.size()};
  read_calls(turn, conversation_.text_of(turn.completion_ids));
  return turn;
}

void EngineModel::read_calls(AgentTurn& turn, const std::string& said) const {
  auto parsed = envs::parse_message(said);
  turn.text = std::move(parsed.text);
  turn.calls = std::move(parsed.calls);
  // A model of another dialect may fall back on its own in spite of what the prompt says.
  if (turn.calls.empty() && dialect_ != model::ToolDialect::kHermes) {
    auto own = model::parse_tool_calls(dialect_, said);
    if (model::has_text_values(dialect_)) model::give_types(tools_, own.calls);
    turn.text = own.content;
    for (const size_t i : own.order) {
      if (i < own.calls.size()) {
        turn.calls.push_back({{own.calls[i].name, own.calls[i].arguments}, ""});
      } else {
        turn.calls.push_back({{}, fmt::format("Error: {}", own.errors[i - own.calls.size()].message)});
      }
    }
  }
  for (size_t i = 0; i < turn.calls.size(); ++i) turn.call_ids.push_back(fmt::format("call_{}_{}", turns_, i + 1));
}

}  // namespace tandem::rollout
