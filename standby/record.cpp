#include "standby/record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <charconv>
#include <vector>

#include "base/json.h"

namespace tandem::standby {
namespace {

constexpr int kRecordFormat = 1;
constexpr const char *kRecordFile = "standby.json", *kLockFile = "standby.lock";

}  // namespace

Result<RecordLock> RecordLock::take(const fs::path& folder) {
  const fs::path path = folder / kLockFile;
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return fail(Status::from_errno(path.string(), errno));
  while (::flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return fail(Status::from_errno(path.string(), errno));
  }
  return RecordLock(std::move(file));
}

Result<Record> read_record_of(const fs::path& folder) {
  const fs::path path = folder / kRecordFile;
  std::error_code error;
  if (!fs::exists(path, error)) {
    return fail(Status::not_found(fmt::format("{} is no copy that a host keeps of a run", folder.string()))
                    .hint("status.json of the run names it (standby.folder), and the log of the host"));
  }
  const auto json = parse_json(TRY(read_file(path, 1 << 16)));
  const auto damaged = [&] { return fail(Status::corrupt("this is no record of a copy").at(path.string())); };
  if (!json || !json->is_object()) return damaged();
  if (const auto format = format_of(*json, kRecordFormat); !format)
    return fail(Status(format.error()).at(path.string()));
  Record record;
  try {
    const auto run = json->at("run").get<std::string>();
    const auto [end, failed] = std::from_chars(run.data(), run.data() + run.size(), record.run, 16);
    if (failed != std::errc() || end != run.data() + run.size()) return damaged();
    record.name = json->at("name").get<std::string>();
    record.epoch = json->at("epoch").get<uint64_t>();
    record.is_taken = json->at("taken").get<bool>();
    record.holder = json->at("holder").get<std::string>();
    record.host = json->at("host").get<std::string>();
    record.key = json->at("key").get<std::string>();
    for (const auto& stream : json->at("behind").get<std::vector<std::string>>()) record.behind.insert(stream);
  } catch (const Json::exception&) {
    return damaged();
  }
  return record;
}

Status write_record_of(const fs::path& folder, const Record& record) {
  return write_file(folder / kRecordFile, dump_json(Json{{"format", kRecordFormat},
                                                         {"run", fmt::format("{:016x}", record.run)},
                                                         {"name", record.name},
                                                         {"epoch", record.epoch},
                                                         {"taken", record.is_taken},
                                                         {"holder", record.holder},
                                                         {"host", record.host},
                                                         {"key", record.key},
                                                         {"behind", record.behind}}) +
                                              "\n");
}

}  // namespace tandem::standby
