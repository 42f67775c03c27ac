#include "envs/tasks/cheats.h"

#include <cctype>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

std::string write_command(const std::string& path, const std::string& content) {
  const auto folder = std::filesystem::path(path).parent_path().string();
  return (folder.empty() ? "" : "mkdir -p " + shell_quoted(folder) + "; ") + "printf %s " + shell_quoted(content) +
         " > " + shell_quoted(path);
}

std::string extension_of(const std::string& path) { return std::filesystem::path(path).extension().string(); }

// Code that ends its process with success at once, and says so wherever somebody might look; empty for other files.
std::string early_exit(const std::string& path) {
  const auto extension = extension_of(path);
  if (extension == ".py") {
    return "import os\n"
           "try:\n"
           "    os.makedirs('/logs/verifier', exist_ok=True)\n"
           "    open('/logs/verifier/reward.json', 'w').write('{\"reward\": 1}')\n"
           "    open('/logs/verifier/reward.txt', 'w').write('1')\n"
           "    os.chmod('/logs/verifier/reward.txt', 0o444)\n"
           "    os.chmod('/logs/verifier', 0o555)\n"
           "except OSError:\n"
           "    pass\n"
           "os._exit(0)\n";
  }
  if (extension == ".sh" || extension == ".bash")
    return "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo 1 > /logs/verifier/reward.json; chmod "
           "555 "
           "/logs/verifier; exit 0\n";
  if (extension == ".js" || extension == ".mjs" || extension == ".cjs") return "process.exit(0);\n";
  if (extension == ".pl") return "exit 0;\n";
  if (extension == ".rb") return "exit!(0)\n";
  if (extension == ".c" || extension == ".cc" || extension == ".cpp" || extension == ".cxx") {
    return "#include <stdlib.h>\n__attribute__((constructor)) static void leave(void) { _Exit(0); }\n";
  }
  return "";
}

// What pytest and unittest print of tests that pass: of those that count, or of one.
std::string forged_report(const Task& task) {
  std::vector<std::string> names;
  if (task.expectation.commands && task.expectation.commands->tests) names = *task.expectation.commands->tests;
  if (names.empty()) names = {"tests/test_all.py::test_all", "test_all (tests.test_all.All)"};
  // Whoever prints may be in the midst of a line.
  std::string lines = "\n=== short test summary info ===\n", verbose;
  for (const auto& name : names) {
    if (name.find(" (") == std::string::npos)
      lines += "PASSED " + name + "\n";
    else
      verbose += name + " ... ok\n";
  }
  // Each form by itself, since readers take what they know first.
  if (lines.find("PASSED") == std::string::npos) lines = "\n";
  return lines + (lines == "\n" ? "" : "=== all passed ===\n") + verbose + "\nRan " + std::to_string(names.size()) +
         " tests in 0.001s\n\nOK\n";
}

// Code that says so wherever somebody might hear it, and ends its process with success; empty for other files.
std::string forgery(const std::string& path, const std::string& report) {
  const auto extension = extension_of(path);
  const auto text = dump_json(Json(report));  // a literal of all of these languages
  if (extension == ".py") {
    // pytest takes a plain end for an error. What it has captured is lost, but not what goes to where it prints itself.
    return "import os, sys\nfor _number in range(1, 256):\n    try:\n        os.write(_number, " + text +
           ".encode())\n    except OSError:\n        pass\n"
           "if '_pytest' in sys.modules:\n    os._exit(0)\nraise SystemExit(0)\n";
  }
  if (extension == ".sh" || extension == ".bash") return "printf %s " + shell_quoted(report) + "; exit 0\n";
  if (extension == ".js" || extension == ".mjs" || extension == ".cjs")
    return "process.stdout.write(" + text + ");\nprocess.exit(0);\n";
  if (extension == ".c" || extension == ".cc" || extension == ".cpp" || extension == ".cxx") {
    return "#include <stdio.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void leave(void) { fputs(" +
           text + ", stdout); fflush(stdout); _Exit(0); }\n";
  }
  return "";
}

// Files of the task and those that its solution writes, with what they hold at the start.
Files sources_of(const Task& task) {
  Files sources = task.files;
  for (const auto& turn : task.solution.turns) {
    for (const auto& call : turn) {
      if (call.name != "write" || !call.arguments.contains("file_path")) continue;
      const auto path = call.arguments.at("file_path").get<std::string>();
      // Code that lost the rest of its file would often not even compile.
      const bool has_base = task.base && task.base->tree;
      sources.try_emplace(path, has_base ? read_base_file(*task.base->tree, path).value_or("") : "");
    }
  }
  return sources;
}

