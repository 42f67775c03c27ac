#include "envs/tasks/harbor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "envs/container/engine.h"
#include "envs/tasks/compose.h"
#include "envs/tasks/container.h"
#include "envs/tasks/dockerfile.h"
#include "envs/tasks/dockerfile_parts.h"
#include "envs/tasks/folder_files.h"
#include "envs/tasks/toml_reader.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr uint64_t kHarborLargestText = 1 << 20;

constexpr size_t kHarborMostSteps = 64;
constexpr int kTurns = 30;                     // of a step
constexpr double kUsualVerifierSeconds = 600;  // as Harbor has it

constexpr TomlKey kKeys[] = {
    {"schema_version", Support::kRead},
    {"version", Support::kRead},
    {"source", Support::kSaysNothing},
    {"task", Support::kSaysNothing},
    {"metadata", Support::kSaysNothing},
    {"multi_step_reward_strategy", Support::kRead},
    {"artifacts", Support::kRefused},
    {"steps", Support::kRead},
    {"agent.timeout_sec", Support::kSaysNothing},
    {"agent.network_mode", Support::kRead},
    {"agent.allowed_hosts", Support::kRead},
    {"agent.user", Support::kRefused},
    {"verifier.timeout_sec", Support::kRead},
    {"verifier.env", Support::kRead},
    {"verifier.network_mode", Support::kSaysNothing},
    {"verifier.environment_mode", Support::kSaysNothing},
    {"verifier.user", Support::kRefused},
    {"verifier.collect", Support::kRefused},
    {"verifier.environment", Support::kRefused},
    {"environment.build_timeout_sec", Support::kSaysNothing},
    {"environment.cpus", Support::kSaysNothing},
    {"environment.memory_mb", Support::kSaysNothing},
    {"environment.memory", Support::kSaysNothing},
    {"environment.storage_mb", Support::kRead},
    {"environment.storage", Support::kSaysNothing},
    {"environment.allow_internet", Support::kSaysNothing},
    {"environment.network_mode", Support::kRead},
    {"environment.allowed_hosts", Support::kRead},
    {"environment.os", Support::kRead},
    {"environment.gpus", Support::kRead},
    {"environment.gpu_types", Support::kSaysNothing},
    {"environment.workdir", Support::kRead},
    {"environment.env", Support::kRead},
    {"environment.docker_image", Support::kRead},
    {"environment.skills_dir", Support::kRefused},
    {"environment.mcp_servers", Support::kRead},
    {"environment.healthcheck", Support::kRefused},
    {"solution.env", Support::kRead},
};

constexpr TomlKey kStepKeys[] = {
    {"name", Support::kRead},
    {"min_reward", Support::kRead},
    {"artifacts", Support::kRefused},
    {"healthcheck", Support::kRefused},
    {"agent.timeout_sec", Support::kSaysNothing},
    {"agent.user", Support::kRefused},
    {"agent.network_mode", Support::kRefused},
    {"agent.allowed_hosts", Support::kRefused},
    {"verifier.timeout_sec", Support::kRead},
    {"verifier.env", Support::kRead},
    {"verifier.environment_mode", Support::kSaysNothing},
    {"verifier.network_mode", Support::kSaysNothing},
    {"verifier.user", Support::kRefused},
    {"verifier.collect", Support::kRefused},
    {"verifier.environment", Support::kRefused},
};

// What task.toml says of tests: those of the task, or of a step.
struct Verifier {
  std::string exports;
  std::optional<double> seconds;
};
struct HarborStep {
  std::string name;
  int line = 0;
  std::optional<double> least_reward;
  Verifier verifier;
};

bool is_step_name(std::string_view name) {
  const auto is_plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return !name.empty() && name.size() <= 100 && is_plain(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_plain(c) || c == '.' || c == '_' || c == '-'; });
}

class HarborReader {
 public:
  HarborReader(const fs::path& folder, Recipes recipes, Mistakes& mistakes)
      : folder_(folder), recipes_(recipes), toml_((folder / "task.toml").string(), mistakes), mistakes_(mistakes) {}

