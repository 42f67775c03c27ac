// `tandem tasks` as a person and a script use it.
#include <gmock/gmock.h>

#include <fstream>

#include "envs/packages/lock.h"
#include "envs/tools/process.h"
#include "tests/cli/run_fixture.h"
#include "tests/envs/package_registry.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class TasksCommand : public testing::Test {
 protected:
  TasksCommand() {
    std::string name = (fs::temp_directory_path() / "tandem-tasks-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) ::abort();
    folder_ = name;
  }
  ~TasksCommand() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  // What `tandem tasks ARGUMENTS` prints, both streams as they came, and its exit code.
  static std::pair<std::string, int> tasks(const std::string& arguments) {
    const auto result = envs::run_process({.argv = {"/bin/sh", "-c", "'" TANDEM_BINARY "' tasks " + arguments},
                                           .directory = TANDEM_SOURCE_DIR,
                                           .environment = {"PATH=/usr/bin:/bin:/usr/sbin:/sbin"},
                                           .time_limit_s = 240});
    return result ? std::pair(result->output, result->exit_code) : std::pair(result.error().message(), -1);
  }
  std::string put(const std::string& name, const std::string& content) {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << content;
    return (folder_ / name).string();
  }
  fs::path folder_;
};

TEST_F(TasksCommand, lists_names_kinds_and_checks) {
  const auto [output, code] = tasks("list examples/tasks");
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("functions/reverse_words"));
  EXPECT_THAT(output, HasSubstr("harbor/word-count"));
  const auto [line, json_code] = tasks("list examples/tasks answers --json");
  EXPECT_EQ(json_code, 0);
  EXPECT_EQ(Json::parse(line).at("name"), "answers/count_errors");
  EXPECT_THAT(tasks("list examples/tasks nothing").first, HasSubstr("has no task \"nothing\""));
  EXPECT_THAT(tasks("list workspace:set --count 2").first, HasSubstr("set/train/1"));
}

TEST_F(TasksCommand, shows_what_a_model_meets_and_never_the_tests) {
  const auto [output, code] = tasks("show examples/tasks/functions/reverse_words.yaml");
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, HasSubstr("It loses the"));
  EXPECT_THAT(output, HasSubstr("python3 -I test_text.py"));
  EXPECT_THAT(output, testing::Not(HasSubstr("two one")));
  EXPECT_EQ(tasks("show examples/tasks").second, 2);
  EXPECT_THAT(tasks("show examples/tasks reverse_words").first, HasSubstr("did you mean \"functions/reverse_words\"?"));
}

TEST_F(TasksCommand, images_are_advised_only_where_a_dockerfile_is_left_out) {
  const auto said = [&](const std::string& name) { return tasks("validate " + (folder_ / name).string()).first; };
  ASSERT_EQ(tasks("new " + (folder_ / "own").string()).second, 0);
  put("own/x/task.toml", "version = '1.0'\n");
  put("own/x/instruction.md", "x\n");
  put("own/x/tests/test.sh", "echo 1 > /logs/verifier/reward.txt\n");
  put("own/x/environment/Dockerfile", "FROM debian:12 AS built\nFROM debian:12\nCOPY --from=built /x /x\n");
  EXPECT_THAT(said("own"), HasSubstr("cannot be followed here; `tandem tasks build`"));
  fs::remove_all(folder_ / "own" / "x");
  put("own/lines.jsonl", R"({"instance_id":"a__b-1","repo":"./none","base_commit":"0000000"})"
                         "\n");
  EXPECT_THAT(said("own"), HasSubstr("1 task is left out, which cannot be read"));
}

