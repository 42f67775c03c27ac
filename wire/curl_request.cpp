#include "wire/curl_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <map>

#include "wire/header_values.h"

namespace tandem::wire {
namespace {

long milliseconds(Duration duration) {
  return static_cast<long>(std::max<int64_t>(1, std::chrono::ceil<std::chrono::milliseconds>(duration).count()));
}

using HeaderList = std::unique_ptr<curl_slist, FreeHeaders>;

Result<HeaderList> header_list_of(const OutgoingRequest& request) {
  HeaderList list;
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

bool curl_is_ready() {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return ready;
}

Result<std::unique_ptr<CurlRequest>> CurlRequest::create(OutgoingRequest given) {
  if (!curl_is_ready()) return fail(Status::internal("curl does not start"));
  std::unique_ptr<CurlRequest> made(new CurlRequest());
  made->request_ = std::move(given);
  const OutgoingRequest& request = made->request_;
  made->headers_ = TRY(header_list_of(request));
  made->easy_.reset(curl_easy_init());
  if (!made->easy_) return fail(Status::exhausted("no memory for a request"));
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(made->easy_.get(), option, value); };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_HTTPHEADER, made->headers_.get());
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
  set(CURLOPT_ERRORBUFFER, made->details_.data());
  return made;
}

Status CurlRequest::status_of(CURLcode code) const {
  const std::string_view what = details_[0] != '\0' ? details_.data() : curl_easy_strerror(code);
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

std::optional<Duration> CurlRequest::retry_after() const {
  std::map<std::string, std::string> headers;
  for (const char* name : {"retry-after", "retry-after-ms"}) {
    curl_header* header = nullptr;
    constexpr int kLastAnswer = -1;
    if (curl_easy_header(easy_.get(), name, 0, CURLH_HEADER, kLastAnswer, &header) == CURLHE_OK)
      headers[name] = header->value;
  }
  const auto wait = retry_after_of(headers, static_cast<double>(std::time(nullptr)));
  return wait && *wait > Duration::zero() ? wait : std::nullopt;
}

}  // namespace tandem::wire
