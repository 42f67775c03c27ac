#include "serve/rewards.h"

#include <fmt/format.h>

#include <algorithm>

#include "serve/api_error.h"
#include "serve/lane.h"
#include "serve/model_set.h"
#include "serve/request_reader.h"

namespace tandem::serve {
namespace {

constexpr std::string_view kRewards = "/v1/rewards";
constexpr const char* kRewardTerm = "reward_model";
constexpr size_t kMostWaitingRewards = 1024;  // of a key
constexpr std::string_view kRewardNeeds[] = {"messages"};

// Those after chat_template_kwargs are of an episode as `reward.http` sends it; the model sees its messages alone.
constexpr FieldRow kRewardFields[] = {
    {"model", Effect::kTakes, R"({"type":"string"})", "Default: the first model with a reward head."},
    {"messages", Effect::kTakes, R"({"type":"array","minItems":1})",
     "A conversation with a message of the assistant; what follows the last of these is not read."},
    {"tools", Effect::kTakes, R"({"type":"array"})", "Of the conversation."},
    {"chat_template_kwargs", Effect::kTakes, R"({"type":"object"})", "Variables of the template."},
    {"version", Effect::kIgnored, R"({"type":"integer"})", ""},
    {"task", Effect::kIgnored, R"({"type":"object"})", ""},
    {"outcome", Effect::kIgnored, R"({"type":"string"})", ""},
    {"answer", Effect::kIgnored, R"({"type":"string"})", ""},
    {"calls", Effect::kIgnored, R"({"type":"array"})", ""},
    {"files", Effect::kIgnored, R"({"type":"array"})", ""},
    {"files_complete", Effect::kIgnored, R"({"type":"boolean"})", ""},
    {"grade", Effect::kIgnored, R"({"type":"object"})", ""},
    {"user", Effect::kIgnored, R"({"type":"string"})", ""},
};

Result<double> reward_of(Fields& fields, ServedRewards& rewards) {
  Json conversation = Json::object();
  for (const char* key : {"messages", "tools", "chat_template_kwargs"}) {
    if (const Json* const value = fields.get(key)) conversation[key] = *value;
  }
  const auto tokens = shielded([&] { return rewards.read(conversation); });
  if (!tokens) return fail(fields.wrong("messages", Status(tokens.error())));
  auto reward = rewards.model.reward(*tokens);
  if (!reward && reward.error().code() == Code::kInvalid)
    return fail(fields.wrong("messages", std::move(reward).error()));
  return reward;
}

}  // namespace

Result<std::shared_ptr<ServedRewards>> load_rewards(const fs::path& directory, const MakeRewardReader& make,
                                                    std::shared_ptr<const model::Weights> weights,
                                                    const model::Place& place) {
  auto head = TRY(model::read_reward_head(directory, weights->config().width));
  if (!head || !make) return nullptr;
  auto stream = TRY(place.host_stream());
  if (!place.device.on_cpu()) {
    auto of_host = std::make_shared<model::Weights>(TRY(model::load_weights(directory, false, weights->format())));
    TRY(of_host->pack(stream));
    weights = std::move(of_host);
  }
  auto read = TRY(make(directory, *head));
  auto rewards = TRY(model::RewardModel::create(std::move(weights), std::move(stream), std::move(*head)));
  return std::make_shared<ServedRewards>(ServedRewards{std::move(read), std::move(rewards)});
}

RewardRequests::RewardRequests(const ModelSet& models)
    : models_(models), fields_({kRewardFields}), queue_(1, kMostWaitingRewards) {}

bool RewardRequests::has(std::string_view path) { return path == kRewards; }

DescribedPath RewardRequests::described() const {
  return {kRewards, "post", "The reward of a conversation, by a reward model", &fields_, kRewardNeeds};
}

void RewardRequests::answer(wire::HttpRequest request, std::shared_ptr<const KeyTerms> key,
                            const wire::HttpReply& reply) {
  const uint64_t turn = std::hash<std::string>{}(key->name);  // keys take turns
  const bool taken = queue_.submit(
      [this, reply, body = std::move(request.body), key = std::move(key)]() -> WorkQueue::Completion {
        auto response = std::make_shared<wire::HttpResponse>(respond(body, *key));
        return [reply, response] { reply(std::move(*response)); };
      },
      turn);
  if (!taken) reply(error_response(429, "too many rewards wait to be computed; try again later"));
}

wire::HttpResponse RewardRequests::respond(const std::string& body, const KeyTerms& key) const {
  Fields fields;
  if (const Status status = read_fields(fields, fields_, kRewardNeeds, body); !status.ok())
    return error_response(400, status.to_string(), fields.param());
  std::string name = fields.text("model");
  if (name.empty()) {
    const auto all = models_.all();
    const auto found =
        std::ranges::find_if(all, [](const ServedModel& one) { return one.current->rewards().is_of_rewards(); });
    name = (found == all.end() ? all.front() : *found).names.front();
  }
  const auto chosen = models_.choose(name, "", Version::kCurrent);
  if (!chosen.lane) return models_.unknown(name);
  if (auto refusal = refusal_of_model(key, name)) return std::move(*refusal);
  const RewardSeat& seat = chosen.lane->rewards();
  if (chosen.adapter || !seat.is_of_rewards()) {
    const char* const why = chosen.adapter ? "an adapter has no reward head of its own"
                                           : "it has no reward_head.safetensors beside its weights";
    return error_response(
        400, fmt::format("\"{}\" is no reward model: {}; tandem sft preference.loss=reward trains one", name, why),
        "model");
  }
  const auto rewards = seat.get();
  if (!rewards) return error_response(503, fmt::format("\"{}\" is asleep", name));
  const auto reward = reward_of(fields, *rewards);
  if (!reward) return error_response(http_status_of(reward.error()), reward.error().to_string(), fields.param());
  return json_response(200, {{"terms", {{kRewardTerm, *reward}}}});
}

}  // namespace tandem::serve
