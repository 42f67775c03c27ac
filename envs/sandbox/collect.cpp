// What a workspace holds at the end, within bounds, and files put into one.
#include "base/file.h"
#include "envs/sandbox/sandbox.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

// Beyond what a task may begin with, and within a message to the sandbox that tests run in.
constexpr size_t kCollectMostFiles = 10'000;
constexpr uint64_t kMostBytes = 32 << 20;
constexpr size_t kLongestCommand = 60'000;  // of one word of a command line Linux takes twice as much

}  // namespace

Collected collect_files(const fs::path& root, const std::set<std::string>& left_out) {
  Collected collected;
  uint64_t bytes = 0;
  std::error_code error;
  fs::recursive_directory_iterator entry(root, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const auto status = entry->symlink_status(ignored);
    if (status.type() == fs::file_type::directory) {
      if (left_out.contains(entry->path().string())) entry.disable_recursion_pending();
      continue;
    }
    const auto name = entry->path().lexically_relative(root).string();
    auto& content = collected.files[name];
    if (status.type() != fs::file_type::regular) {
      content = "(not a regular file)";
    } else if (auto read = read_file(entry->path(), kMostBytes - bytes)) {
      bytes += read->size();
      content = std::move(*read);
      const auto modes = status.permissions();
      if ((modes & fs::perms::owner_exec) != fs::perms::none) collected.programs.insert(name);
    } else {
      collected.complete = false;
    }
    if (collected.files.size() >= kCollectMostFiles) {
      collected.complete = false;
      break;
    }
  }
  return collected;
}

Status make_executable(Sandbox& sandbox, const std::set<std::string>& paths) {
  std::string command;
  const auto run = [&]() -> Status {
    if (command.empty()) return {};
    const auto outcome = TRY(sandbox.call("run_terminal_cmd", {{"command", "chmod +x --" + command}}));
    command.clear();
    if (outcome.exit_code == 0 && outcome.ok) return {};
    return Status::unavailable("files could not be made programs: " + outcome.output);
  };
  for (const auto& path : paths) {
    command += " " + shell_quoted(path);
    if (command.size() > kLongestCommand) TRY(run());
  }
  return run();
}

Status put_files(const fs::path& root, const Files& files) {
  for (const auto& [name, content] : files) {
    if (name.starts_with('/') && root != "/workspace")
      return Status::invalid(name + " lies outside of the workspace, which is all that there is without a sandbox");
    const auto path = root / name;
    TRY(make_directories(path.parent_path()));
    FILE* file = fopen(path.c_str(), "wbe");
    if (!file) return Status::from_errno(name, errno);
    const bool written = fwrite(content.data(), 1, content.size(), file) == content.size();
    if (fclose(file) != 0 || !written) return Status::from_errno(name, errno);
  }
  return {};
}

}  // namespace tandem::envs
