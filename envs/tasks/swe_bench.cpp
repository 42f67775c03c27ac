#include "envs/tasks/swe_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <functional>

#include "base/json.h"
#include "base/text.h"
#include "envs/tasks/container.h"
#include "envs/tasks/folder_files.h"
#include "envs/tasks/git_patch.h"
#include "envs/tasks/git_tree.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr double kSweBenchSeconds = 1800;  // of the tests, as the harness of SWE-bench has it
constexpr uint64_t kSweBenchLargestFile = uint64_t{256} << 20;
constexpr uint64_t kMostTreeBytes = uint64_t{2} << 30;  // of all tasks of a file together
constexpr size_t kMostTests = 20'000;                   // names of a line

// What is used of a line.
struct SweBenchRow {
  std::string id, repository, commit, statement, patch, test_patch;
  std::vector<std::string> install, test_commands;
  std::vector<std::string> fail_to_pass, pass_to_pass;
};

Result<std::string> text_at(const Json& json, const char* name) {
  if (!json.contains(name)) return fail(Status::invalid(fmt::format("lacks \"{}\", which SWE-bench has", name)));
  if (!json.at(name).is_string()) return fail(Status::invalid(fmt::format("\"{}\" must be text", name)));
  return json.at(name).get<std::string>();
}

Result<std::vector<std::string>> texts_of(const Json& json, const std::string& name) {
  if (!json.is_array() || !std::all_of(json.begin(), json.end(), [](const auto& each) { return each.is_string(); }))
    return fail(Status::invalid(fmt::format("\"{}\" must be a list of texts", name)));
  if (json.size() > kMostTests)
    return fail(Status::invalid(fmt::format("\"{}\" has {} entries; {} are the most", name, json.size(), kMostTests)));
  return json.get<std::vector<std::string>>();
}

// A list, or the text of one, as the data set has it.
Result<std::vector<std::string>> tests_at(const Json& json, const char* name) {
  if (!json.contains(name)) return fail(Status::invalid(fmt::format("lacks \"{}\", which SWE-bench has", name)));
  const Json& value = json.at(name);
  if (!value.is_string()) return texts_of(value, name);
  const auto inner = parse_json(value.get<std::string>());
  if (!inner) return fail(Status::invalid(fmt::format("\"{}\": {}", name, inner.error().message())));
  return texts_of(*inner, name);
}

// One command, or several; none where the line does not say.
Result<std::vector<std::string>> commands_at(const Json& json, const char* name) {
  if (!json.contains(name) || json.at(name).is_null()) return std::vector<std::string>{};
  if (!json.at(name).is_string()) return texts_of(json.at(name), name);
  return std::vector<std::string>{json.at(name).get<std::string>()};
}

bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= 200 && text != "." && text != ".." &&
         std::all_of(text.begin(), text.end(), fits);
}

Result<SweBenchRow> swe_bench_row_of(const Json& json) {
  if (!json.is_object()) return fail(Status::invalid("is no JSON object"));
  SweBenchRow row;
  row.id = TRY(text_at(json, "instance_id"));
  row.repository = TRY(text_at(json, "repo"));
  row.commit = TRY(text_at(json, "base_commit"));
  row.statement = TRY(text_at(json, "problem_statement"));
  row.patch = TRY(text_at(json, "patch"));
  row.test_patch = TRY(text_at(json, "test_patch"));
  row.install = TRY(commands_at(json, "install"));
  row.test_commands = TRY(commands_at(json, "test_commands"));
  row.fail_to_pass = TRY(tests_at(json, "FAIL_TO_PASS"));
  row.pass_to_pass = TRY(tests_at(json, "PASS_TO_PASS"));
  if (row.test_commands.empty()) row.test_commands = TRY(commands_at(json, "test_cmd"));
  if (!is_name(row.id))
    return fail(Status::invalid("\"instance_id\" may have letters, digits, '.', '_' and '-' alone"));
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f'); };
  if (row.commit.size() < 7 || row.commit.size() > 64 || !std::all_of(row.commit.begin(), row.commit.end(), is_digit))
    return fail(Status::invalid("\"base_commit\" must be 7 to 64 of the digits 0-9 and a-f"));
  if (trim(row.statement).empty()) return fail(Status::invalid("\"problem_statement\" is empty"));
  if (row.fail_to_pass.empty())
    return fail(Status::invalid("\"FAIL_TO_PASS\" names no test, so that doing nothing would be right"));
  return row;
}

