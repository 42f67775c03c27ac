#include "envs/packages/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/digest.h"
#include "base/text.h"
#include "base/unique_number.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostParsed = 256;  // pages in memory
constexpr size_t kMostFailures = 1000;
constexpr auto kFailureLasts = std::chrono::seconds(2);
constexpr uint64_t kLargestPage = uint64_t{256} << 20;
constexpr double kFetchShare = 0.9;  // of a call's limit
constexpr const char* kPypiAccept =
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";
constexpr const char* kNpmAccept = "application/vnd.npm.install-v1+json, application/json;q=0.8";
// apt's own program, which every machine has that has lists to read; it knows all forms in which they are packed.
constexpr const char* kUnpack = "/usr/lib/apt/apt-helper";
#if defined(__aarch64__)
constexpr const char* kDebianArchitecture = "arm64";
#else
constexpr const char* kDebianArchitecture = "amd64";
#endif

// A page that cannot be read is the registry's mistake, not of who asks for it.
Status of_registry(const Status& why, const std::string& key, const Registry& registry) {
  return Status::corrupt(fmt::format("{} of {}: {}", key, registry.url.host, why.message()));
}

}  // namespace

PackageCache::PackageCache(Options options, Registries registries, PackageStore store, PackageLock lock)
    : options_(std::move(options)),
      registries_(std::move(registries)),
      store_(std::move(store)),
      lock_(std::move(lock)) {}

Result<std::shared_ptr<PackageCache>> PackageCache::open(Options options) {
  if (!options.settings.any()) return std::shared_ptr<PackageCache>();
  if (sodium_init() < 0) return fail(Status::unfit("libsodium does not start"));
  std::optional<LockedFiles> frozen;
  if (!options.settings.lock.empty()) frozen = TRY(read_package_lock(options.settings.lock));
  auto registries = TRY(find_registries(options.settings));
  if (options.folder.empty()) options.folder = TRY(packages_folder());
  auto store = TRY(PackageStore::open(options.folder, static_cast<uint64_t>(options.settings.cache_mb) << 20));
  auto lock = TRY(PackageLock::open(options.record));
  std::shared_ptr<PackageCache> cache(
      new PackageCache(std::move(options), std::move(registries), std::move(store), std::move(lock)));
  cache->frozen_ = std::move(frozen);
  return cache;
}

PackageCounters PackageCache::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

Duration PackageCache::fetch_limit() const {
  const double seconds = options_.settings.seconds;
  return from_seconds(seconds > 0 ? seconds : kFetchShare * options_.call_seconds);
}

Result<std::string> PackageCache::text_of(const StoredFile& file) const {
  if (file.bytes > kLargestPage) return fail(Status::corrupt("the page is too large"));
  std::string text(file.bytes, '\0');
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = pread(file.file.get(), text.data() + at, text.size() - at, static_cast<off_t>(at));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail(Status::from_errno("a page that is kept", count < 0 ? errno : EIO));
    at += static_cast<size_t>(count);
  }
  return text;
}

