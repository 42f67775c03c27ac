// What programs in a sandbox ask of the registries, and how they find them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/digest.h"
#include "base/text.h"
#include "envs/packages/cache.h"
#include "envs/tools/output.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

const std::string kAddress = "http://127.0.0.1:" + std::to_string(kProxyPort);
constexpr const char* kAptFolder = ".apt";

// A status for programs, a line for the model, or a failure for the episode.
PackageAnswer answer_of(const Status& why) {
  PackageAnswer answer{.status = 404, .type = "text/plain; charset=utf-8", .body = why.message() + "\n"};
  switch (why.code()) {
    case Code::kNotFound:
    case Code::kInvalid:
      answer.refused = why.message();
      break;
    case Code::kExhausted:
      answer.status = 403;
      answer.refused = why.message();
      break;
    case Code::kCancelled:
      answer.status = 503;
      break;
    default:
      answer.status = 502;
      answer.broken = why.message();
  }
  return answer;
}

PackageAnswer answer_of(Result<StoredFile> file) {
  if (!file) return answer_of(file.error());
  return {.file = std::move(file->file), .file_bytes = file->bytes};
}

Status no_such_path() { return Status::invalid("there is no such address at the registries here"); }

}  // namespace

PackageAnswer PackageCache::answer(const PackageRequest& request, const std::stop_token& stop) {
  // Decoded once; what is left of marks and dots names no file.
  const auto path = percent_decoded(request.path);
  if (path.size() < 2 || !is_plain_path(path.ends_with('/') ? path.substr(1, path.size() - 2) : path.substr(1)))
    return answer_of(no_such_path());
  const auto kind = path.substr(1, path.find('/', 1) - 1);
  const auto rest = path.substr(std::min(kind.size() + 2, path.size()));
  if (kind == "pypi" && registries_.pypi) return answer_pypi(rest, request, stop);
  if (kind == "npm" && registries_.npm) return answer_npm(rest, stop);
  if (kind == "debian" && registries_.debian) return answer_debian(rest, stop);
  return answer_of(no_such_path());
}

PackageAnswer PackageCache::answer_pypi(std::string_view path, const PackageRequest& request,
                                        const std::stop_token& stop) {
  if (path.ends_with('/')) path.remove_suffix(1);
  const auto words = split(path, '/');
  const bool is_page = words.size() == 2 && words[0] == "simple", is_file = words.size() == 3 && words[0] == "files";
  const auto project = is_page || is_file ? normalised_project(words[1]) : "";
  if (project.empty()) return answer_of(no_such_path());
  auto page = pypi_page(project, stop);
  if (!page && page.error().code() == Code::kNotFound && !frozen_)
    return answer_of(Status::not_found(fmt::format("the index has no project {}", project)));
  if (!page) return answer_of(page.error());
  if (is_page) {
    const auto& before = options_.settings.before;
    if ((*page)->files.empty() && !before.empty())
      return answer_of(Status::not_found(fmt::format("{} has no file from before {}", project, before)));
    const bool json = request.accept.find("application/vnd.pypi.simple.v1+json") != std::string::npos;
    return {.type = json ? "application/vnd.pypi.simple.v1+json" : "text/html; charset=utf-8",
            .body = write_pypi_page(**page, json ? PypiForm::kJson : PypiForm::kHtml)};
  }
  constexpr std::string_view kMetadata = ".metadata";
  auto name = words[2];
  const bool is_metadata = name.ends_with(kMetadata);
  if (is_metadata) name.remove_suffix(kMetadata.size());
  const auto file = std::ranges::find((*page)->files, name, &PypiFile::name);
  if (file == (*page)->files.end() || (is_metadata && !file->metadata))
    return answer_of(Status::not_found(
        fmt::format("{} is not among the files of {}{}", words[2], project,
                    options_.settings.before.empty() ? "" : " from before " + options_.settings.before)));
  Url url = file->url;
  if (is_metadata) url.path.insert(std::min(url.path.find('?'), url.path.size()), kMetadata);
  Wanted wanted = wanted_of(*registries_.pypi, fmt::format("pypi/files/{}/{}", project, words[2]), url);
  wanted.digest = is_metadata ? file->metadata : file->digest;
  return answer_of(get(wanted, stop));
}

