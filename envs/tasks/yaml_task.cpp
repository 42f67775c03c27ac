#include "envs/tasks/yaml_task.h"

#include <fmt/format.h>

#include <map>

#include "base/text.h"
#include "base/yaml.h"
#include "envs/container/engine.h"
#include "envs/tasks/folder_files.h"
#include "envs/tasks/python_packages.h"
#include "envs/tasks/yaml_reader.h"

namespace tandem::envs {
namespace {

constexpr uint64_t kYamlTaskLargestFile = 1 << 20;
constexpr double kMostCheckSeconds = 1800;  // of all commands, as for tests of a repository

class TaskReader {
 public:
  TaskReader(const fs::path& file, Mistakes& mistakes, BaseSources& bases)
      : file_(file), reader_(file.string(), mistakes), bases_(bases) {}

  Task read(const YAML::Node& root) {
    task_.max_turns = 10;
    task_.ends_on_change = false;
    bool checked = false;
    reader_.map(root, "the task",
                {"instruction", "kind", "image", "base", "files", "setup", "needs", "disk_mb", "network", "mcp",
                 "turns", "ends_on_change", "check", "solution"},
                [&](const std::string& key, const YAML::Node&, const YAML::Node& value) {
                  if (key == "instruction") set(task_.instruction, reader_.text(value, key));
                  if (key == "kind") read_kind(value);
                  if (key == "image") read_image(value);
                  if (key == "base") read_base(value);
                  if (key == "files") read_files(value, "files", task_.files, task_.programs);
                  if (key == "setup") task_.setup = reader_.texts(value, key);
                  if (key == "needs") read_needs(value);
                  if (key == "disk_mb") set(task_.disk_mb, reader_.number(value, key, kUsualDiskMb, kMostDiskMb));
                  if (key == "network") read_network(value);
                  if (key == "mcp") read_servers(value);
                  if (key == "turns") set(task_.max_turns, reader_.number(value, key, 1, 1000));
                  if (key == "ends_on_change") set(task_.ends_on_change, reader_.truth(value, key));
                  if (key == "check") read_check(value), checked = true;
                  if (key == "solution") read_solution(value);
                });
    if (!root.IsMap()) return task_;
    if (trim(task_.instruction).empty()) reader_.mistake(root, "the task has no instruction; add `instruction: ...`");
    if (!task_.image.empty() && task_.base)
      reader_.mistake(root, "a task with an image begins with the files of that; leave out base or image");
    if (!task_.image.empty() && !task_.needs.empty())
      reader_.mistake(root, "needs says what this machine must have; a task with an image has what that holds");
    if (!checked) reader_.mistake(root, "the task has no check; add `check:` with commands, files_after or answer");
    return task_;
  }

 private:
  template <typename To, typename From>
  static void set(To& target, const std::optional<From>& value) {
    if (value) target = static_cast<To>(*value);
  }

  void read_kind(const YAML::Node& node) {
    const auto kind = reader_.text(node, "kind");
    if (!kind) return;
    if (const auto why = why_no_kind(*kind); !why.empty()) return reader_.mistake(node, "kind " + why);
    task_.spec.kind = *kind;
  }

  void read_image(const YAML::Node& node) {
    set(task_.image, reader_.text(node, "image"));
    if (const Status status = check_image_name(task_.image); !status)
      reader_.mistake(node, "image: " + status.message());
  }

