// `tandem cache`: what this machine keeps to be quick the next time, and what of it can go.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "archive/pruning.h"
#include "base/clock.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "envs/tasks/base_store.h"

namespace tandem::cli {
namespace {

struct CacheOptions {
  std::string older_than = "30d";
  bool dry_run = false, json = false;
};

struct Kept {
  std::string kind, note;
  fs::path path;
  uint64_t bytes = 0;
  double used = 0;                     // Unix seconds
  std::optional<envs::KeptBase> base;  // of bases
  bool can_go = true;                  // others belong to who made them
};

uint64_t bytes_below(const fs::path& folder, double& used) {
  uint64_t bytes = 0;
  std::error_code error;
  auto entry = fs::recursive_directory_iterator(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    struct stat info {};
    if (lstat(entry->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    bytes += static_cast<uint64_t>(info.st_size);
    used = std::max(used, static_cast<double>(info.st_mtim.tv_sec));
  }
  return bytes;
}

// Files that are read whole, by what the file system says of the last time.
void add_files(const fs::path& folder, const char* kind, std::vector<Kept>& kept) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    struct stat info {};
    if (lstat(entry.path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (entry.path().extension() == ".lock") continue;
    kept.push_back({.kind = kind,
                    .path = entry.path(),
                    .bytes = static_cast<uint64_t>(info.st_size),
                    .used = static_cast<double>(std::max(info.st_atim.tv_sec, info.st_mtim.tv_sec))});
  }
}

Result<std::vector<Kept>> all_kept() {
  const fs::path bases = TRY(envs::bases_folder()), root = bases.parent_path();
  std::vector<Kept> kept;
  for (auto& base : TRY(envs::kept_bases())) {
    kept.push_back({.kind = "base",
                    .note = base.torn ? "not whole" : "",
                    .path = base.folder,
                    .bytes = base.bytes,
                    .used = base.used,
                    .base = base});
  }
  add_files(root / "vectors", "vectors", kept);
  add_files(root / "index", "index", kept);
  add_files(root / "packages" / "files", "package", kept);
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    const auto name = entry.path().filename().string();
    if (name == "bases" || name == "vectors" || name == "index" || name == "packages" || !entry.is_directory(error))
      continue;
    Kept other{.kind = name, .note = "kept", .path = entry.path(), .can_go = false};
    other.bytes = bytes_below(entry.path(), other.used);
    kept.push_back(std::move(other));
  }
  std::ranges::stable_sort(kept, [](const Kept& a, const Kept& b) { return a.used < b.used; });
  return kept;
}

std::string ago(double seconds) {
  constexpr double kDay = 86'400;
  if (seconds >= 2 * kDay) return fmt::format("{:.0f}d", seconds / kDay);
  return format_seconds(std::max(1.0, std::floor(seconds)));
}

void show(const Kept& one, double now, bool json, const char* removed) {
  if (json) {
    Json line = {{"kind", one.kind}, {"path", one.path.string()}, {"bytes", one.bytes}, {"used", one.used}};
    if (removed != nullptr) line["removed"] = removed == std::string_view("removed");
    fmt::print("{}\n", dump_json_line(line));
    return;
  }
  fmt::print("{:<8}  {:>9}  {:>8}  {:<10}  {}\n", one.kind, format_bytes(one.bytes), ago(now - one.used),
             removed != nullptr ? removed : one.note, one.path.string());
}

Result<int> list_cache(bool json) {
  const auto kept = TRY(all_kept());
  const double now = SystemClock().unix_seconds();
  if (!json && !kept.empty()) fmt::print("{:<8}  {:>9}  {:>8}  {:<10}  {}\n", "what", "size", "used", "", "where");
  uint64_t bytes = 0;
  for (const Kept& one : kept) {
    show(one, now, json, nullptr);
    bytes += one.bytes;
  }
  if (!json)
    fmt::print(stderr, "{} in all; `tandem cache prune` removes what was not used for 30 days\n", format_bytes(bytes));
  return kDone;
}

Result<int> prune_cache(const CacheOptions& o) {
  constexpr double kLeastAge = 3600;
  const auto age = archive::age_from(o.older_than);
  if (!age) return fail(Status(age.error()).at("--older-than"));
  if (*age < kLeastAge) return fail(Status::invalid("must be an hour at least: a run may use it").at("--older-than"));
  const double now = SystemClock().unix_seconds(), before = now - *age;
  uint64_t bytes = 0;
  for (const Kept& one : TRY(all_kept())) {
    if (!one.can_go || one.used >= before) continue;
    bool gone = o.dry_run;
    if (!o.dry_run && one.base) gone = TRY(envs::remove_base(*one.base, before));
    std::error_code error;
    if (!o.dry_run && !one.base) gone = fs::remove(one.path, error);
    if (error) return fail(Status::from_errno(one.path.string(), error.value()));
    if (gone) bytes += one.bytes;
    show(one, now, o.json, o.dry_run ? "would go" : gone ? "removed" : "in use");
  }
  if (!o.json) fmt::print(stderr, "{} {}\n", format_bytes(bytes), o.dry_run ? "would go" : "removed");
  return kDone;
}

}  // namespace

Action add_cache(CLI::App& command) {
  const auto o = std::make_shared<CacheOptions>();
  command.add_flag("--json", o->json, "Print a JSON object for each thing");
  auto* const prune = command.add_subcommand("prune", "Remove entries that were not used for long");
  prune->add_option("--older-than", o->older_than, "AGE, such as 12h or 30d, since the last use; an hour at least")
      ->capture_default_str();
  prune->add_flag("--dry-run", o->dry_run, "Show what would be removed; remove nothing");
  prune->add_flag("--json", o->json, "Print a JSON object for each thing that goes");
  prune->footer("Examples:\n  tandem cache prune --dry-run\n  tandem cache prune --older-than 7d");
  command.footer(
      "Bases of tasks and files of package registries (docs/environments.md), vectors and indexes of codebase_search\n"
      "(docs/search.md) are made or fetched again where they are missing. They lie below $XDG_CACHE_HOME/tandem, or "
      "~/.cache/tandem; what others keep there is listed "
      "alone.\n\n"
      "Examples:\n  tandem cache\n  tandem cache prune --older-than 7d");
  return [o, prune]() -> Result<int> { return prune->parsed() ? prune_cache(*o) : list_cache(o->json); };
}

}  // namespace tandem::cli