Result<StoredFile> PackageCache::fetch_into_store(const Wanted& wanted, const PackageDigest& digest,
                                                  const std::stop_token& stop) {
  std::optional<PackageStore::Incoming> incoming;
  const auto begin = [&]() -> Status {
    incoming.emplace(TRY(store_.begin()));
    return {};
  };
  const FetchLimits limits{.whole = fetch_limit(), .bytes = wanted.most_bytes};
  const auto take = [&](std::string_view bytes) { return incoming->add(bytes); };
  const SystemClock clock;
  {
    std::lock_guard lock(mutex_);
    const auto failed = failures_.find(wanted.key);
    if (failed != failures_.end() && clock.now() < failed->second.until) return fail(failed->second.why);
  }
  const auto fetched = [&]() -> Result<StoredFile> {
    if (options_.settings.offline)
      return fail(Status::unavailable(
          fmt::format("{} is not kept on this machine, and nothing is fetched offline", wanted.key)));
    const Status status = fetch(*wanted.registry, wanted.url, wanted.accept, limits, begin, take, stop);
    if (status.code() == Code::kExhausted)
      return fail(Status::exhausted(
          fmt::format("{} is larger than {} MiB, the most that is fetched", wanted.key, wanted.most_bytes >> 20)));
    if (!status) return fail(status);
    auto kept = store_.keep(std::move(*incoming), digest);
    if (!kept && kept.error().code() == Code::kCorrupt)
      return fail(of_registry(kept.error(), wanted.key, *wanted.registry));
    return kept;
  }();
  std::lock_guard lock(mutex_);
  if (fetched) {
    ++counters_.fetched;
    counters_.fetched_bytes += fetched->bytes;
  } else if (fetched.error().code() != Code::kNotFound && fetched.error().code() != Code::kCancelled) {
    ++counters_.failed;
    if (failures_.size() >= kMostFailures) failures_.clear();
    if (fetched.error().code() != Code::kExhausted)
      failures_.insert_or_assign(wanted.key, Failure{clock.now() + kFailureLasts, fetched.error()});
  }
  if (!fetched) return fail(fetched.error());
  return StoredFile{FileDescriptor(fcntl(fetched->file.get(), F_DUPFD_CLOEXEC, 0)), fetched->sha256, fetched->bytes};
}

// Finds what is in a lock: kept here, or beside the lock, or still at its registry.
Result<StoredFile> PackageCache::get_locked(const Wanted& wanted, const LockedFile& locked,
                                            const std::stop_token& stop) {
  const auto digest = PackageDigest::sha256(locked.sha256);
  if (auto kept = store_.find(digest)) return std::move(*kept);
  for (const auto& lock : {fs::path(options_.settings.lock), lock_.file()}) {
    if (!locked.is_page || lock.empty()) continue;
    const auto content = read_file(pages_of_lock(lock) / locked.sha256, kLargestPage);
    if (!content) continue;
    auto incoming = TRY(store_.begin());
    TRY(incoming.add(*content));
    if (auto kept = store_.keep(std::move(incoming), digest)) return kept;
  }
  const auto guard = TRY(store_.lock(locked.sha256, fetch_limit(), stop));
  if (auto kept = store_.find(digest)) return std::move(*kept);
  Wanted again = wanted;
  again.url = TRY(Url::parse(locked.url));
  return fetch_into_store(again, digest, stop);
}

Result<StoredFile> PackageCache::get(const Wanted& wanted, const std::stop_token& stop) {
  {
    std::lock_guard lock(mutex_);
    ++counters_.asked;
  }
  const auto recorded = [&](StoredFile file, const std::string& url) -> Result<StoredFile> {
    if (lock_.find(wanted.key)) return file;
    const LockedFile entry{.sha256 = file.sha256, .url = url, .bytes = file.bytes, .is_page = wanted.is_page};
    const auto winner = TRY(lock_.record(wanted.key, entry, wanted.is_page ? TRY(text_of(file)) : ""));
    if (winner.sha256 == file.sha256) return file;
    return get_locked(wanted, winner, stop);
  };
  if (frozen_) {
    const auto locked = frozen_->find(wanted.key);
    if (locked == frozen_->end())
      return fail(Status::not_found(fmt::format("{} is not in the lock {}, and nothing else can be installed",
                                                wanted.key, fs::path(options_.settings.lock).filename().string())));
    return recorded(TRY(get_locked(wanted, locked->second, stop)), locked->second.url);
  }
  if (const auto known = lock_.find(wanted.key)) return get_locked(wanted, *known, stop);
  if (!wanted.is_page) {
    if (auto kept = store_.find(wanted.digest)) return recorded(std::move(*kept), wanted.url.to_string());
  }
  // A page is another one in each run.
  const auto scope = wanted.is_page
                         ? wanted.key + "\n" + (lock_.file().empty() ? std::to_string(getpid()) : lock_.file().string())
                         : wanted.digest.to_string();
  const auto guard = TRY(store_.lock(scope, fetch_limit(), stop));
  if (wanted.is_page) {
    if (const auto known = lock_.find_written(wanted.key)) return get_locked(wanted, *known, stop);
  } else if (auto kept = store_.find(wanted.digest)) {
    return recorded(std::move(*kept), wanted.url.to_string());
  }
  return recorded(TRY(fetch_into_store(wanted, wanted.digest, stop)), wanted.url.to_string());
}

