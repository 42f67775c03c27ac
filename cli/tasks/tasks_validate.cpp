// `tandem tasks validate`.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <map>
#include <thread>

#include "base/file.h"
#include "base/json_line.h"
#include "base/text.h"
#include "base/work_queue.h"
#include "cli/command.h"
#include "cli/progress_line.h"
#include "cli/tasks/tasks_commands.h"
#include "envs/backends/backends.h"
#include "envs/backends/choosing_backend.h"
#include "envs/container/engine.h"
#include "envs/episodes/validate.h"
#include "envs/tasks/task_set.h"

namespace tandem::cli {
namespace {

using envs::Validation;
using envs::Verdict;

std::atomic<bool> interrupted{false};
void request_validation_stop(int) { interrupted = true; }

// Verdicts on disk, a line each, so that what was interrupted goes on. Of a task only the last line counts.
class Results {
 public:
  static Result<Results> open(const std::string& path) {
    Results results;
    if (path.empty()) return results;
    uint64_t whole = 0;  // bytes of lines that were written to their ends
    if (std::error_code error; fs::exists(path, error)) {
      const auto text = TRY(read_file(path));
      whole = text.rfind('\n') + 1;  // nothing where there is none
      int line = 0;
      for (const auto each : split(std::string_view(text).substr(0, whole), '\n')) {
        ++line;
        if (trim(each).empty()) continue;
        const auto parse = [&]() -> Result<Validation> { return envs::validation_from_json(TRY(parse_json(each))); };
        auto read = parse();
        if (!read) return fail(Status(read.error()).at(path, line).hint("give another file by --results"));
        results.known_[read->name] = std::move(*read);
      }
      // Somebody else's file is not cut.
      constexpr std::string_view kBegin = "{\"name\"";
      const auto rest = std::string_view(text).substr(whole);
      if (!rest.starts_with(kBegin) && !kBegin.starts_with(rest)) {
        return fail(Status::invalid("is no file of verdicts").at(path).hint("give another file by --results"));
      }
    }
    results.file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!results.file_) return fail(Status::from_errno(path, errno));
    // What was cut short by an end of ours is done again.
    if (::ftruncate(results.file_.get(), static_cast<off_t>(whole)) != 0) return fail(Status::from_errno(path, errno));
    results.path_ = path;
    return results;
  }

  // A verdict on this very task, with at least so many repeats and the same registries; null where there is none that
  // counts.
  const Validation* find(const std::string& name, const std::string& digest, int repeats,
                         const std::string& packages) const {
    const auto found = known_.find(name);
    if (found == known_.end() || found->second.digest != digest || found->second.repeats < repeats ||
        found->second.packages != packages)
      return nullptr;
    const bool final = found->second.verdict == Verdict::kPassed || found->second.verdict == Verdict::kFailed;
    return final ? &found->second : nullptr;
  }

  Status add(const Validation& validation) {
    if (!file_) return {};
    return write_all(file_.get(), dump_json_line(envs::to_json(validation)) + "\n", path_);
  }

 private:
  std::map<std::string, Validation> known_;
  FileDescriptor file_;
  std::string path_;
};

void print_table(const std::vector<Validation>& all, double seconds) {
  size_t width = 4;
  for (const auto& v : all) width = std::max(width, std::min<size_t>(v.name.size(), 60));
  std::map<std::string, std::map<Verdict, size_t>> kinds;
  for (const auto& v : all) {
    ++kinds[v.kind][v.verdict];
    if (v.verdict == Verdict::kPassed && all.size() > 40) continue;
    fmt::print("{:<{}}  {:<6}  {:>8}\n", v.name, width, envs::to_string(v.verdict), format_seconds(v.seconds));
    for (const auto& finding : v.findings) {
      for (const auto line : split(trim(finding), '\n')) fmt::print("    {}\n", line);
    }
  }
  if (all.size() > 1) {
    if (all.size() <= 40) fmt::print("\n");
    fmt::print("{:<20} {:>7} {:>7} {:>7} {:>7}\n", "kind", "passed", "failed", "unfit", "error");
    for (auto& [kind, counts] : kinds) {
      fmt::print("{:<20} {:>7} {:>7} {:>7} {:>7}\n", kind, counts[Verdict::kPassed], counts[Verdict::kFailed],
                 counts[Verdict::kUnfit], counts[Verdict::kError]);
    }
  }
  fmt::print("{} task{} in {}\n", all.size(), all.size() == 1 ? "" : "s", format_seconds(seconds));
}

// Tasks that are none here, and by what more of them would be.
void print_skipped(const std::vector<envs::SkippedTask>& skipped, envs::Recipes recipes) {
  constexpr size_t kMostShown = 40;
  if (skipped.empty()) return;
  for (size_t i = 0; i < std::min(kMostShown, skipped.size()); ++i) {
    fmt::print("{}  left out\n", skipped[i].name);
    for (const auto& why : skipped[i].why) fmt::print("    {}\n", why);
  }
  const auto with_recipe =
      static_cast<size_t>(std::ranges::count_if(skipped, [](const auto& each) { return each.has_recipe; }));
  fmt::print("{} task{} left out, which {}", skipped.size(), skipped.size() == 1 ? " is" : "s are",
             with_recipe > 0 ? "cannot be followed here" : "cannot be read");
  if (recipes == envs::Recipes::kFollowed && with_recipe > 0) {
    const bool has_engine = envs::Engine::find(envs::engine_place("")).has_value();
    fmt::print("; `tandem tasks build` makes images of whole Dockerfiles, for `--recipes built`{}",
               has_engine ? "" : ", with a container engine, of which none answers here");
  }
  fmt::print("\n");
}

int exit_code(const std::vector<Validation>& all) {
  bool unfit = false;
  for (const auto& v : all) {
    if (v.verdict == Verdict::kFailed || v.verdict == Verdict::kError) return kFailed;
    unfit = unfit || v.verdict == Verdict::kUnfit;
  }
  return unfit ? kUnfit : kDone;
}

}  // namespace

