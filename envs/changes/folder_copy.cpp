#include "envs/changes/folder_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "base/text.h"
#include "envs/sandbox/capabilities.h"
#include "envs/tools/glob.h"

namespace tandem::envs {
namespace {

constexpr size_t kNamed = 3;  // of the largest entries, in an error

uint64_t size_of(const fs::path& path) {
  std::error_code error;
  const auto status = fs::symlink_status(path, error);
  if (fs::is_regular_file(status)) return fs::file_size(path, error);
  uint64_t bytes = 0;
  if (!fs::is_directory(status)) return 0;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator entry(path, options, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code gone;
    if (entry->is_regular_file(gone) && !entry->is_symlink(gone)) {
      const auto size = entry->file_size(gone);
      if (!gone) bytes += size;
    }
  }
  return bytes;
}

std::string largest_of(const fs::path& folder, const LeavesOut& leaves_out) {
  std::vector<std::pair<uint64_t, std::string>> entries;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto name = entry.path().filename().string();
    if (!leaves_out(name)) entries.emplace_back(size_of(entry.path()), name);
  }
  std::ranges::sort(entries, std::greater());
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(kNamed, entries.size()); ++i)
    words.push_back(fmt::format("{} ({})", entries[i].second, format_bytes(entries[i].first)));
  return join(words, ", ");
}

bool is_git(const std::string& path) { return fs::path(path).filename() == ".git"; }

}  // namespace

Result<LeavesOut> leaves_out_of(const std::vector<std::string>& globs) {
  auto parsed = std::make_shared<std::vector<Glob>>();
  for (const auto& glob : globs) {
    // As in .gitignore: a bare name is meant at any depth, and a slash at its end changes nothing.
    auto pattern = glob;
    while (pattern.size() > 1 && pattern.ends_with('/')) pattern.pop_back();
    if (pattern.find('/') == std::string::npos) pattern.insert(0, "**/");
    auto read = Glob::parse(pattern);
    if (!read) return fail(Status::invalid(fmt::format("--exclude \"{}\": {}", glob, read.error().message())));
    parsed->push_back(std::move(*read));
  }
  return LeavesOut([parsed](const std::string& path) {
    for (auto end = path.find('/');; end = path.find('/', end + 1)) {
      const auto part = path.substr(0, end);
      if (std::ranges::any_of(*parsed, [&](const Glob& glob) { return glob.matches(part); })) return true;
      if (end == std::string::npos) return false;
    }
  });
}

Result<FolderCopy> copy_folder(const fs::path& folder, const LeavesOut& leaves_out, Sandbox& sandbox) {
  FolderCopy copy{.leaves_out = leaves_out};
  auto packed = pack_tree(folder, kLargestTree, leaves_out);
  if (!packed && packed.error().code() == Code::kExhausted) {
    packed = pack_tree(folder, kLargestTree, [&](const std::string& path) { return is_git(path) || leaves_out(path); });
    copy.note = ".git is too large for the sandbox and was left out: git does not work there";
  }
  if (!packed && packed.error().code() == Code::kExhausted) {
    return fail(Status::invalid(fmt::format("{} is too large for the sandbox, which takes {} files of {} MiB together",
                                            folder.string(), kMostTreeEntries, kLargestTree >> 20))
                    .hint(fmt::format("leave out what the task does not need with --exclude; the largest are {}",
                                      largest_of(folder, leaves_out))));
  }
  if (!packed) return fail(std::move(packed).error().at(folder.string()));
  TRY(restore(sandbox, {.workspace = *packed, .temporary = pack_entries({}), .session = {}}));
  copy.entries = TRY(read_tree(*packed));
  return copy;
}

Result<std::vector<Change>> changes_in(Sandbox& sandbox, const FolderCopy& copy) {
  auto snapshot = snapshot_of(sandbox);
  if (!snapshot && snapshot.error().code() == Code::kExhausted) {
    // Only the workspace counts.
    TRY(sandbox.call("run_terminal_cmd", {{"command", "/usr/bin/find /tmp -mindepth 1 -delete"}}));
    snapshot = snapshot_of(sandbox);
  }
  if (!snapshot) {
    return fail(std::move(snapshot)
                    .error()
                    .at("the files that the agent left behind")
                    .hint("tell the agent to delete what it built; nothing was written back"));
  }
  auto changes = changes_between(copy.entries, TRY(read_tree(snapshot->workspace)));
  for (auto& change : changes) {
    if (change.refused.empty() && copy.leaves_out && copy.leaves_out(change.path))
      change.refused = "it was left out by --exclude";
  }
  return changes;
}

}  // namespace tandem::envs