template <typename T, typename Parse>
Result<std::shared_ptr<const T>> PackageCache::parsed(const StoredFile& file, const std::string& form,
                                                      const Parse& parse) {
  const auto key = form + "\n" + file.sha256;
  {
    std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(parsed_, key, &std::pair<std::string, std::shared_ptr<const void>>::first);
    if (found != parsed_.end()) {
      parsed_.splice(parsed_.begin(), parsed_, found);
      return std::static_pointer_cast<const T>(found->second);
    }
  }
  std::shared_ptr<const T> made = std::make_shared<T>(TRY(parse(TRY(text_of(file)))));
  std::lock_guard lock(mutex_);
  parsed_.emplace_front(key, made);
  if (parsed_.size() > kMostParsed) parsed_.pop_back();
  return made;
}

PackageCache::Wanted PackageCache::wanted_of(const Registry& registry, std::string key, Url url) const {
  Wanted wanted{.registry = &registry, .key = std::move(key), .url = std::move(url)};
  wanted.most_bytes = static_cast<uint64_t>(options_.settings.file_mb) << 20;
  return wanted;
}

Result<std::shared_ptr<const PypiPage>> PackageCache::pypi_page(const std::string& project,
                                                                const std::stop_token& stop) {
  const Registry& registry = *registries_.pypi;
  Url url = registry.url;
  url.path += project + "/";
  Wanted wanted = wanted_of(registry, "pypi/simple/" + project, url);
  wanted.accept = kPypiAccept;
  wanted.is_page = true;
  const auto file = TRY(get(wanted, stop));
  return parsed<PypiPage>(file, wanted.key, [&](const std::string& text) -> Result<PypiPage> {
    auto page = parse_pypi_page(text, project, url);
    if (!page) return fail(of_registry(page.error(), wanted.key, registry));
    if (!options_.settings.before.empty() && !page->has_dates())
      return fail(of_registry(
          Status::invalid(
              "the index does not say when files were uploaded, so env.packages.before cannot hold; use a lock"),
          wanted.key, registry));
    return offered(*page, options_.settings.before);
  });
}

Result<std::shared_ptr<const NpmPage>> PackageCache::npm_page(const std::string& name, const std::stop_token& stop) {
  const Registry& registry = *registries_.npm;
  Url url = registry.url;
  url.path += name;
  if (const size_t slash = url.path.rfind('/'); name.starts_with('@')) url.path.replace(slash, 1, "%2f");
  Wanted wanted = wanted_of(registry, "npm/" + name, url);
  wanted.accept = options_.settings.before.empty() ? kNpmAccept : "application/json";  // the short one has no dates
  wanted.is_page = true;
  const auto file = TRY(get(wanted, stop));
  return parsed<NpmPage>(file, wanted.key, [&](const std::string& text) -> Result<NpmPage> {
    auto page = parse_npm_page(text, name, url);
    if (!page) return fail(of_registry(page.error(), wanted.key, registry));
    if (!options_.settings.before.empty() && !page->has_dates())
      return fail(of_registry(
          Status::invalid(
              "the registry does not say when versions were uploaded, so env.packages.before cannot hold; use a lock"),
          wanted.key, registry));
    return offered(*page, options_.settings.before);
  });
}

