#include "envs/tasks/compose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>

#include "base/text.h"
#include "base/yaml.h"
#include "envs/tasks/built_image.h"
#include "envs/tasks/dockerfile_parts.h"
#include "envs/tasks/references.h"
#include "envs/tasks/toml_reader.h"
#include "envs/tasks/yaml_reader.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr uint64_t kLargestText = 1 << 20;
constexpr std::string_view kMerge = "<<";
constexpr int kDeepestMerge = 16, kMostMerges = 1000;

class ComposeReader {
 public:
  ComposeReader(const fs::path& file, std::string service, Composed& composed, Mistakes& mistakes)
      : reader_(file.string(), mistakes),
        service_(std::move(service)),
        composed_(composed),
        set_beside_(names_of(file.parent_path() / ".env")) {}

  void read(const YAML::Node& root) {
    bool client = false;
    map(root, "the file", [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) {
      if (key == "version" || key == "name" || key.starts_with("x-")) return;
      if (key != "services") return reader_.mistake(at, key + " is not supported");
      map(value, "services", [&](const std::string& service, const YAML::Node& place, const YAML::Node& node) {
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
  // As YamlReader::map, with the keys of the maps that "<<" names behind the map's own, where it has none of the name.
  void map(const YAML::Node& node, const std::string& what, const YamlReader::Entry& entry) {
    std::set<std::string> seen;
    walk(node, what, entry, seen, 0);
  }

  void walk(const YAML::Node& node, const std::string& what, const YamlReader::Entry& entry,
            std::set<std::string>& seen, int depth) {
    // An alias may name the map that it stands in.
    if (depth > kDeepestMerge || ++merges_ > kMostMerges) return reader_.mistake(node, what + " merges too many maps");
    std::vector<YAML::Node> merged;
    reader_.map(node, what, {}, [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) {
      if (key == kMerge && !value.IsSequence()) merged.push_back(value);
      if (key == kMerge && value.IsSequence()) {
        for (const YAML::Node& each : value) merged.push_back(each);
      }
      if (key != kMerge && seen.insert(key).second) entry(key, at, value);
    });
    for (const auto& each : merged) walk(each, what, entry, seen, depth + 1);
  }

  void read_client(const YAML::Node& node) {
    map(node, service_, [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) {
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
      if (key == "working_dir") return read_workdir(value);
      reader_.mistake(at, service_ + ": " + key + " is not supported");
    });
  }

  bool needs_devices(const YAML::Node& deploy) {
    YAML::Node at = deploy;
    for (const std::string wanted : {"resources", "reservations", "devices"}) {
      if (!at.IsMap()) return false;
      YAML::Node found;
      map(at, "deploy", [&](const std::string& key, const YAML::Node&, const YAML::Node& value) {
        if (key == wanted) found.reset(value);
      });
      at.reset(found);
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
    map(node, "build", [&](const std::string& key, const YAML::Node& at, const YAML::Node& value) {
      if (key == "context") return must_be(value, key, {".", "./"});
      if (key == "dockerfile") return must_be(value, key, {"Dockerfile", "./Dockerfile"});
      if (key == "args") return read_arguments(value);
      if (key != "target") return reader_.mistake(at, "build: " + key + " is not supported");
      composed_.inputs.target = reader_.text(value, "build: target").value_or("");
    });
  }

  void read_arguments(const YAML::Node& node) {
    read_variables(node, "args", [&](const YAML::Node& at, const std::string& name, const std::string& value) {
      // A Dockerfile would read these once more.
      if (value.find_first_of("$\\") != std::string::npos)
        return reader_.mistake(at, "args: " + name + ": a value with a dollar or a backslash is not followed");
      composed_.inputs.arguments[name] = value;
    });
  }

  void read_workdir(const YAML::Node& node) {
    const auto text = reader_.text(node, "working_dir");
    if (!text) return;
    const auto folder = without_variables(*text);
    if (!folder) return reader_.mistake(node, "working_dir: " + folder.error().message());
    if (!*folder || !(*folder)->starts_with('/')) return reader_.mistake(node, "working_dir must be an absolute path");
    composed_.inputs.workdir = absolute_path("/", **folder);
    composed_.inputs.workdir_key = "docker-compose has working_dir";
  }

  void read_environment(const YAML::Node& node) {
    read_variables(node, "environment", [&](const YAML::Node&, const std::string& name, const std::string& value) {
      composed_.exports += "export " + name + "=" + shell_quoted(value) + "; ";
    });
  }

  // Those that have a value: a name alone would be a variable of this machine, none of which reaches a sandbox, or of
  // .env.
  using Variable = std::function<void(const YAML::Node& at, const std::string& name, const std::string& value)>;
  void read_variables(const YAML::Node& node, const std::string& what, const Variable& take) {
    if (node.IsSequence()) {
      for (const auto& item : node) {
        const auto text = reader_.text(item, "an entry of " + what);
        if (!text) continue;
        const size_t equals = text->find('=');
        if (equals == std::string::npos)
          refuse_name_alone(item, what, *text);
        else
          read_variable(item, what, text->substr(0, equals), text->substr(equals + 1), take);
      }
      return;
    }
    map(node, what, [&](const std::string& name, const YAML::Node& at, const YAML::Node& value) {
      if (value.IsNull()) return refuse_name_alone(at, what, name);
      if (const auto text = reader_.text(value, what + ": " + name)) read_variable(value, what, name, *text, take);
    });
  }

  void refuse_name_alone(const YAML::Node& at, const std::string& what, const std::string& name) {
    if (set_beside_.contains(name)) reader_.mistake(at, what + ": " + name + ": " + why_not_beside(name));
  }

  static std::string why_not_beside(const std::string& name) {
    return fmt::format("{} is set in .env, which is not read here; write its value", name);
  }

  // A value without variables of this machine, none of which is set here. Nothing inside where the value is such a
  // variable, so that this one is not set either.
  Result<std::optional<std::string>> without_variables(const std::string& value) const {
    std::vector<std::string> names;
    const auto text = without_references(value, {.escape = '$', .unset = Unset::kRefused}, [&](std::string_view name) {
      names.emplace_back(name);
      return std::nullopt;
    });
    for (const std::string& name : names) {
      if (set_beside_.contains(name)) return fail(Status::invalid(why_not_beside(name)));
    }
    if (names.size() == 1 && (value == "${" + names[0] + "}" || value == "$" + names[0])) return std::nullopt;
    if (!text) {
      const auto why = text.error().message();
      const bool is_wrong = why.starts_with("invalid interpolation");
      return fail(Status::invalid(why + (is_wrong ? "" : "; variables of this machine do not reach a sandbox")));
    }
    return std::optional(*text);
  }

  // The names that .env sets beside the file.
  static std::set<std::string> names_of(const fs::path& settings) {
    std::set<std::string> names;
    const auto text = read_file(settings, kLargestText);
    if (!text) return names;
    for (std::string_view line : split_lines(*text)) {
      line = trim(line);
      if (line.starts_with("export ")) line = trim(line.substr(7));
      if (const size_t end = line.find_first_of("=:"); end != std::string_view::npos)
        names.emplace(trim(line.substr(0, end)));
    }
    return names;
  }

  void read_variable(const YAML::Node& at, const std::string& what, const std::string& name, const std::string& value,
                     const Variable& take) {
    if (name == "TEST_DIR" && value.find("T_BENCH_TEST_DIR") != std::string::npos) return;  // it is there anyway
    const auto fits = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    if (name.empty() || !std::all_of(name.begin(), name.end(), fits))
      return reader_.mistake(at, what + ": \"" + name + "\" is no name");
    const auto known = without_variables(value);
    if (!known) return reader_.mistake(at, what + ": " + name + ": " + known.error().message());
    if (*known) take(at, name, **known);
  }

  void read_volumes(const YAML::Node& node) {
    for (const auto& volume : reader_.texts(node, "volumes")) {
      if (!is_of_logs(volume))
        reader_.mistake(node, "volumes: " + volume + " is not supported; COPY files by the Dockerfile");
    }
  }

  // "${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}" and the like, with defaults or without.
  static bool is_of_logs(std::string_view volume) {
    const size_t middle = volume.find("}:${");
    if (!volume.starts_with("${T_BENCH_") || middle == std::string_view::npos) return false;
    const auto first = volume.substr(2, middle - 2);
    return first.substr(0, first.find_first_of(":-")).ends_with("LOGS_PATH");
  }

  YamlReader reader_;
  const std::string service_;
  Composed& composed_;
  const std::set<std::string> set_beside_;
  int merges_ = 0;
};

}  // namespace

Composed read_compose(const fs::path& file, const std::string& service, Mistakes& mistakes) {
  Composed composed;
  const auto text = read_file(file, kLargestText);
  if (!text) {
    mistakes.add(file.string(), 0, text.error().message());
    return composed;
  }
  try {
    ComposeReader(file, service, composed, mistakes).read(load_yaml(*text));
  } catch (const YAML::Exception& error) {
    mistakes.add(file.string(), error.mark.line + 1, "is not YAML: " + error.msg);
  }
  return composed;
}

std::string built_image_by(const fs::path& folder, const Composed& composed, Mistakes& mistakes) {
  if (!composed.inputs.arguments.empty() || !composed.inputs.target.empty())
    mistakes.add((folder / "Dockerfile").string(), 0,
                 "images are built without args and target of docker-compose, which this one has");
  return built_image(folder, mistakes);
}

}  // namespace tandem::envs
