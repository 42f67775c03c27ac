// Events as JSON, the form in which the log keeps them.
#include "rollout/books/events.h"

#include <fmt/format.h>

#include "base/overloaded.h"

namespace tandem::rollout {

namespace {

Json keys_to_json(const std::vector<EpisodeKey>& keys) {
  Json list = Json::array();
  for (const EpisodeKey& key : keys) list.push_back({key.episode, key.attempt});
  return list;
}

std::vector<EpisodeKey> keys_from_json(const Json& json) {
  std::vector<EpisodeKey> keys;
  for (const Json& key : json) keys.push_back({key.at(0).get<uint64_t>(), key.at(1).get<uint32_t>()});
  return keys;
}

EpisodeKey key_of(const Json& json) { return {json.at("episode").get<uint64_t>(), json.at("attempt").get<uint32_t>()}; }

}  // namespace

Json to_json(const Event& event) {
  return std::visit(
      Overloaded{
          [](const PlanSet& e) -> Json {
            return {{"event", "plan_set"}, {"format", kLogFormat}, {"plan", to_json(e.plan)}};
          },
          [](const Extended& e) -> Json {
            return {{"event", "extended"}, {"steps", e.steps}};
          },
          [](const ConfigSet& e) -> Json {
            return {{"event", "config_set"}, {"values", e.values}};
          },
          [](const WorkerJoined& e) -> Json {
            return {{"event", "worker_joined"}, {"worker", e.worker}, {"holding", keys_to_json(e.holding)}};
          },
          [](const WorkerLost& e) -> Json {
            return {{"event", "worker_lost"}, {"worker", e.worker}};
          },
          [](const Pull& e) -> Json {
            return {{"event", "pull"}, {"worker", e.worker}, {"credits", e.credits}};
          },
          [](const Commit& e) -> Json {
            Json json = {{"event", "commit"},
                         {"worker", e.worker},
                         {"episode", e.key.episode},
                         {"attempt", e.key.attempt},
                         {"outcome", to_string(e.outcome)},
                         {"reason", e.reason},
                         {"reward", e.reward ? Json(*e.reward) : Json()},
                         {"terms", e.terms},
                         {"first_version", e.first_version},
                         {"last_version", e.last_version},
                         {"turns", e.turns},
                         {"tool_calls", e.tool_calls},
                         {"retokenised_turns", e.retokenised_turns},
                         {"steals", e.steals},
                         {"prompt_tokens", e.prompt_tokens},
                         {"sampled_tokens", e.sampled_tokens},
                         {"seconds", e.seconds}};
            if (e.branch_turn > 0) {
              json["branch"] = {{"turn", e.branch_turn},
                                {"family", e.branch_family},
                                {"inherited", {e.inherited_tokens, e.inherited_calls}}};
            }
            if (e.compactions > 0) json["compactions"] = e.compactions;
            if (!e.turn_rewards.empty()) json["turn_rewards"] = e.turn_rewards;
            if (!e.shown.empty()) json["shown"] = e.shown;
            if (e.behaviour) json["behaviour"] = to_json(*e.behaviour);
            return json;
          },
          [](const TrainerJoined& e) -> Json {
            return {{"event", "trainer_joined"}, {"step", e.step}};
          },
          [](const Trained& e) -> Json {
            return {{"event", "trained"}, {"step", e.step}, {"missing", keys_to_json(e.missing)}};
          },
          [](const Checkpointed& e) -> Json {
            return {{"event", "checkpointed"}, {"step", e.step}};
          },
          [](const Expired& e) -> Json {
            return {{"event", "expired"}, {"episode", e.key.episode}, {"attempt", e.key.attempt}};
          },
          [](const Claimed& e) -> Json {
            Json json = {
                {"event", "claimed"}, {"worker", e.worker}, {"episode", e.key.episode}, {"attempt", e.key.attempt}};
            if (e.claims) json["claims"] = *e.claims;
            return json;
          },
          [](const StealEnded& e) -> Json {
            return {{"event", "steal_ended"}, {"thief", e.thief}};
          },
          [](const Compared& e) -> Json {
            Json list = Json::array();
            for (const auto& [key, value] : e.preferred) list.push_back({key.episode, key.attempt, value});
            return {{"event", "compared"}, {"group", e.group}, {"preferred", list}, {"failure", e.failure}};
          },
          [](const TakenOver& e) -> Json {
            return {{"event", "taken_over"}, {"epoch", e.epoch}, {"at", e.at}};
          },
          [](const FinishRequested&) -> Json {
            return {{"event", "finish_requested"}};
          },
          [](const CoordinatorStarted&) -> Json {
            return {{"event", "coordinator_started"}};
          },
      },
      event);
}

Result<Event> event_from_json(const Json& json) {
  try {
    const auto name = json.at("event").get<std::string>();
    if (name == "plan_set") {
      TRY(format_of(json, kLogFormat));
      return PlanSet{TRY(plan_from_json(json.at("plan")))};
    }
    if (name == "extended") return Extended{json.at("steps").get<int>()};
    if (name == "config_set") return ConfigSet{json.at("values")};
    if (name == "worker_joined")
      return WorkerJoined{json.at("worker").get<std::string>(), keys_from_json(json.at("holding"))};
    if (name == "worker_lost") return WorkerLost{json.at("worker").get<std::string>()};
    if (name == "pull") return Pull{json.at("worker").get<std::string>(), json.at("credits").get<uint32_t>()};
    if (name == "commit") {
      const auto outcome = TRY(outcome_from(json.at("outcome").get<std::string>()));
      Commit c{.worker = json.at("worker").get<std::string>(),
               .key = key_of(json),
               .outcome = outcome,
               .reason = json.at("reason").get<std::string>(),
               .reward = {},
               .terms = json.at("terms").get<std::map<std::string, double>>(),
               .first_version = json.at("first_version").get<uint64_t>(),
               .last_version = json.at("last_version").get<uint64_t>(),
               .turns = json.at("turns").get<uint32_t>(),
               .tool_calls = json.at("tool_calls").get<uint32_t>(),
               .retokenised_turns = json.value("retokenised_turns", 0u),  // logs of before have none
               .compactions = json.value("compactions", 0u),
               .steals = json.at("steals").get<uint32_t>(),
               .prompt_tokens = json.at("prompt_tokens").get<uint32_t>(),
               .sampled_tokens = json.at("sampled_tokens").get<uint32_t>(),
               .seconds = json.at("seconds").get<double>()};
      if (json.contains("turn_rewards")) c.turn_rewards = json.at("turn_rewards").get<std::vector<double>>();
      if (json.contains("branch")) {  // of plans with branches
        const Json& branch = json.at("branch");
        c.branch_turn = branch.at("turn").get<uint32_t>();
        c.branch_family = branch.at("family").get<uint64_t>();
        c.inherited_tokens = branch.at("inherited").at(0).get<uint32_t>();
        c.inherited_calls = branch.at("inherited").at(1).get<uint32_t>();
      }
      c.shown = json.value("shown", std::string());
      if (json.contains("behaviour")) c.behaviour = TRY(behaviour_from_json(json.at("behaviour")));
      if (!json.at("reward").is_null()) c.reward = json.at("reward").get<double>();
      return c;
    }
    if (name == "trainer_joined") return TrainerJoined{json.at("step").get<uint64_t>()};
    if (name == "trained") return Trained{json.at("step").get<uint64_t>(), keys_from_json(json.at("missing"))};
    if (name == "checkpointed") return Checkpointed{json.at("step").get<uint64_t>()};
    if (name == "expired") return Expired{key_of(json)};
    if (name == "claimed") {
      Claimed claimed{.key = key_of(json), .worker = json.at("worker").get<std::string>()};
      if (json.contains("claims")) claimed.claims = json.at("claims").get<uint32_t>();
      return claimed;
    }
    if (name == "steal_ended") return StealEnded{json.at("thief").get<std::string>()};
    if (name == "compared") {
      Compared compared{json.at("group").get<uint64_t>(), {}, json.at("failure").get<std::string>()};
      for (const Json& each : json.at("preferred")) {
        compared.preferred.push_back(
            {{each.at(0).get<uint64_t>(), each.at(1).get<uint32_t>()}, each.at(2).get<double>()});
      }
      return compared;
    }
    if (name == "taken_over") return TakenOver{json.at("epoch").get<uint64_t>(), json.at("at").get<std::string>()};
    if (name == "finish_requested") return FinishRequested{};
    if (name == "coordinator_started") return CoordinatorStarted{};
    return fail(Status::corrupt(fmt::format("unknown event \"{}\"", name)));
  } catch (const Json::exception& error) {
    return fail(Status::corrupt(fmt::format("event cannot be read: {}", error.what())));
  }
}

}  // namespace tandem::rollout