// The digests of all files below a suite: its lists by their paths, and what these name.
Result<std::shared_ptr<const PackageCache::DebianFiles>> PackageCache::debian_lists(const std::string& suite,
                                                                                    const std::stop_token& stop) {
  const Registry& registry = *registries_.debian;
  const auto name = suite.substr(0, suite.find(' '));
  const auto get_page = [&](const std::string& path, const PackageDigest& digest) {
    Url url = registry.url;
    url.path += path;
    Wanted wanted = wanted_of(registry, "debian/" + path, url);
    wanted.digest = digest;
    wanted.is_page = true;
    return get(wanted, stop);
  };
  auto release = get_page("dists/" + name + "/InRelease", {});
  if (!release && release.error().code() == Code::kNotFound) release = get_page("dists/" + name + "/Release", {});
  if (!release) return fail(release.error());
  return parsed<DebianFiles>(*release, "debian " + suite, [&](const std::string& text) -> Result<DebianFiles> {
    auto lists = parse_release(text);
    if (!lists) return fail(of_registry(lists.error(), "dists/" + name, registry));
    DebianFiles files;
    for (const auto& [path, list] : *lists) files.emplace("dists/" + name + "/" + path, list);
    for (const auto component : split(suite, ' ')) {
      if (component == name) continue;
      for (const char* form : {".xz", ".gz", ""}) {
        const auto path = fmt::format("{}/binary-{}/Packages{}", component, kDebianArchitecture, form);
        const auto list = lists->find(path);
        if (list == lists->end()) continue;
        const auto packed = TRY(get_page("dists/" + name + "/" + path, list->second.digest));
        const auto kept = options_.folder / "files" / packed.sha256;
        std::string unpacked;
        if (*form == '\0') {
          unpacked = TRY(text_of(packed));
        } else {
          ProcessSpec spec{.argv = {kUnpack, "cat-file", kept.string() + form},
                           .directory = "/",
                           .time_limit_s = 60,
                           .output_limit = kLargestPage};
          // apt knows the form by the name's ending.
          const auto named = options_.folder / "incoming" / fmt::format("{:016x}{}", unique_number(), form);
          std::error_code error;
          fs::create_hard_link(kept, named, error);
          spec.argv[2] = named.string();
          const auto ran = run_process(spec);
          fs::remove(named, error);
          if (!ran || ran->exit_code != 0 || ran->truncated)
            return fail(Status::unfit(fmt::format("{} could not be unpacked by {}", path, kUnpack))
                            .hint("install apt, which reads lists of Debian"));
          unpacked = ran->output;
        }
        auto of_list = parse_packages(unpacked);
        if (!of_list) return fail(of_registry(of_list.error(), path, registry));
        files.merge(*of_list);
        break;
      }
    }
    return files;
  });
}

Result<DebianFile> PackageCache::debian_file(const std::string& path, const std::stop_token& stop) {
  constexpr std::string_view kByHash = "/by-hash/SHA256/";
  const size_t by_hash = path.find(kByHash);
  for (const auto& suite : registries_.suites) {
    const auto below = "dists/" + suite.substr(0, suite.find(' ')) + "/";
    if (path.starts_with("dists/") && !path.starts_with(below)) continue;
    const auto files = TRY(debian_lists(suite, stop));
    if (by_hash != std::string::npos) {
      const auto digest = PackageDigest::sha256(path.substr(by_hash + kByHash.size()));
      const auto folder = path.substr(0, by_hash + 1);
      for (auto each = files->lower_bound(folder); each != files->end() && each->first.starts_with(folder); ++each) {
        if (each->second.digest == digest) return each->second;
      }
    } else if (const auto found = files->find(path); found != files->end()) {
      return found->second;
    }
  }
  return fail(Status::not_found(fmt::format("{} is in no list of {}", path, join(registries_.suites, ", "))));
}

std::vector<PackageCache::Reachable> PackageCache::reachable() {
  std::vector<Reachable> all;
  const auto add = [&](const char* name, const Registry& registry, const auto& outcome) {
    // That there is no such package is an answer.
    const bool answers = outcome || outcome.error().code() == Code::kNotFound;
    all.push_back({fmt::format("{} {}", name, registry.url.to_string()), answers ? "" : outcome.error().to_string()});
  };
  if (options_.settings.offline) return all;
  if (registries_.pypi) add("pypi", *registries_.pypi, pypi_page("pip", {}));
  if (registries_.npm) add("npm", *registries_.npm, npm_page("npm", {}));
  if (registries_.debian) {
    for (const auto& suite : registries_.suites) add("debian", *registries_.debian, debian_lists(suite, {}));
  }
  return all;
}

}  // namespace tandem::envs
