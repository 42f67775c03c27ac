#include "weights_sync/aws_signature.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstdint>

namespace tandem::weights_sync {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256", kService = "s3", kEnd = "aws4_request";

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

std::string sha256(std::string_view bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), sum.data(), &size, EVP_sha256(), nullptr);
  return {reinterpret_cast<const char*>(sum.data()), size};
}

std::string hmac(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> sum{};
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), sum.data(), &size);
  return {reinterpret_cast<const char*>(sum.data()), size};
}

std::string utc(std::time_t at, const char* format) {
  std::tm time{};
  gmtime_r(&at, &time);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &time)};
}

}  // namespace

std::string aws_path(std::string_view path) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
  std::string written;
  for (const char byte : path) {
    if (kPlain.find(byte) != std::string_view::npos)
      written += byte;
    else
      written += fmt::format("%{:02X}", static_cast<uint8_t>(byte));
  }
  return written;
}

std::vector<std::pair<std::string, std::string>> aws_signature(const AwsRequest& request, const AwsKey& key,
                                                               std::time_t at) {
  const std::string time = utc(at, "%Y%m%dT%H%M%SZ"), day = utc(at, "%Y%m%d"), digest = hex(sha256(request.body));
  // In the order of their names, as they are signed.
  std::vector<std::pair<std::string, std::string>> headers = {
      {"host", request.host}, {"x-amz-content-sha256", digest}, {"x-amz-date", time}};
  if (!key.session.empty()) headers.emplace_back("x-amz-security-token", key.session);
  std::string lines, names;
  for (const auto& [name, value] : headers) {
    lines += fmt::format("{}:{}\n", name, value);
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = fmt::format("{}\n{}\n\n{}\n{}\n{}", request.method, request.path, lines, names, digest);
  const std::string scope = fmt::format("{}/{}/{}/{}", day, request.region, kService, kEnd);
  const std::string to_sign = fmt::format("{}\n{}\n{}\n{}", kAlgorithm, time, scope, hex(sha256(canonical)));
  const std::string signing_key = hmac(hmac(hmac(hmac("AWS4" + key.secret, day), request.region), kService), kEnd);
  headers.emplace_back("authorization", fmt::format("{} Credential={}/{}, SignedHeaders={}, Signature={}", kAlgorithm,
                                                    key.id, scope, names, hex(hmac(signing_key, to_sign))));
  return headers;
}

}  // namespace tandem::weights_sync
