// Internet addresses, and which of them are closed to sandboxes.
//
// Sources: the registries of special-purpose addresses of IANA (RFC 6890 and its successors). Values; pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::envs {

// One of IPv6, or of IPv4 as ::ffff:A.B.C.D. There is one value for each address, however it was written.
struct Address {
  std::array<uint8_t, 16> bytes{};
  friend auto operator<=>(const Address&, const Address&) = default;
};

// As people write it ("192.0.2.1", "2001:db8::1"), and as C libraries take it besides ("0x7f.1", "2130706433"):
// whatever would reach an address without a name service is one. Nothing for names.
std::optional<Address> parse_address(std::string_view text);
std::string to_string(const Address& address);

// Why an address is not one of the open internet, in words: "a loopback address". Empty where it is.
std::string_view why_not_public(const Address& address);

// Whether clouds tell secrets of the machine there, or only neighbours on the wire are reached: no list opens such a
// one.
bool is_never_opened(const Address& address);

}  // namespace tandem::envs
