#include "base/record_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/digest.h"

namespace tandem {

namespace {

constexpr std::string_view kMagic = "TANDLOG1";
constexpr size_t kHeaderBytes = sizeof(uint32_t) + sizeof(uint64_t);
constexpr uint32_t kMaxRecord = 256u << 20;
constexpr uint64_t kReleaseBytes = 16u << 20;  // pages are released each time so much was read

struct Header {
  uint32_t length = 0;
  uint64_t digest = 0;
};

Header header_at(std::string_view bytes) {
  Header header;
  std::memcpy(&header.length, bytes.data(), sizeof header.length);
  std::memcpy(&header.digest, bytes.data() + sizeof header.length, sizeof header.digest);
  return header;
}

// The record that starts at `offset`, if it is whole and right.
std::optional<std::string_view> record_at(std::string_view file, uint64_t offset) {
  if (file.size() - offset < kHeaderBytes) return std::nullopt;
  const Header header = header_at(file.substr(offset));
  if (header.length > kMaxRecord || file.size() - offset - kHeaderBytes < header.length) return std::nullopt;
  const auto record = file.substr(offset + kHeaderBytes, header.length);
  if (digest_of(record).low != header.digest) return std::nullopt;
  return record;
}

}  // namespace

Result<LogContent> read_log(const fs::path& path, const std::function<Status(std::string_view, uint64_t)>& visit,
                            Damage damage, uint64_t from) {
  const auto mapped = TRY(MappedFile::open(path));
  const std::string_view file(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  LogContent content{.records = 0, .damaged = {}, .good_bytes = 0, .file_bytes = file.size()};
  if (file.size() < kMagic.size() && kMagic.starts_with(file)) return content;  // cut while it was being made
  if (!file.starts_with(kMagic)) {
    return fail(Status::corrupt("is not a record log")
                    .at(path.string())
                    .hint("something else has taken its place: restore the file from a copy"));
  }
  content.good_bytes = std::max<uint64_t>(kMagic.size(), from);
  if (from > file.size()) return fail(Status::corrupt(fmt::format("ends before byte {}", from)).at(path.string()));
  uint64_t released = from;
  while (content.good_bytes < file.size()) {
    if (content.good_bytes - released >= kReleaseBytes) mapped.release_before(released = content.good_bytes);
    if (const auto record = record_at(file, content.good_bytes)) {
      TRY(visit(*record, content.good_bytes));
      content.good_bytes += kHeaderBytes + record->size();
      ++content.records;
      continue;
    }
    // A torn end is what a crash leaves. Something whole after something damaged is not.
    if (file.size() - content.good_bytes < kHeaderBytes) break;
    const Header header = header_at(file.substr(content.good_bytes));
    const uint64_t next = content.good_bytes + kHeaderBytes + header.length;
    if (header.length > kMaxRecord || next >= file.size() || !record_at(file, next)) break;
    if (damage == Damage::kRefuse) {
      return fail(Status::corrupt(fmt::format("record {} at byte {} is damaged, and good records follow it",
                                              content.records, content.good_bytes))
                      .at(path.string())
                      .hint("restore the file from a copy; cutting it there would lose what follows"));
    }
    content.damaged.push_back(content.good_bytes);
    content.good_bytes = next;
  }
  return content;
}

Result<std::string> read_record(const fs::path& path, uint64_t offset) {
  return read_record(TRY(open_regular_file(path)), path, offset);
}

Result<std::string> read_record(const FileDescriptor& fd, const fs::path& path, uint64_t offset) {
  char raw[kHeaderBytes];
  const auto damaged = [&] {
    return fail(Status::corrupt(fmt::format("no good record at byte {}", offset)).at(path.string()));
  };
  if (::pread(fd.get(), raw, sizeof raw, static_cast<off_t>(offset)) != static_cast<ssize_t>(sizeof raw))
    return damaged();
  const Header header = header_at({raw, sizeof raw});
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0 || header.length > static_cast<uint64_t>(info.st_size)) return damaged();
  std::string record(header.length, '\0');
  if (::pread(fd.get(), record.data(), record.size(), static_cast<off_t>(offset + kHeaderBytes)) !=
      static_cast<ssize_t>(record.size()))
    return damaged();
  if (digest_of(record).low != header.digest) return damaged();
  return record;
}

Result<RecordLog> RecordLog::open(const fs::path& path, uint64_t* cut, Damage damage, uint64_t from) {
  uint64_t good = 0;
  if (fs::exists(path)) {
    const LogContent content = TRY(read_log(
        path, [](std::string_view, uint64_t) { return Status(); }, damage, from));
    good = content.good_bytes;
    if (cut) *cut = content.file_bytes - content.good_bytes;
  }
  FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return fail(Status::from_errno(path.string(), errno));
  if (::ftruncate(fd.get(), static_cast<off_t>(good)) != 0 || ::lseek(fd.get(), 0, SEEK_END) < 0) {
    return fail(Status::from_errno(path.string(), errno));
  }
  if (good == 0) {
    TRY(write_all(fd.get(), kMagic, path.string()));
    good = kMagic.size();
  }
  return RecordLog(path, std::move(fd), good);
}

Result<uint64_t> RecordLog::append(std::string_view record) {
  if (record.size() > kMaxRecord)
    return fail(Status::invalid(fmt::format("a record of {} bytes, at most {}", record.size(), kMaxRecord)));
  const auto length = static_cast<uint32_t>(record.size());
  const uint64_t digest = digest_of(record).low;
  std::string bytes(kHeaderBytes, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + sizeof length, &digest, sizeof digest);
  bytes += record;
  TRY(write_all(fd_.get(), bytes, path_.string()));
  const uint64_t offset = size_;
  size_ += bytes.size();
  return offset;
}

Status RecordLog::sync() {
  if (::fdatasync(fd_.get()) != 0) return Status::from_errno("fdatasync " + path_.string(), errno);
  return {};
}

}  // namespace tandem
