#include "hosts/bundle.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/json_file.h"
#include "run/resume.h"
#include "run/rewards.h"
#include "run/search.h"
#include "run/tasks.h"

namespace tandem::hosts {
namespace {

constexpr const char* kTasksRecord = "tasks.json";

// Whether a link at `path`, below the root of what is sent, leads to something below that root.
bool leads_inside(const std::string& path, const fs::path& target) {
  if (target.is_absolute()) return false;
  const fs::path to = (fs::path(path).parent_path() / target).lexically_normal();
  return !to.empty() && *to.begin() != "..";
}

Status add_file(const fs::path& source, const std::string& path, Bundle& bundle) {
  if (bundle.files.size() >= kMostFiles) {
    return Status::invalid(fmt::format("has more than {} files, which is what a host takes", kMostFiles))
        .at(source.parent_path().string());
  }
  struct stat info {};
  if (::stat(source.c_str(), &info) != 0) return Status::from_errno(source.string(), errno);
  const auto mapped = TRY(MappedFile::open(source));
  bundle.files.push_back({.path = path,
                          .digest = digest_of(mapped.bytes()),
                          .bytes = mapped.bytes().size(),
                          .is_executable = (info.st_mode & S_IXUSR) != 0,
                          .link = ""});
  bundle.sources.push_back(source);
  return {};
}

// Where the tasks of a run are. Of a task's file the folder is sent, since it may name others beside it.
struct TaskSource {
  fs::path root;
  std::string to;    // where the root is in the home
  std::string path;  // where the tasks are there
};

Result<TaskSource> task_source(const fs::path& run_dir) {
  const Json record = TRY(run::read_tasks_record(run_dir));
  const fs::path path = record.value("path", "");
  const std::string inside = fmt::format("{}/{}", kHomeTasks, path.filename().string());
  if (fs::is_directory(path)) return TaskSource{.root = path, .to = kHomeTasks, .path = kHomeTasks};
  if (path.extension() == ".jsonl") return TaskSource{.root = path, .to = inside, .path = inside};
  return TaskSource{.root = path.parent_path(), .to = kHomeTasks, .path = inside};
}

}  // namespace

Status add_folder(const fs::path& folder, const std::string& to, Bundle& bundle) {
  std::error_code error;
  if (fs::is_regular_file(folder, error)) return add_file(folder, to, bundle);
  std::vector<fs::path> entries;
  for (auto it = fs::recursive_directory_iterator(folder, error); it != fs::recursive_directory_iterator();
       it.increment(error)) {
    entries.push_back(it->path());
    if (entries.size() > 2 * kMostFiles) break;
  }
  if (error) return Status::from_errno(folder.string(), error.value());
  std::sort(entries.begin(), entries.end());
  for (const fs::path& entry : entries) {
    const std::string inside = entry.lexically_relative(folder).generic_string();
    const std::string path = fmt::format("{}/{}", to, inside);
    if (fs::is_symlink(entry, error)) {
      const fs::path target = fs::read_symlink(entry, error);
      if (leads_inside(inside, target)) {
        bundle.files.push_back({.path = path, .link = target.string()});
        bundle.sources.push_back(entry);
        continue;
      }
    } else if (fs::is_directory(entry, error)) {
      continue;
    }
    if (!fs::is_regular_file(entry, error)) {
      return Status::invalid("cannot be sent to a host: it is no file, and no link to one")
          .at(entry.string())
          .hint("put a copy there of what it leads to");
    }
    TRY(add_file(entry, path, bundle));
  }
  return {};
}

Result<Bundle> bundle_of(const run::RunConfig& config, const fs::path& run_dir) {
  Bundle bundle;
  std::error_code error;
  const fs::path model = fs::canonical(run_dir / "model", error);
  if (error) return fail(Status::from_errno((run_dir / "model").string(), error.value()));
  TRY(add_folder(model, kHomeModel, bundle));
  if (!config.env.profile.empty()) TRY(add_folder(config.env.profile, kHomeHarness, bundle));
  if (!config.env.encoder.empty()) {
    TRY(add_folder(config.env.encoder, kHomeEncoder, bundle));
    TRY(add_folder(run_dir / run::kVectorsFile, run::kVectorsFile, bundle));
  }
  if (config.reward.own.any()) TRY(add_folder(run_dir / run::kRewardFolder, run::kRewardFolder, bundle));
  if (!config.tasks.path.empty()) {
    const TaskSource source = TRY(task_source(run_dir));
    TRY(add_folder(source.root, source.to, bundle));
  }
  return bundle;
}

Result<Json> moved_paths(const run::RunConfig& config, const fs::path& run_dir) {
  Json moved = Json::object();
  if (!config.env.profile.empty()) moved["env.profile"] = kHomeHarness;
  if (!config.env.encoder.empty()) moved["env.encoder"] = kHomeEncoder;
  if (!config.env.packages.lock.empty()) moved["env.packages.lock"] = kPackagesLock;
  if (!config.tasks.path.empty()) moved["tasks.path"] = TRY(task_source(run_dir)).path;
  return moved;
}

Result<std::vector<HomeText>> texts_of(const run::RunConfig& config, const fs::path& run_dir, const fs::path& home) {
  run::RunConfig there = config;
  there.run.key.clear();
  there.model.path = (home / kHomeModel).string();
  if (!config.env.profile.empty()) there.env.profile = (home / kHomeHarness).string();
  if (!config.env.encoder.empty()) there.env.encoder = (home / kHomeEncoder).string();
  std::vector<HomeText> texts;
  if (!config.tasks.path.empty()) {
    const fs::path tasks = home / TRY(task_source(run_dir)).path;
    there.tasks.path = tasks.string();
    Json record = TRY(run::read_tasks_record(run_dir));
    record["path"] = tasks.string();
    texts.push_back({.path = kTasksRecord, .content = dump_json(with_format(record, run::kTasksFormat))});
  }
  texts.push_back({.path = "config.resolved.json", .content = run::recorded_text(there, {})});
  auto profile = TRY(read_file(run_dir / envs::kProfileFile, 1 << 20));
  texts.push_back({.path = envs::kProfileFile, .content = std::move(profile)});
  return texts;
}

}  // namespace tandem::hosts
