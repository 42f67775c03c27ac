#include "run/starts.h"

#include <fcntl.h>
#include <sys/file.h>

#include "base/json.h"
#include "base/record_log.h"

namespace tandem::run {
namespace {

constexpr int kStartsFormat = 1;  // of a record of RUN/starts.log

}  // namespace

Result<uint64_t> count_start(const fs::path& run_dir, const wire::Peer& peer, const Clock& clock) {
  const fs::path path = run_dir / "starts.log";
  // The folder of logs is not what is locked: its lock says who may write to the run.
  FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock) return fail(Status::from_errno(path.string(), errno));
  while (::flock(lock.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return fail(Status::from_errno(path.string(), errno));
  }
  const auto with_way_out = [](Status error) {
    if (error.code() != Code::kCorrupt) return error;
    return std::move(error).hint("move the file away while the run is off: starts are counted anew then");
  };
  auto log = RecordLog::open(path);
  if (!log) return fail(with_way_out(std::move(log).error()));
  uint64_t last = 0;
  const auto visit = [&](std::string_view record, uint64_t) -> Status {
    const auto start = parse_json(record);
    if (!start || !start->is_object()) return Status::corrupt("has a record that is no start of a process");
    TRY(format_of(*start, kStartsFormat));
    if (start->value("peer", "") == to_string(peer)) last = std::max(last, start->value("epoch", uint64_t{0}));
    return {};
  };
  if (auto read = read_log(path, visit); !read) return fail(with_way_out(std::move(read).error().at(path.string())));
  const Json start = {
      {"format", kStartsFormat}, {"peer", to_string(peer)}, {"epoch", last + 1}, {"time", clock.unix_seconds()}};
  TRY(log->append(dump_json(start)));
  TRY(log->sync());
  return last + 1;
}

}  // namespace tandem::run
