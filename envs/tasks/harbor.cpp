#include "envs/tasks/harbor.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "base/text.h"
#include "envs/shell_words.h"
#include "envs/tasks/container.h"
#include "envs/tasks/dockerfile.h"
#include "envs/tasks/folder_files.h"

namespace tandem::envs {
namespace {

constexpr uint64_t kLargestText = 1 << 20;

// A key of task.toml: whether its value matters here, says nothing here, or asks for what there is not.
enum class Support : uint8_t { kRead, kSaysNothing, kRefused };
struct Key {
  std::string_view path;
  Support support;
};
constexpr Key kKeys[] = {
    {"schema_version", Support::kRead},
    {"version", Support::kRead},
    {"source", Support::kSaysNothing},
    {"task", Support::kSaysNothing},
    {"metadata", Support::kSaysNothing},
    {"multi_step_reward_strategy", Support::kSaysNothing},
    {"artifacts", Support::kRefused},
    {"steps", Support::kRefused},
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
    {"environment.storage_mb", Support::kSaysNothing},
    {"environment.storage", Support::kSaysNothing},
    {"environment.allow_internet", Support::kSaysNothing},
    {"environment.network_mode", Support::kRead},
    {"environment.allowed_hosts", Support::kRead},
    {"environment.os", Support::kRead},
    {"environment.gpus", Support::kRead},
    {"environment.gpu_types", Support::kSaysNothing},
    {"environment.workdir", Support::kRead},
    {"environment.env", Support::kRead},
    {"environment.docker_image", Support::kRefused},
    {"environment.skills_dir", Support::kRefused},
    {"environment.mcp_servers", Support::kRead},
    {"environment.healthcheck", Support::kRefused},
    {"solution.env", Support::kRead},
};

class HarborReader {
 public:
  HarborReader(const fs::path& folder, Mistakes& mistakes)
      : folder_(folder), toml_((folder / "task.toml").string()), mistakes_(mistakes) {}

  Task read() {
    task_.max_turns = 30;
    task_.ends_on_change = false;
    read_toml();
    open_network();
    task_.instruction = text_of("instruction.md");
    for (const char* name : {"docker-compose.yaml", "docker-compose.yml"}) {
      if (std::error_code error; fs::exists(folder_ / "environment" / name, error)) {
        mistakes_.add((folder_ / "environment" / name).string(), 0, "several services are not supported");
      }
    }
    auto build = read_dockerfile(folder_ / "environment", workdir_, {}, mistakes_);
    begin_in(build, environment_, {"/tests", "/logs", "/solution"}, (folder_ / "environment" / "Dockerfile").string(),
             task_, mistakes_);
    read_tests(build);
    read_solution(build);
    return std::move(task_);
  }

 private:
  std::string text_of(const char* name) {
    auto text = read_file(folder_ / name, kLargestText);
    if (!text) mistakes_.add((folder_ / name).string(), 0, text.error().message());
    if (text && trim(*text).empty()) mistakes_.add((folder_ / name).string(), 0, "is empty");
    return text.value_or("");
  }

  void read_toml() {
    const auto text = read_file(toml_, kLargestText);
    if (!text) return mistakes_.add(toml_, 0, text.error().message());
    try {
      walk(toml::parse(*text, toml_), "");
    } catch (const toml::parse_error& error) {
      mistakes_.add(toml_, static_cast<int>(error.source().begin.line), std::string(error.description()));
    }
  }