// Where the repository may lie; the first is what a message names.
Result<std::vector<fs::path>> places_of(const std::string& repository, const fs::path& file) {
  if (repository.starts_with('/') || repository.starts_with('.')) {
    return std::vector<fs::path>{(file.parent_path() / repository).lexically_normal()};
  }
  const size_t slash = repository.find('/');
  if (slash == std::string::npos || !is_name(repository.substr(0, slash)) || !is_name(repository.substr(slash + 1)))
    return fail(Status::invalid(fmt::format("\"repo\": \"{}\" is neither owner/name nor a path", repository)));
  auto mirrors = file;
  mirrors.replace_extension(".files");
  const auto flat = repository.substr(0, slash) + "__" + repository.substr(slash + 1);
  return std::vector<fs::path>{mirrors / repository, mirrors / (repository + ".git"), mirrors / flat,
                               mirrors / (flat + ".git")};
}

class SweBenchReader {
 public:
  explicit SweBenchReader(const fs::path& file) : file_(file) {}

  Result<Task> task_of(std::string_view line) {
    const SweBenchRow row = TRY(swe_bench_row_of(TRY(parse_json(line))));
    const auto repository = TRY(repository_of(row));
    Task task;
    const GitTree& base = TRY(tree_of(row, repository, task));
    task.name = row.id;
    task.spec.kind = kind_of(row.repository);
    task.max_turns = 30;
    task.ends_on_change = false;
    task.instruction = fmt::format("The folder holds the source of {}. Solve this issue in it:\n\n{}",
                                   fs::path(row.repository).lexically_normal().string(), trim(row.statement));
    if (!task.base) {
      task.files = base.files;
      task.programs = base.programs;
    }
    task.setup = row.install;
    TRY(add_check(row, base, task));
    TRY(add_solution(row, base, task));
    for (const auto& [path, content] : task.files) bytes_ += content.size();
    if (bytes_ > kMostTreeBytes) {
      return fail(
          Status::invalid(fmt::format("the trees of this and the lines before have more than {} together; "
                                      "split the file",
                                      format_bytes(kMostTreeBytes))));
    }
    return task;
  }

 private:
  Result<fs::path> repository_of(const SweBenchRow& row) const {
    const auto places = TRY(places_of(row.repository, file_));
    for (const auto& place : places) {
      if (std::error_code error; fs::exists(place, error)) return place;
    }
    return fail(
        Status::not_found(fmt::format("there is no repository {}; clone {} there, there is no network to fetch it by",
                                      places.front().string(), row.repository)));
  }

  // The whole tree. Of one that is more than a task's own files may be the files that its patches touch, over a base.
  Result<std::reference_wrapper<const GitTree>> tree_of(const SweBenchRow& row, const fs::path& repository,
                                                        Task& task) {
    // Lines of one commit follow each other where there are several; more would take memory for nothing.
    const auto key = row.repository + "@" + row.commit;
    if (key == tree_name_) return std::cref(tree_);
    const auto at = [&](const Status& status) {
      return fail(
          Status(status.code(), fmt::format("{} at {}: {}", repository.string(), row.commit, status.message())));
    };
    tree_name_.clear();
    if (key != base_name_) {
      auto tree = read_git_tree(repository, row.commit);
      if (tree) {
        tree_ = std::move(*tree);
        tree_name_ = key;
        return std::cref(tree_);
      }
      if (tree.error().code() != Code::kInvalid) return at(tree.error());
      auto base = find_task_base(TaskBase::Kind::kGit, repository, row.commit);
      if (!base) return at(base.error());
      base_ = std::move(*base);
      base_name_ = key;
    }
    std::set<std::string> paths;
    for (const auto* patch : {&row.patch, &row.test_patch}) {
      const auto files = parse_git_patch(*patch);
      if (!files) continue;  // said where it is applied
      for (const auto& file : *files) paths.insert({file.old_path, file.new_path});
    }
    paths.erase("");
    auto touched = read_git_files(repository, row.commit, paths);
    if (!touched) return at(touched.error());
    tree_ = std::move(*touched);
    task.base = base_;
    return std::cref(tree_);
  }

