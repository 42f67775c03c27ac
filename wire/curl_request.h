// A curl request, shared by `http_request` and `HttpTransfers`. No header for others, as it names curl's types.
#pragma once

#include <curl/curl.h>

#include <array>
#include <memory>
#include <string>

#include "wire/http_client.h"

namespace tandem::wire {

struct FreeEasy {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct FreeMulti {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};
struct FreeHeaders {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

// Once in a process, before the first handle.
bool curl_is_ready();

// A handle with all that it points to.
class CurlRequest {
 public:
  // kInvalid for a header with a line end.
  static Result<std::unique_ptr<CurlRequest>> create(OutgoingRequest request);

  CURL* easy() const { return easy_.get(); }
  const OutgoingRequest& request() const { return request_; }
  // Converts curl's result.
  Status status_of(CURLcode code) const;
  // The Retry-After of the answer, if it has one.
  std::optional<Duration> retry_after() const;

 private:
  CurlRequest() = default;
  OutgoingRequest request_;
  std::unique_ptr<curl_slist, FreeHeaders> headers_;
  std::array<char, CURL_ERROR_SIZE> details_{};
  std::unique_ptr<CURL, FreeEasy> easy_;  // goes first: it points to the others
};

}  // namespace tandem::wire
