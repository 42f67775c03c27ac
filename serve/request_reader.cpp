#include "serve/request_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "serve/api_error.h"

namespace tandem::serve {

Status read_fields(Fields& fields, const FieldTable& table, std::span<const std::string_view> required,
                   std::string_view body) {
  TRY(fields.read(table, body));
  for (const auto name : required) {
    if (!fields.has(name)) return fields.wrong(name, fmt::format("\"{}\" is missing", name));
  }
  return {};
}

namespace {

// Whose requests keep to one version of a model: what the client says of it, else its key.
std::string session_of(const Fields& fields, const Around& around) {
  if (!around.session.empty()) return around.session;
  for (const auto name : {"prompt_cache_key", "safety_identifier", "user"}) {
    const Json* const value = fields.get(name);
    if (value != nullptr && value->is_string()) return around.key->name + '\n' + value->get<std::string>();
  }
  return around.key->name;
}

}  // namespace

std::optional<wire::HttpResponse> refusal_of_model(const KeyTerms& key, const std::string& name) {
  if (key.models.empty() || std::ranges::find(key.models, name) != key.models.end()) return std::nullopt;
  return error_response(
      403,
      fmt::format("this key may not use the model \"{}\"; it may use {}", name.substr(0, 200), join(key.models, ", ")),
      "model");
}

ReadRequest read_request(const ModelSet& models, const Endpoint& endpoint, const FieldTable& table,
                         std::string_view body, const Around& around, Version version, double now) {
  ReadRequest read;
  Fields fields;
  bool unknown = false;
  auto prepared = shielded([&]() -> Result<Prepared> {
    TRY(read_fields(fields, table, endpoint.required, body));
    const std::string asked = fields.text("model");
    read.session = session_of(fields, around);
    auto chosen = models.choose(asked, read.session, version);
    read.lane = std::move(chosen.lane);
    read.candidate = chosen.candidate;
    read.copied = chosen.copied;
    unknown = read.lane == nullptr;
    if (unknown) return fail(Status::not_found("model"));
    const std::string name = asked.empty() ? read.lane->settings().names.front() : asked;
    read.refused = refusal_of_model(*around.key, name);
    if (read.refused) return Prepared();
    auto view = read.lane->view(name);
    view.stored = around.stored;
    view.keeps = around.keeps;
    view.key = around.key->name;
    auto made = TRY(endpoint.prepare(fields, view, around.id, static_cast<int64_t>(now)));
    if (chosen.adapter) read.adapter = asked;
    made.generation.turn.adapter = std::move(chosen.adapter);
    return made;
  });
  if (unknown) {
    read.refused = models.unknown(fields.text("model"));
  } else if (!prepared) {
    read.refused = error_response(http_status_of(prepared.error()), prepared.error().to_string(), fields.param());
  } else {
    if (read.refused) return read;
    read.prepared = std::move(*prepared);
    const auto known = priority_of(around.priority);
    auto& priority = read.prepared.generation.priority;
    if (known) priority = *known;
    priority = std::max(priority, around.key->highest);
    if (!known && !around.priority.empty()) {
      read.refused =
          error_response(400, fmt::format("X-Tandem-Priority: must be one of {}", fmt::join(kPriorities, ", ")));
    }
  }
  return read;
}

}  // namespace tandem::serve
