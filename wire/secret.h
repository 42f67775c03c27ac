// The shared key of one owner's processes for connections between machines: authentication and encryption.
//
// It is the server's long-term key pair of CurveZMQ (rfc.zeromq.org/spec/26). A client needs the public key to connect,
// and no message contains it, so the public half is kept secret too. Clients make a key pair for every connection.
#pragma once

#include <string>

#include "base/file.h"
#include "base/status.h"

namespace tandem::wire {

class Secret {
 public:
  // kInvalid, naming the file, where it holds none, or others than its owner may read it.
  static Result<Secret> read(const fs::path& path);
  // A new one, in a file that only its owner may read; kInvalid where the file exists.
  static Result<Secret> create(const fs::path& path);

  // The server's keys, 40 letters each (Z85).
  const std::string& secret_key() const { return secret_key_; }
  const std::string& public_key() const { return public_key_; }

 private:
  explicit Secret(std::string secret_key, std::string public_key)
      : secret_key_(std::move(secret_key)), public_key_(std::move(public_key)) {}
  std::string secret_key_, public_key_;
};

}  // namespace tandem::wire
