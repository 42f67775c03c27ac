// Benchmarks of workspaces that begin on a base: a whole repository that all episodes share.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/host_memory.h"
#include "base/text.h"
#include "bench/benchmarks.h"
#include "envs/backends/backends.h"
#include "envs/episodes/base_copies.h"
#include "envs/sandbox/capabilities.h"
#include "envs/tasks/task_base.h"

namespace tandem::bench {

namespace {

using BasesClock = std::chrono::steady_clock;

constexpr int kMadeFolders = 1000, kMadeFilesEach = 100, kMadeFileBytes = 20'480;
constexpr int kSharers = 100;

double milliseconds_since(BasesClock::time_point start) {
  return std::chrono::duration<double, std::milli>(BasesClock::now() - start).count();
}

double middle_of(std::vector<double> values, double share = 0.5) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
}

// A folder of its own, gone at the end.
struct MadeFolder {
  fs::path path;
  ~MadeFolder() {
    std::error_code ignored;
    if (!path.empty()) fs::remove_all(path, ignored);
  }
};

Status fill(const fs::path& folder) {
  std::string content(kMadeFileBytes, 'x');
  for (size_t at = 79; at < content.size(); at += 80) content[at] = '\n';
  for (int i = 0; i < kMadeFolders; ++i) {
    const auto below = folder / fmt::format("{:02}", i % 50) / fmt::format("part-{:03}", i);
    TRY(make_directories(below));
    for (int j = 0; j < kMadeFilesEach; ++j) {
      const auto name = fmt::format("{:03}{:02}", i, j);
      content.replace(0, name.size(), name);
      TRY(write_file(below / ("file_" + name + ".c"), content));
    }
  }
  return {};
}

Result<double> memory_available_mb() {
  const uint64_t bytes = available_memory();
  if (bytes == 0) return fail(Status::unfit("the kernel does not say what memory is available"));
  return static_cast<double>(bytes) / (1 << 20);
}

Status expect(bool holds, const std::string& what) { return holds ? Status() : Status::internal(what); }

}  // namespace

Result<std::vector<Figure>> bench_bases(const Settings& settings) {
  MadeFolder made;
  fs::path source = settings.folder;
  if (source.empty()) {
    std::string name = (fs::temp_directory_path() / "tandem-bench-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return fail(Status::from_errno(name, errno));
    made.path = source = name;
    TRY(fill(source));
  }
  std::vector<Figure> figures;
  auto start = BasesClock::now();
  const auto found = TRY(envs::find_task_base(envs::TaskBase::Kind::kFolder, source));
  figures.push_back({"look at the folder", milliseconds_since(start) / 1e3, "s", 0, ""});
  const bool was_there = envs::is_prepared(found);
  start = BasesClock::now();
  const auto base = TRY(envs::prepare_base(found));
  const MadeFolder unpacked{made.path.empty() ? fs::path() : base.folder};
  const auto of = fmt::format(" ({} files, {})", base.files, format_bytes(base.bytes));
  if (!was_there) figures.push_back({"unpack it, once" + of, milliseconds_since(start) / 1e3, "s", 0, ""});

  const auto backend = TRY(envs::start_sandboxes("", "auto", "auto"));
  envs::SandboxSpec plain, spec;
  spec.base = base;
  std::vector<double> begin, empty, collect;
  for (const auto end = BasesClock::now() + std::chrono::duration<double>(settings.seconds);
       begin.size() < 3 || BasesClock::now() < end;) {
    start = BasesClock::now();
    const auto without = TRY(backend->create(plain));
    empty.push_back(milliseconds_since(start));
    start = BasesClock::now();
    const auto sandbox = TRY(backend->create(spec));
    begin.push_back(milliseconds_since(start));
    TRY(sandbox->put({{"changed.txt", "one"}}));
    start = BasesClock::now();
    const auto collected = TRY(sandbox->collect());
    collect.push_back(milliseconds_since(start));
    TRY(expect(collected.complete && collected.files.size() == 1 && collected.removed.empty(),
               "a workspace on a base told other changes than there were"));
  }
  figures.push_back({"begin with nothing", middle_of(empty), "ms", 0, ""});
  figures.push_back({"begin on the base", middle_of(begin), "ms", 0, ""});
  figures.push_back({"begin on the base, 99 of 100", middle_of(begin, 0.99), "ms", 0, ""});
  figures.push_back({"collect one change", middle_of(collect), "ms", 0, ""});

  const double before = TRY(memory_available_mb());
  std::vector<std::unique_ptr<envs::Sandbox>> all;
  for (int i = 0; i < kSharers; ++i) {
    all.push_back(TRY(backend->create(spec)));
    TRY(all.back()->put({{"changed.txt", std::string(100'000, 'x')}}));
  }
  const double taken = (before - TRY(memory_available_mb())) / kSharers;
  figures.push_back({fmt::format("memory of each of {} on it, with 100 kB changed", kSharers), taken, "MB", 0, ""});
  return figures;
}

}  // namespace tandem::bench
