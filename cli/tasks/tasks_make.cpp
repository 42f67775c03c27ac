// `tandem tasks make`.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <thread>

#include "base/digest.h"
#include "base/file.h"
#include "base/text.h"
#include "base/work_queue.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/progress_line.h"
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

// Decisions on disk, a line each below one that says what they are of, so that what was interrupted goes on.
class Decisions {
 public:
  static Result<Decisions> open(const fs::path& folder, const Json& of) {
    Decisions decisions;
    decisions.path_ = (folder / "functions.log").string();
    std::error_code error;
    const bool exists = fs::exists(decisions.path_, error);
    if (!exists && fs::exists(folder, error) && !fs::is_empty(folder, error)) {
      return fail(
          Status::invalid(folder.string() + " holds something else").hint("give a folder that is new or empty"));
    }
    TRY(make_directories(folder));
    uint64_t whole = 0;  // bytes of lines that were written to their ends
    if (exists) {
      const auto text = TRY(read_file(decisions.path_));
      whole = text.rfind('\n') + 1;  // nothing where there is none
      TRY(decisions.read(std::string_view(text).substr(0, whole), of));
    }
    decisions.file_ = FileDescriptor(::open(decisions.path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!decisions.file_) return fail(Status::from_errno(decisions.path_, errno));
    if (::ftruncate(decisions.file_.get(), static_cast<off_t>(whole)) != 0)
      return fail(Status::from_errno(decisions.path_, errno));
    if (whole == 0) TRY(write_all(decisions.file_.get(), dump_json(of) + "\n", decisions.path_));
    return decisions;
  }

  const std::map<std::string, Decision>& known() const { return known_; }

  Status add(const Decision& decision) {
    TRY(write_all(file_.get(), dump_json(to_json(decision)) + "\n", path_));
    known_[decision.function] = decision;
    return {};
  }

 private:
  Status read(std::string_view text, const Json& of) {
    int line = 0;
    for (const auto each : split(text, '\n')) {
      ++line;
      if (trim(each).empty()) continue;
      const auto json = parse_json(each);
      if (!json) return Status(json.error()).at(path_, line).hint("give another folder");
      if (line == 1) {
        if (*json == of) continue;
        return Status::invalid(path_ + " is of another repository, of other content of this one, or of other tests")
            .hint("give another folder");
      }
      try {
        Decision decision{
            .function = json->at("function").get<std::string>(), .task = {}, .tests = json->at("tests").get<size_t>()};
        if (!json->at("task").is_null()) decision.task = json->at("task").get<std::string>();
        known_[decision.function] = decision;
      } catch (const Json::exception& error) {
        return Status::invalid(error.what()).at(path_, line).hint("give another folder");
      }
    }
    return {};
  }

  std::map<std::string, Decision> known_;
  FileDescriptor file_;
  std::string path_;
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
    fmt::print("{}\n", dump_json(to_json(decision)));
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
        Decision decision{.function = id_of(function), .task = {}, .tests = TRY(std::move(missing)).size()};
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
