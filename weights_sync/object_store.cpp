#include "weights_sync/object_store.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/unique_number.h"
#include "weights_sync/s3_store.h"
#include "wire/http_client.h"

namespace tandem::weights_sync {
namespace {

class FolderStore final : public ObjectStore {
 public:
  // kUnfit where it is not there: a share that is not mounted would otherwise be written to the disk below.
  static Result<std::unique_ptr<ObjectStore>> open(std::string folder) {
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    struct stat is {};
    if (::stat(folder.c_str(), &is) != 0 || !S_ISDIR(is.st_mode))
      return fail(Status::unfit(folder + " is no folder").hint("make it, or mount what is shared there"));
    return std::unique_ptr<ObjectStore>(new FolderStore(std::move(folder), is));
  }

  Status put(const std::string& name, std::span<const std::byte> bytes, const std::stop_token&) override {
    TRY(check_folder());
    const fs::path path = folder_ / name;
    TRY(make_directories(path.parent_path()));
    return write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

  Result<std::string> get(const std::string& name, size_t limit, const std::stop_token&) override {
    const fs::path path = folder_ / name;
    std::error_code error;
    if (!fs::exists(path, error)) return fail(Status::not_found(path.string() + " is not there"));
    return read_file(path, limit);
  }

  Status remove(const std::string& name, const std::stop_token&) override {
    TRY(check_folder());
    const fs::path path = folder_ / name;
    std::error_code error;
    fs::remove(path, error);
    if (error) return Status::from_errno(path.string(), error.value());
    // What write_file() was killed at.
    const std::string unfinished = "." + path.filename().string() + ".";
    for (const auto& entry : fs::directory_iterator(path.parent_path(), error)) {
      const std::string beside = entry.path().filename().string();
      if (beside.starts_with(unfinished) && beside.ends_with(".tmp")) fs::remove(entry.path(), error);
    }
    // Folders below the store that it was alone in; one that has something left stays.
    for (fs::path below = fs::path(name).parent_path(); !below.empty() && fs::remove(folder_ / below, error);)
      below = below.parent_path();
    return {};
  }

 private:
  FolderStore(std::string folder, const struct stat& is) : folder_(std::move(folder)), is_(is) {}

  Status check_folder() const {
    struct stat now {};
    if (::stat(folder_.c_str(), &now) == 0 && now.st_dev == is_.st_dev && now.st_ino == is_.st_ino) return {};
    return Status::unavailable(folder_.string() + " is not the folder that it was at the start");
  }

  const fs::path folder_;
  const struct stat is_;
};

bool is_bucket_name(std::string_view name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789.-";
  return name.size() >= 3 && name.size() <= 63 && name.find_first_not_of(kAllowed) == std::string_view::npos;
}

// Without segments that a server or a URL would fold away.
bool is_prefix(std::string_view prefix) {
  while (!prefix.empty()) {
    const size_t end = std::min(prefix.find('/'), prefix.size());
    const auto segment = prefix.substr(0, end);
    if (segment.empty() || segment == "." || segment == "..") return false;
    if (std::ranges::any_of(segment, [](unsigned char c) { return c < 32 || c == 127; })) return false;
    prefix.remove_prefix(std::min(end + 1, prefix.size()));
  }
  return true;
}

}  // namespace

Status check_store(const StoreSettings& settings) {
  if (settings.place.empty()) return {};
  const auto wrong = [&](std::string_view why) {
    return Status::invalid(fmt::format("{} is no place for weights: {}", settings.place, why))
        .hint("give the full path of a folder that the hosts of the run share, or s3://BUCKET/PREFIX");
  };
  if (!settings.is_bucket()) {
    if (settings.place.find("://") != std::string::npos) return wrong("of schemes s3:// alone is known");
    if (!settings.place.starts_with("/")) return wrong("a path from the root is needed, as hosts share it");
    if (std::ranges::any_of(settings.place, [](unsigned char c) { return c < 32 || c == 127; }))
      return wrong("it has a control character");
    return {};
  }
  const std::string rest = settings.place.substr(5);
  const auto slash = std::min(rest.find('/'), rest.size());
  if (!is_bucket_name(rest.substr(0, slash))) return wrong("a bucket has 3 to 63 of a-z, 0-9, . and -");
  const std::string prefix = slash < rest.size() ? rest.substr(slash + 1) : "";
  if (!is_prefix(prefix)) return wrong("its prefix has an empty part, . or .., or a control character");
  if (settings.region.empty() ||
      settings.region.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != std::string::npos)
    return Status::invalid(fmt::format("\"{}\" is no region such as us-east-1", settings.region));
  if (settings.endpoint.empty()) return {};
  TRY(wire::check_url(settings.endpoint));
  const auto host = settings.endpoint.substr(settings.endpoint.find("://") + 3);
  if (const auto path = host.find_first_of("/?#"); path != std::string::npos && path + 1 < host.size())
    return Status::invalid(fmt::format("{} has a path: an endpoint is a scheme, a host and a port", settings.endpoint));
  return {};
}

Result<std::unique_ptr<ObjectStore>> open_store(const StoreSettings& settings) {
  TRY(check_store(settings));
  if (settings.is_bucket()) return open_bucket(settings);
  return FolderStore::open(settings.place);
}

Status probe_store(const StoreSettings& settings) {
  if (settings.place.empty()) return {};
  const auto store = TRY(open_store(settings));
  const std::string name = fmt::format("probe-{:016x}/0", unique_number()), said = "tandem";
  const auto unfit = [&](const Status& status) {
    return Status::unfit(fmt::format("{} cannot be used: {}", settings.place, status.message()))
        .hint(status.hint().empty() ? "weights are written there by the trainer, and read by rollouts" : status.hint());
  };
  if (const Status put = store->put(name, std::as_bytes(std::span(said)), {}); !put) return unfit(put);
  const auto read = store->get(name, said.size(), {});
  const Status removed = store->remove(name, {});
  if (!read) return unfit(read.error());
  if (*read != said) return unfit(Status::corrupt("what was written is read as something else"));
  return removed ? Status() : unfit(removed);
}

}  // namespace tandem::weights_sync