PackageAnswer PackageCache::answer_npm(std::string_view path, const std::stop_token& stop) {
  constexpr std::string_view kArchive = "/-/";
  const size_t archive = path.find(kArchive);
  const std::string name(path.substr(0, archive));
  if (!is_npm_name(name)) return answer_of(no_such_path());
  auto page = npm_page(name, stop);
  if (!page && page.error().code() == Code::kNotFound && !frozen_)
    return answer_of(Status::not_found(fmt::format("the registry has no package {}", name)));
  if (!page) return answer_of(page.error());
  if (archive == std::string_view::npos) {
    const auto& before = options_.settings.before;
    if ((*page)->versions.empty() && !before.empty())
      return answer_of(Status::not_found(fmt::format("{} has no version from before {}", name, before)));
    return {.type = "application/json", .body = write_npm_page(**page, kAddress + "/npm")};
  }
  const auto file = std::ranges::find((*page)->versions, path.substr(archive + kArchive.size()), &NpmVersion::file);
  if (file == (*page)->versions.end())
    return answer_of(Status::not_found(fmt::format("{} is not among the archives of {}", path, name)));
  Wanted wanted = wanted_of(*registries_.npm, "npm/" + std::string(path), file->url);
  wanted.digest = file->digest;
  return answer_of(get(wanted, stop));
}

PackageAnswer PackageCache::answer_debian(const std::string& path, const std::stop_token& stop) {
  Url url = registries_.debian->url;
  url.path += path;
  Wanted wanted = wanted_of(*registries_.debian, "debian/" + path, url);
  for (const auto& suite : registries_.suites) {
    const auto below = "dists/" + suite.substr(0, suite.find(' ')) + "/";
    for (const char* name : {"InRelease", "Release", "Release.gpg"})
      wanted.is_page = wanted.is_page || path == below + name;
  }
  if (!wanted.is_page) {
    auto file = debian_file(path, stop);
    if (!file) return answer_of(file.error());
    wanted.digest = file->digest;
    // Lists are pages too: an archive keeps no old ones.
    wanted.is_page = path.starts_with("dists/");
  }
  auto answer = answer_of(get(wanted, stop));
  // apt asks for what need not be there.
  if (answer.status == 404 && path.starts_with("dists/")) answer.refused.clear();
  return answer;
}

std::vector<std::string> PackageCache::environment() const {
  std::vector<std::string> settings;
  const auto patience = std::ceil(to_seconds(fetch_limit())) + 5;  // of programs, so that ours ends first
  if (registries_.pypi) {
    settings = {"PIP_INDEX_URL=" + kAddress + "/pypi/simple/",
                "UV_DEFAULT_INDEX=" + kAddress + "/pypi/simple/",
                "PIP_CONFIG_FILE=/dev/null",
                "PIP_TRUSTED_HOST=127.0.0.1",
                "PIP_BREAK_SYSTEM_PACKAGES=1",  // a sandbox has no system to break
                "PIP_DISABLE_PIP_VERSION_CHECK=1",
                "PIP_NO_CACHE_DIR=1",
                "PIP_NO_INPUT=1",
                "PIP_RETRIES=0",
                fmt::format("PIP_DEFAULT_TIMEOUT={:.0f}", patience)};
  }
  if (registries_.npm) {
    settings.insert(settings.end(), {"npm_config_registry=" + kAddress + "/npm/", "npm_config_audit=false",
                                     "npm_config_fund=false", "npm_config_update_notifier=false",
                                     "npm_config_fetch_retries=0", "npm_config_prefix=" + kHome + "/.local",
                                     fmt::format("npm_config_fetch_timeout={:.0f}", patience * 1000)});
  }
  if (registries_.debian) settings.push_back("APT_CONFIG=" + kHome + "/" + kAptFolder + "/apt.conf");
  return settings;
}

