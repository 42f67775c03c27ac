#include "wire/http_client.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace tandem::wire {
namespace {

struct FreeEasy {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct FreeMulti {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct FreeHeaders {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
struct FreeText {
  void operator()(char* text) const { curl_free(text); }
};
using Headers = std::unique_ptr<curl_slist, FreeHeaders>;

constexpr int kLongestWaitMilliseconds = 1000;  // between two looks at the clock

// Once in a process, before the first handle.
bool curl_is_ready() {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return ready;
}

long milliseconds(Duration duration) {
  return static_cast<long>(std::max<int64_t>(1, std::chrono::ceil<std::chrono::milliseconds>(duration).count()));
}

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

Status status_of(CURLcode code, const char* details) {
  const std::string_view what = details[0] != '\0' ? details : curl_easy_strerror(code);
  switch (code) {
    case CURLE_OK:
      return {};
    case CURLE_OPERATION_TIMEDOUT:
      return Status::deadline(std::string(what));
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
      return Status::invalid(std::string(what));
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return Status::unfit(fmt::format(
          "its certificate is not trusted: {}; SSL_CERT_FILE may name a file of certificates that are", what));
    default:
      return Status::unavailable(std::string(what));
  }
}

Result<Headers> headers_of(const OutgoingRequest& request) {
  Headers list;
  const auto append = [&](const std::string& line) {
    curl_slist* longer = curl_slist_append(list.get(), line.c_str());
    if (longer == nullptr) return false;
    (void)list.release();
    list.reset(longer);
    return true;
  };
  bool whole = append("Expect:");  // no second round trip before the body
  for (const auto& [name, value] : request.headers) {
    if (value.find_first_of("\r\n") != std::string::npos)
      return fail(Status::invalid(fmt::format("the value of the header {} has a line end", name)));
    whole = whole && append(fmt::format("{}: {}", name, value));
  }
  if (!whole) return fail(Status::exhausted("no memory for a request"));
  return list;
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
  if (!curl_is_ready()) return fail(Status::internal("curl does not start"));
  const Headers headers = TRY(headers_of(request));
  const std::unique_ptr<CURL, FreeEasy> easy(curl_easy_init());
  const std::unique_ptr<CURLM, FreeMulti> multi(curl_multi_init());
  if (!easy || !multi) return fail(Status::exhausted("no memory for a request"));
  Transfer transfer{.on_body = on_body, .room = request.largest_answer, .easy = easy.get()};
  char details[CURL_ERROR_SIZE] = "";
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(easy.get(), option, value); };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_HTTPHEADER, headers.get());
  if (request.method == "GET") {
    set(CURLOPT_HTTPGET, 1L);
  } else {
    set(CURLOPT_POST, 1L);
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    set(CURLOPT_POSTFIELDS, request.body.data());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }
  if (!request.unix_socket.empty()) {
    set(CURLOPT_UNIX_SOCKET_PATH, request.unix_socket.c_str());
    set(CURLOPT_PROXY, "");
  }
  set(CURLOPT_CONNECTTIMEOUT_MS, milliseconds(request.connect_limit));
  set(CURLOPT_TIMEOUT_MS, milliseconds(request.limit));
  // As OpenSSL's own programs take them.
  for (const auto& [name, option] : {std::pair{"SSL_CERT_FILE", CURLOPT_CAINFO}, {"SSL_CERT_DIR", CURLOPT_CAPATH}}) {
    if (const char* place = getenv(name); place != nullptr && place[0] != '\0') set(option, place);
  }
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(details));
  set(CURLOPT_WRITEFUNCTION, &take_bytes);
  set(CURLOPT_WRITEDATA, &transfer);
  curl_multi_add_handle(multi.get(), easy.get());
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
      Status status = transfer.trouble.ok() ? status_of(code, details) : std::move(transfer.trouble);
      if (!status.ok()) {
        outcome = fail(std::move(status));
        break;
      }
      HttpHead head = head_of(easy.get());
      char* redirect = nullptr;
      if (curl_easy_getinfo(easy.get(), CURLINFO_REDIRECT_URL, &redirect); redirect != nullptr)
        head.redirect = redirect;
      curl_off_t seconds = 0;
      curl_easy_getinfo(easy.get(), CURLINFO_RETRY_AFTER, &seconds);
      if (seconds > 0) head.retry_after = std::chrono::seconds(std::min<curl_off_t>(seconds, 1'000'000));
      outcome = std::move(head);
      break;
    }
    curl_multi_poll(multi.get(), nullptr, 0, kLongestWaitMilliseconds, nullptr);
  }
  curl_multi_remove_handle(multi.get(), easy.get());
  return outcome;
}

}  // namespace tandem::wire