Result<int> validate_tasks(const std::string& path, const std::vector<envs::Task>& tasks,
                           const std::vector<envs::SkippedTask>& skipped, envs::Recipes recipes,
                           const ValidateOptions& options) {
  envs::EpisodeOptions episode{.call_time_limit_s = 60};
  episode.packages = TRY(packages_of(options.packages, episode.call_time_limit_s));
  const auto identity = episode.packages ? episode.packages->identity() : std::string();
  auto results = TRY(Results::open(options.results));
  const auto backend = TRY(envs::start_sandboxes());
  envs::PreparedSnapshots prepared(kPreparedBytes);
  if (episode.packages) episode.prepared = &prepared;  // what is installed is so once, as in a run
  std::vector<Validation> all;
  std::vector<const envs::Task*> open;
  for (const auto& task : tasks) {
    const auto name = task.name.empty() ? task.spec.id() : task.name;
    if (const auto* known = results.find(name, envs::digest_of_task(task), options.repeats, identity))
      all.push_back(*known);
    else
      open.push_back(&task);
  }
  if (!all.empty())
    fmt::print(stderr, "{} of {} {} in {} already\n", all.size(), tasks.size(),
               tasks.size() == 1 ? "task is" : "tasks are", options.results);

  interrupted = false;
  std::signal(SIGINT, request_validation_stop);
  std::signal(SIGTERM, request_validation_stop);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  ProgressLine progress;
  Status written;
  size_t not_passed = 0;
  {
    WorkQueue queue(options.threads > 0 ? options.threads : cores, open.size() + 1);
    for (const auto* task : open) {
      queue.submit([&, task]() -> WorkQueue::Completion {
        if (interrupted) return [] {};
        return [&, v = envs::validate(*task, *backend, options.repeats, episode)] {
          if (v.verdict != Verdict::kPassed) ++not_passed;
          if (Status status = results.add(v); !status.ok()) written = std::move(status);
          all.push_back(v);
        };
      });
    }
    while (queue.pending() > 0) {
      pollfd wait = {queue.wake_fd(), POLLIN, 0};
      ::poll(&wait, 1, 200);
      queue.run_completions();
      progress.show(fmt::format("{} of {} {}, {} not passed", all.size(), tasks.size(),
                                tasks.size() == 1 ? "task" : "tasks", not_passed));
    }
  }
  progress.wipe();
  TRY(written);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  if (options.json) {
    Json list = Json::array();
    for (const auto& v : all) list.push_back(envs::to_json(v));
    Json left_out = Json::array();
    for (const auto& task : skipped) left_out.push_back(Json{{"name", task.name}, {"why", task.why}});
    fmt::print("{}\n", Json{{"seconds", progress.seconds()}, {"tasks", list}, {"skipped", left_out}}.dump(2));
  } else {
    print_table(all, progress.seconds());
    print_skipped(skipped, recipes);
  }
  if (interrupted) {
    fmt::print(stderr, "interrupted after {} of {} tasks{}\n", all.size(), tasks.size(),
               options.results.empty() ? "" : "; the same command goes on");
    return kInterrupted;
  }
  const int code = exit_code(all);
  if (code == kDone && !options.json && !path.starts_with("workspace"))
    fmt::print("Next: tandem run {} tasks.path={}{}\n",
               options.packages.config.empty() ? "configs/quickstart.yaml" : options.packages.config, path,
               keys_of_run(options.packages));
  return code;
}

}  // namespace tandem::cli