  void walk(const toml::table& table, const std::string& prefix) {
    for (const auto& [name, node] : table) {
      const auto path = prefix + std::string(name.str());
      const int line = static_cast<int>(name.source().begin.line);
      const auto known =
          std::find_if(std::begin(kKeys), std::end(kKeys), [&](const Key& key) { return key.path == path; });
      if (known != std::end(kKeys)) {
        if (known->support == Support::kRefused && !is_empty(node))
          mistakes_.add(toml_, line,
                        path + " is not supported" +
                            (path == "steps" ? ": a task has one instruction and one grade; make a task of each" : ""));
        if (known->support == Support::kRead) take(path, node, line);
        continue;
      }
      const bool section = std::any_of(std::begin(kKeys), std::end(kKeys),
                                       [&](const Key& key) { return key.path.starts_with(path + "."); });
      if (section && node.is_table()) {
        walk(*node.as_table(), path + ".");
        continue;
      }
      std::vector<std::string_view> names;
      for (const auto& key : kKeys) names.push_back(key.path);
      const auto near = nearest(path, names);
      mistakes_.add(toml_, line, "unknown key " + path + (near.empty() ? "" : "; did you mean " + near + "?"));
    }
  }

  static bool is_empty(const toml::node& node) {
    if (const auto* array = node.as_array()) return array->empty();
    if (const auto* table = node.as_table()) return table->empty();
    if (const auto* text = node.as_string()) return text->get().empty();
    return false;
  }

  void take(const std::string& path, const toml::node& node, int line) {
    if (path == "schema_version" || path == "version") {
      const auto version = node.value<std::string>().value_or("");
      if (!version.starts_with("1.")) mistakes_.add(toml_, line, path + " must be a text from \"1.0\" to \"1.3\"");
    } else if (path == "environment.os") {
      if (node.value<std::string>() != "linux") mistakes_.add(toml_, line, "environment.os must be \"linux\"");
    } else if (path == "environment.gpus") {
      if (node.value<int64_t>().value_or(1) != 0)
        mistakes_.add(toml_, line, "environment.gpus: there are none in a sandbox");
    } else if (path == "environment.workdir") {
      workdir_ = node.value<std::string>().value_or("");
      if (!workdir_.starts_with('/')) mistakes_.add(toml_, line, "environment.workdir must be an absolute path");
    } else if (path == "verifier.timeout_sec") {
      const double seconds = node.value<double>().value_or(0);
      if (!(seconds > 0)) return mistakes_.add(toml_, line, "verifier.timeout_sec must be a number above 0");
      test_seconds_ = std::min(seconds, kMostTestSeconds);
    } else if (path == "environment.mcp_servers") {
      take_servers(node, line);
    } else if (path.ends_with(".network_mode") || path.ends_with(".allowed_hosts")) {
      take_network(path, node, line);
    } else {
      auto& exports = path == "environment.env" ? environment_
                      : path == "verifier.env"  ? test_environment_
                                                : solution_environment_;
      take_environment(path, node, line, exports);
    }
  }

