// The registries of packages of a run: answers sandboxes, keeps what it fetches, records it in the run's lock.
//
//   /pypi/simple/NAME/, /pypi/files/NAME/FILE       a simple index
//   /npm/NAME, /npm/NAME/-/FILE                     a registry of npm
//   /debian/dists/.., /debian/pool/..               an archive of Debian, as it is
//
// A page is fetched once in a run: all of its episodes see the same one. A file is fetched once on a machine, whatever
// run asks for it, is checked by the digest that its index gives, and is kept by it (store.h). With a lock nothing else
// is there; offline nothing is asked of a network. A name, a version or a file that is not there is the model's matter;
// a registry that does not answer, or whose files are not what its index says, is a failure of the infrastructure.
//
// Thread safety: all of it.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "envs/network/package_service.h"
#include "envs/packages/debian_index.h"
#include "envs/packages/lock.h"
#include "envs/packages/npm_page.h"
#include "envs/packages/pypi_page.h"
#include "envs/packages/registries.h"
#include "envs/packages/store.h"

namespace tandem::envs {

struct PackageCounters {
  uint64_t asked = 0, fetched = 0, fetched_bytes = 0, failed = 0;
};

class PackageCache final : public PackageService {
 public:
  struct Options {
    PackageSettings settings;
    double call_seconds = 10;  // see PackageSettings::seconds
    fs::path record = {};      // the lock that is written; empty: none
    fs::path folder = {};      // of the store; empty: packages_folder()
  };
  // Null where the settings name no registry. kUnfit where a tool of this machine does not say what "auto" is; kInvalid
  // where a lock cannot be read.
  static Result<std::shared_ptr<PackageCache>> open(Options options);

  PackageAnswer answer(const PackageRequest& request, const std::stop_token& stop) override;
  std::vector<std::string> environment() const override;
  std::map<std::string, std::string> home_files() const override;
  std::vector<std::string> setup() const override;
  std::string install_python(std::span<const std::string> requirements) const override;
  std::string identity() const override;
  std::string told() const override;

  const Registries& registries() const { return registries_; }
  PackageCounters counters() const;
  // Whether each registry answers, a line each; asks the network, or the lock where offline.
  struct Reachable {
    std::string registry, problem;  // empty: it answers
  };
  std::vector<Reachable> reachable();

 private:
  struct Wanted {
    const Registry* registry = nullptr;
    std::string key;
    Url url;
    std::string accept;
    PackageDigest digest;  // none: a page, which is what it is
    bool is_page = false;
    uint64_t most_bytes = 0;
  };
  struct Parsed;

  PackageCache(Options options, Registries registries, PackageStore store, PackageLock lock);
  Result<StoredFile> get(const Wanted& wanted, const std::stop_token& stop);
  Result<StoredFile> get_locked(const Wanted& wanted, const LockedFile& locked, const std::stop_token& stop);
  Result<StoredFile> fetch_into_store(const Wanted& wanted, const PackageDigest& digest, const std::stop_token& stop);
  Result<std::string> text_of(const StoredFile& file) const;
  template <typename T, typename Parse>
  Result<std::shared_ptr<const T>> parsed(const StoredFile& file, const std::string& form, const Parse& parse);

  PackageAnswer answer_pypi(std::string_view path, const PackageRequest& request, const std::stop_token& stop);
  PackageAnswer answer_npm(std::string_view path, const std::stop_token& stop);
  PackageAnswer answer_debian(const std::string& path, const std::stop_token& stop);
  Result<std::shared_ptr<const PypiPage>> pypi_page(const std::string& project, const std::stop_token& stop);
  Result<std::shared_ptr<const NpmPage>> npm_page(const std::string& name, const std::stop_token& stop);
  using DebianFiles = std::map<std::string, DebianFile>;
  Result<std::shared_ptr<const DebianFiles>> debian_lists(const std::string& suite, const std::stop_token& stop);
  Result<DebianFile> debian_file(const std::string& path, const std::stop_token& stop);
  Wanted wanted_of(const Registry& registry, std::string key, Url url) const;
  Duration fetch_limit() const;

  const Options options_;
  const Registries registries_;
  const PackageStore store_;
  std::optional<LockedFiles> frozen_;  // of settings.lock
  PackageLock lock_;

  // A fetch that failed a moment ago: many who wait for it are told at once, and do not try one behind the other.
  struct Failure {
    Time until;
    Status why;
  };

  mutable std::mutex mutex_;
  PackageCounters counters_;
  std::map<std::string, Failure> failures_;                                // by key
  std::list<std::pair<std::string, std::shared_ptr<const void>>> parsed_;  // pages, the last used first
};

}  // namespace tandem::envs
