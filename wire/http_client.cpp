#include "wire/http_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "wire/curl_request.h"

namespace tandem::wire {
namespace {

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
struct FreeText {
  void operator()(char* text) const { curl_free(text); }
};

constexpr int kLongestWaitMilliseconds = 1000;  // between two looks at the clock

HttpHead head_of(CURL* easy) {
  HttpHead head;
  long status = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  head.status = static_cast<int>(status);
  const char* type = nullptr;
  curl_easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type);
  if (type != nullptr) head.content_type = std::string_view(type).substr(0, std::string_view(type).find_first_of("; "));
  std::ranges::transform(head.content_type, head.content_type.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return head;
}

struct Transfer {
  const OnHttpBody& on_body;
  size_t room = 0;
  CURL* easy = nullptr;
  Status trouble;
};

size_t take_bytes(char* bytes, size_t one, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const size_t size = one * count;
  if (size > transfer.room) {
    transfer.trouble = Status::exhausted("the answer is too large");
  } else {
    transfer.room -= size;
    transfer.trouble = transfer.on_body(head_of(transfer.easy), {bytes, size});
  }
  return transfer.trouble.ok() ? size : 0;  // anything but the size ends the transfer
}

}  // namespace

Status check_url(const std::string& text) {
  const std::unique_ptr<CURLU, FreeUrl> url(curl_url());
  const auto wrong = [&](std::string_view why) {
    return Status::invalid(fmt::format("\"{}\" is not a URL such as http://127.0.0.1:8000/v1: {}", text, why));
  };
  if (!url || !curl_is_ready()) return Status::internal("curl does not start");
  if (const auto code = curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0); code != CURLUE_OK)
    return wrong(curl_url_strerror(code));
  const auto part = [&](CURLUPart which) -> std::string {
    char* value = nullptr;
    if (curl_url_get(url.get(), which, &value, 0) != CURLUE_OK) return "";
    return std::unique_ptr<char, FreeText>(value).get();
  };
  const auto scheme = part(CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") return wrong("it begins with neither http:// nor https://");
  if (!part(CURLUPART_USER).empty() || !part(CURLUPART_PASSWORD).empty())
    return Status::invalid("a URL with a name or password in it would be shown and written down");
  return {};
}

Result<HttpHead> http_request(const OutgoingRequest& request, const OnHttpBody& on_body, const std::stop_token& stop) {
  const auto made = TRY(CurlRequest::create(request));
  CURL* const easy = made->easy();
  const std::unique_ptr<CURLM, FreeMulti> multi(curl_multi_init());
  if (!multi) return fail(Status::exhausted("no memory for a request"));
  Transfer transfer{.on_body = on_body, .room = request.largest_answer, .easy = easy};
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &take_bytes);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
  curl_multi_add_handle(multi.get(), easy);
  const std::stop_callback wake(stop, [&] { curl_multi_wakeup(multi.get()); });

  Result<HttpHead> outcome = fail(Status::internal("a request ended without a result"));
  for (int running = 1;;) {
    if (stop.stop_requested()) {
      outcome = fail(Status::cancelled("the request was cancelled"));
      break;
    }
    if (const auto code = curl_multi_perform(multi.get(), &running); code != CURLM_OK) {
      outcome = fail(Status::internal(curl_multi_strerror(code)));
      break;
    }
    int left = 0;
    if (const CURLMsg* message = curl_multi_info_read(multi.get(), &left); message != nullptr) {
      const CURLcode code = message->data.result;
      Status status = transfer.trouble.ok() ? made->status_of(code) : std::move(transfer.trouble);
      if (!status.ok()) {
        outcome = fail(std::move(status));
        break;
      }
      HttpHead head = head_of(easy);
      head.retry_after = made->retry_after();
      char* redirect = nullptr;
      curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &redirect);
      if (redirect != nullptr) head.redirect = redirect;
      outcome = std::move(head);
      break;
    }
    curl_multi_poll(multi.get(), nullptr, 0, kLongestWaitMilliseconds, nullptr);
  }
  curl_multi_remove_handle(multi.get(), easy);
  return outcome;
}

}  // namespace tandem::wire