  // {folder: DIR}, {archive: FILE} or {git: REPOSITORY, commit: NAME}.
  void read_base(const YAML::Node& node) {
    std::map<std::string, std::string> said;
    reader_.map(node, "base", {"folder", "archive", "git", "commit"},
                [&](const std::string& key, const YAML::Node&, const YAML::Node& value) {
                  if (const auto text = reader_.text(value, "base: " + key)) said[key] = *text;
                });
    if (!node.IsMap()) return;
    const bool is_git = said.contains("git");
    const auto one = said.size() - said.count("commit");
    if (one != 1 || is_git != said.contains("commit"))
      return reader_.mistake(node, "base is one of {folder: DIR}, {archive: FILE}, {git: REPOSITORY, commit: NAME}");
    const auto kind = is_git                    ? TaskBase::Kind::kGit
                      : said.contains("folder") ? TaskBase::Kind::kFolder
                                                : TaskBase::Kind::kArchive;
    const auto& source = said.at(is_git ? "git" : said.contains("folder") ? "folder" : "archive");
    auto base = bases_.find(kind, file_.parent_path() / source, said["commit"]);
    if (!base) return reader_.mistake(node, "base: " + base.error().message());
    task_.base = std::move(*base);
  }

  // NAME: COMMAND.
  void read_servers(const YAML::Node& node) {
    reader_.map(node, "mcp", {}, [&](const std::string& name, const YAML::Node&, const YAML::Node& value) {
      if (const auto command = reader_.text(value, "mcp: " + name)) task_.servers.push_back({name, *command});
    });
    if (const Status status = check_mcp_servers(task_.servers); !status)
      reader_.mistake(node, "mcp: " + status.message());
  }

  void read_needs(const YAML::Node& node) {
    constexpr std::string_view kPython = "python ";
    task_.needs = reader_.texts(node, "needs");
    for (const auto& need : task_.needs) {
      if (need.starts_with(kPython) && !is_python_package(std::string_view(need).substr(kPython.size())))
        reader_.mistake(node,
                        "needs: \"" + need + "\" names no package; write `python pandas` or `python pandas==2.3.2`");
    }
  }

  void read_network(const YAML::Node& node) {
    const auto list = AllowList::parse(reader_.texts(node, "network"));
    const Status status = list ? list->check_public() : list.error();
    if (!status) return reader_.mistake(node, "network: " + status.message());
    task_.network = *list;
  }

  // PATH: TEXT, or PATH: {from: FILE OR FOLDER}.
  void read_files(const YAML::Node& node, const std::string& what, Files& files, std::set<std::string>& programs) {
    reader_.map(node, what, {}, [&](const std::string& path, const YAML::Node& at, const YAML::Node& value) {
      const bool root = path == "." && value.IsMap();
      if (const auto why = root ? "" : why_no_workspace_path(path); !why.empty()) {
        return reader_.mistake(at, fmt::format("{}: \"{}\" {}", what, path, why));
      }
      if (!value.IsMap()) {
        if (value.IsNull())
          files[path] = "";
        else if (const auto content = reader_.text(value, what + ": " + path))
          files[path] = *content;
      } else {
        reader_.map(value, what + ": " + path, {"from"}, [&](const auto&, const auto&, const YAML::Node& from) {
          const auto source = reader_.text(from, "from");
          if (!source) return;
          const auto added = add_folder_files(file_.parent_path() / *source, root ? "" : path, files, programs);
          if (!added) reader_.mistake(from, added.message());
        });
      }
      if (const auto fits = check_size(files); !fits) reader_.mistake(at, fits.message());
    });
  }

  void read_check(const YAML::Node& node) {
    CommandCheck commands;
    auto& expectation = task_.expectation;
    std::set<std::string> unused;
    reader_.map(node, "check", {"files", "commands", "tests", "files_after", "answer"},
                [&](const std::string& key, const YAML::Node&, const YAML::Node& value) {
                  if (key == "files") read_files(value, "check: files", commands.files, commands.programs);
                  if (key == "commands") read_commands(value, commands);
                  if (key == "tests") read_tests(value, commands);
                  if (key == "files_after") read_files(value, "check: files_after", expectation.contains, unused);
                  if (key == "answer") expectation.answer = reader_.text(value, "check: answer");
                });
    if (!node.IsMap()) return;
    if (commands.commands.empty() && expectation.contains.empty() && !expectation.answer) {
      reader_.mistake(node, "check says nothing that must hold; add commands, files_after or answer");
    }
    if (expectation.answer && trim(*expectation.answer).empty()) {
      reader_.mistake(node, "check: the answer is empty, which a model that says nothing would give");
    }
    if (commands.commands.empty() && !commands.files.empty()) {
      reader_.mistake(node, "check has files but no commands that use them");
    }
    if (commands.commands.empty() && commands.tests) {
      reader_.mistake(node, "check has tests but no commands that report them");
    }
    if (!commands.commands.empty()) expectation.commands = std::move(commands);
  }

