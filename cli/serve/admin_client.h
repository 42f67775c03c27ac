// An admin's side of a `tandem serve`, over HTTP.
//
// Thread safety: none.
#pragma once

#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/json.h"

namespace tandem::cli {

// An admin's key from the environment. kInvalid names the variable.
Result<std::string> admin_key(const std::string& variable);

class AdminClient {
 public:
  // `url`: of the server, with or without a slash at its end; `key`: of an admin. kInvalid for what is no URL.
  static Result<AdminClient> open(std::string url, std::string key);

  // The object that it answers. kInvalid for what it refuses, with its words; kUnavailable and kDeadline where it does
  // not answer; kCancelled.
  Result<Json> ask(const char* method, const std::string& path, const Json& body, Duration limit,
                   const std::stop_token& stop = {}) const;

 private:
  AdminClient(std::string url, std::string key) : url_(std::move(url)), key_(std::move(key)) {}
  std::string url_, key_;
};

}  // namespace tandem::cli
