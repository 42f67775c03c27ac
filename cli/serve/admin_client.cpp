#include "cli/serve/admin_client.h"

#include <fmt/format.h>

#include <cstdlib>

#include "wire/http_client.h"

namespace tandem::cli {
namespace {
constexpr size_t kLargestAnswer = size_t{1} << 20;
}  // namespace

Result<std::string> admin_key(const std::string& variable) {
  const char* const key = std::getenv(variable.c_str());
  if (key == nullptr || *key == '\0') {
    return fail(Status::invalid(fmt::format("the environment has no {}", variable))
                    .hint("it must hold the key of an admin of the server; --admin-key-env names another variable"));
  }
  return std::string(key);
}

Result<AdminClient> AdminClient::open(std::string url, std::string key) {
  TRY(wire::check_url(url));
  if (url.ends_with('/')) url.pop_back();
  return AdminClient(std::move(url), std::move(key));
}

Result<Json> AdminClient::ask(const char* method, const std::string& path, const Json& body, Duration limit,
                              const std::stop_token& stop) const {
  wire::OutgoingRequest request{.url = url_ + path,
                                .method = method,
                                .headers = {{"Content-Type", "application/json"}, {"Authorization", "Bearer " + key_}},
                                .body = body.is_null() ? "" : dump_json(body),
                                .limit = limit,
                                .largest_answer = kLargestAnswer};
  std::string text;
  const auto take = [&](const wire::HttpHead&, std::string_view bytes) -> Status {
    text += bytes;
    return {};
  };
  const int status = TRY(wire::http_request(request, take, stop)).status;
  auto json = parse_json(text);
  const bool object = json && json->is_object();
  if (status == 200 && object) return std::move(*json);
  std::string says = text.substr(0, 200);
  if (object && json->contains("error") && (*json)["error"].is_object()) {
    const Json& message = (*json)["error"].value("message", Json());
    if (message.is_string()) says = message.get<std::string>();
  }
  const auto whole = fmt::format("{} answers {} to {}: {}", url_, status, path, says);
  if (status >= 500 || status == 429) return fail(Status::unavailable(whole));
  return fail(Status::invalid(whole));
}

}  // namespace tandem::cli
