#include "envs/tools/shell_state.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "base/file.h"
#include "base/text.h"

namespace tandem::envs {
namespace {

constexpr std::array<std::string_view, 15> kBuiltins = {"cd",      "pushd", "popd",     "export",    "declare",
                                                        "typeset", "read",  "readonly", "unset",     "source",
                                                        "eval",    "set",   "mapfile",  "readarray", "getopts"};
constexpr size_t kLargestState = 1 << 20;
constexpr std::string_view kLast = "end";  // what is written last, so that half a file is known for one

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Whether the character at `i` is a word where a command begins.
bool is_command(std::string_view text, size_t i) {
  if (i + 1 >= text.size() || (text[i + 1] != ' ' && text[i + 1] != '\t')) return false;
  const size_t before = text.substr(0, i).find_last_not_of(" \t");
  return before == std::string_view::npos || std::string_view("\n;&|({!").find(text[before]) != std::string_view::npos;
}

// A name that nobody has, in a folder that every sandbox has. Made by bash when it exits, not before.
std::string fresh_file() {
  uint64_t number = 0;
  (void)getrandom(&number, sizeof number, 0);
  char name[64];
  snprintf(name, sizeof name, "/tmp/.tandem-shell-%016llx", static_cast<unsigned long long>(number));
  return name;
}

// The content of a regular file of ours, whatever a command has put there.
std::string read_state(const std::string& path) {
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid()) return "";
  if (static_cast<uint64_t>(info.st_size) > kLargestState) return "";
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t size = pread(file.get(), text.data(), text.size(), 0);
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return text;
}

}  // namespace

bool may_change_shell(std::string_view command) {
  for (size_t i = 0; i < command.size();) {
    if (!in_name(command[i])) {
      if (command[i] == '.' && is_command(command, i)) return true;
      ++i;
      continue;
    }
    size_t end = i;
    while (end < command.size() && in_name(command[end])) ++end;
    const auto word = command.substr(i, end - i);
    if (std::find(kBuiltins.begin(), kBuiltins.end(), word) != kBuiltins.end()) return true;
    const auto rest = command.substr(end);
    if (rest.starts_with('=') || rest.starts_with("+=") || rest.starts_with(":=")) return true;
    i = end;
  }
  return false;
}

bool can_start_in(const std::string& folder) {
  std::error_code error;
  return fs::is_directory(folder, error) && access(folder.c_str(), X_OK) == 0;
}

ShellKeeper::ShellKeeper(ProcessSpec& spec) : file_(fresh_file()) {
  spec.environment.push_back("BASH_ENV=/dev/stdin");
  spec.input =
      "unset BASH_ENV\n"
      "exec 0</dev/null\n"
      "trap '{ builtin pwd && builtin printf \"\\0\" && /usr/bin/env -0 && builtin printf " +
      std::string(kLast) + "; } >|" + file_ + " 2>/dev/null || :' EXIT\n";
}

ShellKeeper::~ShellKeeper() { unlink(file_.c_str()); }

std::optional<ShellState> ShellKeeper::take() const {
  const std::string text = read_state(file_);
  auto records = split(text, '\0');
  // "FOLDER\n", the variables, and the mark.
  if (records.size() < 3 || records.back() != kLast || !records[0].starts_with('/')) return std::nullopt;
  ShellState state;
  state.directory = records[0].substr(0, records[0].size() - 1);
  for (size_t i = 1; i + 1 < records.size(); ++i) {
    const auto setting = records[i];
    const bool of_one_shell =
        setting.starts_with("_=") || setting.starts_with("SHLVL=") || setting.starts_with("BASH_ENV=");
    if (!of_one_shell && setting.find('=') != std::string_view::npos) state.environment.emplace_back(setting);
  }
  return state;
}

}  // namespace tandem::envs
