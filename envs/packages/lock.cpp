#include "envs/packages/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "envs/packages/package_digest.h"
#include "envs/packages/url.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kHead = "{\"format\":2}\n";
constexpr uint64_t kLargestLock = uint64_t{256} << 20;
constexpr auto kGuardWait = std::chrono::seconds(30);
constexpr auto kGuardPause = std::chrono::milliseconds(5);

std::string line_of(const std::string& key, const LockedFile& file) {
  Json line = {{"key", key}, {"sha256", file.sha256}, {"bytes", file.bytes}, {"url", file.url}};
  if (file.is_page) line["page"] = true;
  return dump_json(line) + "\n";
}

Status wrong_lock(std::string why) { return Status::invalid(std::move(why)); }

std::string text_of_field(const Json& entry, const char* key) {
  const auto* found = entry.is_object() && entry.contains(key) ? entry.at(key).get_ptr<const std::string*>() : nullptr;
  return found ? *found : std::string();
}

Result<LockedFile> entry_of(const std::string& key, const Json& entry) {
  LockedFile file{.sha256 = text_of_field(entry, "sha256"), .url = text_of_field(entry, "url")};
  if (!is_plain_path(key) || !PackageDigest::sha256(file.sha256) || !Url::parse(file.url))
    return fail(wrong_lock(fmt::format("the entry \"{}\" has no digest or no URL", key.substr(0, 200))));
  if (entry.contains("bytes") && entry.at("bytes").is_number_unsigned()) file.bytes = entry.at("bytes").get<uint64_t>();
  file.is_page = entry.contains("page") && entry.at("page") == Json(true);
  return file;
}

// Whole lines behind the head; `number` is that of the line before the first.
Result<std::vector<std::pair<std::string, LockedFile>>> entries_of(std::string_view lines, size_t number) {
  std::vector<std::pair<std::string, LockedFile>> entries;
  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    ++number;
    const auto read = [&]() -> Status {
      const auto json = TRY(parse_json(lines.substr(0, end)));
      auto key = text_of_field(json, "key");
      auto entry = TRY(entry_of(key, json));
      entries.emplace_back(std::move(key), std::move(entry));
      return {};
    };
    if (const Status status = read(); !status)
      return fail(Status::invalid(fmt::format("line {}: {}", number, status.message())));
    lines.remove_prefix(end + 1);
  }
  return entries;
}

Result<LockedFiles> parse_format_1(std::string_view text) {
  const auto json = TRY(parse_json(text));
  if (!json.is_object() || !json.contains("format") || json.at("format") != Json(1) || !json.contains("entries") ||
      !json.at("entries").is_object())
    return fail(wrong_lock("it is no packages.lock of format 1 or 2"));
  LockedFiles files;
  const Json& entries = json.at("entries");
  for (auto each = entries.begin(); each != entries.end(); ++each)
    files.emplace(each.key(), TRY(entry_of(each.key(), *each)));
  return files;
}

std::string_view whole_lines(std::string_view text) { return text.substr(0, text.rfind('\n') + 1); }

// The bytes of a file from one place to another.
Result<std::string> read_from(const fs::path& path, uint64_t from, uint64_t end) {
  if (end > kLargestLock)
    return fail(Status::invalid(fmt::format("has more than {} MiB", kLargestLock >> 20)).at(path.string()));
  const auto file = TRY(open_regular_file(path));
  std::string text(end - from, '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::pread(file.get(), text.data() + done, text.size() - done, static_cast<off_t>(from + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(Status::from_errno(path.string(), errno));
    if (count == 0) text.resize(done);
    done += static_cast<size_t>(count);
  }
  return text;
}

// That the disk is full is no word about what was asked for: kExhausted would be.
Status not_recorded(Status why) { return Status::unavailable(why.message()); }