TEST_F(TasksCommand, a_base_is_told_with_its_source_and_once_it_is_unpacked_with_its_size) {
  put("repo/a.py", "a = 1\n");
  put("repo/b.py", "b = 2\n");
  const auto task = put("on.yaml", "base: {folder: repo}\ninstruction: x\ncheck: {answer: y}\nsolution: {answer: y}\n");
  const auto source = fs::canonical(folder_ / "repo").string();
  const auto with = [&](const std::string& words) {
    const auto result =
        envs::run_process({.argv = {"/bin/sh", "-c", "'" TANDEM_BINARY "' tasks " + words},
                           .directory = TANDEM_SOURCE_DIR,
                           .environment = {"PATH=/usr/bin:/bin", "XDG_CACHE_HOME=" + (folder_ / "cache").string()},
                           .time_limit_s = 240});
    return result ? std::pair(result->output, result->exit_code) : std::pair(result.error().message(), -1);
  };
  const auto [shown, code] = with("show " + task);
  EXPECT_EQ(code, 0) << shown;
  EXPECT_THAT(shown, HasSubstr("begins on the folder " + source + " (not unpacked here yet)"));
  EXPECT_THAT(shown, HasSubstr("a model is told what lies at its top"));
  EXPECT_EQ(with("validate " + task + " --repeats 1").second, 0);
  const auto unpacked = with("show " + task).first;
  EXPECT_THAT(unpacked, HasSubstr("begins on the folder " + source + " (2 files, 12 B"));
  EXPECT_THAT(unpacked, HasSubstr("Files:\n    a.py\n    b.py\n    (2 files in all)\n"));
  const auto [line, json_code] = with("list --json " + task);
  EXPECT_EQ(json_code, 0) << line;
  const auto listed = Json::parse(line).at("base");
  EXPECT_EQ(listed.at("kind"), "folder");
  EXPECT_EQ(listed.at("source"), source);
  EXPECT_EQ(listed.at("commit"), Json());
  EXPECT_EQ(listed.at("files"), 2);
  EXPECT_EQ(listed.at("bytes"), 12);
  EXPECT_THAT(with("list " + task).first, HasSubstr("over the folder " + source));
  EXPECT_EQ(Json::parse(with("list --json examples/tasks answers").first).at("base"), Json());
}

TEST_F(TasksCommand, a_script_of_tests_is_shown_without_what_the_grader_puts_around_it) {
  const auto shown = tasks("show examples/tasks/harbor/word-count").first;
  EXPECT_THAT(shown, HasSubstr("checked by tests/test.sh\n    bash /tests/test.sh\n"));
}

TEST_F(TasksCommand, validates_and_says_by_its_exit_code_what_came_out) {
  const auto good = tasks("validate examples/tasks --repeats 1");
  EXPECT_EQ(good.second, 0) << good.first;
  const auto bad = put("bad.yaml", "instruction: x\ncheck: {answer: y}\nsolution: {answer: z}\n");
  const auto wrong = tasks("validate " + bad + " --repeats 1 --json 2>/dev/null");
  EXPECT_EQ(wrong.second, 1);
  EXPECT_EQ(Json::parse(wrong.first).at("tasks")[0].at("verdict"), "failed");
  const auto lacking =
      put("unfit.yaml", "instruction: x\nneeds: [no-such-program]\ncheck: {answer: y}\nsolution: {answer: y}\n");
  EXPECT_EQ(tasks("validate " + lacking).second, 3);
  EXPECT_EQ(tasks("validate " + put("worse.yaml", "instrution: x\n")).second, 2);
  EXPECT_EQ(tasks("validate workspace:set --count 2 --repeats 1").second, 0);
}

// With the registries, the lock and the cache that a run has.
class TasksWithPackages : public TasksCommand {
 protected:
  void SetUp() override {
    if (std::system("/usr/bin/python3 -m pip --version > /dev/null 2>&1") != 0)
      GTEST_SKIP() << "this machine has no pip";
    registry_.put_project("hello", {{"1.0", "2024-01-01T00:00:00Z", envs::PackageRegistry::wheel("hello", "1.0")}});
    put("set/tested.yaml",
        "instruction: Write MATO into BIDU.\nfiles: {start.txt: x}\n"
        "check: {commands: [{run: \"cat BIDU && python3 -c 'import hello; print(hello.version)'\", output: "
        "\"MATO\\n1.0\\n\"}]}\nsolution: {files: {BIDU: \"MATO\\n\"}}\n");
    put("set/set_up.yaml",
        "instruction: What is the version?\nsetup: [\"python3 -m pip install -q hello && python3 -c 'import hello'\"]\n"
        "check: {answer: '1.0'}\nsolution: {answer: '1.0'}\n");
  }
  std::pair<std::string, int> with(const std::string& words) {
    const auto result =
        envs::run_process({.argv = {"/bin/sh", "-c", "'" TANDEM_BINARY "' tasks " + words},
                           .directory = TANDEM_SOURCE_DIR,
                           .environment = {"PATH=/usr/bin:/bin", "XDG_CACHE_HOME=" + (folder_ / "cache").string()},
                           .time_limit_s = 240});
    return result ? std::pair(result->output, result->exit_code) : std::pair(result.error().message(), -1);
  }
  std::string set() const { return (folder_ / "set").string(); }
  std::string lock() const { return (folder_ / "locked/packages.lock").string(); }
  std::string registry() const { return "--packages pypi=" + registry_.url("/simple/"); }

  envs::PackageRegistry registry_;
  static constexpr const char* kWheel = "/files/hello-1.0-py3-none-any.whl";
  static constexpr const char* kInstalled = " --packages-set 'install=[pypi hello==1.0]'";
};

