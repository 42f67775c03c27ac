#include "envs/network/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

namespace tandem::envs {
namespace {

constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr size_t kLongestAddress = 64;  // bytes of text

Address mapped(const in_addr& four) {
  Address address;
  std::copy(kMapped.begin(), kMapped.end(), address.bytes.begin());
  memcpy(address.bytes.data() + kMapped.size(), &four, sizeof four);
  return address;
}

bool is_four(const Address& address) { return std::equal(kMapped.begin(), kMapped.end(), address.bytes.begin()); }

struct Block {
  const char* first;
  int bits;  // of 32 or 128
  std::string_view what;
};

constexpr Block kFour[] = {{"0.0.0.0", 8, "no host's address"},
                           {"10.0.0.0", 8, "a private address"},
                           {"100.64.0.0", 10, "an address within a provider's network"},
                           {"127.0.0.0", 8, "a loopback address"},
                           {"169.254.0.0", 16, "a link-local address, where clouds serve their metadata"},
                           {"172.16.0.0", 12, "a private address"},
                           {"192.0.0.0", 24, "an address of special use"},
                           {"192.0.2.0", 24, "an address for documentation"},
                           {"192.88.99.0", 24, "an address of special use"},
                           {"192.168.0.0", 16, "a private address"},
                           {"198.18.0.0", 15, "an address for benchmarks"},
                           {"198.51.100.0", 24, "an address for documentation"},
                           {"203.0.113.0", 24, "an address for documentation"},
                           {"224.0.0.0", 4, "a multicast address"},
                           {"240.0.0.0", 4, "no host's address"}};

// Outside of 2000::/3 nothing is public; what is in here either has a name or is reached in another way (tunnels that
// carry an address of IPv4 within theirs).
constexpr Block kSix[] = {{"::", 128, "no host's address"},
                          {"::1", 128, "a loopback address"},
                          {"fc00::", 7, "a private address"},
                          {"fe80::", 10, "a link-local address"},
                          {"ff00::", 8, "a multicast address"},
                          {"2001::", 23, "an address of special use"},
                          {"2001:db8::", 32, "an address for documentation"},
                          {"2002::", 16, "an address of a tunnel"},
                          {"3fff::", 20, "an address for documentation"}};

bool lies_in(const uint8_t* bytes, const uint8_t* first, int bits) {
  const int whole = bits / 8, rest = bits % 8;
  if (memcmp(bytes, first, static_cast<size_t>(whole)) != 0) return false;
  return rest == 0 || (bytes[whole] ^ first[whole]) >> (8 - rest) == 0;
}

bool lies_in(const Address& address, const Block& block, bool four) {
  uint8_t first[16] = {};
  inet_pton(four ? AF_INET : AF_INET6, block.first, first);
  return lies_in(address.bytes.data() + (four ? kMapped.size() : 0), first, block.bits);
}

}  // namespace

std::optional<Address> parse_address(std::string_view text) {
  if (text.empty() || text.size() > kLongestAddress || text.find('\0') != std::string_view::npos) return std::nullopt;
  const std::string word(text);
  // It reads what follows white space as nothing.
  in_addr four{};
  if (word.find_first_of(" \t\n\v\f\r") == std::string::npos && inet_aton(word.c_str(), &four) != 0)
    return mapped(four);
  Address six;
  if (inet_pton(AF_INET6, word.c_str(), six.bytes.data()) == 1) return six;
  return std::nullopt;
}

std::string to_string(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const bool four = is_four(address);
  inet_ntop(four ? AF_INET : AF_INET6, address.bytes.data() + (four ? kMapped.size() : 0), text, sizeof text);
  return text;
}

std::string_view why_not_public(const Address& address) {
  if (is_four(address)) {
    for (const auto& block : kFour) {
      if (lies_in(address, block, true)) return block.what;
    }
    return "";
  }
  for (const auto& block : kSix) {
    if (lies_in(address, block, false)) return block.what;
  }
  return (address.bytes[0] & 0xe0) == 0x20 ? "" : "no address of the open internet";
}

bool is_never_opened(const Address& address) {
  // Of AWS over IPv6, of Alibaba Cloud, of Oracle Cloud; the others serve theirs at link-local addresses.
  for (const char* metadata : {"fd00:ec2::254", "100.100.100.200", "192.0.0.192"}) {
    if (address == parse_address(metadata)) return true;
  }
  return is_four(address) ? lies_in(address, {"169.254.0.0", 16, ""}, true)
                          : lies_in(address, {"fe80::", 10, ""}, false);
}

}  // namespace tandem::envs