Result<FileDescriptor> guard_of(const fs::path& file) {
  const auto path = file.string() + ".guard";
  FileDescriptor guard(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!guard) return fail(Status::from_errno(path, errno));
  const SystemClock clock;
  for (const Time deadline = clock.now() + kGuardWait; flock(guard.get(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail(Status::from_errno(path, errno));
    if (clock.now() >= deadline) return fail(Status::deadline(path + " is held by another process for too long"));
    std::this_thread::sleep_for(kGuardPause);
  }
  return guard;
}

}  // namespace

Result<LockedFiles> parse_package_lock(std::string_view text) {
  if (!text.starts_with(kHead)) return parse_format_1(text);
  LockedFiles files;
  for (auto& [key, file] : TRY(entries_of(whole_lines(text).substr(kHead.size()), 1)))
    files.emplace(std::move(key), std::move(file));
  return files;
}

Result<LockedFiles> read_package_lock(const fs::path& file) {
  auto files = parse_package_lock(TRY(read_file(file, kLargestLock)));
  if (!files) return fail(std::move(files).error().at(file.string()));
  return files;
}

Result<PackageLock> PackageLock::open(const fs::path& file, const LockLimits& limits) {
  PackageLock lock(file, limits);
  TRY(lock.catch_up());
  return lock;
}

void PackageLock::add(std::string key, LockedFile file) {
  const uint64_t page_bytes = file.is_page ? file.bytes : 0;
  if (known_.files.emplace(std::move(key), std::move(file)).second) known_.page_bytes += page_bytes;
}

// Reads what came to the file since the last time.
Status PackageLock::catch_up() {
  struct stat info {};
  if (file_.empty() || ::stat(file_.c_str(), &info) != 0) return {};
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  const bool goes_on = known_.bytes > 0 && info.st_ino == known_.inode && size >= known_.bytes;
  if (goes_on && size == known_.bytes) return {};
  const uint64_t from = goes_on ? known_.bytes : 0;
  const auto text = TRY(read_from(file_, from, size));
  if (!goes_on && !text.starts_with(kHead)) {
    auto files = parse_format_1(text);
    if (!files) return std::move(files).error().at(file_.string());
    for (auto& [key, file] : *files) add(key, std::move(file));
    known_.bytes = 0;
    return {};
  }
  const auto whole = whole_lines(text);
  auto entries = entries_of(whole.substr(goes_on ? 0 : kHead.size()), goes_on ? known_.files.size() + 1 : 1);
  if (!entries) return std::move(entries).error().at(file_.string());
  for (auto& [key, file] : *entries) add(std::move(key), std::move(file));
  known_.inode = info.st_ino;
  known_.bytes = from + whole.size();
  return {};
}

std::optional<LockedFile> PackageLock::find(const std::string& key) const {
  std::lock_guard lock(mutex_);
  const auto found = known_.files.find(key);
  return found == known_.files.end() ? std::nullopt : std::optional(found->second);
}

std::optional<LockedFile> PackageLock::find_written(const std::string& key) {
  std::lock_guard lock(mutex_);
  if (!known_.files.contains(key) && !catch_up()) return std::nullopt;  // recording says so
  const auto found = known_.files.find(key);
  return found == known_.files.end() ? std::nullopt : std::optional(found->second);
}

// The file holds what is known, and nobody else writes it.
Status PackageLock::append(const std::string& key, const LockedFile& file) {
  const auto line = line_of(key, file);
  if (known_.bytes == 0) {  // there is none yet, or one of format 1
    std::string all(kHead);
    for (const auto& [name, known] : known_.files) all += line_of(name, known);
    TRY(write_file(file_, all + line));
    struct stat info {};
    if (::stat(file_.c_str(), &info) != 0) return Status::from_errno(file_.string(), errno);
    known_.inode = info.st_ino;
    known_.bytes = all.size() + line.size();
    return {};
  }
  if (known_.bytes + line.size() > kLargestLock)
    return Status::unavailable(fmt::format("{} has {} MiB, the most of a lock", file_.string(), kLargestLock >> 20));
  const FileDescriptor out(::open(file_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!out) return Status::from_errno(file_.string(), errno);
  const auto whole = static_cast<off_t>(known_.bytes);
  // A line that a crash cut short goes, and so does one of ours that does not get to its end.
  if (::ftruncate(out.get(), whole) != 0 || ::lseek(out.get(), whole, SEEK_SET) != whole)
    return Status::from_errno(file_.string(), errno);
  Status status = write_all(out.get(), line, file_.string());
  if (status && ::fdatasync(out.get()) != 0) status = Status::from_errno(file_.string(), errno);
  if (!status) {
    if (::ftruncate(out.get(), whole) != 0) known_.bytes = 0;  // the next entry writes it anew
    return status;
  }
  known_.bytes += line.size();
  return {};
}

Result<LockedFile> PackageLock::record(const std::string& key, const LockedFile& file, std::string_view content) {
  std::lock_guard lock(mutex_);
  if (const auto known = known_.files.find(key); known != known_.files.end()) return known->second;
  const auto full = [&]() -> Status {
    if (known_.files.size() >= limits_.entries)
      return Status::unavailable(fmt::format("{} has {} entries, the most of a lock",
                                             file_.empty() ? kLockName : file_.string(), limits_.entries));
    if (file.is_page && !file_.empty() && known_.page_bytes + file.bytes > limits_.page_bytes)
      return Status::unavailable(fmt::format("the pages beside {} have {} MiB, and {} MiB is the most", file_.string(),
                                             known_.page_bytes >> 20, limits_.page_bytes >> 20));
    return {};
  };
  if (file_.empty()) {
    TRY(full());
    add(key, file);
    return file;
  }
  const auto guard = TRY(guard_of(file_));
  if (Status status = catch_up(); !status) return fail(not_recorded(std::move(status)));
  if (const auto known = known_.files.find(key); known != known_.files.end()) return known->second;
  TRY(full());
  const auto written = [&]() -> Status {
    if (file.is_page) {
      const auto pages = pages_of_lock(file_);
      TRY(make_directories(pages));
      std::error_code error;
      if (!fs::exists(pages / file.sha256, error)) TRY(write_file(pages / file.sha256, content));
    }
    return append(key, file);
  };
  if (Status status = written(); !status) return fail(not_recorded(std::move(status)));
  add(key, file);
  return file;
}

}  // namespace tandem::envs
