// What a gateway reads of requests, and of the answers of servers that are not ours.
#include "gateway/answer_scan.h"
#include "gateway/prefix_map.h"
#include "gateway/rate_news.h"
#include "gateway/request_view.h"
#include "tests/fuzz/targets.h"
#include "wire/header_values.h"

namespace tandem::fuzz {
namespace {

void gateway_requests(std::string_view bytes) {
  const auto view = gateway::view_of(bytes, "salt");
  if (!view) return;
  gateway::PrefixMap map(16);
  map.add(view->prefix, 1);
  (void)map.matches(view->prefix, 2);
}

std::vector<std::string> gateway_requests_seeds() {
  return {R"({"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"max_tokens":5,"user":"u"})",
          R"({"prompt":["a",[1,2]],"max_output_tokens":1e9,"previous_response_id":"resp_1","tools":[{}]})"};
}

// A line of headers, an empty line, and a body: whole, and as a stream in two pieces.
void gateway_answers(std::string_view bytes) {
  const size_t end = std::min(bytes.find("\n\n"), bytes.size());
  std::map<std::string, std::string> headers;
  const std::string head(bytes.substr(0, end));
  for (size_t at = 0; at < head.size();) {
    const size_t next = std::min(head.find('\n', at), head.size());
    const std::string line = head.substr(at, next - at);
    const size_t colon = line.find(':');
    if (colon != std::string::npos) headers[line.substr(0, colon)] = line.substr(colon + 1);
    at = next + 1;
  }
  (void)gateway::rate_news_of(headers, 1e9);
  (void)wire::retry_after_of(headers, 1e9);
  const std::string_view body = bytes.substr(end);
  gateway::AnswerScan stream;
  stream.feed(body.substr(0, body.size() / 2));
  stream.feed(body.substr(body.size() / 2));
  if (const auto json = parse_json(body)) gateway::AnswerScan().read(*json);
}

std::vector<std::string> gateway_answers_seeds() {
  return {
      "retry-after:7\nx-ratelimit-remaining-tokens:9\nx-ratelimit-reset-tokens:6m0s\n\n{\"usage\":{\"prompt_tokens\":3}"
      "}",
      "retry-after:Thu, 01 Jan 1970 00:02:00 GMT\nanthropic-ratelimit-tokens-remaining:1\n"
      "anthropic-ratelimit-tokens-reset:2026-01-01T00:00:00Z\n\nevent: response.created\ndata: "
      "{\"response\":{\"id\":\"r\",\"object\":\"response\",\"usage\":{\"output_tokens\":2}}}\n\ndata: [DONE]\n\n"};
}

constexpr Target kGatewayTargets[] = {{"gateway_requests", gateway_requests, gateway_requests_seeds},
                                      {"gateway_answers", gateway_answers, gateway_answers_seeds}};

}  // namespace

std::span<const Target> gateway_targets() { return kGatewayTargets; }

}  // namespace tandem::fuzz
