#include "base/file.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostFiles = 1000;
constexpr uint64_t kMostBytes = 8 << 20;

}  // namespace

Collected collect_files(const fs::path& root) {
  Collected collected;
  uint64_t bytes = 0;
  std::error_code error;
  fs::recursive_directory_iterator entry(root, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    const auto status = entry->symlink_status(ignored);
    if (status.type() == fs::file_type::directory) continue;
    const auto name = entry->path().lexically_relative(root).string();
    auto& content = collected.files[name];
    if (status.type() != fs::file_type::regular) {
      content = "(not a regular file)";
    } else if (auto read = read_file(entry->path(), kMostBytes - bytes)) {
      bytes += read->size();
      content = std::move(*read);
    } else {
      collected.complete = false;
    }
    if (collected.files.size() >= kMostFiles) {
      collected.complete = false;
      break;
    }
  }
  return collected;
}

Status put_files(const fs::path& root, const Files& files) {
  for (const auto& [name, content] : files) {
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
