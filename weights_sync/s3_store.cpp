#include "weights_sync/s3_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ctime>

#include "weights_sync/aws_signature.h"
#include "wire/http_client.h"

namespace tandem::weights_sync {
namespace {

using namespace std::chrono_literals;

constexpr auto kConnect = 5s, kLimit = 60s;  // of a request for a chunk
constexpr size_t kLargestError = 65'536;

Result<std::string> variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value != nullptr && value[0] != '\0') return std::string(value);
  return fail(Status::unfit(fmt::format("the environment has no {}", name))
                  .hint("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY where the run and its hosts are started"));
}

// The words of an error that a server answers in XML: <Code>NoSuchBucket</Code>.
std::string code_of(std::string_view body) {
  const auto begin = body.find("<Code>"), end = body.find("</Code>");
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return "";
  std::string code(body.substr(begin + 6, std::min<size_t>(end - begin - 6, 80)));
  std::erase_if(code, [](unsigned char c) { return std::isalnum(c) == 0; });
  return " (" + code + ")";
}

class Bucket final : public ObjectStore {
 public:
  Bucket(const StoreSettings& settings, AwsKey key)
      : region_(settings.region),
        endpoint_(settings.endpoint.empty() ? fmt::format("https://s3.{}.amazonaws.com", region_) : settings.endpoint),
        base_(settings.place.substr(4)),
        key_(std::move(key)),
        read_limit_(std::clamp<Duration>(from_seconds(settings.seconds), 1s, kLimit)) {
    while (endpoint_.ends_with("/")) endpoint_.pop_back();
    while (base_.ends_with("/")) base_.pop_back();
    const bool is_plain = endpoint_.starts_with("http://");
    host_ = endpoint_.substr(endpoint_.find("://") + 3);
    // As HTTP clients write it, and servers sign it.
    if (const std::string own = is_plain ? ":80" : ":443"; host_.ends_with(own))
      host_.resize(host_.size() - own.size());
  }

  Status put(const std::string& name, std::span<const std::byte> bytes, const std::stop_token& stop) override {
    std::string body(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const auto answer = TRY(request("PUT", name, std::move(body), kLargestError, stop));
    return answer.status / 100 == 2 ? Status() : refusal("PUT", name, answer);
  }

  Result<std::string> get(const std::string& name, size_t limit, const std::stop_token& stop) override {
    auto answer = TRY(request("GET", name, "", std::max(limit, kLargestError), stop, read_limit_));
    if (answer.status == 200) {
      if (answer.body.size() > limit) return fail(Status::exhausted(name + " is larger than a chunk"));
      return std::move(answer.body);
    }
    return fail(refusal("GET", name, answer));
  }

  Status remove(const std::string& name, const std::stop_token& stop) override {
    const auto answer = TRY(request("DELETE", name, "", kLargestError, stop));
    return answer.status / 100 == 2 || answer.status == 404 ? Status() : refusal("DELETE", name, answer);
  }

 private:
  struct Answer {
    int status = 0;
    std::string body;
  };

  Result<Answer> request(const char* method, const std::string& name, std::string body, size_t largest,
                         const std::stop_token& stop, Duration limit = kLimit) const {
    const std::string path = aws_path(base_ + "/" + name);
    wire::OutgoingRequest out{.url = endpoint_ + path,
                              .method = method,
                              .headers = aws_signature({method, host_, path, body, region_}, key_, std::time(nullptr)),
                              .body = {},
                              .connect_limit = kConnect,
                              .limit = limit,
                              .largest_answer = largest};
    out.headers.emplace_back("content-type", "application/octet-stream");  // in place of a form's, which curl would say
    out.body = std::move(body);
    Answer answer;
    const auto head = TRY(wire::http_request(
        out, [&](const wire::HttpHead&, std::string_view bytes) { return answer.body.append(bytes), Status(); }, stop));
    answer.status = head.status;
    return answer;
  }

  // What a server says that it does not do; never with the key.
  Status refusal(std::string_view method, const std::string& name, const Answer& answer) const {
    const std::string code = code_of(answer.body);
    const std::string words =
        fmt::format("{} of {}/{} at {}: status {}{}", method, base_.substr(1), name, endpoint_, answer.status, code);
    if (answer.status == 404 && code.find("NoSuchBucket") == std::string::npos) return Status::not_found(words);
    if (answer.status == 408 || answer.status == 429 || answer.status >= 500) return Status::unavailable(words);
    Status status = Status::invalid(words);
    if (answer.status == 403) return std::move(status).hint("look at the key, its rights, the region and the clock");
    return status;
  }

  const std::string region_;
  std::string endpoint_, base_, host_;  // base: /BUCKET/PREFIX
  const AwsKey key_;
  const Duration read_limit_;  // who reads would rather ask the trainer than wait
};

}  // namespace

Result<std::unique_ptr<ObjectStore>> open_bucket(const StoreSettings& settings) {
  AwsKey key;
  key.id = TRY(variable("AWS_ACCESS_KEY_ID"));
  key.secret = TRY(variable("AWS_SECRET_ACCESS_KEY"));
  if (const char* const session = std::getenv("AWS_SESSION_TOKEN"); session != nullptr) key.session = session;
  for (const std::string* part : {&key.id, &key.secret, &key.session}) {
    if (part->find_first_of("\r\n") != std::string::npos)
      return fail(Status::unfit("the key of the bucket in the environment has a line end"));
  }
  return std::make_unique<Bucket>(settings, std::move(key));
}

}  // namespace tandem::weights_sync
