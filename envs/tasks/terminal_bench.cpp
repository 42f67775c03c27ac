#include "envs/tasks/terminal_bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/yaml.h"
#include "envs/tasks/compose.h"
#include "envs/tasks/container.h"
#include "envs/tasks/dockerfile.h"
#include "envs/tasks/folder_files.h"
#include "envs/tasks/network_use.h"
#include "envs/tasks/terminal_bench_folder.h"
#include "envs/tasks/yaml_reader.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr uint64_t kTerminalBenchLargestText = 1 << 20;
constexpr double kTerminalBenchMostSeconds = 1e6;  // that a key may say

// Keys of task.yaml that say nothing here: who wrote it, how hard it is, how long a model may take.
constexpr std::string_view kSilent[] = {"author_name",
                                        "author_email",
                                        "difficulty",
                                        "category",
                                        "tags",
                                        "max_agent_timeout_sec",
                                        "disable_asciinema",
                                        "estimated_duration_sec",
                                        "expert_time_estimate_min",
                                        "junior_time_estimate_min"};

class TerminalBenchReader {
 public:
  TerminalBenchReader(const fs::path& folder, Recipes recipes, Mistakes& mistakes)
      : folder_(folder), recipes_(recipes), mistakes_(mistakes), reader_((folder / "task.yaml").string(), mistakes) {}

  Task read() {
    task_.max_turns = 30;
    task_.ends_on_change = false;
    read_yaml();
    std::error_code error;
    Composed composed;
    for (const char* name : {"docker-compose.yaml", "docker-compose.yml"}) {
      if (fs::exists(folder_ / name, error)) composed = read_compose(folder_ / name, "client", mistakes_);
    }
    environment_ += composed.exports;
    const std::string workdir = composed.inputs.workdir.empty() ? "/workspace" : composed.inputs.workdir;
    environment_ += "export TEST_DIR=/tests; ";
    if (recipes_ == Recipes::kBuilt) task_.image = built_image_by(folder_, composed, mistakes_);
    const auto build = task_.image.empty() && recipes_ == Recipes::kFollowed
                           ? read_dockerfile(folder_, workdir, hidden_of_terminal_bench(), mistakes_, composed.inputs)
                           : Build{.workdir = workdir};
    begin_in(build, environment_, {"/tests", "/logs", "/oracle"}, (folder_ / "Dockerfile").string(), task_, mistakes_);
    read_tests(build);
    read_solution(build);
    if (task_.image.empty()) {
      std::vector<std::string_view> texts = {task_.instruction};
      for (const auto& [path, content] : task_.solution.files) texts.push_back(content);
      if (task_.expectation.commands) {
        for (const auto& [path, content] : task_.expectation.commands->files) {
          if (path.ends_with(".sh") || path.ends_with(".py")) texts.push_back(content);
        }
      }
      add_named_folders(task_, texts);
    }
    return std::move(task_);
  }

 private:
  void read_yaml() {
    const auto file = (folder_ / "task.yaml").string();
    const auto text = read_file(file, kTerminalBenchLargestText);
    if (!text) return mistakes_.add(file, 0, text.error().message());
    try {
      const auto root = load_yaml(*text);
      reader_.map(root, "the task", {},
                  [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) { take(key, at, value); });
      if (root.IsMap() && trim(task_.instruction).empty())
        reader_.mistake(root, "the task has no instruction; add `instruction: ...`");
    } catch (const YAML::Exception& error) {
      mistakes_.add(file, error.mark.line + 1, "is not YAML: " + error.msg);
    }
  }

  void take(const std::string& key, const YAML::Node& at, const YAML::Node& value) {
    if (key == "instruction") {
      task_.instruction = reader_.text(value, key).value_or("");
    } else if (key == "descriptions") {
      take_descriptions(value);
    } else if (key == "parser_name") {
      if (reader_.text(value, key).value_or("pytest") != "pytest")
        reader_.mistake(value, "parser_name: only the results of pytest are read; write `parser_name: pytest`");
    } else if (key == "max_test_timeout_sec") {
      const auto seconds = reader_.number(value, key, 0.1, kTerminalBenchMostSeconds);
      test_seconds_ = seconds.value_or(test_seconds_);
    } else if (key == "run_tests_in_same_shell") {
      if (reader_.truth(value, key).value_or(false))
        reader_.mistake(value,
                        "run_tests_in_same_shell: tests run in a sandbox of their own, which the model's shell "
                        "does not reach; write `false` where they need nothing of it");
    } else if (key == "test_scripts") {
      reader_.mistake(at, "test_scripts is not supported; write what they do into run-tests.sh");
    } else if (std::find(std::begin(kSilent), std::end(kSilent), key) == std::end(kSilent)) {
      std::vector<std::string_view> names(std::begin(kSilent), std::end(kSilent));
      for (const char* name : {"instruction", "parser_name", "max_test_timeout_sec", "run_tests_in_same_shell"})
        names.emplace_back(name);
      const auto near = nearest(key, names);
      reader_.mistake(at, "unknown key " + key + (near.empty() ? "" : "; did you mean " + near + "?"));
    }
  }

