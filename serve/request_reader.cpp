#include "serve/request_reader.h"

#include <fmt/format.h>

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

ReadRequest read_request(const ModelSet& models, const Endpoint& endpoint, const FieldTable& table,
                         std::string_view body, const std::string& priority, const std::string& id, double now) {
  ReadRequest read;
  Fields fields;
  bool unknown = false;
  auto prepared = shielded([&]() -> Result<Prepared> {
    TRY(read_fields(fields, table, endpoint.required, body));
    const std::string asked = fields.text("model");
    read.lane = models.lane_of(asked);
    unknown = read.lane == nullptr;
    if (unknown) return fail(Status::not_found("model"));
    const std::string name = asked.empty() ? read.lane->settings().names.front() : asked;
    return endpoint.prepare(fields, read.lane->view(name), id, static_cast<int64_t>(now));
  });
  if (unknown) {
    read.refused = models.unknown(fields.text("model"));
  } else if (!prepared) {
    read.refused = error_response(http_status_of(prepared.error()), prepared.error().to_string(), fields.param());
  } else {
    read.prepared = std::move(*prepared);
    const auto known = priority_of(priority);
    if (known) read.prepared.generation.priority = *known;
    if (!known && !priority.empty()) {
      read.refused =
          error_response(400, fmt::format("X-Tandem-Priority: must be one of {}", fmt::join(kPriorities, ", ")));
    }
  }
  return read;
}

}  // namespace tandem::serve