  Task read() {
    task_.max_turns = kTurns;
    task_.ends_on_change = false;
    toml_.read(kKeys, [this](const std::string& path, const toml::node& node, int line) { take(path, node, line); });
    open_network();
    if (steps_.empty()) task_.instruction = text_of(folder_ / "instruction.md");
    Composed composed;
    for (const char* name : {"docker-compose.yaml", "docker-compose.yml"}) {
      if (std::error_code error; fs::exists(folder_ / "environment" / name, error))
        composed = read_compose(folder_ / "environment" / name, "main", mistakes_);
    }
    environment_ += composed.exports;
    if (!workdir_.empty()) {
      composed.inputs.workdir = workdir_;
      composed.inputs.workdir_key = "task.toml has environment.workdir";
    }
    const auto& wanted = composed.inputs.workdir;
    const std::string workdir = wanted.empty() ? "/workspace" : wanted;
    if (recipes_ == Recipes::kBuilt && task_.image.empty())
      task_.image = built_image_by(folder_ / "environment", composed, mistakes_);
    // An image was built from the Dockerfile beside it, if there is one.
    auto build = task_.image.empty() && recipes_ == Recipes::kFollowed
                     ? read_dockerfile(folder_ / "environment", workdir, kHiddenOfHarbor, mistakes_, composed.inputs)
                     : Build{.workdir = workdir};
    begin_in(build, environment_, {"/tests", "/logs", "/solution"}, (folder_ / "environment" / "Dockerfile").string(),
             task_, mistakes_);
    if (steps_.empty()) {
      task_.expectation.commands = check_of({folder_ / "tests"}, verifier_, build);
      task_.solution = solution_of(folder_ / "solution", build);
    } else {
      for (const auto& step : steps_) task_.steps.push_back(step_of(step, build));
      task_.begin_step(0);
      task_.max_turns = kTurns * static_cast<int>(steps_.size());
    }
    add_folders();
    return std::move(task_);
  }

 private:
  // Adds the folders of its scripts and instructions; those of an image are its own.
  void add_folders() {
    if (!task_.image.empty()) return;
    std::vector<std::string_view> texts = {task_.instruction};
    const auto add = [&](const Files& files) {
      for (const auto& [path, content] : files) {
        if (path.ends_with(".sh") || path.ends_with(".py")) texts.push_back(content);
      }
    };
    const auto add_step = [&](const Expectation& expectation, const Solution& solution) {
      if (expectation.commands) add(expectation.commands->files);
      add(solution.files);
    };
    add_step(task_.expectation, task_.solution);
    for (const auto& step : task_.steps) {
      texts.push_back(step.instruction);
      add_step(step.expectation, step.solution);
    }
    add_named_folders(task_, texts);
  }

  std::string text_of(const fs::path& file) {
    auto text = read_file(file, kHarborLargestText);
    if (!text) mistakes_.add(file.string(), 0, text.error().message());
    if (text && trim(*text).empty()) mistakes_.add(file.string(), 0, "is empty");
    return text.value_or("");
  }

  void take(const std::string& path, const toml::node& node, int line) {
    if (path == "schema_version" || path == "version") {
      const auto version = node.value<std::string>().value_or("");
      if (!version.starts_with("1.")) toml_.mistake(line, path + " must be a text from \"1.0\" to \"1.3\"");
    } else if (path == "environment.storage_mb") {
      const auto wanted = node.value<int64_t>().value_or(0);
      if (wanted < 1) toml_.mistake(line, path + " must be a number of MiB");
      task_.disk_mb = static_cast<int>(std::clamp<int64_t>(wanted, kUsualDiskMb, kMostDiskMb));
    } else if (path == "environment.os") {
      if (node.value<std::string>() != "linux") toml_.mistake(line, "environment.os must be \"linux\"");
    } else if (path == "environment.gpus") {
      if (node.value<int64_t>().value_or(1) != 0) toml_.mistake(line, "environment.gpus: there are none in a sandbox");
    } else if (path == "environment.docker_image") {
      task_.image = node.value<std::string>().value_or("");
      if (const Status status = check_image_name(task_.image); !status)
        toml_.mistake(line, path + ": " + status.message());
    } else if (path == "environment.workdir") {
      const auto workdir = node.value<std::string>().value_or("");
      workdir_ = absolute_path("/", workdir);
      if (!workdir.starts_with('/')) toml_.mistake(line, "environment.workdir must be an absolute path");
    } else if (path.starts_with("verifier.")) {
      if (path == "verifier.timeout_sec" || path == "verifier.env") take_verifier(path, node, line, verifier_);
    } else if (path == "steps") {
      take_steps(node, line);
    } else if (path == "multi_step_reward_strategy") {
      const auto strategy = node.value<std::string>().value_or("");
      if (strategy != "mean" && strategy != "final") toml_.mistake(line, path + " must be \"mean\" or \"final\"");
      task_.last_step_counts = strategy == "final";
    } else if (path == "environment.mcp_servers") {
      take_servers(node, line);
    } else if (path.ends_with(".network_mode") || path.ends_with(".allowed_hosts")) {
      take_network(path, node, line);
    } else {
      (path == "environment.env" ? environment_ : solution_environment_) += toml_.exports(path, node, line);
    }
  }