  void take_servers(const toml::node& node, int line) {
    const auto* servers = node.as_array();
    if (!servers) return mistakes_.add(toml_, line, "environment.mcp_servers must be a list of tables");
    for (const auto& entry : *servers) {
      const auto server = toml::node_view(entry);
      const auto name = server["name"].value_or(std::string());
      if (server["transport"].value_or(std::string()) != "stdio") {
        mistakes_.add(toml_, line, "environment.mcp_servers: only servers of the transport \"stdio\" run in a sandbox");
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
      mistakes_.add(toml_, line, "environment.mcp_servers: " + status.message());
  }

  // Of the modes only `allowlist` opens anything here; what [agent] says counts in place of what [environment] does.
  void take_network(const std::string& path, const toml::node& node, int line) {
    Network& network = path.starts_with("agent.") ? agent_network_ : environment_network_;
    network.line = line;
    if (path.ends_with("network_mode")) {
      network.mode = node.value<std::string>().value_or("");
      constexpr std::string_view kModes[] = {"public", "no-network", "allowlist"};
      if (std::find(std::begin(kModes), std::end(kModes), network.mode) == std::end(kModes))
        mistakes_.add(toml_, line, path + did_you_mean(network.mode, kModes));
      return;
    }
    const auto* hosts = node.as_array();
    if (!hosts) return mistakes_.add(toml_, line, path + " must be a list of hosts");
    for (const auto& host : *hosts) network.hosts.push_back(host.value<std::string>().value_or(""));
  }

  void open_network() {
    const Network& network = agent_network_.mode.empty() ? environment_network_ : agent_network_;
    if (network.mode != "allowlist") return;
    const auto list = AllowList::parse(network.hosts);
    const Status status = list ? list->check_public() : list.error();
    if (!status) return mistakes_.add(toml_, network.line, "allowed_hosts: " + status.message());
    task_.network = *list;
  }

  void take_environment(const std::string& path, const toml::node& node, int line, std::string& exports) {
    if (!node.is_table()) return mistakes_.add(toml_, line, path + " must be a table of names and texts");
    for (const auto& [name, value] : *node.as_table()) {
      const auto text = value.value<std::string>();
      const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
      if (!text || !std::all_of(name.begin(), name.end(), fits)) {
        mistakes_.add(toml_, static_cast<int>(name.source().begin.line), path + " must be a table of names and texts");
        continue;
      }
      if (text->find("${") != std::string::npos) {
        mistakes_.add(toml_, static_cast<int>(name.source().begin.line),
                      path + ": variables of this machine (${...}) do not reach a sandbox");
        continue;
      }
      exports += "export " + std::string(name.str()) + "=" + shell_quoted(*text) + "; ";
    }
  }

  void read_tests(const Build& build) {
    CommandCheck check;
    const auto added = add_folder_files(folder_ / "tests", "tandem-tests", check.files, check.programs);
    if (!added) return mistakes_.add((folder_ / "tests").string(), 0, added.message());
    if (!check.files.contains("tandem-tests/test.sh")) mistakes_.add((folder_ / "tests").string(), 0, "has no test.sh");
    check.folders = {"tandem-tests"};
    check.leaves_reward = true;
    // A script that was killed has no say, whatever it had written; otherwise its reward counts, not its end.
    check.commands = {{.command = std::string(kMakeLogs) + " && mv tandem-tests /tmp/tests && { " + environment_ +
                                  exports_of(build) + test_environment_ + "cd " + shell_quoted(build.workdir) +
                                  " && bash /tests/test.sh; test $? -lt 124; }",
                       .seconds = test_seconds_}};
    task_.expectation.commands = std::move(check);
  }

  void read_solution(const Build& build) {
    std::error_code error;
    if (!fs::exists(folder_ / "solution", error)) return;
    std::set<std::string> programs;
    const auto added = add_folder_files(folder_ / "solution", "tandem-solution", task_.solution.files, programs);
    if (!added) return mistakes_.add((folder_ / "solution").string(), 0, added.message());
    if (!task_.solution.files.contains("tandem-solution/solve.sh")) {
      return mistakes_.add((folder_ / "solution").string(), 0, "has no solve.sh");
    }
    task_.solution.turns = {{{"run_terminal_cmd",
                              {{"command", "mv tandem-solution /tmp/solution && { " + solution_environment_ + "cd " +
                                               shell_quoted(build.workdir) + " && bash /solution/solve.sh; }"}}}}};
  }

  struct Network {
    std::string mode;
    std::vector<std::string> hosts;
    int line = 0;
  };

  const fs::path folder_;
  const std::string toml_;
  Mistakes& mistakes_;
  Task task_;
  Network agent_network_, environment_network_;
  std::string workdir_ = "/workspace";
  std::string environment_, test_environment_, solution_environment_;  // exports
  double test_seconds_ = kMostTestSeconds;
};

}  // namespace

std::optional<Task> read_harbor_task(const fs::path& folder, Mistakes& mistakes) {
  const size_t before = mistakes.count();
  Task task = HarborReader(folder, mistakes).read();
  if (mistakes.count() > before) return std::nullopt;
  return task;
}

}  // namespace tandem::envs
