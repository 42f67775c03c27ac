// Where clients of a server come in: its address, keys and certificates.
//
// Thread safety: none; the server's loop owns it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/access.h"
#include "wire/http_server.h"
#include "wire/tls.h"

namespace tandem::serve {

struct FrontSettings {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any that is free
  AccessSettings access;
  fs::path tls_certificate, tls_key;  // PEM, both or none: plain HTTP
  size_t connections = 8192;
  std::vector<std::string> cors_origins = {};  // see serve/cors.h
};

struct Front {
  std::string url;
  std::unique_ptr<Access> access;
  std::shared_ptr<wire::Tls> tls;  // null: plain HTTP
  wire::HttpServer http;

  // Keys and certificates, where their files have changed; in any case where `surely`.
  void read_files_again(bool surely);
};

// kInvalid for a host off loopback without keys, and for origins that are none.
Result<Front> open_front(const FrontSettings& settings, const Clock& clock);

}  // namespace tandem::serve
