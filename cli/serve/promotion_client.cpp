#include "cli/serve/promotion_client.h"

#include <fmt/format.h>

#include "wire/http_client.h"

namespace tandem::cli {
namespace {

using namespace std::chrono_literals;

constexpr size_t kLargestState = size_t{1} << 20;
constexpr Duration kAnswerLimit = 30s, kLoadLimit = 3600s;

std::string text_of(const Json& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  return json.is_object() && found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

Result<PromotionState> read_state(const Json& json) {
  PromotionState state{.model = text_of(json, "model"), .state = text_of(json, "state")};
  if (state.model.empty() || state.state.empty() || !json.contains("current") || !json.contains("candidate"))
    return fail(Status::invalid("the server's answer is no state of a promotion; is it a `tandem serve`?"));
  const Json& current = json["current"];
  const Json& candidate = json["candidate"];
  state.current = text_of(current, "directory");
  state.candidate = text_of(candidate, "directory");
  if (!current.is_object() || !current.contains("outcomes"))
    return fail(Status::invalid("the server's answer says nothing of the version that is served"));
  state.reading.current = TRY(eval::read_outcomes(current["outcomes"]));
  if (!candidate.is_object()) return state;
  if (!candidate.contains("outcomes"))
    return fail(Status::invalid("the server's answer says nothing of the candidate"));
  state.reading.candidate = TRY(eval::read_outcomes(candidate["outcomes"]));
  state.reading.failed = text_of(candidate, "failed");
  return state;
}

// Of a name in a query.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '/';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace

PromotionClient::PromotionClient(std::string url, std::string key, std::string model, std::stop_token stop)
    : url_(std::move(url)), key_(std::move(key)), model_(std::move(model)), stop_(std::move(stop)) {}

Result<PromotionState> PromotionClient::ask(const char* method, const std::string& path, const Json& body,
                                            Duration limit, const std::stop_token& stop) const {
  const std::string base = url_.ends_with('/') ? url_.substr(0, url_.size() - 1) : url_;
  wire::OutgoingRequest request{.url = base + path,
                                .method = method,
                                .headers = {{"Content-Type", "application/json"}, {"Authorization", "Bearer " + key_}},
                                .body = body.is_null() ? "" : dump_json(body),
                                .limit = limit,
                                .largest_answer = kLargestState};
  int status = 0;
  std::string text;
  const auto take = [&](const wire::HttpHead& head, std::string_view bytes) -> Status {
    status = head.status;
    text += bytes;
    return {};
  };
  status = TRY(wire::http_request(request, take, stop)).status;
  const auto json = parse_json(text);
  if (status == 200 && json) return read_state(*json);
  std::string says = json && json->is_object() && json->contains("error") ? text_of((*json)["error"], "message") : "";
  if (says.empty()) says = text.substr(0, 200);
  const auto whole = fmt::format("{} answers {} to {}: {}", base, status, path, says);
  if (status >= 500 || status == 429) return fail(Status::unavailable(whole));
  return fail(Status::invalid(whole));
}

Result<PromotionState> PromotionClient::state() const {
  return ask("GET", "/promotion?model=" + escaped(model_), Json(), kAnswerLimit, stop_);
}

Result<PromotionState> PromotionClient::begin(const std::string& folder) const {
  return ask("POST", "/promotion/begin", {{"model", model_}, {"directory", folder}}, kLoadLimit, stop_);
}

Result<PromotionState> PromotionClient::share(double share, bool shadow, double lease_seconds) const {
  return ask("POST", "/promotion/share",
             {{"model", model_}, {"share", share}, {"shadow", shadow}, {"lease_seconds", lease_seconds}}, kAnswerLimit,
             {});
}

Result<PromotionState> PromotionClient::end(bool promote) const {
  return ask("POST", "/promotion/end", {{"model", model_}, {"promote", promote}}, kAnswerLimit, {});
}

}  // namespace tandem::cli