TEST_F(TasksWithPackages, that_tests_and_setups_need_are_proved_recorded_and_replayed_offline) {
  fs::create_directories(folder_ / "locked");
  const auto none = with("validate " + set() + " --repeats 1");
  EXPECT_NE(none.second, 0) << none.first;
  const auto proved =
      with("validate " + set() + " --repeats 2 " + registry() + kInstalled + " --packages-record " + lock());
  EXPECT_EQ(proved.second, 0) << proved.first;
  EXPECT_EQ(registry_.asked(kWheel), 1) << "fetched once for all attempts";
  EXPECT_EQ(registry_.asked("/simple/hello/"), 1);
  EXPECT_THAT(proved.first, HasSubstr("env.packages.pypi=" + registry_.url("/simple/")));
  EXPECT_THAT(proved.first, HasSubstr("'env.packages.install=[pypi hello==1.0]' env.packages.lock=" + lock()));
  const auto locked = envs::read_package_lock(lock());
  ASSERT_TRUE(locked.has_value()) << locked.error().to_string();
  EXPECT_TRUE(locked->contains("pypi/files/hello/hello-1.0-py3-none-any.whl"));

  const auto url = registry();
  registry_.stop();
  const auto replayed = with("validate " + set() + " --repeats 1 " + url + kInstalled + " --packages-lock " + lock() +
                             " --packages-set offline=true");
  EXPECT_EQ(replayed.second, 0) << replayed.first;
  const auto tried = with("try " + set() + " tested --solution " + url + kInstalled + " --packages-lock " + lock() +
                          " --packages-set offline=true");
  EXPECT_EQ(tried.second, 0) << tried.first;
  // A registry that is away is no mistake of the task.
  const auto away = with("validate " + set() + " set_up --json --repeats 1 " + url + " 2>/dev/null");
  EXPECT_EQ(away.second, 1) << away.first;
  EXPECT_EQ(Json::parse(away.first).at("tasks")[0].at("verdict"), "error");
}

TEST_F(TasksWithPackages, of_a_run_s_config_are_taken_and_verdicts_count_for_the_same_ones_alone) {
  const auto config =
      put("run.yaml", "env:\n  packages: {pypi: \"" + registry_.url("/simple/") + "\", install: [pypi hello==1.0]}\n");
  const auto command = "validate " + set() + " tested --repeats 1 --results " + (folder_ / "verdicts.jsonl").string();
  EXPECT_EQ(with(command).second, 1);
  const auto proved = with(command + " --packages-config " + config);
  EXPECT_EQ(proved.second, 0) << proved.first;
  EXPECT_THAT(proved.first, HasSubstr("Next: tandem run " + config));
  EXPECT_THAT(with(command + " --packages-config " + config).first, HasSubstr("1 of 1 task is in"));
  EXPECT_EQ(with(command).second, 1) << "without them it is still failed";
}

TEST_F(TasksWithPackages, are_refused_by_flag_and_key_where_they_are_none) {
  const auto said = [&](const std::string& flags, const std::string& words) {
    const auto [output, code] = with("validate " + set() + " " + flags);
    EXPECT_EQ(code, 2) << output;
    EXPECT_THAT(output, HasSubstr(words));
  };
  said("--packages pypy", "--packages: \"pypy\" is no registry; did you mean \"pypi\"?");
  said(registry() + " --packages-set instal=x", "--packages-set");
  said(registry() + " --packages-set before=soon", "env.packages.before is \"soon\"");
  said(registry() + " --packages-lock /nowhere/packages.lock", "there is no file /nowhere/packages.lock");
  said("--packages-record x", "--packages-record: nothing can be recorded");
  said("--packages-set offline=true", "must name a registry");
}

TEST_F(TasksCommand, writes_tasks_to_begin_with_that_are_proved_and_refuse_a_cheat) {
  const auto folder = (folder_ / "mine").string();
  const auto made = tasks("new " + folder);
  EXPECT_EQ(made.second, 0) << made.first;
  EXPECT_THAT(made.first, HasSubstr("tandem tasks validate " + folder));
  const auto proved = tasks("validate " + folder + " --repeats 1");
  EXPECT_EQ(proved.second, 0) << proved.first;
  EXPECT_THAT(proved.first, HasSubstr("Next: tandem run configs/quickstart.yaml tasks.path=" + folder));
  EXPECT_EQ(tasks("try " + folder + " code/mend_total < " + folder + "/cheat.sh").second, 1);
  EXPECT_EQ(tasks("try " + folder + " code/mend_total --solution").second, 0);
  const auto again = tasks("new " + folder);
  EXPECT_EQ(again.second, 2);
  EXPECT_THAT(again.first, HasSubstr("is there already, and not empty"));
}