  // The wording called base is taken where there are several.
  void take_descriptions(const YAML::Node& node) {
    if (!node.IsSequence()) return reader_.mistake(node, "descriptions must be a list, each with a dash in front");
    for (const auto& item : node) {
      std::optional<std::string> name, text;
      reader_.map(item, "a description", {"key", "description"},
                  [&](const std::string& key, const YAML::Node&, const YAML::Node& value) {
                    (key == "key" ? name : text) = reader_.text(value, key);
                  });
      if (name == "base" && text) task_.instruction = *text;
    }
    if (task_.instruction.empty()) reader_.mistake(node, "descriptions has none with `key: base`");
  }

  void read_tests(const Build& build) {
    const auto script = folder_ / "run-tests.sh";
    const auto text = read_file(script, kTerminalBenchLargestText);
    if (!text) return mistakes_.add(script.string(), 0, text.error().message());
    refuse_network(script.string(), *text, mistakes_);
    CommandCheck check;
    std::error_code error;
    if (fs::exists(folder_ / "tests", error)) {
      const auto added = add_folder_files(folder_ / "tests", "tandem-tests", check.files, check.programs);
      if (!added) return mistakes_.add((folder_ / "tests").string(), 0, added.message());
    }
    check.files["tandem-tests/run-tests.sh"] = *text;
    check.folders = {"tandem-tests"};
    check.tests.emplace();
    check.verifier = "run-tests.sh";
    auto exports = exports_of(build) + environment_;
    if (task_.image.empty()) exports = test_environment(exports, build, (folder_ / "Dockerfile").string(), mistakes_);
    check.commands = {{.command = std::string(kMakeLogs) +
                                  " && cp -a tandem-tests/. /tests/ && rm -rf tandem-tests && { " + exports +
                                  "mkdir -p " + shell_quoted(build.workdir) + " && cd " + shell_quoted(build.workdir) +
                                  " && bash /tests/run-tests.sh; }",
                       .seconds = test_seconds_,
                       .any_exit = true}};
    task_.expectation.commands = std::move(check);
  }

  void read_solution(const Build& build) {
    std::error_code error;
    if (fs::exists(folder_ / "solution.yaml", error)) {
      mistakes_.add((folder_ / "solution.yaml").string(), 0,
                    "types keys into a terminal, of which a sandbox has none; write solution.sh");
    }
    if (!fs::exists(folder_ / "solution.sh", error)) return;
    const auto text = read_file(folder_ / "solution.sh", kTerminalBenchLargestText);
    if (!text) return mistakes_.add((folder_ / "solution.sh").string(), 0, text.error().message());
    task_.solution.files["tandem-solution.sh"] = *text;
    task_.solution.turns = {
        {{"run_terminal_cmd",
          {{"command",
            "{ test -e tandem-solution.sh || cd /workspace; } && mv tandem-solution.sh /oracle/solution.sh && cd " +
                shell_quoted(build.workdir) + " && bash /oracle/solution.sh"}}}}};
  }

  const fs::path folder_;
  const Recipes recipes_;
  Mistakes& mistakes_;
  YamlReader reader_;
  Task task_;
  std::string environment_;   // exports
  double test_seconds_ = 60;  // as Terminal-Bench has it
};

}  // namespace

std::optional<Task> read_terminal_bench_task(const fs::path& folder, Recipes recipes, Mistakes& mistakes) {
  const size_t before = mistakes.count();
  Task task = TerminalBenchReader(folder, recipes, mistakes).read();
  if (mistakes.count() > before) return std::nullopt;
  return task;
}

}  // namespace tandem::envs
