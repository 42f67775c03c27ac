#include "envs/network/allow_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr size_t kAllowListLongestName = 253, kLongestLabel = 63;
constexpr size_t kAllowListMostShown = 8;  // entries, where one that is not there is refused

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Such names would be taken for addresses by one program and not by the other.
bool ends_like_address(std::string_view name) {
  const auto last = name.substr(name.rfind('.') + 1);
  return std::all_of(last.begin(), last.end(), is_digit) || last.starts_with("0x");
}

}  // namespace

std::string host_name(std::string_view text) {
  if (text.ends_with('.')) text.remove_suffix(1);
  if (text.empty() || text.size() > kAllowListLongestName) return "";
  std::string name(text);
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const auto label : split(name, '.')) {
    const bool fits = std::all_of(label.begin(), label.end(),
                                  [](char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '_'; });
    if (label.empty() || label.size() > kLongestLabel || !fits) return "";
  }
  return ends_like_address(name) ? "" : name;
}

Result<AllowList::Rule> AllowList::parse_entry(const std::string& entry) {
  const auto wrong = [&](std::string_view why) {
    return fail(Status::invalid(fmt::format("\"{}\" {}", entry.substr(0, 300), why)));
  };
  Rule rule;
  rule.written = entry;
  std::string_view host = entry;
  std::string_view port;
  const size_t bracket = host.find(']');
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  // One colon has a port behind it; several without brackets are an address of IPv6.
  if (colon != std::string_view::npos && (bracket != std::string_view::npos || host.rfind(':') == colon)) {
    port = host.substr(colon + 1);
    host = host.substr(0, colon);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), rule.port);
    if (error != std::errc() || end != port.data() + port.size() || rule.port == 0)
      return wrong("has no port from 1 to 65535 behind its colon");
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (const auto address = parse_address(host)) {
    if (is_never_opened(*address))
      return wrong("is an address where clouds tell secrets of the machine; it stays closed");
    if (host.find(':') == std::string_view::npos && envs::to_string(*address) != host)
      return wrong("is no host; an address is written as A.B.C.D");
    rule.address = address;
    return rule;
  }
  rule.below = host.starts_with("*.");
  rule.name = host_name(rule.below ? host.substr(2) : host);
  if (rule.name.empty())
    return wrong("is no host; write a name, *.SUFFIX or an address, with :PORT where it is not 80 or 443");
  return rule;
}

Result<AllowList> AllowList::parse(std::span<const std::string> entries) {
  if (entries.size() > kMostEntries)
    return fail(Status::invalid(fmt::format("{} hosts are named; {} is the most", entries.size(), kMostEntries)));
  AllowList list;
  for (const auto& entry : entries) {
    auto rule = TRY(parse_entry(entry));
    if (std::find(list.rules_.begin(), list.rules_.end(), rule) == list.rules_.end())
      list.rules_.push_back(std::move(rule));
  }
  return list;
}

std::vector<std::string> AllowList::entries() const {
  std::vector<std::string> entries;
  for (const auto& rule : rules_) entries.push_back(rule.written);
  return entries;
}

Result<AllowList> AllowList::with(const AllowList& more) const {
  auto both = entries();
  for (auto& entry : more.entries()) both.push_back(std::move(entry));
  return parse(both);
}

Status AllowList::check_public() const {
  for (const auto& rule : rules_) {
    if (!rule.address || why_not_public(*rule.address).empty()) continue;
    return Status::invalid(fmt::format("\"{}\" is {}, which a task cannot open; who runs it can, by env.network",
                                       rule.written, why_not_public(*rule.address)));
  }
  return {};
}

bool AllowList::names_address(const Address& address, uint16_t port) const {
  return std::any_of(rules_.begin(), rules_.end(),
                     [&](const Rule& rule) { return rule.address == address && rule.has_port(port); });
}

std::string AllowList::not_listed() const {
  if (rules_.empty()) return "not open here; no host is";
  auto shown = entries();
  if (shown.size() > kAllowListMostShown) {
    shown.resize(kAllowListMostShown);
    shown.push_back(fmt::format("and {} more", rules_.size() - kAllowListMostShown));
  }
  return "not among the hosts that are open here: " + join(shown, ", ");
}

std::string AllowList::why_refused(std::string_view host, uint16_t port) const {
  if (const auto address = parse_address(host)) {
    if (is_never_opened(*address)) return std::string(why_not_public(*address));
    return names_address(*address, port) ? "" : not_listed();
  }
  const auto name = host_name(host);
  if (name.empty()) return "not the name of a host";
  const bool listed = std::any_of(rules_.begin(), rules_.end(), [&](const Rule& rule) {
    if (rule.name.empty() || !rule.has_port(port)) return false;
    return rule.below ? name.size() > rule.name.size() && name.ends_with("." + rule.name) : name == rule.name;
  });
  return listed ? "" : not_listed();
}

std::string AllowList::why_refused(const Address& address, uint16_t port) const {
  const auto what = why_not_public(address);
  if (!is_never_opened(address) && (what.empty() || names_address(address, port))) return "";
  return fmt::format("{} is {}", envs::to_string(address), what.empty() ? "closed" : what);
}

}  // namespace tandem::envs
