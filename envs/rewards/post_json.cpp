#include "envs/rewards/post_json.h"

#include <fmt/format.h>

#include "base/text.h"
#include "base/utf8.h"
#include "wire/http_client.h"

namespace tandem::envs {
namespace {

std::string without(std::string text, const std::string& key) {
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

Result<std::string> post_json(const JsonPost& post) {
  wire::OutgoingRequest request{.url = post.url,
                                .headers = {{"Content-Type", "application/json"}, {"Accept", "application/json"}},
                                .body = post.body,
                                .connect_limit = from_seconds(post.seconds),
                                .limit = from_seconds(post.seconds),
                                .largest_answer = post.largest_answer};
  if (!post.key.empty()) request.headers.emplace_back("Authorization", "Bearer " + post.key);
  std::string body;
  const auto head = wire::http_request(
      request,
      [&](const wire::HttpHead&, std::string_view bytes) -> Status {
        body.append(bytes);
        return {};
      },
      post.stop);
  if (!head) return fail(Status(head.error().code(), without(head.error().message(), post.key)));
  if (head->status == 200) return body;
  const auto words = without(fmt::format("answered {}: {}", head->status, first_words(body)), post.key);
  return fail(may_pass(head->status) ? Status::unavailable(words) : Status::invalid(words));
}

}  // namespace tandem::envs
