// `tandem tasks`: tasks on disk and of the workspace family.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/json_line.h"
#include "cli/command.h"
#include "cli/tasks/base_shown.h"
#include "cli/tasks/task_source.h"
#include "cli/tasks/tasks_commands.h"
#include "envs/tasks/task_set.h"

namespace tandem::cli {
namespace {

struct TasksOptions {
  std::string path;
  std::vector<std::string> names;
  std::string name, model;
  int count = 10;
  double heldout_share = 0.2;
  bool json = false;
  ValidateOptions validate;
  TryOptions attempt;
  MakeOptions make;
  FromGitOptions from_git;
  BuildOptions build;
  std::string recipes = envs::kRecipeNames[0];
};

Result<int> list_tasks(const TasksOptions& options) {
  auto tasks = TRY(read_tasks(options.path, options.count, options.names, envs::recipes_from(options.recipes)));
  if (!options.path.starts_with("workspace")) {
    const auto set = TRY(envs::TaskSet::read(options.path, {.heldout_share = options.heldout_share,
                                                            .kinds = {},
                                                            .recipes = envs::recipes_from(options.recipes),
                                                            .tells_skipped = false}));  // it was told above
    for (auto& task : tasks) task.spec = set.find(task.name)->spec;
  }
  size_t width = 4;
  for (const auto& task : tasks) width = std::max(width, std::min<size_t>(name_of(task).size(), 60));
  if (!options.json) fmt::print("{:<{}}  {:<14} {:<8} {:>5}  {}\n", "name", width, "kind", "split", "files", "check");
  for (const auto& task : tasks) {
    const auto split = envs::to_string(task.spec.split);
    if (options.json) {
      fmt::print("{}\n", dump_json_line(Json{{"name", name_of(task)},
                                             {"kind", task.spec.kind},
                                             {"split", split},
                                             {"files", task.files.size()},
                                             {"base", json_of(task.base)},
                                             {"check", check_of(task)},
                                             {"digest", envs::digest_of_task(task)}}));
    } else {
      fmt::print("{:<{}}  {:<14} {:<8} {:>5}  {}{}\n", name_of(task), width, task.spec.kind, split, task.files.size(),
                 check_of(task), task.base ? ", over " + words_of(*task.base) : "");
    }
  }
  return kDone;
}

// The one task that a command is about: the only one of its path, or the one that is named.
Result<envs::Task> one_task(const TasksOptions& options) {
  std::vector<std::string> names;
  if (!options.name.empty()) names.push_back(options.name);
  auto tasks = TRY(read_tasks(options.path, options.count, names, envs::recipes_from(options.recipes)));
  if (tasks.size() == 1) return std::move(tasks.front());
  return fail(Status::invalid(
      fmt::format("{} has {} tasks; name one of them, like {}", options.path, tasks.size(), name_of(tasks.front()))));
}

}  // namespace

Action add_tasks(CLI::App& command) {
  const auto options = std::make_shared<TasksOptions>();
  command.require_subcommand(1);
  command.footer(
      "PATH is a set of tasks: a folder, a task file (.yaml), JSON Lines of HumanEvalPack or SWE-bench, a task of\n"
      "Harbor or Terminal-Bench; or workspace:KIND, or workspace. docs/environments.md has the way from a repository\n"
      "to a task that trains.\n\n"
      "Example:\n"
      "  tandem tasks new my-tasks\n"
      "  tandem tasks validate my-tasks\n"
      "  tandem tasks try my-tasks strings/reverse");
  const auto add = [&](const char* name, const char* summary) {
    auto* sub = command.add_subcommand(name, summary);
    sub->add_option("PATH", options->path, "The tasks")->required();
    sub->add_option("--count", options->count, "Tasks of each kind of the workspace family")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    sub->add_option("--recipes", options->recipes,
                    "What is made of Dockerfiles: followed, as far as a sandbox of this machine can; or built, by "
                    "`tandem tasks build`")
        ->check(CLI::IsMember(std::vector<std::string>(envs::kRecipeNames.begin(), envs::kRecipeNames.end())))
        ->capture_default_str();
    return sub;
  };
  auto* list = add("list", "Print the tasks, their kinds and sides");
  list->add_option("NAMES", options->names, "Tasks, or folders of them; all by default");
  list->add_option("--heldout-share", options->heldout_share, "As tasks.heldout_share of a run")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  list->add_flag("--json", options->json, "Print a JSON object a line");
  auto* show = add("show", "Print one task as a model meets it, and how it is checked");
  show->add_option("NAME", options->name, "The task, where there are several");
  show->add_option(
      "--model", options->model,
      "A model directory: the messages and tools are those of its chat template, and --json has the tokens");
  show->add_flag("--json", options->json, "Print a JSON object");
  show->footer(
      "Servers of tools that the task brings are begun in a sandbox, as in an episode. Where they cannot be, the exit\n"
      "code is 5, \"lacks\" of the object says why, and prompt_ids is null.\n\n"
      "Example:\n"
      "  tandem tasks show --json examples/tasks/functions/reverse_words.yaml --model DIR | jq .prompt_ids");
  auto* validate = add("validate", "Prove that tasks can be trained on");
  validate->add_option("NAMES", options->names, "Tasks, or folders of them; all by default");
  validate->add_option("--repeats", options->validate.repeats, "Repeats of the solution, and of doing nothing")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  validate->add_option("--threads", options->validate.threads, "Tasks at once; 0: one for each core")
      ->check(CLI::Range(0, 1024));
  validate->add_option("--results", options->validate.results,
                       "A file of JSON Lines to keep verdicts in and go on with");
  validate->add_flag("--json", options->validate.json, "Print the verdicts as JSON");
  add_package_options(*validate, options->validate.packages);
  validate->footer(
      "A task passes where its solution scores 1, doing nothing scores 0, again and again, and no cheat scores:\n"
      "editing tests, writing rewards, code that exits early, files that steer interpreters and test runners,\n"
      "prints of tests that pass, and programs in the names of the system's.\n"
      "Exit code 0: all passed; 1: some failed; 3: some need what this machine does not have; 75: interrupted.\n\n"
      "Example:\n"
      "  tandem tasks validate my-tasks --results verdicts.jsonl\n"
      "  tandem tasks validate my-tasks --packages pypi --packages-set 'install=[pypi six==1.16.0]'\n"
      "  tandem tasks validate workspace:bug --count 20");
  auto* attempt = add("try", "A shell in a task's sandbox, then the grade");
  attempt->add_option("NAME", options->name, "The task, where there are several");
  attempt->add_option("--answer", options->attempt.answer, "What you answer at the end");
  attempt->add_flag("--solution", options->attempt.solution, "Play the task's solution in place of a shell");
  add_package_options(*attempt, options->attempt.packages);
  attempt->footer(
      "Lines of standard input run in the sandbox's bash, one after another, as a model's commands do. Exit code 0:\n"
      "the grade is 1; 1: it is less.\n\n"
      "Example:\n"
      "  tandem tasks try my-tasks strings/reverse\n"
      "  echo 'sed -i s/a/b/ notes.txt' | tandem tasks try my-tasks/notes.yaml");
  auto* make = command.add_subcommand("make", "Tasks from a Python repository: functions to write anew");
  make->add_option("REPOSITORY", options->make.repository, "A folder of Python with tests")->required();
  make->add_option("FOLDER", options->make.folder, "Where the tasks go, and where an earlier call left off")
      ->required();
  make->add_option("--test", options->make.command, "Runs the tests, and reports them by name")
      ->default_val("python3 -m unittest -v");
  make->add_flag("--undocumented", options->make.undocumented, "Functions without a docstring, too");
  make->add_option("--limit", options->make.limit, "At most so many tasks; 0: all")->check(CLI::Range(0, 100000));
  make->add_option("--threads", options->make.threads, "Functions at once; 0: one for each core")
      ->check(CLI::Range(0, 1024));
  make->add_flag("--json", options->make.json, "Print a JSON object a line for each function");
  make->footer(
      "One function after another loses its body; where tests of the repository then fail, to write it anew is a\n"
      "task. Nothing of the repository runs outside of sandboxes. Exit code 0: there are tasks; 1: no function came\n"
      "to one; 75: interrupted, the same command goes on.\n\n"
      "Example:\n"
      "  tandem tasks make my-project my-tasks --test 'python3 -m pytest -rA -p no:cacheprovider tests'\n"
      "  tandem tasks validate my-tasks");
  auto* from_git = command.add_subcommand("from-git", "Tasks from the commits of a git repository");
  from_git->add_option("REPOSITORY", options->from_git.repository, "A checkout or a bare repository")->required();
  from_git->add_option("--out", options->from_git.folder, "Where the tasks go, and where an earlier call left off")
      ->required();
  from_git->add_option("--commits", options->from_git.commits, "As git's rev-list takes them: v1..v2, main, HEAD~50..")
      ->capture_default_str();
  from_git->add_option("--limit", options->from_git.limit, "At most so many tasks, of the newest commits; 0: all")
      ->check(CLI::Range(0, 100000));
  from_git->add_option("--tests", options->from_git.tests,
                       "A pattern of the paths that are tests, such as 'spec/**'; by default test_*.py, *_test.py, "
                       "conftest.py and all below test/ and tests/");
  from_git->add_option("--command", options->from_git.command, "Runs the tests; {tests} stands for the changed modules")
      ->default_val("python3 -m pytest -rA -p no:cacheprovider {tests}");
  from_git->add_flag("--by-exit", options->from_git.by_exit,
                     "The end of the command decides (0: passed), in place of pytest's or unittest's report");
  from_git->add_option("--project", options->from_git.project,
                       "What instructions call it; by default its folder's name");
  from_git->add_option("--kind", options->from_git.kind, "What the tasks are counted under; by default the project");
  from_git->add_option("--seconds", options->from_git.seconds, "That one run of the tests may take")
      ->check(CLI::Range(1, 40))
      ->capture_default_str();
  from_git->add_option("--most-files", options->from_git.most_files, "That a commit may change")
      ->check(CLI::Range(2, 1000))
      ->capture_default_str();
  from_git
      ->add_option("--most-names", options->from_git.most_names,
                   "New names that tests use and a message does not say; with more a commit is left out")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  from_git->add_option("--threads", options->from_git.threads, "Commits at once; 0: one for each core")
      ->check(CLI::Range(0, 1024));
  from_git->add_flag("--json", options->from_git.json, "Print a JSON object a line for each commit");
  from_git->footer(
      "A commit that changes source and tests becomes a task: the tree before it, without history; its message as the\n"
      "instruction; its tests, which come in when the model is done; its other changes as the solution. Each is\n"
      "measured before and after, several times, and proved as `validate` does. Each other commit says why it is\n"
      "none. Nothing of the repository runs outside of sandboxes. Exit code 0: there are tasks; 1: no commit came to\n"
      "one; 3: the sandbox has no pytest; 75: interrupted, the same command goes on.\n\n"
      "Example:\n"
      "  tandem tasks from-git my-project --out my-tasks --limit 20\n"
      "  tandem tasks from-git my-project --out my-tasks --commits v1.0..main \\\n"
      "    --command 'python3 -m unittest -v {tests}'\n"
      "  tandem tasks from-git lib.git --out lib-tasks --tests 'spec/**' --command 'make check' --by-exit\n"
      "  tandem tasks validate my-tasks");
  auto* begin = command.add_subcommand("new", "A folder of small tasks to change into your own");
  begin->add_option("FOLDER", options->path, "Where they go: new or empty")->required();
  begin->footer(
      "One task a form of check (the content of files, an answer, commands), each with instruction, files, check and\n"
      "solution, and a cheat to try on them.\n\n"
      "Example:\n"
      "  tandem tasks new my-tasks\n"
      "  tandem tasks validate my-tasks");
  auto* build = command.add_subcommand("build", "Build the images of Dockerfiles, with podman or Docker");
  build->add_option("PATH", options->build.path, "The tasks")->required();
  build->add_flag("--json", options->build.json, "Print a JSON object a line for each image");
  build->footer(
      "Of tasks of Harbor and Terminal-Bench. An image is named by what it is built of, and what is there is not "
      "built\n"
      "again. The engine pulls what FROM names, and RUN has its network. TANDEM__ENV__ENGINE may name its socket.\n"
      "Exit code 0: all images are there; 1: one could not be built; 3: no engine answers.\n\n"
      "Example:\n"
      "  tandem tasks build my-tasks\n"
      "  tandem tasks validate my-tasks --recipes built");
  return [=]() -> Result<int> {
    if (begin->parsed()) return new_tasks(options->path);
    if (build->parsed()) return build_images(options->build);
    if (make->parsed()) return make_tasks(options->make);
    if (from_git->parsed()) return tasks_from_git(options->from_git);
    if (list->parsed()) return list_tasks(*options);
    if (show->parsed()) return show_task(TRY(one_task(*options)), {.model = options->model, .json = options->json});
    if (attempt->parsed()) return try_task(TRY(one_task(*options)), options->attempt);
    std::vector<envs::SkippedTask> skipped;
    const auto recipes = envs::recipes_from(options->recipes);
    const auto tasks = TRY(read_tasks(options->path, options->count, options->names, recipes, &skipped));
    return validate_tasks(options->path, tasks, skipped, recipes, options->validate);
  };
}

}  // namespace tandem::cli
