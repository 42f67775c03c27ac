#include "dashboard/losses.h"

#include <fmt/format.h>

#include <charconv>

#include "dashboard/run_files.h"
#include "rollout/books/ledger_log.h"

namespace tandem::dashboard {
namespace {

struct Known {
  uint64_t step = 0;
  std::string by;  // the file
};

uint64_t count_at(const Json& object, const char* key) {
  return static_cast<uint64_t>(std::max(0.0, number_at(object, key)));
}

// The last step that anything but the log knows of.
Known last_step(const fs::path& run_dir, const Json& status) {
  Known last{.step = count_at(status, "step"), .by = "status.json"};
  const auto raise = [&](uint64_t step, std::string by) {
    if (step > last.step) last = {step, std::move(by)};
  };
  if (const auto lines = read_metrics(run_dir)) {
    for (const Json& line : *lines) raise(count_at(line, "step"), "metrics.jsonl");
  }
  constexpr std::string_view kPrefix = "step_";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir / "checkpoints", error)) {
    const std::string name = entry.path().filename();
    uint64_t step = 0;
    if (!name.starts_with(kPrefix)) continue;
    const auto [end, failed] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
    if (failed == std::errc() && end == name.data() + name.size()) raise(step, "checkpoints/" + name);
  }
  return last;
}

}  // namespace

std::vector<std::string> losses_of(const fs::path& run_dir, const rollout::Ledger& ledger) {
  const auto read = read_status(run_dir);
  const Json status = read ? *read : Json::object();
  if (is_on(run_dir, status)) return {};
  const fs::path log = rollout::ledger_log_path(run_dir);
  std::vector<std::string> losses;
  const auto content = read_log(log, [](std::string_view, uint64_t) { return Status(); });
  if (content && content->file_bytes > content->good_bytes) {
    losses.push_back(fmt::format("{}: the last {} bytes are no whole record", log.string(),
                                 content->file_bytes - content->good_bytes));
  }
  const Known last = last_step(run_dir, status);
  // A trainer that came back with an older checkpoint trains batches again that the log knows.
  if (last.step > ledger.steps_trained() && !ledger.batch(last.step)) {
    losses.push_back(
        fmt::format("{} ends after step {}, and {} knows of step {}: what the log said of the steps between "
                    "is missing here",
                    log.string(), ledger.steps_trained(), last.by, last.step));
  }
  const uint64_t admitted = count_at(status.value("episodes", Json::object()), "admitted");
  if (const uint64_t here = ledger.books().admitted; admitted > here) {
    losses.push_back(fmt::format("{} has {} episodes, and status.json counted {}: {} are missing here", log.string(),
                                 here, admitted, admitted - here));
  }
  return losses;
}

}  // namespace tandem::dashboard
