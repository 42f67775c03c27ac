// Signatures of requests to S3 and servers that speak its API.
//
// Source: "Signature Version 4 signing process", docs.aws.amazon.com. Pure: the time comes with the request.
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::weights_sync {

struct AwsKey {
  std::string id, secret;
  std::string session = {};  // of a key for a while; empty: none
};

struct AwsRequest {
  std::string method;  // GET, PUT, DELETE
  std::string host;    // with its port, where that is not the scheme's own
  std::string path;    // as aws_path() has it
  std::string_view body = {};
  std::string region;
};

// Headers to send, the host's among them. `at`: seconds since 1970, UTC; a server refuses one more than 15 minutes off.
std::vector<std::pair<std::string, std::string>> aws_signature(const AwsRequest& request, const AwsKey& key,
                                                               std::time_t at);

// "/bucket/a b" as the path of a URL: every byte but letters, digits and -._~/ as %XX.
std::string aws_path(std::string_view path);

}  // namespace tandem::weights_sync
