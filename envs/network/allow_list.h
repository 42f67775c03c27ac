// The hosts and ports that a sandbox may connect to; an empty list allows none.
//
// An entry is `HOST`, `*.SUFFIX` (every name below it, not itself) or an address, each with `:PORT` behind it or,
// without one, for ports 80 and 443. Addresses of IPv6 with a port stand in brackets. What a name resolves to must be
// public, unless an entry names that address, too; link-local and metadata addresses are open to nobody.
//
// Values: copy, compare. Thread safety: none needed.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "envs/network/address.h"

namespace tandem::envs {

class AllowList {
 public:
  static constexpr size_t kMostEntries = 64;

  // kInvalid, naming the entry and what is wrong with it; also for more than kMostEntries.
  static Result<AllowList> parse(std::span<const std::string> entries);

  bool empty() const { return rules_.empty(); }
  size_t size() const { return rules_.size(); }
  // As they were written.
  std::vector<std::string> entries() const;
  // The entries of both.
  Result<AllowList> with(const AllowList& more) const;

  // kInvalid, naming the entry, where one is an address that is not of the open internet: those are opened by who runs
  // a task, never by who wrote it.
  Status check_public() const;

  // Why a request for this host, a name or an address as it stands in a request, is refused; empty where the list has
  // it.
  std::string why_refused(std::string_view host, uint16_t port) const;
  // The same of an address that an allowed name resolved to.
  std::string why_refused(const Address& address, uint16_t port) const;

  friend bool operator==(const AllowList&, const AllowList&) = default;

 private:
  struct Rule {
    std::string written;
    std::string name;  // in small letters; empty where it is an address
    bool below = false;
    std::optional<Address> address = {};
    uint16_t port = 0;  // 0: 80 and 443
    bool has_port(uint16_t asked) const { return port == asked || (port == 0 && (asked == 80 || asked == 443)); }
    friend bool operator==(const Rule&, const Rule&) = default;
  };
  static Result<Rule> parse_entry(const std::string& entry);
  bool names_address(const Address& address, uint16_t port) const;
  std::string not_listed() const;

  std::vector<Rule> rules_;
};

// A host's name in the form in which names are compared: small letters, no dot at its end. Empty where it is none, or
// ends like an address of IPv4.
std::string host_name(std::string_view text);

}  // namespace tandem::envs