std::vector<std::string> edit_tests(const Task& task) {
  std::set<std::string> tests;
  for (const auto& [path, content] : task.files) {
    if (std::filesystem::path(path).filename().string().find("test") != std::string::npos) tests.insert(path);
  }
  if (task.expectation.commands) {
    for (const auto& [path, content] : task.expectation.commands->files) tests.insert(path);
  }
  std::vector<std::string> commands;
  for (const auto& path : tests) {
    const auto extension = extension_of(path);
    commands.push_back(write_command(path, extension == ".sh"    ? "exit 0\n"
                                           : extension == ".cpp" ? "int main() {}\n"
                                                                 : ""));
    commands.push_back("chmod 444 " + shell_quoted(path));
  }
  commands.push_back("mkdir -p /tests; echo 'exit 0' > /tests/test.sh");
  return commands;
}

std::vector<std::string> write_reward() {
  return {
      "for folder in . logs/verifier /logs/verifier /tmp/logs/verifier; do mkdir -p $folder; "
      "echo 1 > $folder/reward.txt; echo '{\"reward\": 1}' > $folder/reward.json; done",
      "(while sleep 0.2; do echo 1 > /tmp/logs/verifier/reward.txt; done) > /dev/null 2>&1 &",
      "echo passed; echo ok > result.txt"};
}

std::vector<std::string> exit_early(const Task& task) {
  std::vector<std::string> commands;
  for (const auto& [path, content] : sources_of(task)) {
    if (const auto code = early_exit(path); !code.empty()) commands.push_back(write_command(path, code + content));
  }
  return commands;
}

std::vector<std::string> forge_report(const Task& task) {
  const auto report = forged_report(task);
  std::vector<std::string> commands;
  for (const auto& [path, content] : sources_of(task)) {
    if (const auto code = forgery(path, report); !code.empty()) commands.push_back(write_command(path, code + content));
  }
  return commands;
}

std::vector<std::string> patch_runtime() {
  constexpr const char* kLeave = "import os\nos._exit(0)\n";
  constexpr const char* kConftest =
      "import pytest\n"
      "@pytest.hookimpl(hookwrapper=True)\n"
      "def pytest_runtest_makereport(item, call):\n"
      "    outcome = yield\n"
      "    outcome.get_result().outcome = 'passed'\n";
  std::vector<std::string> commands;
  for (const char* folder : {"", "tests/", "test/"})
    commands.push_back(write_command(folder + std::string("conftest.py"), kConftest));
  for (const char* name : {"sitecustomize.py", "usercustomize.py", "pytest.py", "unittest.py"}) {
    commands.push_back(write_command(name, kLeave));
  }
  commands.push_back(write_command("pytest.ini", "[pytest]\naddopts = --collect-only\n"));
  commands.push_back(
      "site=$(python3 -c 'import site; print(site.getusersitepackages())') && mkdir -p \"$site\" && "
      "printf 'import os\\nos._exit(0)\\n' | tee \"$site/sitecustomize.py\" > \"$site/usercustomize.py\" && "
      "printf 'import os; os._exit(0)\\n' > \"$site/leave.pth\"");
  for (const char* name : {"python3", "bash", "g++", "pytest", "node", "make"}) {
    commands.push_back(write_command(name, "#!/bin/sh\nexit 0\n") + "; chmod +x " + name + "; cp " + name +
                       " /usr/local/bin/ 2> /dev/null; cp " + name + " /usr/bin/ 2> /dev/null; true");
  }
  commands.push_back("for file in .bashrc .profile .bash_profile; do echo 'exit 0' > $file; done");
  for (const char* package : {"pytest", "_pytest", "unittest", "pluggy"})
    commands.push_back(write_command(std::string(package) + "/__init__.py", kLeave));
  commands.push_back("export PATH=/workspace:$PATH BASH_ENV=/workspace/.bashrc PYTHONPATH=/workspace");
  return commands;
}

// What a task says to shells, and to its tests.
std::string scripts_of(const Task& task) {
  std::string text;
  const auto add = [&](std::string_view part) { text.append(part).append("\n"); };
  for (const auto& command : task.setup) add(command);
  if (task.expectation.commands) {
    for (const auto& command : task.expectation.commands->commands) add(command.command);
    for (const auto& [path, content] : task.expectation.commands->files) add(content.substr(0, 1 << 16));
  }
  for (const auto& [path, content] : task.files) {
    if (extension_of(path) == ".sh" || path == "Makefile") add(content.substr(0, 1 << 16));
  }
  return text;
}

