#include "envs/episodes/commit_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "base/utf8.h"
#include "envs/episodes/test_runs.h"
#include "envs/episodes/validate.h"
#include "envs/tasks/commit_words.h"
#include "envs/tasks/git_tree.h"
#include "envs/tasks/yaml_task.h"
#include "envs/tasks/yaml_text.h"
#include "envs/tools/process.h"
#include "envs/tools/shell_words.h"

namespace tandem::envs {
namespace {

constexpr int kRunsAfter = 3;   // of tests that must pass each time
constexpr int kRunsBefore = 2;  // of tests that must fail each time
constexpr std::string_view kTestsPlace = "{tests}";

// One side of a commit: the files that it writes and takes away.
struct CommitSide {
  Files written;
  std::set<std::string> programs, removed;
  std::vector<ChangedText> texts;
};

// Whether an error says something about the commit, and not about this machine.
bool is_of_commit(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kInvalid || status.code() == Code::kCorrupt;
}

std::string on_one_line(std::string_view text) {
  std::string line = replace_invalid_utf8(trim(text).substr(0, 300));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = ' ';
  }
  return line;
}

Refusal unreadable(const Status& status) { return {NoTask::kUnreadable, on_one_line(status.message())}; }

std::string slug_of(std::string_view subject) {
  constexpr size_t kMost = 40;
  std::string slug;
  for (const char c : subject) {
    if (slug.size() >= kMost) break;
    if (std::isalnum(static_cast<unsigned char>(c)))
      slug += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!slug.empty() && slug.back() != '-')
      slug += '-';
  }
  while (slug.ends_with('-')) slug.pop_back();
  return slug;
}

bool is_absent(std::string_view object) { return object.find_first_not_of('0') == std::string_view::npos; }

void put_over(const CommitSide& side, Place& place) {
  for (const auto& path : side.removed) {
    place.files.erase(path);
    place.programs.erase(path);
    if (place.base) place.removed.insert(path);
  }
  for (const auto& [path, content] : side.written) place.files[path] = content;
  place.programs.insert(side.programs.begin(), side.programs.end());
}

// A command of the solution or the check that takes files away; empty for none.
std::string removal_of(const CommitSide& side) {
  std::string command;
  for (const auto& path : side.removed) command += "rm -f -- " + shell_quoted(path) + "\n";
  return command;
}

}  // namespace

struct CommitTasks::Draft {
  GitCommit commit;
  std::string name, message;
  std::vector<std::string> told;
  CommitSide source, hidden;
  std::vector<std::string> fail_to_pass, pass_to_pass;
  double seconds = 0;
};

Status CommitTasks::check_command() const {
  if (options_.command.find("pytest") == std::string::npos) return {};
  const auto run = TRY(run_tests({.files = {}}, "python3 -m pytest --version", backend_));
  if (run.exit_code == 0) return {};
  return Status::unfit("the tests are run by pytest, which sandboxes of this machine do not have: " +
                       on_one_line(run.output))
      .hint("install pytest for the system's python3, or give --command 'python3 -m unittest -v {tests}'");
}

std::string CommitTasks::command_of(const Draft& draft) const {
  std::string modules;
  for (const auto& [path, content] : draft.hidden.written) {
    const bool module = options_.rules.tests ? options_.rules.tests->matches(path) : is_test_module(path);
    if (module) modules += (modules.empty() ? "" : " ") + shell_quoted(path);
  }
  std::string command = removal_of(draft.hidden) + options_.command;
  for (size_t at = 0; (at = command.find(kTestsPlace, at)) != std::string::npos; at += modules.size())
    command.replace(at, kTestsPlace.size(), modules);
  return command;
}

