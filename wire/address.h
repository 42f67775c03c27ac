// The address of a process: ipc://PATH, tcp://HOST:PORT or inproc://NAME. Only this file parses and prints them.
//
// Values: copy, compare, print.
#pragma once

#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace tandem::wire {

class Address {
 public:
  // kInvalid for any other text, and for one longer than 1024 characters.
  static Result<Address> parse(std::string_view text);
  // The same, for an address to listen at: the port may also be *, any free one.
  static Result<Address> parse_to_listen(std::string_view text);
  // The Unix socket at an absolute path.
  static Address of_path(const fs::path& path);
  // A port of a host, which is an IP address or a name.
  static Address of_port(std::string_view host, int port);
  // Any free port of `ip`, to listen at.
  static Address of_any_port(std::string_view ip);
  // Whether `text` is written as an address in the network, well formed or not, and not as one of this machine or a
  // path.
  static bool is_network(std::string_view text);

  const std::string& text() const { return text_; }

  // Whether only processes of this machine can connect: over the file system or loopback.
  bool is_of_this_machine() const;
  // Whether connections may be encrypted with a Secret: those through the network, loopback included.
  bool takes_secret() const;
  // The host of a tcp:// address, else empty.
  std::string host() const;
  // HOST:PORT of a tcp:// address, else empty.
  std::string host_and_port() const;
  // The path of an ipc:// address, else empty.
  fs::path path() const;

  friend bool operator==(const Address&, const Address&) = default;

 private:
  explicit Address(std::string text) : text_(std::move(text)) {}
  std::string text_;
};

}  // namespace tandem::wire
