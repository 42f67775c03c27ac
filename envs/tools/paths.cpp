#include "envs/tools/paths.h"

#include <algorithm>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "base/text.h"
#include "envs/tools/functions.h"
#include "envs/tools/ignore_files.h"
#include "envs/tools/process.h"

namespace tandem::envs {
namespace {

constexpr size_t kContentEntries = 512;         // trees up to this size are compared by content
constexpr uint64_t kContentBytes = 256 * 1024;  // so are files up to this one
constexpr size_t kPathsMostEntries = 50'000;
constexpr size_t kListBytes = 8 << 20;  // of all names in a list of files

bool below(const fs::path& root, const fs::path& path) {
  const auto relative = path.lexically_relative(root);
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace

Result<fs::path> resolve(const ToolContext& context, std::string_view path) {
  if (path.empty()) return fail(Status::invalid("the path is empty; name a file below " + context.shown_root));
  if (path.find('\0') != std::string_view::npos) return fail(Status::invalid("the path has a zero byte in it"));
  fs::path relative(path);
  if (relative.is_absolute()) {
    const auto normal = relative.lexically_normal();
    relative = normal.lexically_relative(context.shown_root);
    for (const auto& root : context.other_roots) {
      if (relative.empty() || *relative.begin() == "..") relative = normal.lexically_relative(root);
    }
    if (relative.empty() || *relative.begin() == "..") {
      return fail(Status::invalid("\"" + std::string(path) + "\" is outside the workspace " + context.shown_root +
                                  "; use a path relative to it"));
    }
  }
  std::error_code error;
  const auto root = fs::canonical(context.root, error);
  if (error) return fail(Status::internal("the workspace cannot be opened: " + error.message()));
  auto real = fs::weakly_canonical(root / relative, error);
  if (error) return fail(Status::invalid("\"" + std::string(path) + "\" cannot be opened: " + error.message()));
  if (!below(root, real)) {
    return fail(Status::invalid("\"" + std::string(path) + "\" leads outside the workspace " + context.shown_root));
  }
  if (!real.has_filename()) real = real.parent_path();
  return real;
}

Result<fs::path> resolve_entry(const ToolContext& context, std::string_view path) {
  fs::path given(path);
  if (!given.has_filename()) given = given.parent_path();
  const auto name = given.filename();
  const bool names_no_entry = name.empty() || name == "." || name == ".." || path.find('\0') != std::string_view::npos;
  if (names_no_entry) return resolve(context, path);
  const auto folder = given.parent_path();
  return TRY(resolve(context, folder.empty() ? "." : folder.string())) / name;
}

fs::path real_root(const ToolContext& context) {
  std::error_code error;
  const auto root = fs::canonical(context.root, error);
  return error ? context.root : root;
}

std::string shown(const ToolContext& context, const fs::path& path) {
  return path.lexically_relative(real_root(context)).string();
}

std::vector<std::string> files_below(const ToolContext& context, size_t limit) {
  std::vector<std::string> names;
  std::error_code error;
  fs::recursive_directory_iterator entry(context.root, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator() && names.size() < limit; entry.increment(error)) {
    if (entry->path().filename() == ".git") entry.disable_recursion_pending();
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) names.push_back(entry->path().lexically_relative(context.root).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::vector<std::string>> files_not_ignored(const ToolContext& context, const fs::path& folder) {
  const auto ripgrep = find_program("rg");
  const auto below = shown(context, folder);
  if (ripgrep.empty()) {
    auto files = files_below(context, kPathsMostEntries);
    if (below != ".") std::erase_if(files, [&](const auto& file) { return !file.starts_with(below + "/"); });
    return files;
  }
  TRY(check_ignore_files(context, folder));
  ProcessSpec spec;
  // A whole path: below another one ripgrep 13 reads rules of other folders' ignore files as if they stood elsewhere.
  const auto root = real_root(context).string() + "/";
  spec.argv = {ripgrep,  "--no-config",  "--files", "--hidden",     "--no-messages", "--no-ignore-messages",
               "--null", "--glob=!.git", "--",      folder.string()};
  spec.directory = context.root;
  spec.environment = clean_environment(context);
  spec.time_limit_s = std::min(context.time_limit_s, 30.0);
  spec.output_limit = kListBytes;
  const auto result = TRY(run_process(spec));
  if (result.timed_out) TRY(check_ignore_files(context, folder, kIgnoreFilesAfter));
  if (result.timed_out || result.truncated) {
    return fail(Status::exhausted("there are too many files below \"" + below + "\"; name a folder further down"));
  }
  std::vector<std::string> files;
  for (auto file : split(result.output, '\0')) {
    if (file.starts_with(root)) file.remove_prefix(root.size());
    if (!file.empty()) files.emplace_back(file);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string missing_file(const ToolContext& context, std::string_view path) {
  const auto names = files_below(context, 2000);
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  std::string text = "there is no file \"" + std::string(path) + "\"";
  const auto file_name = fs::path(path).filename();
  for (const auto& name : names) {
    if (fs::path(name).filename() == file_name) return text + "; did you mean \"" + name + "\"?";
  }
  if (const auto near = nearest(path, candidates); !near.empty()) return text + "; did you mean \"" + near + "\"?";
  if (names.empty()) return text + "; the workspace has no files";
  const std::vector<std::string> first(names.begin(), names.begin() + std::min<size_t>(names.size(), 8));
  return text + "; the files are: " + join(first, ", ") + (names.size() > 8 ? ", ..." : "");
}

fs::path name_beside(const fs::path& path, std::string_view ending) {
  constexpr size_t kLongestName = 255, kDigits = 16;
  auto name = path.filename().string();
  if (name.size() + ending.size() >= kLongestName) {
    const auto number = digest_of(name).hex().substr(0, kDigits);
    name = name.substr(0, kLongestName - ending.size() - kDigits - 1) + number;
  }
  return path.parent_path() / ("." + name + std::string(ending));
}

uint64_t fingerprint(const fs::path& root) {
  struct Entry {
    fs::path path;
    fs::file_status status;
  };
  std::vector<Entry> entries;
  std::error_code error;
  fs::recursive_directory_iterator walk(root, fs::directory_options::skip_permission_denied, error);
  for (; !error && walk != fs::recursive_directory_iterator() && entries.size() < kPathsMostEntries;
       walk.increment(error)) {
    std::error_code ignored;
    entries.push_back({walk->path(), walk->symlink_status(ignored)});
  }
  const bool by_content = entries.size() <= kContentEntries;
  uint64_t sum = entries.size();
  for (const auto& [path, status] : entries) {
    std::error_code ignored;
    std::string line = path.string() + '\0' + std::to_string(static_cast<int>(status.type())) + ':' +
                       std::to_string(static_cast<int>(status.permissions()));
    if (status.type() == fs::file_type::symlink) line += fs::read_symlink(path, ignored).string();
    if (status.type() == fs::file_type::regular) {
      const auto size = fs::file_size(path, ignored);
      line += ':' + std::to_string(size);
      auto content = by_content && size <= kContentBytes ? read_file(path, kContentBytes) : fail(Status::not_found(""));
      if (content) {
        line += digest_of(*content).hex();
      } else {
        line += std::to_string(fs::last_write_time(path, ignored).time_since_epoch().count());
      }
    }
    sum += digest_of(line).low;  // a sum, so that the order of the walk does not matter
  }
  return sum;
}

}  // namespace tandem::envs