// What the commit alone says.
std::optional<Refusal> CommitTasks::read(const std::string& id, Draft& draft) const {
  auto commit = read_git_commit(options_.repository, id);
  if (!commit) return unreadable(commit.error());
  draft.commit = std::move(*commit);
  if (draft.commit.parents.size() != 1) return refuse_changes(draft.commit, {}, options_.rules);
  const auto changes = changes_of_commit(options_.repository, draft.commit);
  if (!changes) return unreadable(changes.error());
  if (auto refusal = refuse_changes(draft.commit, *changes, options_.rules)) return refusal;

  draft.message = message_of_task(draft.commit.message);
  if (draft.message.empty()) return Refusal{NoTask::kNoMessage, "its message is empty, or no text"};
  if (const size_t words = words_of_message(draft.message); words < options_.rules.least_words) {
    return Refusal{NoTask::kShortMessage, fmt::format("its message has {} words; {} are the least: {}", words,
                                                      options_.rules.least_words, on_one_line(draft.message))};
  }
  std::set<std::string> objects;
  for (const auto& change : *changes) {
    for (const auto& object : {change.old_object, change.new_object}) {
      if (!is_absent(object)) objects.insert(object);
    }
  }
  // Before and after a change, each as large as both may be.
  const auto contents = read_git_objects(options_.repository, objects, 4 * options_.rules.most_bytes);
  if (!contents && contents.error().code() == Code::kInvalid)
    return Refusal{NoTask::kTooLarge, fmt::format("the files that it changes have more than {} together",
                                                  format_bytes(4 * options_.rules.most_bytes))};
  if (!contents) return unreadable(contents.error());
  size_t bytes = 0;
  for (const auto& change : *changes) {
    auto& side = is_hidden(options_.rules, change.path) ? draft.hidden : draft.source;
    ChangedText text{.path = change.path, .before = {}, .after = {}};
    for (const bool after : {false, true}) {
      const auto& object = after ? change.new_object : change.old_object;
      if (is_absent(object)) continue;
      const auto content = contents->find(object);
      if (content == contents->end())
        return Refusal{NoTask::kUnreadable, shown_path(change.path) + " is not in the repository"};
      if (content->second.find('\0') != std::string::npos || !is_valid_utf8(content->second))
        return Refusal{NoTask::kBinary, shown_path(change.path) + " is no text in UTF-8"};
      (after ? text.after : text.before) = content->second;
    }
    if (change.status == 'D') {
      side.removed.insert(change.path);
    } else {
      bytes += text.after.size();
      side.written[change.path] = text.after;
      if (change.after == "100755") side.programs.insert(change.path);
    }
    side.texts.push_back(std::move(text));
  }
  if (bytes > options_.rules.most_bytes)
    return Refusal{NoTask::kTooLarge, fmt::format("the files that it changes have {}; {} is the most",
                                                  format_bytes(bytes), format_bytes(options_.rules.most_bytes))};
  draft.told = untold_words(draft.source.texts, draft.hidden.texts, draft.message);
  if (draft.told.size() > options_.rules.most_names)
    return Refusal{NoTask::kTooLittleSaid,
                   fmt::format("its tests use {} new names and texts that its message does not say; {} are the most",
                               draft.told.size(), options_.rules.most_names)};
  draft.name = draft.commit.id.substr(0, 10);
  if (const auto slug = slug_of(draft.message.substr(0, draft.message.find('\n'))); !slug.empty())
    draft.name += "-" + slug;
  return std::nullopt;
}

