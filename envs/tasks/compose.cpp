#include "envs/tasks/compose.h"

#include <algorithm>
#include <cctype>

#include "base/yaml.h"
#include "envs/tasks/toml_reader.h"
#include "envs/tasks/yaml_reader.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr uint64_t kLargestText = 1 << 20;

class ComposeReader {
 public:
  ComposeReader(const fs::path& file, std::string service, std::string& exports, Mistakes& mistakes)
      : reader_(file.string(), mistakes), service_(std::move(service)), exports_(exports) {}

  void read(const YAML::Node& root) {
    bool client = false;
    reader_.map(root, "the file", {}, [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) {
      if (key == "version" || key == "name" || key.starts_with("x-")) return;
      if (key != "services") return reader_.mistake(at, key + " is not supported");
      reader_.map(
          value, "services", {}, [&](const std::string& service, const YAML::Node& place, const YAML::Node& node) {
            if (service != service_)
              return reader_.mistake(
                  place, "the service " + service + " is not supported: a sandbox is one machine, called " + service_);
            client = true;
            read_client(node);
          });
    });
    if (root.IsMap() && !client) reader_.mistake(root, "has no service called " + service_);
  }

 private:
  void read_client(const YAML::Node& node) {
    reader_.map(node, service_, {}, [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) {
      // Names, sizes and how it is started and watched say nothing here.
      if (key == "deploy" && needs_devices(value))
        return reader_.mistake(at, service_ + ": deploy asks for devices, GPUs among them, which no sandbox has");
      constexpr std::string_view kSilentKeys[] = {"image",
                                                  "container_name",
                                                  "hostname",
                                                  "init",
                                                  "tty",
                                                  "stdin_open",
                                                  "deploy",
                                                  "mem_limit",
                                                  "memswap_limit",
                                                  "cpus",
                                                  "cpu_shares",
                                                  "shm_size",
                                                  "pids_limit",
                                                  "ulimits",
                                                  "restart",
                                                  "platform",
                                                  "labels",
                                                  "pull_policy",
                                                  "logging",
                                                  "healthcheck",
                                                  "stop_grace_period",
                                                  "mem_reservation",
                                                  "cpu_count",
                                                  "stop_signal"};
      if (std::find(std::begin(kSilentKeys), std::end(kSilentKeys), key) != std::end(kSilentKeys)) return;
      if (key == "command") return read_command(value);
      if (key == "build") return read_build(value);
      if (key == "environment") return read_environment(value);
      if (key == "volumes") return read_volumes(value);
      reader_.mistake(at, service_ + ": " + key + " is not supported");
    });
  }

  static bool needs_devices(const YAML::Node& deploy) {
    YAML::Node at = deploy;
    for (const char* key : {"resources", "reservations", "devices"}) {
      if (!at.IsMap() || !at[key]) return false;
      at.reset(at[key]);
    }
    return at.IsSequence() && at.size() > 0;
  }

  void read_command(const YAML::Node& node) {
    std::string words;
    if (node.IsSequence()) {
      for (const auto& word : reader_.texts(node, "command")) words += " " + word;
    } else {
      words = reader_.text(node, "command").value_or("sleep");
    }
    const bool waits = words.find("sleep") != std::string::npos || words.find("tail -f /dev/null") != std::string::npos;
    if (!waits) reader_.mistake(node, service_ + ": a command that does more than wait is not supported");
  }

  void read_build(const YAML::Node& node) {
    const auto must_be = [&](const YAML::Node& value, const std::string& key,
                             std::initializer_list<const char*> right) {
      const auto text = reader_.text(value, "build: " + key);
      if (text && std::find(right.begin(), right.end(), *text) == right.end())
        reader_.mistake(value, "build: " + key + " must be " + *right.begin());
    };
    if (!node.IsMap()) return must_be(node, "context", {".", "./"});
    reader_.map(node, "build", {"context", "dockerfile"},
                [&](const std::string& key, const YAML::Node&, const YAML::Node& value) {
                  if (key == "context") must_be(value, key, {".", "./"});
                  if (key == "dockerfile") must_be(value, key, {"Dockerfile", "./Dockerfile"});
                });
  }

  void read_environment(const YAML::Node& node) {
    if (node.IsSequence()) {
      for (const auto& item : node) {
        const auto text = reader_.text(item, "an entry of environment");
        if (!text) continue;
        const size_t equals = text->find('=');
        // A name alone would be a variable of this machine, none of which reaches a sandbox.
        if (equals != std::string::npos) set(item, text->substr(0, equals), text->substr(equals + 1));
      }
      return;
    }
    reader_.map(node, "environment", {}, [&](const std::string& name, const YAML::Node&, const YAML::Node& value) {
      if (value.IsNull()) return;  // as a name alone in a list
      if (const auto text = reader_.text(value, "environment: " + name)) set(value, name, *text);
    });
  }

  // A value without variables of this machine, none of which is set here; inside nothing where that leaves the variable
  // itself not set, nothing at all where it cannot do without one.
  static std::optional<std::optional<std::string>> without_variables(std::string_view value) {
    if (value.starts_with("${") && value.find('}') == value.size() - 1) return without_machine_variable(value);
    std::string text;
    while (!value.empty()) {
      if (value.starts_with("$$")) {
        text += '$';
        value.remove_prefix(2);
        continue;
      }
      if (!value.starts_with("$")) {
        text += value[0];
        value.remove_prefix(1);
        continue;
      }
      const size_t end = value.find('}');
      if (!value.starts_with("${") || end == std::string_view::npos) return std::nullopt;
      const auto known = without_machine_variable(value.substr(0, end + 1));
      if (!known) return std::nullopt;
      text += *known;
      value.remove_prefix(end + 1);
    }
    return std::optional(text);
  }

  void set(const YAML::Node& at, const std::string& name, const std::string& value) {
    if (name == "TEST_DIR" && value.find("T_BENCH_TEST_DIR") != std::string::npos) return;  // it is there anyway
    const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    if (name.empty() || !std::all_of(name.begin(), name.end(), fits))
      return reader_.mistake(at, "environment: \"" + name + "\" is no name");
    const auto known = without_variables(value);
    if (!known)
      return reader_.mistake(at, "environment: " + name + ": variables of this machine do not reach a sandbox");
    if (*known) exports_ += "export " + name + "=" + shell_quoted(**known) + "; ";
  }

  void read_volumes(const YAML::Node& node) {
    for (const auto& volume : reader_.texts(node, "volumes")) {
      const bool logs = volume.starts_with("${T_BENCH_") && volume.find("LOGS_PATH}:${") != std::string::npos;
      if (!logs) reader_.mistake(node, "volumes: " + volume + " is not supported; COPY files by the Dockerfile");
    }
  }

  YamlReader reader_;
  const std::string service_;
  std::string& exports_;
};

}  // namespace

void read_compose(const fs::path& file, const std::string& service, std::string& exports, Mistakes& mistakes) {
  const auto text = read_file(file, kLargestText);
  if (!text) return mistakes.add(file.string(), 0, text.error().message());
  try {
    ComposeReader(file, service, exports, mistakes).read(load_yaml(*text));
  } catch (const YAML::Exception& error) {
    mistakes.add(file.string(), error.mark.line + 1, "is not YAML: " + error.msg);
  }
}

}  // namespace tandem::envs
