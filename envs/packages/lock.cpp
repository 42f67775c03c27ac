#include "envs/packages/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <thread>

#include "base/clock.h"
#include "envs/packages/package_digest.h"
#include "envs/packages/url.h"

namespace tandem::envs {
namespace {

constexpr int kLockFormat = 1;
constexpr uint64_t kLargestLock = uint64_t{256} << 20;
constexpr auto kGuardWait = std::chrono::seconds(30);
constexpr auto kGuardPause = std::chrono::milliseconds(5);

std::string written(const LockedFiles& files) {
  Json entries = Json::object();
  for (const auto& [key, file] : files) {
    entries[key] = {{"sha256", file.sha256}, {"bytes", file.bytes}, {"url", file.url}};
    if (file.is_page) entries[key]["page"] = true;
  }
  return dump_json({{"format", kLockFormat}, {"entries", std::move(entries)}}) + "\n";
}

}  // namespace

Result<LockedFiles> parse_package_lock(std::string_view text) {
  const auto json = TRY(parse_json(text));
  const auto wrong = [](std::string why) { return fail(Status::invalid(std::move(why))); };
  if (!json.is_object() || !json.contains("format") || json.at("format") != Json(kLockFormat) ||
      !json.contains("entries") || !json.at("entries").is_object())
    return wrong("it is no packages.lock of format 1");
  LockedFiles files;
  const Json& entries = json.at("entries");
  for (auto each = entries.begin(); each != entries.end(); ++each) {
    const Json& entry = *each;
    const auto text_of = [&](const char* key) {
      const auto* found =
          entry.is_object() && entry.contains(key) ? entry.at(key).get_ptr<const std::string*>() : nullptr;
      return found ? *found : std::string();
    };
    LockedFile file{.sha256 = text_of("sha256"), .url = text_of("url")};
    if (!is_plain_path(each.key()) || !PackageDigest::sha256(file.sha256) || !Url::parse(file.url))
      return wrong(fmt::format("the entry \"{}\" has no digest or no URL", each.key().substr(0, 200)));
    if (entry.contains("bytes") && entry.at("bytes").is_number_unsigned())
      file.bytes = entry.at("bytes").get<uint64_t>();
    file.is_page = entry.contains("page") && entry.at("page") == Json(true);
    files.emplace(each.key(), std::move(file));
  }
  return files;
}

Result<LockedFiles> read_package_lock(const fs::path& file) {
  auto files = parse_package_lock(TRY(read_file(file, kLargestLock)));
  if (!files) return fail(std::move(files).error().at(file.string()));
  return files;
}

Result<PackageLock> PackageLock::open(const fs::path& file) {
  std::error_code error;
  LockedFiles files;
  if (!file.empty() && fs::exists(file, error)) files = TRY(read_package_lock(file));
  return PackageLock(file, std::move(files));
}

std::optional<LockedFile> PackageLock::find(const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto found = files_.find(key);
  return found == files_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<LockedFile> PackageLock::find_written(const std::string& key) {
  if (auto known = find(key); known || file_.empty()) return known;
  std::error_code error;
  if (!fs::exists(file_, error)) return std::nullopt;
  auto files = read_package_lock(file_);
  if (!files) return std::nullopt;  // recording says so
  std::lock_guard lock(mutex_);
  files_.merge(*files);
  const auto found = files_.find(key);
  return found == files_.end() ? std::nullopt : std::optional(found->second);
}

Result<LockedFile> PackageLock::record(const std::string& key, const LockedFile& file, std::string_view content) {
  std::lock_guard lock(mutex_);
  if (const auto known = files_.find(key); known != files_.end()) return known->second;
  if (file_.empty()) return files_.emplace(key, file).first->second;
  const auto guard_path = file_.string() + ".guard";
  const FileDescriptor guard(::open(guard_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!guard) return fail(Status::from_errno(guard_path, errno));
  const SystemClock clock;
  for (const Time deadline = clock.now() + kGuardWait; flock(guard.get(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail(Status::from_errno(guard_path, errno));
    if (clock.now() >= deadline) return fail(Status::deadline(guard_path + " is held by another process for too long"));
    std::this_thread::sleep_for(kGuardPause);
  }
  std::error_code error;
  if (fs::exists(file_, error)) files_ = TRY(read_package_lock(file_));
  const auto [entry, is_new] = files_.emplace(key, file);
  if (!is_new) return entry->second;
  if (file.is_page) {
    const auto pages = pages_of_lock(file_);
    TRY(make_directories(pages));
    if (!fs::exists(pages / file.sha256, error)) TRY(write_file(pages / file.sha256, content));
  }
  if (Status status = write_file(file_, written(files_)); !status) {
    files_.erase(entry);
    return fail(std::move(status));
  }
  return entry->second;
}

}  // namespace tandem::envs