// What its tests say, before it and after it.
Result<std::optional<Refusal>> CommitTasks::measure(Draft& draft) const {
  const auto& parent = draft.commit.parents[0];
  Place before;
  if (auto tree = read_git_tree(options_.repository, parent)) {
    before.files = std::move(tree->files);
    before.programs = std::move(tree->programs);
  } else if (tree.error().code() != Code::kInvalid) {
    if (is_of_commit(tree.error())) return unreadable(tree.error());
    return fail(tree.error());
  } else {
    // More than a task's own files may be, or with links.
    const auto base = find_task_base(TaskBase::Kind::kGit, options_.repository, parent);
    const auto prepared = base ? prepare_base(*base) : Result<BaseTree>(fail(base.error()));
    if (!prepared && !is_of_commit(prepared.error())) return fail(prepared.error());
    if (!prepared) return Refusal{NoTask::kTree, on_one_line(prepared.error().message())};
    before.base = *prepared;
  }
  put_over(draft.hidden, before);
  Place after = before;
  put_over(draft.source, after);

  const auto command = command_of(draft);
  double slowest = 0;
  std::set<std::string> passed, ever_passed_before, ever_passed_after, always_before;
  bool ends_well = true, fails_before = true, passes_before = true;
  std::string output;
  for (int i = 0; i < kRunsAfter; ++i) {
    auto run = TRY(run_tests(after, command, backend_, options_.seconds));
    if (run.is_out_of_time)
      return Refusal{NoTask::kSlow, fmt::format("its tests take longer than {} s", options_.seconds)};
    slowest = std::max(slowest, run.seconds);
    ends_well = ends_well && run.exit_code == 0;
    ever_passed_after.insert(run.passed.begin(), run.passed.end());
    if (i == 0) passed = run.passed;
    std::erase_if(passed, [&](const auto& name) { return !run.passed.contains(name); });
    output = std::move(run.output);
    if (options_.by_exit ? !ends_well : ever_passed_after.empty()) break;
  }
  const auto last_line = [&] {
    const auto text = trim(output);
    return on_one_line(text.substr(text.rfind('\n') + 1));
  };
  if (options_.by_exit && !ends_well)
    return Refusal{NoTask::kTestsFail, "the command does not end with 0 after it: " + last_line()};
  if (!options_.by_exit && ever_passed_after.empty())
    return Refusal{NoTask::kTestsFail, "no test is reported as passed after it: " + last_line()};
  for (int i = 0; i < kRunsBefore; ++i) {
    const auto run = TRY(run_tests(before, command, backend_, options_.seconds));
    slowest = std::max(slowest, std::min(run.seconds, kMostTestSeconds));
    fails_before = fails_before && run.exit_code != 0;
    passes_before = passes_before && run.exit_code == 0;
    ever_passed_before.insert(run.passed.begin(), run.passed.end());
    if (i == 0) always_before = run.passed;
    std::erase_if(always_before, [&](const auto& name) { return !run.passed.contains(name); });
  }
  draft.seconds = seconds_for_tests(slowest);
  if (options_.by_exit) {
    if (passes_before) return Refusal{NoTask::kNothingFails, "the command ends with 0 before it, too"};
    if (!fails_before) return Refusal{NoTask::kFlaky, "the command ends with 0 before it, but not each time"};
    return std::nullopt;
  }
  for (const auto& name : passed) {
    if (always_before.contains(name)) draft.pass_to_pass.push_back(name);
    if (!ever_passed_before.contains(name)) draft.fail_to_pass.push_back(name);
  }
  if (!draft.fail_to_pass.empty()) return std::nullopt;
  const bool unsure = std::any_of(ever_passed_after.begin(), ever_passed_after.end(),
                                  [&](const auto& name) { return !always_before.contains(name); });
  if (unsure) return Refusal{NoTask::kFlaky, "its tests do not end the same each time"};
  return Refusal{NoTask::kNothingFails, "every test that passes after it passes before it, too"};
}

