// `tandem tasks make`.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <thread>

#include "base/digest.h"
#include "base/file.h"
#include "base/json_line.h"
#include "base/text.h"
#include "base/work_queue.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/progress_line.h"
#include "cli/tasks/decision_log.h"
#include "cli/tasks/tasks_commands.h"
#include "envs/backends/backends.h"
#include "envs/episodes/deletion.h"
#include "envs/tasks/folder_files.h"

namespace tandem::cli {
namespace {

// What became of a function.
struct Decision {
  std::string function;  // "text/words.py:Counter.add"
  std::string task;      // its name; empty where no test misses it
  size_t tests = 0;      // that miss it
};

Json to_json(const Decision& decision) {
  return {{"function", decision.function},
          {"task", decision.task.empty() ? Json() : Json(decision.task)},
          {"tests", decision.tests}};
}

// The log of a folder of tasks, by functions.
class Decisions {
 public:
  static Result<Decisions> open(const fs::path& folder, const Json& of) {
    Decisions decisions(TRY(DecisionLog::open(
        folder, "functions.log", of, "is of another repository, of other content of this one, or of other tests")));
    for (const auto& json : decisions.log_.known()) {
      try {
        Decision decision{
            .function = json.at("function").get<std::string>(), .task = {}, .tests = json.at("tests").get<size_t>()};
        if (!json.at("task").is_null()) decision.task = json.at("task").get<std::string>();
        decisions.known_[decision.function] = decision;
      } catch (const Json::exception& error) {
        return fail(Status::invalid(error.what()).at(decisions.log_.path()).hint("give another folder"));
      }
    }
    return decisions;
  }

  const std::map<std::string, Decision>& known() const { return known_; }

  Status add(const Decision& decision) {
    TRY(log_.add(to_json(decision)));
    known_[decision.function] = decision;
    return {};
  }

 private:
  explicit Decisions(DecisionLog log) : log_(std::move(log)) {}
  DecisionLog log_;
  std::map<std::string, Decision> known_;
};

Json description_of(const envs::Files& files, const std::string& command) {
  Json digests = Json::object();
  for (const auto& [path, content] : files) digests[path] = digest_of(content).hex();
  return {{"repository", digest_of(dump_json(digests)).hex()}, {"test", command}};
}

std::string id_of(const envs::PythonFunction& function) { return function.path + ":" + function.name; }

bool is_within(const fs::path& path, const fs::path& folder) {
  std::error_code error;  // of a path that cannot be followed; whoever opens it will say so
  const auto relative = fs::weakly_canonical(path, error).lexically_relative(fs::weakly_canonical(folder, error));
  return !relative.empty() && *relative.begin() != "..";
}

size_t tasks_in(const std::map<std::string, Decision>& decisions) {
  return static_cast<size_t>(
      std::count_if(decisions.begin(), decisions.end(), [](const auto& each) { return !each.second.task.empty(); }));
}

void print(const Decision& decision, bool json) {
  if (json)
    fmt::print("{}\n", dump_json_line(to_json(decision)));
  else if (!decision.task.empty())
    fmt::print("{:<48}  {} test{} miss{} it\n", decision.task, decision.tests, decision.tests == 1 ? "" : "s",
               decision.tests == 1 ? "es" : "");
  std::fflush(stdout);
}

// Those that are still to be tried, one of each task's name.
std::vector<const envs::PythonFunction*> open_functions(const std::vector<envs::PythonFunction>& functions,
                                                        const MakeOptions& options, const Decisions& decisions) {
  std::vector<const envs::PythonFunction*> open;
  std::set<std::string> names;
  for (const auto& function : functions) {
    if (function.docstring.empty() && !options.undocumented) continue;
    if (!names.insert(task_name(function)).second) continue;
    if (!decisions.known().contains(id_of(function))) open.push_back(&function);
  }
  return open;
}

}  // namespace

Result<int> make_tasks(const MakeOptions& options) {
  const fs::path folder = options.folder;
  if (is_within(folder, options.repository)) {
    return fail(Status::invalid(options.folder + " lies within the repository, of which it would become a part")
                    .hint("give a folder elsewhere"));
  }
  envs::Files files;
  std::set<std::string> programs;
  TRY(envs::add_folder_files(options.repository, "", files, programs));
  const Json description = description_of(files, options.command);
  const auto backend = TRY(envs::start_sandboxes());
  const auto interrupt = TRY(Interrupt::listen());
  ProgressLine progress;
  progress.show("running the tests");
  const auto repository = TRY(envs::test_repository(std::move(files), std::move(programs), options.command, *backend));
  const auto functions = TRY(envs::find_functions(repository.files, *backend));
  // A command that reports no tests has left nothing behind by now.
  auto decisions = TRY(Decisions::open(folder, description));
  TRY(envs::write_repository(folder, repository));
  const auto open = open_functions(functions, options, decisions);
  if (!decisions.known().empty())
    fmt::print(stderr, "{} functions are in {} already\n", decisions.known().size(), options.folder);

  const size_t limit = options.limit > 0 ? static_cast<size_t>(options.limit) : functions.size();
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const size_t threads = static_cast<size_t>(options.threads > 0 ? options.threads : cores);
  Status failed;
  size_t done = 0, next = 0;
  {
    WorkQueue queue(static_cast<int>(threads), threads);
    const auto take_in = [&](const envs::PythonFunction& function, Result<std::vector<std::string>> missing) {
      const auto record = [&]() -> Status {
        const size_t tests = TRY(std::move(missing)).size();
        Decision decision{.function = id_of(function), .task = {}, .tests = tests};
        if (decision.tests > 0) {
          if (tasks_in(decisions.known()) >= limit) return {};
          decision.task = task_name(function);
          TRY(envs::write_task(folder, repository, function));
        }
        TRY(decisions.add(decision));
        print(decision, options.json);
        return {};
      };
      ++done;
      if (Status status = record(); !status.ok() && failed.ok()) failed = std::move(status);
    };
    const auto goes_on = [&] {
      return failed.ok() && !interrupt->requested() && next < open.size() && tasks_in(decisions.known()) < limit;
    };
    while (goes_on() || queue.pending() > 0) {
      while (goes_on() && queue.pending() < threads) {
        const auto* function = open[next++];
        queue.submit([&, function]() -> WorkQueue::Completion {
          return [&, function, missing = envs::tests_that_miss(repository, *function, *backend)] {
            take_in(*function, missing);
          };
        });
      }
      pollfd wait = {queue.wake_fd(), POLLIN, 0};
      ::poll(&wait, 1, 200);
      queue.run_completions();
      progress.show(fmt::format("{} of {} functions, {} tasks", done, open.size(), tasks_in(decisions.known())));
    }
  }
  progress.wipe();
  TRY(failed);
  const size_t tasks = tasks_in(decisions.known());
  fmt::print(options.json ? stderr : stdout, "{} task{} of {} functions in {}, checked by {} tests\n", tasks,
             tasks == 1 ? "" : "s", decisions.known().size(), format_seconds(progress.seconds()),
             repository.tests.size());
  if (interrupt->requested()) {
    fmt::print(stderr, "interrupted; the same command goes on\n");
    return kInterrupted;
  }
  return tasks > 0 ? kDone : kFailed;
}

}  // namespace tandem::cli
