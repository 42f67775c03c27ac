// One request to a foreign server that speaks JSON, its answer, and the key that goes with it.
#pragma once

#include <stop_token>
#include <string>

#include "base/file.h"
#include "base/status.h"

namespace tandem::wire {

struct JsonRequest {
  std::string url;
  std::string method = "POST";  // GET has no body
  std::string key = {};         // "Authorization: Bearer KEY"; empty: none
  std::string body = {};
  double seconds = 20;
  size_t largest_answer = 65'536;  // bytes
  std::stop_token stop = {};       // ends it at once: kCancelled
};

// The body of an answer with status 200. kInvalid for a status that asking again does not change (4xx but for 408, 409,
// 425 and 429), kUnavailable for others; kDeadline and kExhausted as http_request has them. No message has the key.
// Thread safety: may be called from several threads.
Result<std::string> request_json(const JsonRequest& request);

// A key in an environment variable or the first line of a file; empty where neither is named. kUnfit, naming the
// variable or file, where it is not there or empty; kInvalid where both are named. Never says the key.
Result<std::string> read_server_key(const std::string& variable, const fs::path& file);

}  // namespace tandem::wire