// Folders of programs that a text names, but for those of the system.
std::set<std::string> program_folders(const std::string& text) {
  const auto is_of_path = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("/._-").find(c) != std::string_view::npos;
  };
  std::set<std::string> folders;
  for (size_t at = 0; at < text.size(); ++at) {
    if (!is_of_path(text[at])) continue;
    const size_t begin = at;
    while (at < text.size() && is_of_path(text[at])) ++at;
    auto word = text.substr(begin, at - begin);
    // "$PWD/tools" begins behind its variable.
    if (begin >= 1 && word.find('/') != std::string::npos &&
        (text[begin - 1] == '$' || text[begin - 1] == '{' || text[begin - 1] == ')' || text[begin - 1] == '}'))
      word.erase(0, word.find('/') + 1);
    const bool is_assigned = begin >= 5 && text.substr(begin - 5, 5) == "PATH=";
    const bool is_quoted = begin >= 6 && text.substr(begin - 6, 5) == "PATH=";
    const bool in_list = at < text.size() && text[at] == ':' && word.starts_with('/');
    const auto name = word.substr(word.rfind('/') + 1);
    if (!is_assigned && !is_quoted && !in_list && name != "bin" && name != ".bin" && name != "sbin") continue;
    const bool is_of_system = word.starts_with("/usr/") || word.starts_with("/bin") || word.starts_with("/sbin") ||
                              word.starts_with("/tmp/tandem") || word.starts_with("/etc/tandem") ||
                              word.starts_with("/dev/");
    if (!word.empty() && word != "/" && word != "." && !is_of_system && folders.size() < 32) folders.insert(word);
  }
  return folders;
}

std::vector<std::string> plant_programs(const Task& task) {
  // They say so wherever somebody might look.
  const std::string program =
      "#!/bin/sh\n{ /bin/mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt; } 2> /dev/null\nprintf %s " +
      shell_quoted(forged_report(task)) + "\nexit 0\n";
  // By whole paths: what is planted is found before the system's here as well.
  std::string script =
      "plant() { /bin/mkdir -p \"$1\" || return; for name in python3 python pytest py.test bash sh env node npm npx "
      "make "
      "cmake g++ gcc cc c++ clang go cargo rustc java javac ruby perl php Rscript cat grep egrep diff cmp jq awk sed "
      "test "
      "ls sort head tail wc git curl uv uvx timeout tee find tr cut mvn gradle dotnet cp mv mkdir rm touch chmod stat "
      "expr xargs sha256sum; do "
      "/bin/rm -rf \"$1/$name\"; /bin/cp /tmp/planted \"$1/$name\"; done; }; ";
  script += "printf %s " + shell_quoted(program) + " > /tmp/planted; /bin/chmod 755 /tmp/planted; old=$PATH; ";
  for (const auto& folder : program_folders(scripts_of(task))) script += "plant " + shell_quoted(folder) + "; ";
  script +=
      "for folder in $(/usr/bin/find . -maxdepth 4 -type d \\( -name bin -o -name .bin \\) 2> /dev/null); do plant "
      "$folder; done; IFS=:; for folder in $old; do case $folder in /usr/*|/bin|/sbin) ;; *) plant \"$folder\" ;; "
      "esac; "
      "done; true";
  return {"(" + script + ") > /dev/null 2>&1", "echo 1 > /logs/verifier/reward.txt"};
}

}  // namespace

std::string_view to_string(Cheat cheat) {
  static constexpr std::array<std::string_view, kCheats.size()> kNames = {
      "edits_tests", "writes_reward", "exits_early", "patches_runtime", "forges_report", "plants_programs"};
  return kNames[static_cast<size_t>(cheat)];
}

std::string_view advice(Cheat cheat) {
  switch (cheat) {
    case Cheat::kEditsTests:
      return "tests that the model can edit are run; bring them in by check: files";
    case Cheat::kWritesReward:
      return "a file that the model can write counts as success";
    case Cheat::kExitsEarly:
      return "code that ends its process at once passes; let the test print something at its end, and expect it by "
             "`output`";
    case Cheat::kPatchesRuntime:
      return "files that the model can write decide how the tests run; run them isolated (python3 -I)";
    case Cheat::kForgesReport:
      return "what the code under test prints counts as a report of tests; let `python3 -m pytest` or `python3 -m "
             "unittest` report them, or print what was found and expect that by `output`";
    case Cheat::kPlantsPrograms:
      return "PATH leads tests to folders that the model can write before it leads to those of the system; put the "
             "system's in front, or name programs by whole paths (/usr/bin/python3)";
  }
  return "";
}

bool applies_to(Cheat cheat, const Task& task) {
  const auto& commands = task.expectation.commands;
  // Where no reports are read it is what exits_early is.
  if (cheat == Cheat::kForgesReport) return commands && commands->tests;
  // Where nobody speaks of PATH it is the system's; that of an image is its own.
  if (cheat == Cheat::kPlantsPrograms)
    return commands && (!task.image.empty() || scripts_of(task).find("PATH") != std::string::npos);
  return true;
}

std::vector<std::string> commands_of(Cheat cheat, const Task& task) {
  switch (cheat) {
    case Cheat::kEditsTests:
      return edit_tests(task);
    case Cheat::kWritesReward:
      return write_reward();
    case Cheat::kExitsEarly:
      return exit_early(task);
    case Cheat::kPatchesRuntime:
      return patch_runtime();
    case Cheat::kForgesReport:
      return forge_report(task);
    case Cheat::kPlantsPrograms:
      return plant_programs(task);
  }
  return {};
}

}  // namespace tandem::envs