TEST_F(TasksCommand, goes_on_where_it_was_interrupted_and_does_changed_tasks_again) {
  const auto results = (folder_ / "results.jsonl").string();
  const std::string command = "validate " + (folder_ / "set").string() + " --repeats 1 --results " + results;
  put("set/a.yaml", "instruction: x\ncheck: {answer: y}\nsolution: {answer: y}\n");
  put("set/b.yaml", "instruction: x\ncheck: {answer: y}\nsolution: {answer: y}\n");
  EXPECT_EQ(tasks(command).second, 0);
  EXPECT_THAT(tasks(command).first, HasSubstr("2 of 2 tasks are in"));
  std::ofstream(results, std::ios::app) << "{\"name\": \"b\", \"ki";  // killed while it wrote
  put("set/a.yaml", "instruction: x\ncheck: {answer: z}\nsolution: {answer: y}\n");
  const auto again = tasks(command);
  EXPECT_THAT(again.first, HasSubstr("1 of 2 tasks are in"));
  EXPECT_EQ(again.second, 1);
  const auto notes = put("notes.txt", "mine");
  EXPECT_EQ(tasks("validate " + (folder_ / "set").string() + " --results " + notes).second, 2);
  EXPECT_EQ(text(notes), "mine");
  EXPECT_THAT(tasks(command).first, HasSubstr("2 of 2 tasks are in"));
}

TEST_F(TasksCommand, makes_tasks_of_a_repository_and_goes_on_where_it_was_interrupted) {
  const auto repository = (folder_ / "words").string(), made = (folder_ / "made").string();
  put("words/words.py",
      "def first(text):\n    \"\"\"The first word.\"\"\"\n    return text.split()[0]\n\n\n"
      "def last(text):\n    \"\"\"The last word.\"\"\"\n    return text.split()[-1]\n\n\n"
      "def unused(text):\n    \"\"\"Nobody tests this.\"\"\"\n    return text\n\n\n"
      "def silent(text):\n    return text\n");
  put("words/test_words.py",
      "import unittest\nimport words\n\n\nclass T(unittest.TestCase):\n    def test_ends(self):\n"
      "        self.assertEqual((words.first('a b'), words.last('a b'), words.silent('')), ('a', 'b', ''))\n");
  const auto command = "make " + repository + " " + made;
  const auto wrong = tasks(command + " --test 'echo nothing'");
  EXPECT_EQ(wrong.second, 2);
  EXPECT_THAT(wrong.first, HasSubstr("reports no test that passes each time; it printed\nnothing"));
  const auto one = tasks(command + " --limit 1 --threads 1 --json 2>/dev/null");
  EXPECT_EQ(one.second, 0);
  EXPECT_EQ(Json::parse(one.first), Json({{"function", "words.py:first"}, {"task", "words-first"}, {"tests", 1}}));
  std::ofstream(made + "/functions.log", std::ios::app) << "{\"function\": \"wor";  // killed while it wrote
  const auto all = tasks(command);
  EXPECT_EQ(all.second, 0) << all.first;
  EXPECT_THAT(all.first, HasSubstr("1 functions are in"));
  EXPECT_THAT(all.first, HasSubstr("words-last"));
  EXPECT_THAT(all.first, HasSubstr("2 tasks of 3 functions"));
  EXPECT_THAT(tasks(command + " --undocumented").first, HasSubstr("3 tasks of 4 functions"));
  EXPECT_EQ(tasks("validate " + made + " --repeats 1").second, 0);
  put("words/words.py", "x = 1\n");
  EXPECT_THAT(tasks(command + " --test \"echo 'a (b.c) ... ok'\"").first, HasSubstr("is of another repository"));
  EXPECT_THAT(tasks("make " + repository + " " + repository + "/tasks").first, HasSubstr("lies within the repository"));
  EXPECT_THAT(tasks("make " + repository + " " + folder_.string() + " --test \"echo 'a (b.c) ... ok'\"").first,
              HasSubstr("holds something else"));
}

TEST_F(TasksCommand, a_shell_is_tried_and_graded) {
  const std::string task = "examples/tasks/files/raise_limit.yaml";
  const auto solved = tasks("try " + task + " <<'END'\ncat server.ini\nsed -i s/50/200/ server.ini\nexit\nEND");
  EXPECT_EQ(solved.second, 0) << solved.first;
  EXPECT_THAT(solved.first, HasSubstr("max_connections = 50"));
  EXPECT_THAT(solved.first, HasSubstr("reward 1"));
  EXPECT_EQ(tasks("try " + task + " < /dev/null").second, 1);
  EXPECT_EQ(tasks("try examples/tasks/answers/count_errors.yaml --answer 5 < /dev/null").second, 0);
  EXPECT_EQ(tasks("try examples/tasks harbor/word-count --solution").second, 0);
}

}  // namespace
}  // namespace tandem
