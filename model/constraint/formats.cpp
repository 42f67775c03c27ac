#include "model/constraint/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "model/constraint/pattern.h"

namespace tandem::model::constraint {

namespace {

// Days that there are, from the year 1 on; T and Z in capitals, no leap seconds (RFC 3339).
#define TANDEM_DATE                                                                                         \
  R"((((\d{3}[1-9]|\d\d[1-9]0|\d[1-9]00|[1-9]000)-((0[13578]|1[02])-(0[1-9]|[12]\d|3[01])|(0[469]|11)-)"    \
  R"((0[1-9]|[12]\d|30)|02-(0[1-9]|1\d|2[0-8])))|(\d\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|)" \
  R"([13579][26])00)-02-29))"
#define TANDEM_TIME R"(([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))"
#define TANDEM_DURATION_TIME R"((T(\d+H(\d+M(\d+S)?)?|\d+M(\d+S)?|\d+S)))"
#define TANDEM_LABEL R"([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)"
#define TANDEM_HOST TANDEM_LABEL R"((\.)" TANDEM_LABEL ")*"
#define TANDEM_ATOM R"([A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)"
#define TANDEM_OCTET R"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))"
#define TANDEM_IPV4 TANDEM_OCTET R"((\.)" TANDEM_OCTET "){3}"
#define TANDEM_H16 R"([0-9A-Fa-f]{1,4})"
#define TANDEM_LS32 "(" TANDEM_H16 ":" TANDEM_H16 "|" TANDEM_IPV4 ")"
// RFC 3986's nine ways to write an address.
#define TANDEM_IPV6                                                                                                   \
  "((" TANDEM_H16 ":){6}" TANDEM_LS32 "|::(" TANDEM_H16 ":){5}" TANDEM_LS32 "|(" TANDEM_H16 ")?::(" TANDEM_H16        \
  ":){4}" TANDEM_LS32 "|((" TANDEM_H16 ":){0,1}" TANDEM_H16 ")?::(" TANDEM_H16 ":){3}" TANDEM_LS32 "|((" TANDEM_H16   \
  ":){0,2}" TANDEM_H16 ")?::(" TANDEM_H16 ":){2}" TANDEM_LS32 "|((" TANDEM_H16 ":){0,3}" TANDEM_H16 ")?::" TANDEM_H16 \
  ":" TANDEM_LS32 "|((" TANDEM_H16 ":){0,4}" TANDEM_H16 ")?::" TANDEM_LS32 "|((" TANDEM_H16 ":){0,5}" TANDEM_H16      \
  ")?::" TANDEM_H16 "|((" TANDEM_H16 ":){0,6}" TANDEM_H16 ")?::)"
#define TANDEM_CHARACTER R"([A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})"
#define TANDEM_PCHAR "(" TANDEM_CHARACTER "|[:@])"
#define TANDEM_AUTHORITY "((" TANDEM_CHARACTER "|:)*@)?(\\[" TANDEM_IPV6 "\\]|(" TANDEM_CHARACTER ")*)(:\\d*)?"
#define TANDEM_TAIL "(\\?(" TANDEM_PCHAR "|[/?])*)?(#(" TANDEM_PCHAR "|[/?])*)?"
#define TANDEM_ABEMPTY "(/" TANDEM_PCHAR "*)*"
#define TANDEM_ABSOLUTE "/(" TANDEM_PCHAR "+" TANDEM_ABEMPTY ")?"
#define TANDEM_URI                                                                                     \
  "[A-Za-z][A-Za-z0-9+.\\-]*:(//" TANDEM_AUTHORITY TANDEM_ABEMPTY "|" TANDEM_ABSOLUTE "|" TANDEM_PCHAR \
  "+" TANDEM_ABEMPTY "|)" TANDEM_TAIL
#define TANDEM_RELATIVE                                                                                 \
  "(//" TANDEM_AUTHORITY TANDEM_ABEMPTY "|" TANDEM_ABSOLUTE "|(" TANDEM_CHARACTER "|@)+" TANDEM_ABEMPTY \
  "|"                                                                                                   \
  ")" TANDEM_TAIL

struct Format {
  std::string_view name, pattern;
  uint32_t most = 0;  // characters; 0: any number
};
constexpr std::array kFormats = {
    Format{"date", "^" TANDEM_DATE "$"},
    Format{"time", "^" TANDEM_TIME "$"},
    Format{"date-time", "^" TANDEM_DATE "T" TANDEM_TIME "$"},
    Format{"duration",
           R"(^P(\d+W|(\d+D|\d+M(\d+D)?|\d+Y(\d+M(\d+D)?)?))" TANDEM_DURATION_TIME "?|" TANDEM_DURATION_TIME ")$"},
    Format{"uuid", "^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"},
    Format{"email", "^" TANDEM_ATOM "(\\." TANDEM_ATOM ")*@" TANDEM_HOST "$"},
    Format{"hostname", "^" TANDEM_HOST "$", 253},
    Format{"ipv4", "^" TANDEM_IPV4 "$"},
    Format{"ipv6", "^" TANDEM_IPV6 "$"},
    Format{"uri", "^" TANDEM_URI "$"},
    Format{"uri-reference", "^(" TANDEM_URI "|" TANDEM_RELATIVE ")$"},
    Format{"json-pointer", "^(/([^~/]|~[01])*)*$"},
};

constexpr auto kNames = [] {
  std::array<std::string_view, kFormats.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kFormats[i].name;
  return names;
}();

}  // namespace

std::span<const std::string_view> format_names() { return kNames; }

Result<Dfa> compile_format(std::string_view name) {
  const auto* found = std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& f) { return f.name == name; });
  if (found == kFormats.end())
    return fail(Status::not_found(fmt::format("no format \"{}\"{}", name, did_you_mean(name, kNames))));
  Dfa dfa = TRY(compile_pattern(found->pattern));
  if (found->most == 0) return dfa;
  return Dfa::intersection(dfa, TRY(Dfa::of_length(0, found->most)));
}

}  // namespace tandem::model::constraint
