#include "cli/serve/promotion_client.h"

#include <fmt/format.h>

namespace tandem::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAnswerLimit = 30s, kLoadLimit = 3600s;

std::string text_of(const Json& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  return json.is_object() && found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

Result<PromotionState> read_state(const Json& json) {
  PromotionState state{
      .server = text_of(json, "server"), .model = text_of(json, "model"), .state = text_of(json, "state")};
  if (state.model.empty() || state.state.empty() || !json.contains("current") || !json.contains("candidate"))
    return fail(Status::invalid("the server's answer is no state of a promotion; is it a `tandem serve`?"));
  const Json& current = json["current"];
  const Json& candidate = json["candidate"];
  state.current = text_of(current, "directory");
  state.candidate = text_of(candidate, "directory");
  state.current_digest = text_of(current, "digest");
  state.candidate_digest = text_of(candidate, "digest");
  if (!current.is_object() || !current.contains("outcomes"))
    return fail(Status::invalid("the server's answer says nothing of the version that is served"));
  state.reading.current = TRY(eval::read_outcomes(current["outcomes"]));
  if (!candidate.is_object()) return state;
  if (!candidate.contains("outcomes"))
    return fail(Status::invalid("the server's answer says nothing of the candidate"));
  state.reading.candidate = TRY(eval::read_outcomes(candidate["outcomes"]));
  state.reading.failed = text_of(candidate, "failed");
  const auto lost = candidate.find("lost_streams");
  const auto count = [&](const char* key) {
    const bool known = lost != candidate.end() && lost->is_object() && lost->contains(key) && (*lost)[key].is_number();
    return known ? (*lost)[key].get<double>() : 0;  // servers of before do not say it
  };
  state.reading.streams_taken_over = count("taken_over");
  state.reading.streams_cut = count("cut");
  return state;
}

// Escapes a name for a query.
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

Result<PromotionState> PromotionClient::ask(const char* method, const std::string& path, const Json& body,
                                            Duration limit, const std::stop_token& stop) const {
  return read_state(TRY(client_.ask(method, path, body, limit, stop)));
}

Result<PromotionState> PromotionClient::state() const {
  return ask("GET", "/promotion?model=" + escaped(model_), Json(), kAnswerLimit, stop_);
}

Result<PromotionState> PromotionClient::begin(const std::string& folder, const std::string& digest) const {
  return ask("POST", "/promotion/begin", {{"model", model_}, {"directory", folder}, {"digest", digest}}, kLoadLimit,
             stop_);
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
