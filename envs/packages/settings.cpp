#include "envs/packages/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/iso_time.h"
#include "base/text.h"
#include "envs/packages/url.h"

namespace tandem::envs {
namespace {

constexpr std::array<std::string_view, 3> kKinds = {"pypi", "npm", "debian"};
constexpr size_t kMostInstalled = 100;

}  // namespace

void add_package_fields(Schema& s, PackageSettings& p) {
  s.add("env.packages.pypi", p.pypi,
        "Index that `pip install` works with in episodes: the URL of a simple index; auto: that of this machine's pip; "
        "empty: none. What is fetched is kept on this machine");
  s.add("env.packages.npm", p.npm,
        "Registry that `npm install` works with in episodes: its URL; auto: that of this machine's npm; empty: none");
  s.add(
      "env.packages.debian", p.debian,
      "Archive that `apt-get download` works with in episodes: its URL; auto: the first of this machine's apt; {date} "
      "in a URL is env.packages.before, as 20260131T000000Z; empty: none");
  s.add("env.packages.debian_suites", p.debian_suites,
        "Suites of that archive, each with its components; empty: those of this machine's apt, with auto")
      .example("[bookworm main]");
  s.add("env.packages.debian_keyring", p.debian_keyring,
        "Keys that its index must be signed with, a file below /usr; empty: signatures are not checked");
  s.add("env.packages.file_hosts", p.file_hosts,
        "Hosts beside those of the registries that an index may name for its files")
      .example("[files.example.org]");
  s.add("env.packages.before", p.before,
        "Nothing that was uploaded later is there: a date such as 2026-01-31; empty: no bound");
  s.add("env.packages.lock", p.lock,
        "A packages.lock that a run has written: nothing outside it is there; empty: none. A run writes its own");
  s.add("env.packages.offline", p.offline, "With a lock: whether only what this machine has kept is used");
  s.add("env.packages.install", p.install,
        "What every episode begins with, pypi NAME, npm NAME or debian NAME; installed once and shared")
      .example("['pypi six==1.16.0']");
  s.add("env.packages.file_mb", p.file_mb, "Largest file that is fetched, in MiB", 1, 100'000);
  s.add("env.packages.cache_mb", p.cache_mb,
        "Of all files that are kept, in MiB; those that were not used for longest go first", 16, 10'000'000);
  s.add("env.packages.seconds", p.seconds, "For one file from a registry; 0: nine tenths of a call's time limit", 0,
        3600);
}

std::vector<std::string> package_mistakes(const PackageSettings& p, double call_seconds) {
  std::vector<std::string> mistakes;
  const auto refuse = [&](bool wrong, std::string words) {
    if (wrong) mistakes.push_back("env.packages." + std::move(words));
  };
  for (const auto& [key, url] : {std::pair{"pypi", p.pypi}, {"npm", p.npm}, {"debian", p.debian}}) {
    if (url.empty() || url == "auto") continue;
    if (const auto parsed = Url::parse(url); !parsed)
      refuse(true, fmt::format("{}: {}{}", key, parsed.error().message(), did_you_mean(url, {"auto"})));
  }
  const bool has_others = !p.lock.empty() || !p.before.empty() || p.offline || !p.install.empty();
  refuse(!p.any() && has_others, "pypi, npm or debian must name a registry: what stands beside them is for one");
  refuse(!p.before.empty() && !parse_iso_time(p.before),
         fmt::format("before is \"{}\", not a date like 2026-01-31", p.before));
  refuse(p.offline && p.lock.empty(), "offline needs env.packages.lock: without one nobody knows what to replay");
  std::error_code error;
  refuse(!p.lock.empty() && !fs::is_regular_file(p.lock, error), fmt::format("lock: there is no file {}", p.lock));
  const bool dated = p.debian.find("{date}") != std::string::npos;
  refuse(dated && p.before.empty(), "debian names {date}, and env.packages.before gives none");
  refuse(!p.debian.empty() && !p.before.empty() && p.lock.empty() && !dated,
         "before cannot hold for debian, whose index has no dates: give the URL of a snapshot, with {date} in it, or a "
         "lock");
  refuse(!p.debian.empty() && p.debian != "auto" && p.debian_suites.empty(),
         "debian_suites must name the suites of that archive, as [bookworm main]");
  for (const auto& suite : p.debian_suites) {
    const auto words = split(suite, ' ');
    bool plain = words.size() >= 2;
    for (const auto word : words) plain = plain && is_plain_path(word);
    refuse(!plain, fmt::format("debian_suites: \"{}\" is not SUITE COMPONENT..., as in \"bookworm main\"", suite));
  }
  refuse(!p.debian_keyring.empty() &&
             (!p.debian_keyring.starts_with("/usr/") || !is_plain_path(p.debian_keyring.substr(1))),
         "debian_keyring must be a file below /usr, which sandboxes see");
  for (const auto& host : p.file_hosts) {
    const auto parsed = Url::parse("https://" + host + "/");
    refuse(!parsed || host.find('/') != std::string::npos,
           fmt::format("file_hosts: \"{}\" is not HOST or HOST:PORT", host));
  }
  refuse(p.install.size() > kMostInstalled,
         fmt::format("install names {} packages, {} at most", p.install.size(), kMostInstalled));
  for (const auto& wanted : p.install) {
    const auto kind = std::string_view(wanted).substr(0, wanted.find(' '));
    const auto name = trim(std::string_view(wanted).substr(kind.size()));
    const bool known = std::ranges::find(kKinds, kind) != kKinds.end();
    refuse(!known || name.empty() || name.starts_with('-'),
           fmt::format("install: \"{}\" is not pypi NAME, npm NAME or debian NAME{}", wanted,
                       known ? "" : did_you_mean(kind, std::span<const std::string_view>(kKinds))));
    const auto& url = kind == "pypi" ? p.pypi : kind == "npm" ? p.npm : p.debian;
    refuse(known && url.empty(), fmt::format("install: \"{}\" needs env.packages.{}", wanted, kind));
  }
  refuse(p.any() && p.seconds >= call_seconds,
         fmt::format("seconds is {}, and a call ends after env.call_seconds = {}: a slow registry would look like a "
                     "slow command; lower the first or raise the second",
                     p.seconds, call_seconds));
  return mistakes;
}

Json package_identity(const PackageSettings& p) {
  if (!p.any()) return nullptr;
  return {{"pypi", p.pypi},     {"npm", p.npm},        {"debian", p.debian}, {"debian_suites", p.debian_suites},
          {"before", p.before}, {"install", p.install}};
}

}  // namespace tandem::envs