  void take_verifier(const std::string& path, const toml::node& node, int line, Verifier& verifier) {
    if (path == "verifier.env") {
      verifier.exports += toml_.exports(path, node, line);
      return;
    }
    const double seconds = node.value<double>().value_or(0);
    if (!(seconds > 0)) return toml_.mistake(line, "verifier.timeout_sec must be a number above 0");
    verifier.seconds = seconds;
  }

  void take_steps(const toml::node& node, int line) {
    const auto* steps = node.as_array();
    if (!steps || steps->size() > kHarborMostSteps)
      return toml_.mistake(line, fmt::format("steps must be tables ([[steps]]), {} at most", kHarborMostSteps));
    for (const auto& entry : *steps) {
      if (!entry.is_table()) return toml_.mistake(line, "steps must be tables ([[steps]])");
      HarborStep step{.line = static_cast<int>(entry.source().begin.line)};
      toml_.read(*entry.as_table(), kStepKeys, [&](const std::string& path, const toml::node& value, int place) {
        if (path == "name")
          step.name = value.value<std::string>().value_or("");
        else if (path == "min_reward")
          take_least_reward(value, place, step);
        else
          take_verifier(path, value, place, step.verifier);
      });
      const bool doubled =
          std::any_of(steps_.begin(), steps_.end(), [&](const HarborStep& s) { return s.name == step.name; });
      if (doubled || !is_step_name(step.name))
        toml_.mistake(step.line, "a step has no name of its own of letters, digits, dots, dashes and underscores");
      steps_.push_back(std::move(step));
    }
  }

  // A number, or a table of which `reward` is the one that counts here.
  void take_least_reward(const toml::node& node, int line, HarborStep& step) {
    step.least_reward = node.value<double>();
    if (const auto* table = node.as_table(); table && table->size() == 1)
      step.least_reward = (*table)["reward"].value<double>();
    if (!step.least_reward) toml_.mistake(line, "min_reward must be a number, or a table of `reward` alone");
  }

  TaskStep step_of(const HarborStep& step, const Build& build) {
    const auto folder = folder_ / "steps" / step.name;
    TaskStep made{
        .name = step.name, .instruction = text_of(folder / "instruction.md"), .least_reward = step.least_reward};
    std::error_code error;
    if (fs::exists(folder / "workdir", error)) {
      const auto below = fs::path(build.workdir).lexically_relative(build.root()).string();
      const auto added = add_folder_files(folder / "workdir", below == "." ? "" : below, made.files, made.programs);
      if (!added) mistakes_.add((folder / "workdir").string(), 0, added.message());
      if (fs::exists(folder / "workdir" / "setup.sh", error))
        made.setup = {"(cd " + shell_quoted(build.workdir) + " && bash setup.sh)"};
    }
    // Those of the task, then those of the step in their place.
    std::vector<fs::path> tests;
    for (const auto& place : {folder_ / "tests", folder / "tests"}) {
      if (fs::exists(place, error)) tests.push_back(place);
    }
    if (tests.empty()) tests.push_back(folder / "tests");
    Verifier verifier{verifier_.exports + step.verifier.exports,
                      step.verifier.seconds ? step.verifier.seconds : verifier_.seconds};
    made.expectation.commands = check_of(tests, verifier, build);
    made.solution = solution_of(folder / "solution", build, "rm -rf /solution/* && ");
    return made;
  }

  void take_servers(const toml::node& node, int line) {
    const auto* servers = node.as_array();
    if (!servers) return toml_.mistake(line, "environment.mcp_servers must be a list of tables");
    for (const auto& entry : *servers) {
      const auto server = toml::node_view(entry);
      const auto name = server["name"].value_or(std::string());
      if (server["transport"].value_or(std::string()) != "stdio") {
        toml_.mistake(line, "environment.mcp_servers: only servers of the transport \"stdio\" run in a sandbox");
        continue;
      }
      auto command = server["command"].value_or(std::string());
      if (const auto folder = server["cwd"].value<std::string>())
        command = "cd " + shell_quoted(*folder) + " && " + command;
      if (const auto* words = server["args"].as_array()) {
        for (const auto& word : *words) command += " " + shell_quoted(word.value_or(std::string()));
      }
      task_.servers.push_back({name, command});
    }
    if (const Status status = check_mcp_servers(task_.servers); !status)
      toml_.mistake(line, "environment.mcp_servers: " + status.message());
  }