std::map<std::string, std::string> PackageCache::home_files() const {
  if (!registries_.debian) return {};
  const auto& keyring = options_.settings.debian_keyring;
  const auto option = keyring.empty() ? std::string("trusted=yes") : "signed-by=" + keyring;
  std::string sources;
  for (const auto& suite : registries_.suites)
    sources += fmt::format("deb [{}] {}/debian {}\n", option, kAddress, suite);
  const std::string folder = kAptFolder, at = kHome + "/" + folder;
  const auto conf = fmt::format(
      "Dir::State \"{0}/state\";\nDir::State::status \"{0}/status\";\nDir::Cache \"{0}/cache\";\n"
      "Dir::Etc::sourcelist \"{0}/sources.list\";\nDir::Etc::sourceparts \"-\";\n"
      "Dir::Etc::parts \"{0}/parts\";\nDir::Etc::preferencesparts \"{0}/parts\";\nDir::Log \"{0}\";\n"
      "APT::Sandbox::User \"root\";\nAPT::Architecture \"{1}\";\nAPT::Architectures {{ \"{1}\"; }};\n"
      "Acquire::Languages \"none\";\nAcquire::GzipIndexes \"true\";\nAcquire::PDiffs \"false\";\nAcquire::Retries "
      "\"0\";\n"
      "Acquire::Check-Valid-Until \"false\";\nAcquire::http::Proxy \"DIRECT\";\nAcquire::http::Timeout "
      "\"{2:.0f}\";\nDebug::NoLocking \"true\";\n",
      at,
#if defined(__aarch64__)
      "arm64",
#else
      "amd64",
#endif
      std::ceil(to_seconds(fetch_limit())) + 5);
  return {{folder + "/apt.conf", conf},
          {folder + "/sources.list", sources},
          {folder + "/status", ""},
          {folder + "/parts/.keep", ""},
          {folder + "/state/lists/partial/.keep", ""},
          {folder + "/cache/archives/partial/.keep", ""}};
}

std::vector<std::string> PackageCache::setup() const {
  std::string pypi, npm, debian;
  for (const auto& wanted : options_.settings.install) {
    const size_t space = wanted.find(' ');
    const auto kind = wanted.substr(0, space);
    for (const auto name : split(trim(std::string_view(wanted).substr(space)), ' ')) {
      auto& names = kind == "pypi" ? pypi : kind == "npm" ? npm : debian;
      if (!name.empty()) names += " " + shell_quoted(name);
    }
  }
  std::vector<std::string> commands;
  if (!pypi.empty()) commands.push_back("python3 -m pip install --quiet --user" + pypi);
  if (!npm.empty()) commands.push_back("npm install --silent --global" + npm);
  if (!debian.empty()) {
    // In a shell of its own: the sandbox's stays in the workspace.
    commands.push_back("(mkdir -p ~/.debian && cd ~/.debian && apt-get -qq update && apt-get -q download" + debian +
                       " && for each in *.deb; do dpkg -x \"$each\" . || exit 1; done && rm *.deb)");
  }
  return commands;
}

std::string PackageCache::install_python(std::span<const std::string> requirements) const {
  if (!registries_.pypi || requirements.empty()) return "";
  std::string command = "python3 -m pip install --quiet --user";
  for (const auto& each : requirements) command += " " + shell_quoted(each);
  return command;
}

std::string PackageCache::identity() const {
  auto text = dump_json(package_identity(options_.settings)) + lock_.file().string();
  if (frozen_) {
    for (const auto& [key, file] : *frozen_) text += key + file.sha256;
  }
  return digest_of(text).hex();
}

std::string PackageCache::told() const {
  std::vector<std::string> ways;
  if (registries_.pypi) ways.emplace_back("`pip install`");
  if (registries_.npm) ways.emplace_back("`npm install`");
  if (registries_.debian) ways.emplace_back("`apt-get update` and `apt-get download` with `dpkg -x`");
  auto text = "Packages can be had by " + join(ways, ", ");
  if (!options_.settings.before.empty()) text += ", as of before " + options_.settings.before;
  return text + (frozen_ ? "; only chosen ones are there." : ".");
}

}  // namespace tandem::envs