  void read_commands(const YAML::Node& node, CommandCheck& check) {
    if (!node.IsSequence()) return reader_.mistake(node, "check: commands must be a list, each with a dash in front");
    double seconds = 0;
    for (const auto& item : node) {
      CheckCommand command;
      if (item.IsMap()) {
        reader_.map(item, "a command of check", {"run", "exit", "output", "seconds"},
                    [&](const std::string& key, const YAML::Node&, const YAML::Node& value) {
                      if (key == "run") set(command.command, reader_.text(value, key));
                      if (key == "exit") set(command.exit_code, reader_.number(value, key, 0, 255));
                      if (key == "output") command.output = reader_.text(value, key);
                      if (key == "seconds") set(command.seconds, reader_.number(value, key, 0.1, kMostCheckSeconds));
                    });
      } else {
        set(command.command, reader_.text(item, "a command of check"));
      }
      if (trim(command.command).empty()) reader_.mistake(item, "a command of check has nothing to run; add `run: ...`");
      seconds += command.seconds;
      check.commands.push_back(std::move(command));
    }
    if (seconds > kMostCheckSeconds) {
      reader_.mistake(node, fmt::format("the commands of check may take {} s together, {} s is the most; say less by "
                                        "`seconds` (10 where a command says none)",
                                        seconds, kMostCheckSeconds));
    }
  }

  // Names of tests, or `all` that are reported.
  void read_tests(const YAML::Node& node, CommandCheck& check) {
    check.tests.emplace();
    if (node.IsScalar() && node.Scalar() == "all") return;
    *check.tests = reader_.texts(node, "check: tests");
    if (node.IsSequence() && node.size() == 0)
      reader_.mistake(node, "check: tests names none; write `all` for all that are reported");
  }

  void read_solution(const YAML::Node& node) {
    auto& solution = task_.solution;
    Files files;
    std::set<std::string> unused;
    std::vector<std::string> commands;
    reader_.map(node, "solution", {"files", "commands", "answer"},
                [&](const std::string& key, const YAML::Node&, const YAML::Node& value) {
                  if (key == "files") read_files(value, "solution: files", files, unused);
                  if (key == "commands") commands = reader_.texts(value, "solution: commands");
                  if (key == "answer") set(solution.answer, reader_.text(value, "solution: answer"));
                });
    for (const auto& [path, content] : files) {
      solution.turns.push_back({{"write", {{"file_path", path}, {"contents", content}}}});
    }
    for (const auto& command : commands) solution.turns.push_back({{"run_terminal_cmd", {{"command", command}}}});
  }

  const fs::path file_;
  YamlReader reader_;
  BaseSources& bases_;
  Task task_;
};

}  // namespace

std::optional<Task> read_yaml_task(const fs::path& file, Mistakes& mistakes, BaseSources& bases) {
  const size_t before = mistakes.count();
  const auto text = read_file(file, kYamlTaskLargestFile);
  if (!text) {
    mistakes.add(file.string(), 0, text.error().message());
    return std::nullopt;
  }
  Task task;
  try {
    task = TaskReader(file, mistakes, bases).read(load_yaml(*text));
  } catch (const YAML::Exception& error) {
    mistakes.add(file.string(), error.mark.line + 1, "is not YAML: " + error.msg);
  }
  if (mistakes.count() > before) return std::nullopt;
  return task;
}

}  // namespace tandem::envs
