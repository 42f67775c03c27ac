#include "gateway/exchange.h"

#include <fmt/format.h>

namespace tandem::gateway {
namespace {

constexpr size_t kLargestAnswer = size_t{64} << 20;
// Of a client's headers, those that an upstream gets.
constexpr const char* kPassedUp[] = {"accept",       "anthropic-version", "anthropic-beta",
                                     "openai-beta",  "traceparent",       "tracestate",
                                     "x-request-id", "x-tandem-session",  "idempotency-key"};
// Of an upstream's.
constexpr const char* kPassedDown[] = {"content-type", "x-request-id", "request-id", "openai-processing-ms"};

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
    case 500:
    case 502:
    case 504:
      return Failure::kFaulty;
    default:
      return std::nullopt;
  }
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
  transfer.request.method = exchange.request.method;
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
    if (const auto found = head.headers.find(name); found != head.headers.end())
      headers.emplace_back(name, found->second);
  }
  headers.emplace_back("X-Tandem-Upstream", terms.name);
  return headers;
}

}  // namespace tandem::gateway