  static std::string kind_of(const std::string& repository) {
    std::string kind;
    for (const char c : fs::path(repository).lexically_normal().relative_path().string()) {
      if (c == '/')
        kind += "__";
      else
        kind += is_name(std::string(1, c)) || c == '.' ? c : '_';
    }
    while (kind.starts_with('.') || kind.starts_with('_')) kind.erase(0, 1);
    return kind.empty() ? "repository" : kind.substr(kind.size() - std::min<size_t>(kind.size(), 64));
  }

  static Status add_check(const SweBenchRow& row, const GitTree& base, Task& task) {
    GitTree tested = base;
    const auto patched = apply_git_patch(row.test_patch, tested.files, tested.programs);
    if (!patched) return Status::invalid("\"test_patch\": " + patched.error().message());
    CommandCheck check;
    std::string command, modules;
    for (const auto& path : patched->removed) command += "rm -rf -- " + shell_quoted(path) + "\n";
    for (const auto& path : patched->written) {
      check.files[path] = tested.files.at(path);
      if (tested.programs.contains(path)) check.programs.insert(path);
      const auto name = fs::path(path).filename().string();
      if (name.ends_with("_test.py") || (name.starts_with("test") && name.ends_with(".py")))
        modules += " " + shell_quoted(path);
    }
    // What was installed went with the model's sandbox.
    for (const auto& each : row.install) command += "{ " + each + "\n} || exit 124\n";
    if (!row.test_commands.empty()) {
      command += join(row.test_commands, "\n");
    } else if (!modules.empty()) {
      task.needs = {"python3", "pytest"};
      command += "python3 -m pytest -rA -p no:cacheprovider" + modules;
    } else {
      return Status::invalid("the test patch has no test module of Python; say by \"test_cmd\" how tests are run");
    }
    check.commands = {{.command = std::move(command), .seconds = kSweBenchSeconds, .any_exit = true}};
    check.verifier = "the command of the tests";
    check.tests = row.fail_to_pass;
    check.tests->insert(check.tests->end(), row.pass_to_pass.begin(), row.pass_to_pass.end());
    task.expectation.commands = std::move(check);
    return {};
  }

  static Status add_solution(const SweBenchRow& row, const GitTree& base, Task& task) {
    if (trim(row.patch).empty()) return {};
    GitTree solved = base;
    const auto patched = apply_git_patch(row.patch, solved.files, solved.programs);
    if (!patched) return Status::invalid("\"patch\": " + patched.error().message());
    std::vector<Call> turn;
    std::string rest;
    for (const auto& path : patched->removed) rest += "rm -rf -- " + shell_quoted(path) + "\n";
    if (!rest.empty()) turn.push_back({"run_terminal_cmd", {{"command", rest}}});
    for (const auto& path : patched->written) {
      turn.push_back({"write", {{"file_path", path}, {"contents", solved.files.at(path)}}});
      if (solved.programs.contains(path) != base.programs.contains(path)) {
        const auto mode = solved.programs.contains(path) ? "chmod +x -- " : "chmod -x -- ";
        turn.push_back({"run_terminal_cmd", {{"command", mode + shell_quoted(path)}}});
      }
    }
    task.solution.turns.push_back(std::move(turn));
    return {};
  }

  const fs::path file_;
  GitTree tree_;
  std::string tree_name_;
  TaskBase base_;  // of the last commit that is too large for a task's own files
  std::string base_name_;
  uint64_t bytes_ = 0;
};

}  // namespace

bool is_swe_bench(const fs::path& file) {
  constexpr std::streamsize kBegin = 1 << 20;
  std::string begin(kBegin, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(begin.data(), kBegin);
  begin.resize(static_cast<size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  const auto text = trim(begin);
  const auto line = text.substr(0, text.find('\n'));
  return line.find("\"instance_id\"") != std::string_view::npos && line.find("\"task_id\"") == std::string_view::npos;
}

std::vector<Task> read_swe_bench(const fs::path& file, Mistakes& mistakes) {
  std::vector<Task> tasks;
  const auto text = read_file(file, kSweBenchLargestFile);
  if (!text) {
    mistakes.add(file.string(), 0, text.error().message());
    return tasks;
  }
  SweBenchReader reader(file);
  int number = 0;
  for (const auto line : split(*text, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    if (auto task = reader.task_of(line))
      tasks.push_back(std::move(*task));
    else
      mistakes.add(file.string(), number, task.error().message());
  }
  return tasks;
}

}  // namespace tandem::envs
