#include "gateway/exchange.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::gateway {
namespace {

constexpr size_t kLargestAnswer = size_t{64} << 20;
// A client's headers that an upstream gets.
constexpr const char* kPassedUp[] = {"accept",       "anthropic-version", "anthropic-beta",
                                     "openai-beta",  "traceparent",       "tracestate",
                                     "x-request-id", "x-tandem-session",  "idempotency-key"};
// An upstream's headers that a client gets.
constexpr const char* kPassedDown[] = {"content-type", "content-encoding",     "x-request-id",
                                       "request-id",   "openai-processing-ms", "retry-after"};

bool is_control(unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7f; }

}  // namespace

std::optional<Failure> failure_of(const wire::TransferHead& head) {
  switch (head.status) {
    case 429:
    case 503:
    case 529:  // Anthropic's
      return Failure::kOverloaded;
    case 401:
    case 402:
    case 403:
      return Failure::kDenied;
    case 501:
      return std::nullopt;
    default:
      // Redirects are not followed; 520 to 530 are of proxies before it.
      if (head.status < 200 || (head.status >= 300 && head.status < 400) || head.status >= 500) return Failure::kFaulty;
      return std::nullopt;
  }
}

bool lacks_the_model(const wire::TransferHead& head, std::string_view body) {
  if (head.status != 404) return false;
  const auto json = parse_json(body);
  if (!json || !json->is_object()) return false;
  const Json& error = json->contains("error") ? (*json)["error"] : *json;  // vLLM's formerly stood alone
  const auto says = [&](const char* key, const char* value) {
    return error.is_object() && error.contains(key) && error[key] == Json(value);
  };
  return says("param", "model") || says("code", "model_not_found");
}

bool is_stream(const wire::TransferHead& head) {
  const auto type = head.headers.find("content-type");
  return head.status == 200 && type != head.headers.end() && type->second.starts_with("text/event-stream");
}

std::optional<wire::TransferRequest> transfer_of(const Exchange& exchange, const UpstreamTerms& terms,
                                                 const wire::TransferRequest& limits) {
  const auto url = url_of(terms, exchange.request.path);
  if (!url) return std::nullopt;
  wire::TransferRequest transfer = limits;
  transfer.request.url = exchange.request.query.empty() ? *url : fmt::format("{}?{}", *url, exchange.request.query);
  // The client's server leaves out the body of an answer to HEAD.
  transfer.request.method = exchange.request.method == "HEAD" ? "GET" : exchange.request.method;
  transfer.request.largest_answer = kLargestAnswer;
  auto& headers = transfer.request.headers;
  if (exchange.request.method == "POST") {
    headers.emplace_back("Content-Type", "application/json");
    const auto named = terms.models.find(exchange.view.model);
    const std::string& there = named == terms.models.end() ? exchange.view.model : named->second;
    if (there == exchange.view.model && exchange.view.body.value("model", std::string()) == there) {
      transfer.request.body = exchange.request.body;  // as it came, to the byte
    } else {
      Json body = exchange.view.body;
      body["model"] = there;
      transfer.request.body = dump_json(body);
    }
  }
  if (!terms.key.empty()) {
    headers.emplace_back("Authorization", fmt::format("Bearer {}", terms.key));
    if (exchange.request.path.starts_with("/v1/messages")) headers.emplace_back("X-Api-Key", terms.key);
  }
  headers.emplace_back("X-Tandem-Priority", name_of(exchange.priority));
  if (terms.is_ours()) headers.emplace_back(kCallerHeader, exchange.key->name);
  if (!exchange.via.empty()) headers.emplace_back("Via", exchange.via);
  for (const char* name : kPassedUp) {
    const auto value = exchange.request.header(name);
    if (!value.empty()) headers.emplace_back(name, value);
  }
  return transfer;
}

std::vector<std::pair<std::string, std::string>> passed_headers(const wire::TransferHead& head,
                                                                const UpstreamTerms& terms) {
  std::vector<std::pair<std::string, std::string>> headers;
  for (const char* name : kPassedDown) {
    const auto found = head.headers.find(name);
    // One with a line end in it would be two for some clients.
    if (found != head.headers.end() && std::ranges::none_of(found->second, is_control))
      headers.emplace_back(name, found->second);
  }
  headers.emplace_back("X-Tandem-Upstream", terms.name);
  return headers;
}

}  // namespace tandem::gateway
