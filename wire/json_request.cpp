#include "wire/json_request.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/text.h"
#include "base/utf8.h"
#include "wire/http_client.h"

namespace tandem::wire {
namespace {

constexpr uint64_t kLargestServerKey = 64 << 10;

std::string without_secret(std::string text, const std::string& key) {
  if (key.empty()) return text;
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at))
    text.replace(at, key.size(), "[key]");
  return text;
}

bool may_pass(int status) { return status == 408 || status == 409 || status == 425 || status == 429 || status >= 500; }

// The beginning of what a server says of a refusal, on one line.
std::string first_words(std::string_view body) {
  constexpr size_t kLongest = 200;
  const auto lines = split_lines(trim(body));
  return lines.empty() ? "nothing" : replace_invalid_utf8(lines.front().substr(0, kLongest));
}

}  // namespace

Result<std::string> request_json(const JsonRequest& request) {
  OutgoingRequest outgoing{.url = request.url,
                           .method = request.method,
                           .headers = {{"Content-Type", "application/json"}, {"Accept", "application/json"}},
                           .body = request.body,
                           .connect_limit = from_seconds(request.seconds),
                           .limit = from_seconds(request.seconds),
                           .largest_answer = request.largest_answer};
  if (!request.key.empty()) outgoing.headers.emplace_back("Authorization", "Bearer " + request.key);
  std::string body;
  const auto head = http_request(
      outgoing,
      [&](const HttpHead&, std::string_view bytes) -> Status {
        body.append(bytes);
        return {};
      },
      request.stop);
  if (!head) return fail(Status(head.error().code(), without_secret(head.error().message(), request.key)));
  if (head->status == 200) return body;
  const auto words = without_secret(fmt::format("answered {}: {}", head->status, first_words(body)), request.key);
  return fail(may_pass(head->status) ? Status::unavailable(words) : Status::invalid(words));
}

Result<std::string> read_server_key(const std::string& variable, const fs::path& file) {
  if (!variable.empty() && !file.empty())
    return fail(Status::invalid("a key is in an environment variable or in a file, not in both"));
  std::string key;
  if (!variable.empty()) {
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) return fail(Status::unfit(fmt::format("the environment variable {} is not set", variable)));
    key = trim(value);
    if (key.empty()) return fail(Status::unfit(fmt::format("the environment variable {} is empty", variable)));
  }
  if (!file.empty()) {
    const auto content = TRY(read_file(file, kLargestServerKey));
    key = trim(std::string_view(content).substr(0, content.find('\n')));
    if (key.empty()) return fail(Status::unfit(fmt::format("{} has no key in its first line", file.string())));
  }
  return key;
}

}  // namespace tandem::wire
