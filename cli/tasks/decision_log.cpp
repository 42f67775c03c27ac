#include "cli/tasks/decision_log.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/json_line.h"
#include "base/text.h"

namespace tandem::cli {
namespace {

Result<std::vector<Json>> read_decisions(std::string_view text, const std::string& path, const Json& of,
                                         const std::string& mismatch) {
  std::vector<Json> known;
  int line = 0;
  for (const auto each : split(text, '\n')) {
    ++line;
    if (trim(each).empty()) continue;
    auto json = parse_json(each);
    if (!json) return fail(Status(json.error()).at(path, line).hint("give another folder"));
    if (line > 1)
      known.push_back(std::move(*json));
    else if (*json != of)
      return fail(Status::invalid(path + " " + mismatch).hint("give another folder"));
  }
  return known;
}

}  // namespace

Result<DecisionLog> DecisionLog::open(const fs::path& folder, const std::string& name, const Json& of,
                                      const std::string& mismatch) {
  DecisionLog log;
  log.path_ = (folder / name).string();
  std::error_code error;
  const bool exists = fs::exists(log.path_, error);
  if (!exists && fs::exists(folder, error) && !fs::is_empty(folder, error)) {
    return fail(Status::invalid(folder.string() + " holds something else").hint("give a folder that is new or empty"));
  }
  TRY(make_directories(folder));
  uint64_t whole = 0;  // bytes of lines that were written to their ends
  if (exists) {
    const auto text = TRY(read_file(log.path_));
    whole = text.rfind('\n') + 1;  // nothing where there is none
    log.known_ = TRY(read_decisions(std::string_view(text).substr(0, whole), log.path_, of, mismatch));
  }
  log.file_ = FileDescriptor(::open(log.path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!log.file_) return fail(Status::from_errno(log.path_, errno));
  if (::ftruncate(log.file_.get(), static_cast<off_t>(whole)) != 0) return fail(Status::from_errno(log.path_, errno));
  if (whole == 0) TRY(write_all(log.file_.get(), dump_json_line(of) + "\n", log.path_));
  return log;
}

Status DecisionLog::add(const Json& decision) { return write_all(file_.get(), dump_json_line(decision) + "\n", path_); }

}  // namespace tandem::cli
