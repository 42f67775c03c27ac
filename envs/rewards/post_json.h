// One JSON question to a server of the user's, and its answer.
#pragma once

#include <stop_token>
#include <string>

#include "base/status.h"

namespace tandem::envs {

struct JsonPost {
  std::string url;
  std::string key;  // "Authorization: Bearer KEY"; empty: none
  std::string body;
  double seconds = 20;
  size_t largest_answer = 65'536;  // bytes
  std::stop_token stop = {};       // ends it at once: kCancelled
};

// The body of an answer with status 200. kInvalid for a status that asking again does not change (4xx but for 408, 409,
// 425 and 429), kUnavailable for others; kDeadline and kExhausted as http_request has them. No message has the key.
// Thread safety: may be called from several threads.
Result<std::string> post_json(const JsonPost& post);

}  // namespace tandem::envs
