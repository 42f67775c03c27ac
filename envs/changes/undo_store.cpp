#include "envs/changes/undo_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "envs/sandbox/fields.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kEnding = ".undo";
constexpr size_t kDigestLetters = 32;

std::string encode(const UndoRecord& record) {
  std::vector<TreeEntry> before, after;
  for (const auto& change : record.changes) {
    if (change.before) before.push_back(*change.before);
    if (change.after) after.push_back(*change.after);
  }
  const Json head = {
      {"workspace", record.workspace.string()}, {"unix_seconds", record.unix_seconds}, {"task", record.task}};
  std::string bytes;
  put_text(bytes, dump_json(head));
  put_text(bytes, pack_entries(before));
  put_text(bytes, pack_entries(after));
  return bytes;
}

Result<UndoRecord> decode(std::string_view bytes) {
  FieldReader fields(bytes);
  const Json head = TRY(parse_json(TRY(fields.text())));
  auto before = TRY(read_tree(TRY(fields.text())));
  auto after = TRY(read_tree(TRY(fields.text())));
  UndoRecord record{.workspace = head.value("workspace", ""),
                    .unix_seconds = head.value("unix_seconds", 0.0),
                    .task = head.value("task", "")};
  record.changes = changes_between(std::move(before), std::move(after));
  return record;
}

}  // namespace

fs::path UndoStore::folder_of(const fs::path& workspace) const { return root_ / digest_of(workspace.string()).hex(); }

Result<fs::path> UndoStore::write(const UndoRecord& record, const fs::path& name) const {
  const fs::path folder = folder_of(record.workspace);
  TRY(make_directories(folder));
  std::error_code error;
  fs::permissions(root_, fs::perms::owner_all, error);
  if (error) return fail(Status::from_errno(root_.string(), error.value()));
  // Names in the order of time; the number of the process keeps those of one moment apart.
  const auto path =
      name.empty() ? folder / fmt::format("{:017.3f}-{}{}", record.unix_seconds, ::getpid(), kEnding) : name;
  const auto bytes = encode(record);
  const auto digest = digest_of(bytes).hex();
  const std::string_view parts[] = {digest, bytes};
  TRY(write_file(path, parts));
  auto all = records(record.workspace);
  for (size_t i = 0; i + kMostRecords < all.size(); ++i) TRY(remove(all[i]));
  return path;
}

std::vector<fs::path> UndoStore::records(const fs::path& workspace) const {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder_of(workspace), error)) {
    if (entry.path().extension() == kEnding && !entry.path().filename().string().starts_with('.'))
      found.push_back(entry.path());
  }
  std::ranges::sort(found);
  return found;
}

Result<UndoRecord> UndoStore::read(const fs::path& name) {
  const auto bytes = TRY(read_file(name));
  const auto damaged = [&] { return Status::corrupt("what was kept for undoing is damaged").at(name.string()); };
  if (bytes.size() < kDigestLetters) return fail(damaged());
  const auto rest = std::string_view(bytes).substr(kDigestLetters);
  if (digest_of(rest).hex() != bytes.substr(0, kDigestLetters)) return fail(damaged());
  return decode(rest);
}

Status UndoStore::remove(const fs::path& name) {
  std::error_code error;
  fs::remove(name, error);
  if (error) return Status::from_errno(name.string(), error.value());
  return {};
}

Result<fs::path> state_folder() {
  // The specification has it that a relative path counts as none.
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && state[0] == '/') return fs::path(state);
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
    return fs::path(home) / ".local" / "state";
  return fail(Status::unfit("there is no folder for what undoing needs: neither XDG_STATE_HOME nor HOME is set")
                  .hint("set XDG_STATE_HOME to a folder of yours"));
}

}  // namespace tandem::envs
