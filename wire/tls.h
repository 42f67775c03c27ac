// A server's side of TLS 1.2 and 1.3, by OpenSSL: its certificate and key.
//
// Thread safety: none; all on the thread of the server.
#pragma once

#include <memory>

#include "base/file.h"

namespace tandem::wire {

struct TlsContext;  // wire/tls_pump.h

class Tls {
 public:
  // Reads a chain of certificates and its key, both PEM. kInvalid names the file, also where they do not fit.
  static Result<std::shared_ptr<Tls>> open(const fs::path& certificate, const fs::path& key);

  // Reads both again where one of them has changed, or in any case where `surely`, for connections from then on: true.
  // Where they cannot be read, all stays as it is.
  Result<bool> refresh(bool surely = false);
  std::shared_ptr<TlsContext> context() const { return context_; }

 private:
  Tls(fs::path certificate, fs::path key) : certificate_(std::move(certificate)), key_(std::move(key)) {}
  Status read();

  const fs::path certificate_, key_;
  fs::file_time_type certificate_changed_, key_changed_;
  std::shared_ptr<TlsContext> context_;
};

}  // namespace tandem::wire
