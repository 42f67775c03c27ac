#include "serve/control.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "base/json.h"
#include "serve/api_error.h"
#include "serve/query.h"

namespace tandem::serve {
namespace {

constexpr Control::Path kControlPaths[] = {
    {"/pause", "POST",
     "New answers wait; mode=wait (default) lets those that run end, keep stops them, abort ends them"},
    {"/resume", "POST", "Answers go on"},
    {"/is_paused", "GET", "Whether answers wait"},
    {"/sleep", "POST", "Gives back the memory of weights and pages; 409 while answers run"},
    {"/wake_up", "POST", "Reads the weights again; answers go on"},
    {"/is_sleeping", "GET", "Whether weights and pages were given back"},
};

}  // namespace

std::span<const Control::Path> Control::paths() { return kControlPaths; }

const Control::Path* Control::find(std::string_view path) {
  const auto* const found = std::ranges::find(kControlPaths, path, &Path::path);
  return found == std::end(kControlPaths) ? nullptr : found;
}

bool Control::any_paused() const {
  return std::ranges::any_of(models_.lanes(), [](const auto& lane) { return lane->paused(); });
}
bool Control::any_asleep() const {
  return std::ranges::any_of(models_.lanes(), [](const auto& lane) { return lane->asleep(); });
}

std::optional<std::string> Control::waits() const {
  if (any_asleep()) return "the server sleeps; POST /wake_up wakes it";
  if (any_paused()) return "the server is paused; POST /resume lets it go on";
  return std::nullopt;
}

Result<PauseMode> Control::mode_of(const wire::HttpRequest& request) {
  std::string mode = query_parameter(request.query, "mode");
  if (mode.empty() && !request.body.empty()) {
    const auto body = parse_json(request.body);
    if (!body || !body->is_object())
      return fail(Status::invalid("the body must be empty or a JSON object, such as {\"mode\": \"wait\"}"));
    const auto given = body->find("mode");
    if (given != body->end()) mode = given->is_string() ? given->get<std::string>() : dump_json(*given);
  }
  if (mode.empty() || mode == "wait") return PauseMode::kWait;
  if (mode == "keep") return PauseMode::kKeep;
  if (mode == "abort") return PauseMode::kAbort;
  return fail(Status::invalid(fmt::format("\"mode\" is \"{}\", expected wait, keep or abort", mode.substr(0, 40))));
}

void Control::answer(const Path& path, const wire::HttpRequest& request, const wire::HttpReply& reply) {
  const auto who = access_.admin_of(path.path, request);
  if (!who) return reply(error_response(403, who.error().message()));
  if (path.path == "/is_paused") return reply(json_response(200, {{"is_paused", any_paused()}}));
  if (path.path == "/is_sleeping") return reply(json_response(200, {{"is_sleeping", any_asleep()}}));
  if (waking_) return reply(error_response(409, "the server is waking; try again when it has"));
  if (path.path == "/pause") {
    const auto mode = mode_of(request);
    if (!mode) return reply(error_response(400, mode.error().message(), "mode"));
    spdlog::info("an admin ({}) pauses the models", *who);
    for (const auto& lane : models_.lanes()) lane->pause(*mode);
    return reply(json_response(200, {{"status", "paused"}}));
  }
  if (path.path == "/resume") {
    spdlog::info("an admin ({}) lets the models go on", *who);
    for (const auto& lane : models_.lanes()) lane->resume();
    return reply(json_response(200, {{"status", "resumed"}}));
  }
  if (path.path == "/sleep") {
    const bool runs = std::ranges::any_of(models_.lanes(), [](const auto& lane) { return lane->gauges().running > 0; });
    if (runs) {
      return reply(error_response(
          409, "answers are being sampled; POST /pause first, with mode=abort where they are not to end"));
    }
    spdlog::info("an admin ({}) puts the models to sleep", *who);
    for (const auto& lane : models_.lanes()) lane->sleep();
    return reply(json_response(200, {{"status", "asleep"}}));
  }
  spdlog::info("an admin ({}) wakes the models", *who);
  wake(reply);
}

void Control::wake(const wire::HttpReply& reply) {
  std::vector<std::shared_ptr<Lane>> asleep;
  for (const auto& lane : models_.lanes()) {
    if (lane->asleep()) asleep.push_back(lane);
  }
  using Engines = std::vector<std::pair<std::shared_ptr<Lane>, Lane::Awake>>;
  waking_ = queue_.submit([this, asleep, reply]() -> WorkQueue::Completion {
    auto engines = std::make_shared<Engines>();
    Status status;
    for (const auto& lane : asleep) {
      auto engine = lane->load_awake();
      if (!engine) {
        status = std::move(engine).error();
        break;
      }
      engines->emplace_back(lane, std::move(*engine));
    }
    return [this, engines, status, reply] {
      waking_ = false;
      for (auto& [lane, engine] : *engines) lane->wake(std::move(engine));
      if (!status.ok()) return reply(error_response(500, "a model was not loaded: " + status.to_string()));
      reply(json_response(200, {{"status", "awake"}}));
    };
  });
  if (!waking_) reply(error_response(429, "too many requests wait to be read; try again later"));
}

}  // namespace tandem::serve
