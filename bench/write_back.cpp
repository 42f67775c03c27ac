// New files in a folder, written back one by one and in batches.
#include "envs/changes/write_back.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

#include "base/file.h"
#include "bench/write_back_bench.h"

namespace tandem::bench {
namespace {

constexpr size_t kFilesEach = 50, kFileBytes = 2048;  // in each folder, of each file

std::vector<envs::Change> new_files(size_t count) {
  std::vector<envs::Change> changes;
  const auto add = [&](std::string path, mode_t mode, std::string content) {
    envs::TreeEntry entry{.mode = mode, .path = path, .content = std::move(content)};
    changes.push_back({.path = std::move(path), .before = {}, .after = std::move(entry), .refused = {}});
  };
  for (size_t i = 0; i < count; ++i) {
    const auto folder = fmt::format("package-{:05}", i / kFilesEach);
    if (i % kFilesEach == 0) add(folder, S_IFDIR | 0755, "");
    add(fmt::format("{}/{:02}.js", folder, i % kFilesEach), S_IFREG | 0644, std::string(kFileBytes, 'x'));
  }
  return changes;
}

struct TargetFolder {
  fs::path path;
  ~TargetFolder() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

Result<double> files_per_second(size_t count, const envs::WriteBatches& batches) {
  auto name = (fs::temp_directory_path() / "tandem-bench-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) return fail(Status::from_errno(name, errno));
  const TargetFolder target{name};
  const auto changes = new_files(count);
  const auto start = std::chrono::steady_clock::now();
  for (const auto& one : TRY(envs::write_back(target.path, changes, {}, batches))) {
    if (one.outcome != envs::WriteOutcome::kWritten) return fail(Status::internal("not written: " + one.why));
  }
  return static_cast<double>(count) / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Status add_write_backs(std::vector<Figure>& figures) {
  const auto add = [&](size_t count, const char* how, const envs::WriteBatches& batches) -> Status {
    const double files = TRY(files_per_second(count, batches));
    figures.push_back(
        {fmt::format("write back {} new files of {} KiB, {}", count, kFileBytes >> 10, how), files, "/s", 0, ""});
    return {};
  };
  TRY(add(1000, "each synced by itself", {.few = SIZE_MAX}));
  TRY(add(1000, "in batches", {}));
  return add(30000, "in batches", {});
}

}  // namespace tandem::bench
