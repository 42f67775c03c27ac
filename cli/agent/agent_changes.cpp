#include "cli/agent/agent_changes.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/json.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "envs/tools/output.h"
#include "rollout/agent/transcript.h"

namespace tandem::cli {
namespace {

using envs::Change;
using envs::WriteOutcome;

constexpr int kLookMilliseconds = 100;  // between two looks at whether to stop
constexpr size_t kLongestAnswer = 4096;
constexpr size_t kDiffShown = size_t{64} << 10;

bool is_yes(const std::optional<std::string>& answer) { return answer && (*answer == "y" || *answer == "yes"); }

size_t count_wanted(const std::vector<Change>& changes) {
  return static_cast<size_t>(std::ranges::count_if(changes, [](const Change& c) { return c.refused.empty(); }));
}

void refuse_all(std::vector<Change>& changes) {
  for (auto& change : changes) {
    if (change.refused.empty()) change.refused = "you did not want it";
  }
}

}  // namespace

AskLine ask_on_terminal(std::stop_token stop) {
  return [stop = std::move(stop)](const std::string& question) -> std::optional<std::string> {
    std::fputs(question.c_str(), stderr);
    std::string line;
    while (line.size() < kLongestAnswer) {
      pollfd wait = {STDIN_FILENO, POLLIN, 0};
      if (stop.stop_requested()) break;
      if (::poll(&wait, 1, kLookMilliseconds) <= 0) continue;
      char letter = 0;
      if (::read(STDIN_FILENO, &letter, 1) != 1) break;
      if (letter == '\n') return std::string(trim(line));
      line += letter;
    }
    std::fputs("\n", stderr);
    return std::nullopt;
  };
}

void review(std::vector<Change>& changes, const AskLine& ask) {
  const size_t wanted = count_wanted(changes);
  if (wanted == 0) return;
  const auto answer = ask(wanted == 1 ? std::string("Write this back? [y/N] ")
                                      : fmt::format("Write these {} back? [y/N, or f: file by file] ", wanted));
  if (is_yes(answer)) return;
  if (!answer || answer != "f" || wanted == 1) return refuse_all(changes);
  for (auto& change : changes) {
    if (!change.refused.empty()) continue;
    const auto name = envs::make_printable(change.path);
    if (!is_yes(ask(fmt::format("  {} {}? [y/N] ", envs::kind_of(change), name))))
      change.refused = "you did not want it";
  }
}

Result<envs::UndoStore> undo_store_for(const fs::path& workspace) {
  const auto folder = TRY(envs::state_folder()) / "tandem" / "agent";
  std::error_code error;
  const auto whole = fs::weakly_canonical(folder, error);
  const auto inside = (error ? folder : whole).lexically_relative(workspace);
  if (!inside.empty() && *inside.begin() != "..") {
    return fail(
        Status::invalid(fmt::format("what undoing needs would be kept in the workspace, at {}", folder.string()))
            .hint("set XDG_STATE_HOME to a folder outside of it"));
  }
  return envs::UndoStore(folder);
}

Result<std::vector<envs::WrittenChange>> write_back_with_undo(const envs::UndoStore& store, const fs::path& workspace,
                                                              const std::string& task,
                                                              const std::vector<Change>& changes,
                                                              const envs::FolderIdentity& folder) {
  // Before anything is kept of it; and again by what writes.
  if (TRY(envs::identity_of_folder(workspace)) != folder) TRY(envs::write_back(workspace, {}, folder));
  envs::UndoRecord record{.workspace = workspace, .unix_seconds = SystemClock().unix_seconds(), .task = task};
  for (const auto& change : changes) {
    if (change.refused.empty()) record.changes.push_back(change);
  }
  const auto name = TRY(store.write(record));
  auto written = TRY(envs::write_back(workspace, changes, folder));
  // From here on only what was written can be taken back.
  record.changes.clear();
  for (size_t i = 0; i < changes.size(); ++i) {
    if (written[i].outcome == WriteOutcome::kWritten) record.changes.push_back(changes[i]);
  }
  if (record.changes.empty()) {
    TRY(envs::UndoStore::remove(name));
  } else if (record.changes.size() < count_wanted(changes)) {
    TRY(store.write(record, name));
  }
  return written;
}

Result<int> undo_last(const fs::path& workspace, const UndoOptions& options, const AskLine& ask) {
  const auto store = TRY(undo_store_for(workspace));
  const auto records = store.records(workspace);
  if (records.empty()) {
    return fail(
        Status::not_found(fmt::format("nothing that an agent wrote to {} is left to take back", workspace.string())));
  }
  const auto record = TRY(envs::UndoStore::read(records.back()));
  auto changes = envs::inverse(record.changes);
  const auto when = rollout::iso_time(record.unix_seconds);
  if (!options.json) {
    fmt::print("Taking back what the agent wrote at {} for \"{}\":\n\n{}\n", when, envs::make_printable(record.task),
               envs::diff_of(changes, kDiffShown));
    std::fflush(stdout);
  }
  if (options.review) review(changes, ask);
  const bool wanted = !options.dry_run && count_wanted(changes) > 0;
  std::vector<envs::WrittenChange> written;
  if (wanted) written = TRY(envs::write_back(workspace, changes));
  size_t done = 0;
  Json files = Json::array();
  for (size_t i = 0; i < changes.size(); ++i) {
    const bool tried = i < written.size();
    const auto path = envs::make_printable(changes[i].path);
    done += tried && written[i].outcome == WriteOutcome::kWritten;
    files.push_back({{"path", changes[i].path},
                     {"change", envs::kind_of(changes[i])},
                     {"outcome", tried ? Json(envs::to_string(written[i].outcome)) : Json()},
                     {"why", !tried || written[i].why.empty() ? Json() : Json(written[i].why)}});
    if (options.json || !tried || written[i].outcome == WriteOutcome::kWritten) continue;
    fmt::print("  ! {} was left as it is: {}\n", path, written[i].why);
  }
  const bool whole = done == changes.size();
  if (whole) TRY(envs::UndoStore::remove(records.back()));
  const int code = whole || !wanted ? kDone : kFailed;
  if (options.json) {
    fmt::print("{}\n", dump_json_line(Json{{"event", "undo"},
                                           {"task", record.task},
                                           {"written_at", when},
                                           {"changes", std::move(files)},
                                           {"exit", code}}));
  } else {
    if (options.dry_run)
      fmt::print("Nothing was taken back: this was a dry run.\n");
    else
      fmt::print("Taken back: {} of {}.\n", done, changes.size());
  }
  return code;
}

}  // namespace tandem::cli
