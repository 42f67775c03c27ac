#include "serve/openapi.h"

namespace tandem::serve {
namespace {

Json answer(std::string_view about, std::string_view type, Json schema) {
  return {{"description", about}, {"content", {{std::string(type), {{"schema", std::move(schema)}}}}}};
}

constexpr DescribedPath kPages[] = {
    {"/v1/models", "get", "The models", nullptr, {}},
    {"/health", "get", "200 when it can sample", nullptr, {}},
    {"/ready", "get", "The same, and nothing waits for an admin", nullptr, {}},
    {"/version", "get", "The version of the server", nullptr, {}},
    {"/load", "get", "How many requests it works on", nullptr, {}},
    {"/metrics", "get", "Counters, for Prometheus", nullptr, {}},
    {"/openapi.json", "get", "This document", nullptr, {}},
};

}  // namespace

std::span<const DescribedPath> pages() { return kPages; }

Json openapi_document(std::span<const DescribedPath> paths, std::string_view version) {
  Json document = {{"openapi", "3.1.0"},
                   {"info", {{"title", "tandem serve"}, {"version", version}}},
                   {"security", Json::array({Json::object(), {{"key", Json::array()}}})}};
  document["components"]["securitySchemes"]["key"] = {{"type", "http"}, {"scheme", "bearer"}};
  document["components"]["schemas"]["Error"] = {{"type", "object"},
                                                {"required", {"error"}},
                                                {"properties",
                                                 {{"error",
                                                   {{"type", "object"},
                                                    {"required", {"message", "type", "param", "code"}},
                                                    {"properties",
                                                     {{"message", {{"type", "string"}}},
                                                      {"type", {{"type", "string"}}},
                                                      {"param", {{"type", {"string", "null"}}}},
                                                      {"code", {{"type", "integer"}}}}}}}}}};
  const Json error = {{"$ref", "#/components/schemas/Error"}};
  for (const auto& one : paths) {
    const bool text = one.path == "/metrics";
    Json operation = {{"summary", one.summary}};
    Json& responses = operation["responses"];
    responses["200"] = text ? answer("The answer", "text/plain", {{"type", "string"}})
                            : answer("The answer", "application/json", {{"type", "object"}});
    for (const auto& [status, about] : std::initializer_list<std::pair<const char*, const char*>>{
             {"400", "Something in the request is wrong"},
             {"401", "A key is missing or wrong"},
             {"403", "From a page of somebody else"},
             {"404", "There is no such model or path"},
             {"405", "Another method"},
             {"413", "The body is too large"},
             {"429", "The queue is full"},
             {"431", "The header is too large"},
             {"503", "It is loading, draining, or has failed"}}) {
      responses[status] = answer(about, "application/json", error);
    }
    if (one.fields != nullptr) {
      operation["requestBody"] = {
          {"required", true}, {"content", {{"application/json", {{"schema", one.fields->json_schema(one.required)}}}}}};
      responses["200"]["content"]["text/event-stream"]["schema"]["type"] = "string";
    }
    document["paths"][std::string(one.path)][std::string(one.method)] = std::move(operation);
  }
  return document;
}

}  // namespace tandem::serve
