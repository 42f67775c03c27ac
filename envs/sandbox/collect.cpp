// What a workspace holds at the end, within bounds, and files put into one.
#include <fmt/format.h>
#include <sys/stat.h>

#include "base/file.h"
#include "envs/sandbox/sandbox.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

// Beyond what a task may begin with, and within a message to the sandbox that tests run in.
constexpr size_t kCollectMostFiles = 10'000;
constexpr uint64_t kMostBytes = 32 << 20;
constexpr size_t kLongestCommand = 60'000;  // of one word of a command line Linux takes twice as much

// Commands, as many at once as fit. kUnavailable, with `what`, where one fails.
class Commands {
 public:
  Commands(Sandbox& sandbox, std::string begin, std::string what)
      : sandbox_(sandbox), begin_(std::move(begin)), what_(std::move(what)) {}
  Status add(const std::string& words) {
    command_ += words;
    return command_.size() > kLongestCommand ? run() : Status();
  }
  Status run() {
    if (command_.empty()) return {};
    const auto outcome = TRY(sandbox_.call("run_terminal_cmd", {{"command", begin_ + command_}}));
    command_.clear();
    if (outcome.exit_code == 0 && outcome.ok) return {};
    return Status::unavailable(what_ + ": " + outcome.output);
  }

 private:
  Sandbox& sandbox_;
  const std::string begin_, what_;
  std::string command_;
};

bool has_usual_mode(unsigned mode, bool is_folder) { return mode == 0755 || (mode == 0644 && !is_folder); }

}  // namespace

bool add_detail(TreeDetails& details, const fs::path& path, const std::string& name, unsigned mode) {
  std::error_code error;
  if (S_ISLNK(mode)) {
    if (auto target = fs::read_symlink(path, error); !error) details.links[name] = target.string();
    return true;
  }
  const bool is_folder = S_ISDIR(mode);
  if (is_folder && fs::is_empty(path, error) && !error) details.folders.insert(name);
  if ((is_folder || S_ISREG(mode)) && !has_usual_mode(mode & 07777, is_folder)) details.modes[name] = mode & 07777;
  return details.folders.size() + details.modes.size() <= kCollectMostFiles;
}

Collected collect_files(const fs::path& root, const std::set<std::string>& left_out) {
  Collected collected;
  uint64_t bytes = 0;
  std::error_code error;
  fs::recursive_directory_iterator entry(root, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    struct stat info {};
    if (lstat(entry->path().c_str(), &info) != 0) continue;
    const auto name = entry->path().lexically_relative(root).string();
    if (S_ISDIR(info.st_mode)) {
      const bool is_left_out = left_out.contains(entry->path().string());
      if (is_left_out) entry.disable_recursion_pending();
      if (!is_left_out && !add_detail(collected.details, entry->path(), name, info.st_mode)) collected.complete = false;
      continue;
    }
    if (!add_detail(collected.details, entry->path(), name, info.st_mode)) collected.complete = false;
    auto& content = collected.files[name];
    if (!S_ISREG(info.st_mode)) {
      content = "(not a regular file)";
    } else if (auto read = read_file(entry->path(), kMostBytes - bytes)) {
      bytes += read->size();
      content = std::move(*read);
      if ((info.st_mode & S_IXUSR) != 0) collected.programs.insert(name);
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
  Commands commands(sandbox, "chmod +x --", "files could not be made programs");
  for (const auto& path : paths) TRY(commands.add(" " + shell_quoted(path)));
  return commands.run();
}

Status add_details(Sandbox& sandbox, const TreeDetails& details) {
  Commands commands(sandbox, ":", "links and folders could not be made");
  // What is there already came with the task or its tests.
  for (const auto& path : details.folders) TRY(commands.add("; mkdir -p -- " + shell_quoted(path) + " 2> /dev/null"));
  for (const auto& [path, target] : details.links) {
    const auto at = shell_quoted(path), folder = shell_quoted(fs::path(path).parent_path().string());
    const auto make = folder == shell_quoted("") ? "" : "mkdir -p -- " + folder + " && ";
    TRY(commands.add("; [ -e " + at + " ] || [ -L " + at + " ] || { " + make + "ln -s -- " + shell_quoted(target) +
                     " " + at + "; } 2> /dev/null"));
  }
  // What is in a folder first: it may not be entered afterwards.
  for (auto entry = details.modes.rbegin(); entry != details.modes.rend(); ++entry)
    TRY(commands.add(fmt::format("; chmod {:o} -- {} 2> /dev/null", entry->second, shell_quoted(entry->first))));
  TRY(commands.add("; true"));
  return commands.run();
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
