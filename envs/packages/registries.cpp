#include "envs/packages/registries.h"

#include <fmt/format.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/iso_time.h"
#include "base/text.h"
#include "envs/tools/output.h"
#include "envs/tools/process.h"
#include "wire/http_client.h"

namespace tandem::envs {
namespace {

constexpr int kMostRedirects = 5, kMostTries = 3;
constexpr auto kFirstPause = std::chrono::milliseconds(200);
constexpr double kToolSeconds = 30;

// A tool of this machine, with this process's environment: its settings are what is asked for.
Result<std::string> ask_tool(const std::string& program, std::vector<std::string> arguments) {
  ProcessSpec spec{
      .argv = {"/usr/bin/env", program}, .directory = "/", .time_limit_s = kToolSeconds, .errors_apart = true};
  for (auto& argument : arguments) spec.argv.push_back(std::move(argument));
  for (char** one = environ; *one != nullptr; ++one) spec.environment.emplace_back(*one);
  const auto result = TRY(run_process(spec));
  if (result.exit_code != 0)
    return fail(Status::unfit(fmt::format("`{} {}` failed: {}", program, arguments.empty() ? "" : spec.argv[2],
                                          make_printable(trim(result.errors).substr(0, 300)))));
  return result.output;
}

// "https://NAME:PASSWORD@HOST/...": the first two become a header.
Result<Registry> registry_from(std::string text) {
  Registry registry;
  const size_t scheme = text.find("://"), at = text.find('@');
  if (scheme != std::string::npos && at != std::string::npos && at < text.find('/', scheme + 3)) {
    const auto secret = percent_decoded(text.substr(scheme + 3, at - scheme - 3));
    std::string base64(sodium_base64_ENCODED_LEN(secret.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
    sodium_bin2base64(base64.data(), base64.size(), reinterpret_cast<const unsigned char*>(secret.data()),
                      secret.size(), sodium_base64_VARIANT_ORIGINAL);
    registry.authorization = "Basic " + std::string(base64.c_str());
    text.erase(scheme + 3, at - scheme - 2);
  }
  registry.url = TRY(Url::parse(text));
  if (!registry.url.path.ends_with('/')) registry.url.path += '/';
  registry.hosts.push_back(registry.url.host);
  return registry;
}

// pip's own default is asked of pip, too: its index, and the host that its files lie on.
Result<Registry> ask_pip() {
  constexpr const char* kQuestion =
      "from pip._internal.configuration import Configuration as C\n"
      "from pip._internal.models.index import PyPI\n"
      "c = C(isolated=False); c.load(); s = {}\n"
      "def take(k, v):\n"
      "    if isinstance(v, dict): [take(a, b) for a, b in v.items()]\n"
      "    elif k.endswith('.index-url'): s[k.split('.')[0]] = v\n"
      "for k, v in c.items(): take(k, v)\n"
      "own = s.get(':env:') or s.get('install') or s.get('global')\n"
      "print(own or PyPI.simple_url)\n"
      "print('' if own else PyPI.file_storage_domain)\n";
  auto said = ask_tool("python3", {"-c", kQuestion});
  if (!said)
    return fail(Status::unfit("pip does not say which index it uses: " + said.error().message())
                    .hint("give its URL in env.packages.pypi"));
  const auto lines = split_lines(*said);
  auto registry = TRY(registry_from(lines.empty() ? "" : std::string(trim(lines[0]))));
  if (lines.size() > 1 && !trim(lines[1]).empty()) registry.hosts.emplace_back(trim(lines[1]));
  return registry;
}

Result<Registry> ask_npm() {
  auto said = ask_tool("npm", {"config", "get", "registry"});
  if (!said)
    return fail(Status::unfit("npm does not say which registry it uses: " + said.error().message())
                    .hint("give its URL in env.packages.npm"));
  return registry_from(std::string(trim(*said)));
}

Result<Registry> ask_apt(std::vector<std::string>& suites) {
  auto said =
      ask_tool("apt-get", {"indextargets", "--format", "$(SITE)|$(RELEASE)|$(COMPONENT)", "Created-By: Packages"});
  const auto unfit = [](std::string why) {
    return fail(
        Status::unfit("apt does not say which archive it uses" + why).hint("give its URL in env.packages.debian"));
  };
  if (!said) return unfit(": " + said.error().message());
  std::string site;
  std::vector<std::pair<std::string, std::string>> found;
  for (const auto line : split_lines(*said)) {
    const auto words = split(line, '|');
    if (words.size() != 3) continue;
    if (site.empty()) site = words[0];
    if (words[0] != site) continue;
    const auto known = std::ranges::find(found, words[1], &std::pair<std::string, std::string>::first);
    if (known == found.end()) {
      found.emplace_back(words[1], words[2]);
      continue;
    }
    const auto components = split(known->second, ' ');
    if (std::ranges::find(components, words[2]) == components.end()) known->second += " " + std::string(words[2]);
  }
  if (site.empty()) return unfit("");
  if (suites.empty()) {
    for (const auto& [suite, components] : found) suites.push_back(suite + " " + components);
  }
  return registry_from(site);
}

std::string dated(std::string url, const std::string& before) {
  constexpr std::string_view kDate = "{date}";
  const auto time = parse_iso_time(before);
  if (const size_t at = url.find(kDate); at != std::string::npos && time) {
    char text[32];
    url.replace(at, kDate.size(), text, std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &*time));
  }
  return url;
}

Status answered(const wire::HttpHead& head, const Url& url) {
  if (head.status == 200) return {};
  if (head.status == 404 || head.status == 410)
    return Status::not_found(fmt::format("{} is not at the registry", url.to_string()));
  return Status::unavailable(fmt::format("{} answered {}", url.host, head.status));
}

}  // namespace

bool is_host_of(const Registry& registry, const Url& url) {
  return std::ranges::find(registry.hosts, url.host) != registry.hosts.end();
}

Result<Registries> find_registries(const PackageSettings& settings) {
  Registries all;
  all.suites = settings.debian_suites;
  const auto add_hosts = [&](Registry registry) {
    for (const auto& host : settings.file_hosts) {
      if (const auto url = Url::parse("https://" + host + "/")) registry.hosts.push_back(url->host);
    }
    return registry;
  };
  if (!settings.pypi.empty())
    all.pypi = add_hosts(TRY(settings.pypi == "auto" ? ask_pip() : registry_from(settings.pypi)));
  if (!settings.npm.empty()) all.npm = add_hosts(TRY(settings.npm == "auto" ? ask_npm() : registry_from(settings.npm)));
  if (!settings.debian.empty())
    all.debian = add_hosts(
        TRY(settings.debian == "auto" ? ask_apt(all.suites) : registry_from(dated(settings.debian, settings.before))));
  return all;
}

Status fetch(const Registry& registry, const Url& from, const std::string& accept, const FetchLimits& limits,
             const std::function<Status()>& begin, const std::function<Status(std::string_view)>& take,
             const std::stop_token& stop) {
  const SystemClock clock;
  const Time deadline = clock.now() + limits.whole;
  Url url = from;
  int redirects = 0;
  for (int attempt = 1;;) {
    if (!is_host_of(registry, url))
      return Status::unavailable(
                 fmt::format("the registry {} leads to {}, which is not one of its hosts", registry.url.host, url.host))
          .hint("add it to env.packages.file_hosts if its files lie there");
    const Duration left = deadline - clock.now();
    if (left <= Duration::zero())
      return Status::deadline(fmt::format("{} did not answer within {:.1f} s", url.host, to_seconds(limits.whole)));
    TRY(begin());
    wire::OutgoingRequest request{.url = url.to_string(),
                                  .method = "GET",
                                  .connect_limit = std::min<Duration>(left, std::chrono::seconds(10)),
                                  .limit = left,
                                  .largest_answer = limits.bytes};
    request.headers.emplace_back("User-Agent", "tandem");
    if (!accept.empty()) request.headers.emplace_back("Accept", accept);
    if (!registry.authorization.empty() && url.host == registry.url.host && url.scheme == registry.url.scheme)
      request.headers.emplace_back("Authorization", registry.authorization);
    const auto head = wire::http_request(
        request,
        [&](const wire::HttpHead& now, std::string_view bytes) { return now.status == 200 ? take(bytes) : Status(); },
        stop);
    if (head && head->status >= 300 && head->status < 400 && !head->redirect.empty() && redirects++ < kMostRedirects) {
      url = TRY(Url::parse(head->redirect));
      continue;
    }
    Status outcome = head ? answered(*head, url) : head.error();
    if (!head && outcome.code() == Code::kUnavailable)
      outcome = Status::unavailable(fmt::format("{}: {}", url.host, outcome.message()));
    const bool again = head ? head->status == 429 || head->status >= 500 : outcome.code() == Code::kUnavailable;
    if (!again || attempt++ >= kMostTries || stop.stop_requested()) return outcome;
    const Duration pause = kFirstPause * (1 << (attempt - 2));
    if (clock.now() + pause >= deadline) return outcome;
    std::this_thread::sleep_for(pause);
    url = from;
  }
}

}  // namespace tandem::envs
