#include "weights_sync/aws_signature.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/json.h"

namespace tandem::weights_sync {
namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

TEST(AwsSignature, has_the_headers_of_botocore) {
  std::ifstream golden(TANDEM_SOURCE_DIR "/tests/golden/aws_signatures.jsonl");
  int cases = 0;
  for (std::string line; std::getline(golden, line); ++cases) {
    const Json json = *parse_json(line);
    const auto text = [&](const char* key) {
      return json.at(key).is_null() ? std::string() : json.at(key).get<std::string>();
    };
    const std::string body = from_hex(text("body"));
    std::map<std::string, std::string> headers;
    for (const auto& [name, value] :
         aws_signature({.method = text("method"),
         .host = text("host"),
         .path = aws_path("/" + text("name")),
         .body = body,
         .region = text("region")},
                       {"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", text("session")},
                       json.at("at").get<std::time_t>()))
      headers[name] = value;
    std::map<std::string, std::string> expected;
    for (const auto& [name, value] : json.at("headers").items()) expected[name] = value.get<std::string>();
    EXPECT_EQ(headers, expected) << line;
  }
  EXPECT_EQ(cases, 24);
}

}  // namespace
}  // namespace tandem::weights_sync