  // Only the mode `allowlist` opens anything here; what [agent] says counts in place of what [environment] does.
  void take_network(const std::string& path, const toml::node& node, int line) {
    Network& network = path.starts_with("agent.") ? agent_network_ : environment_network_;
    network.line = line;
    if (path.ends_with("network_mode")) {
      network.mode = node.value<std::string>().value_or("");
      constexpr std::string_view kModes[] = {"public", "no-network", "allowlist"};
      if (std::find(std::begin(kModes), std::end(kModes), network.mode) == std::end(kModes))
        toml_.mistake(line, path + did_you_mean(network.mode, kModes));
      return;
    }
    const auto* hosts = node.as_array();
    if (!hosts) return toml_.mistake(line, path + " must be a list of hosts");
    for (const auto& host : *hosts) network.hosts.push_back(host.value<std::string>().value_or(""));
  }

  void open_network() {
    const Network& network = agent_network_.mode.empty() ? environment_network_ : agent_network_;
    if (network.mode != "allowlist") return;
    const auto list = AllowList::parse(network.hosts);
    const Status status = list ? list->check_public() : list.error();
    if (!status) return toml_.mistake(network.line, "allowed_hosts: " + status.message());
    task_.network = *list;
  }

  CommandCheck check_of(const std::vector<fs::path>& folders, const Verifier& verifier, const Build& build) {
    CommandCheck check;
    for (const auto& folder : folders) {
      const auto added = add_folder_files(folder, "tandem-tests", check.files, check.programs);
      if (!added) mistakes_.add(folder.string(), 0, added.message());
    }
    if (!check.files.contains("tandem-tests/test.sh")) mistakes_.add(folders.back().string(), 0, "has no test.sh");
    check.folders = {"tandem-tests"};
    check.leaves_reward = true;
    check.verifier = "tests/test.sh";
    auto exports = exports_of(build) + environment_ + verifier.exports;
    if (task_.image.empty())
      exports = test_environment(exports, build, (folder_ / "environment" / "Dockerfile").string(), mistakes_);
    // Its reward counts, not its end.
    check.commands = {{.command = std::string(kMakeLogs) +
                                  " && cp -a tandem-tests/. /tests/ && rm -rf tandem-tests && { " + exports +
                                  "mkdir -p " + shell_quoted(build.workdir) + " && cd " + shell_quoted(build.workdir) +
                                  " && bash /tests/test.sh; }",
                       .seconds = verifier.seconds.value_or(kUsualVerifierSeconds),
                       .any_exit = true}};
    return check;
  }

  // `before`: what its command begins with.
  Solution solution_of(const fs::path& folder, const Build& build, const std::string& before = "") {
    Solution solution;
    std::error_code error;
    if (!fs::exists(folder, error)) return solution;
    std::set<std::string> programs;
    const auto added = add_folder_files(folder, "tandem-solution", solution.files, programs);
    if (!added) mistakes_.add(folder.string(), 0, added.message());
    if (!solution.files.contains("tandem-solution/solve.sh")) mistakes_.add(folder.string(), 0, "has no solve.sh");
    solution.turns = {{{"run_terminal_cmd",
                        {{"command", before +
                                         "{ test -e tandem-solution || cd /workspace; } && cp -a tandem-solution/. "
                                         "/solution/ && rm -rf tandem-solution && { " +
                                         solution_environment_ + "cd " + shell_quoted(build.workdir) +
                                         " && bash /solution/solve.sh; }"}}}}};
    return solution;
  }

  struct Network {
    std::string mode;
    std::vector<std::string> hosts;
    int line = 0;
  };

  const fs::path folder_;
  const Recipes recipes_;
  TomlReader toml_;
  Mistakes& mistakes_;
  Task task_;
  Network agent_network_, environment_network_;
  std::string workdir_;                             // of task.toml
  std::string environment_, solution_environment_;  // exports
  Verifier verifier_;
  std::vector<HarborStep> steps_;
};

}  // namespace

std::optional<Task> read_harbor_task(const fs::path& folder, Recipes recipes, Mistakes& mistakes) {
  const size_t before = mistakes.count();
  Task task = HarborReader(folder, recipes, mistakes).read();
  if (mistakes.count() > before) return std::nullopt;
  return task;
}

}  // namespace tandem::envs