std::string CommitTasks::yaml_of(const Draft& draft) const {
  const auto from = [&](std::string_view part, const std::string& path) {
    return fmt::format("    {}: {{from: {}}}\n", yaml_quoted(path),
                       yaml_quoted(fmt::format("{}.files/{}/{}", draft.name, part, path)));
  };
  std::string text = fmt::format("# Of commit {}.\n", draft.commit.id);
  if (!draft.told.empty())
    text +=
        fmt::format("# {} of the names and texts that its tests use are told beside its message.\n", draft.told.size());
  text += "instruction: " + yaml_block(instruction_of_commit(options_.project, draft.message, draft.told));
  std::vector<std::string> needs;
  for (const char* program : {"python3", "pytest", "make", "node", "cargo", "go", "ctest"}) {
    const auto words = " " + options_.command + " ";
    if (words.find(fmt::format(" {} ", program)) == std::string::npos) continue;
    if (!find_program(program).empty()) needs.emplace_back(program);
  }
  text += fmt::format("kind: {}\nneeds: [{}]\nturns: 50\n", yaml_quoted(options_.kind), join(needs, ", "));
  text += fmt::format("base: {{git: repository.git, commit: {}}}\ncheck:\n", yaml_quoted(draft.commit.parents[0]));
  if (!draft.hidden.written.empty()) text += "  files:\n";
  for (const auto& [path, content] : draft.hidden.written) text += from("tests", path);
  text += fmt::format("  commands:\n    - run: {}\n      seconds: {}\n", yaml_quoted(command_of(draft)), draft.seconds);
  if (!options_.by_exit) text += "  tests:\n";
  for (const auto* names : {&draft.fail_to_pass, &draft.pass_to_pass}) {
    for (const auto& name : *names) text += "    - " + yaml_quoted(name) + "\n";
  }
  text += "solution:\n";
  if (!draft.source.written.empty()) text += "  files:\n";
  for (const auto& [path, content] : draft.source.written) text += from("solution", path);
  std::string commands = removal_of(draft.source);
  for (const auto& path : draft.source.programs) commands += "chmod +x -- " + shell_quoted(path) + "\n";
  if (!commands.empty()) text += "  commands:\n    - " + yaml_quoted(commands) + "\n";
  return text;
}

// The task on disk; it has its name when it has been proved.
Result<std::optional<Refusal>> CommitTasks::write(const Draft& draft) {
  {
    const std::lock_guard lock(copying_);
    TRY(copy_git_commit(options_.repository, draft.commit.parents[0], options_.folder / "repository.git"));
  }
  const auto files = options_.folder / (draft.name + ".files");
  std::error_code error;
  for (const auto& [side, part] : {std::pair(&draft.hidden, "tests"), std::pair(&draft.source, "solution")}) {
    for (const auto& [path, content] : side->written) {
      const auto target = files / part / path;
      TRY(make_directories(target.parent_path()));
      TRY(write_file(target, content));
      if (!side->programs.contains(path)) continue;
      fs::permissions(target, fs::perms::owner_exec | fs::perms::group_exec, fs::perm_options::add, error);
      if (error) return fail(Status::from_errno(target.string(), error.value()));
    }
  }
  const auto file = options_.folder / (draft.name + ".yaml"),
             unproved = options_.folder / ("." + draft.name + ".draft");
  TRY(write_file(unproved, yaml_of(draft)));
  const auto drop = [&](Refusal refusal) {
    fs::remove(unproved, error);
    fs::remove_all(files, error);
    return refusal;
  };
  Mistakes mistakes;
  auto task = read_yaml_task(unproved, mistakes);
  if (!task) return drop({NoTask::kTree, on_one_line(mistakes.status().message())});
  task->name = draft.name;
  const auto proof = validate(*task, backend_, 1, {.call_time_limit_s = 60});
  if (proof.verdict == Verdict::kUnfit || proof.verdict == Verdict::kError)
    return fail(Status(proof.verdict == Verdict::kUnfit ? Code::kUnfit : Code::kUnavailable,
                       fmt::format("{}: {}", draft.name, join(proof.findings, "; "))));
  if (proof.verdict == Verdict::kFailed)
    return drop({NoTask::kProof, proof.findings.empty() ? "" : on_one_line(proof.findings[0])});
  fs::rename(unproved, file, error);
  if (error) return fail(Status::from_errno(file.string(), error.value()));
  return std::nullopt;
}

Result<CommitDecision> CommitTasks::try_commit(const std::string& id) {
  Draft draft;
  CommitDecision decision;
  decision.refusal = read(id, draft);
  if (!decision.refusal) decision.refusal = TRY(measure(draft));
  if (!decision.refusal) decision.refusal = TRY(write(draft));
  decision.commit = id;
  decision.subject = on_one_line(trim(draft.commit.message).substr(0, trim(draft.commit.message).find('\n')));
  if (decision.refusal) return decision;
  decision.task = draft.name;
  decision.fail_to_pass = draft.fail_to_pass.size();
  decision.pass_to_pass = draft.pass_to_pass.size();
  decision.told = std::move(draft.told);
  return decision;
}

}  // namespace tandem::envs
