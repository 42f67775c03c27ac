// Runs whose episodes install packages, from a registry of the test, by the real pip.
#include <gmock/gmock.h>

#include <fstream>

#include "envs/packages/lock.h"
#include "tests/cli/eval_fixture.h"
#include "tests/cli/run_fixture.h"
#include "tests/envs/cache_of.h"
#include "tests/envs/package_registry.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

class PackagesRun : public RunTest {
 protected:
  void SetUp() override {
    if (std::system("/usr/bin/python3 -m pip --version > /dev/null 2>&1") != 0)
      GTEST_SKIP() << "this machine has no pip";
    registry_.put_project("hello", {{"1.0", "2024-01-01T00:00:00Z", envs::PackageRegistry::wheel("hello", "1.0")}});
    fs::remove_all(tasks());
    fs::create_directories(tasks());
  }
  static fs::path tasks() { return root() / "package-tasks"; }
  // What its model begins with was printed by the package.
  static void put_task(const std::string& name, const std::string& setup) {
    std::ofstream(tasks() / (name + ".yaml"))
        << "instruction: Write MATO into BIDU.\nfiles: {start.txt: nothing here}\n"
        << "setup: [\"" << setup << "\"]\nturns: 2\nends_on_change: true\n"
        << "check: {files_after: {BIDU: MATO}}\nsolution: {files: {BIDU: MATO}}\n";
  }
  Arguments wanted(Arguments more) const {
    more.insert(more.end(),
                {"tasks.path=" + tasks().string(), "tasks.heldout=0", "tasks.heldout_share=0", "env.call_seconds=20"});
    return more;
  }
  Arguments with_registry(Arguments more) const {
    more.push_back("env.packages.pypi=" + registry_.url("/simple/"));
    return wanted(more);
  }
  static fs::path lock_of(const fs::path& run_dir) { return run_dir / envs::kLockName; }

  envs::PackageRegistry registry_;
  const envs::CacheOf cache_{root() / "package-cache" / testing::UnitTest::GetInstance()->current_test_info()->name()};
  static constexpr const char* kInstall = "python3 -m pip install -q hello && python3 -c 'import hello'";
  static constexpr const char* kWheel = "/files/hello-1.0-py3-none-any.whl";
};

TEST_F(PackagesRun, what_a_run_installed_is_in_its_lock_and_installs_again_without_a_network) {
  for (const char* name : {"a", "b", "c"}) put_task(name, std::string(kInstall) + " && echo " + name);
  const fs::path first = root() / "packages-first", second = root() / "packages-second";
  ASSERT_EQ(run(with_registry({"run.steps=2"}), first), 0) << text(output()) << logs(first);
  EXPECT_EQ(registry_.asked(kWheel), 1);
  EXPECT_EQ(registry_.asked("/simple/hello/"), 1);
  expect_books_to_agree(first);
  const auto lock = envs::read_package_lock(lock_of(first));
  ASSERT_TRUE(lock.has_value()) << lock.error().to_string();
  EXPECT_TRUE(lock->contains("pypi/simple/hello"));
  EXPECT_TRUE(lock->contains("pypi/files/hello/hello-1.0-py3-none-any.whl"));

  // Goes on as it was: what is newer meanwhile is not there for it.
  registry_.put_project("hello", {{"2.0", "", envs::PackageRegistry::wheel("hello", "2.0")}});
  ASSERT_EQ(run(with_registry({"run.steps=3"}), first, true), 0) << text(output()) << logs(first);
  EXPECT_EQ(registry_.asked("/simple/hello/"), 1);

  const auto url = registry_.url("/simple/");
  registry_.stop();
  ASSERT_EQ(run(wanted({"run.steps=2", "env.packages.pypi=" + url, "env.packages.lock=" + lock_of(first).string(),
                        "env.packages.offline=true"}),
                second),
            0)
      << text(output()) << logs(second);
  EXPECT_EQ(envs::read_package_lock(lock_of(second)), lock);
  expect_nothing_left(first);
  expect_nothing_left(second);
}

TEST_F(PackagesRun, a_registry_that_is_away_is_no_failure_of_the_policy) {
  put_task("a", kInstall);
  registry_.fail_with("/simple/hello/", 503);
  const fs::path run_dir = root() / "packages-away";
  EXPECT_EQ(
      run(with_registry({"run.steps=1", "run.unscored_steps=100", "trainer.groups_per_step=1", "trainer.group_size=2"}),
          run_dir),
      5)
      << text(output());
  EXPECT_THAT(text(output()), HasSubstr("outcomes         infra_error "));
  EXPECT_THAT(logs(run_dir) + text(output()), HasSubstr("answered 503"));
  expect_books_to_agree(run_dir);
}

TEST_F(PackagesRun, a_killed_server_of_environments_goes_on_with_the_same_pages) {
  put_task("a", kInstall);
  const fs::path run_dir = root() / "packages-killed";
  Process process(command(with_registry({"run.steps=4", "env.packages.install=[pypi hello==1.0]"}), run_dir), output());
  ASSERT_TRUE(reaches_step(process, run_dir, 1)) << text(output()) << logs(run_dir);
  const pid_t server = pid_of(run_dir, "env");
  ASSERT_TRUE(signal(run_dir, server, SIGKILL));
  EXPECT_EQ(process.wait(), 0) << text(output()) << logs(run_dir);
  EXPECT_EQ(registry_.asked(kWheel), 1);
  EXPECT_EQ(registry_.asked("/simple/hello/"), 1);
  expect_books_to_agree(run_dir);
  expect_nothing_left(run_dir);
}

TEST_F(PackagesRun, is_checked_before_anything_starts) {
  put_task("a", "true");
  const fs::path run_dir = root() / "packages-checked";
  auto dry = with_registry({});
  dry.push_back("--dry-run");
  EXPECT_EQ(run(dry, run_dir), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("packages  pypi " + registry_.url("/simple/") + ": answers"));
  registry_.fail_with("/simple/pip/", 500);
  EXPECT_EQ(run(dry, run_dir), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("answered 500"));
  EXPECT_EQ(run(wanted({"env.packages.pypy=auto"}), run_dir), 2);
  EXPECT_THAT(text(output()), HasSubstr("did you mean env.packages.pypi?"));
  EXPECT_EQ(run(with_registry({"env.packages.lock=/nowhere/packages.lock", "env.packages.before=soon"}), run_dir), 2);
  EXPECT_THAT(text(output()), HasSubstr("env.packages.lock: there is no file /nowhere/packages.lock"));
  EXPECT_THAT(text(output()), HasSubstr("env.packages.before is \"soon\""));
}

// Those that every sample begins with are there for its tests, which have no registry.
class PackagesEval : public EvalTest {};

TEST_F(PackagesEval, what_is_installed_for_all_is_there_for_the_tests_and_in_the_lock_of_the_folder) {
  if (std::system("/usr/bin/python3 -m pip --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "this machine has no pip";
  const envs::CacheOf cache(root() / "package-cache" / "eval");
  envs::PackageRegistry registry;
  registry.put_project("hello", {{"1.0", "", envs::PackageRegistry::wheel("hello", "1.0")}});
  std::ofstream(root() / "suite/installed.yaml")
      << "instruction: What is the value of number 0? Answer with it alone.\nfiles: {notes.txt: hello}\n"
         "setup: [\"python3 -c 'import hello'\"]\n"
         "check: {commands: [{run: \"python3 -c 'import hello; print(hello.version)'\", output: \"1.0\\n\"}]}\n"
         "solution: {commands: [\"true\"]}\n";
  AnsweringServer server;
  const auto packages = [&](const std::string& wanted) {
    return suite(
        "endpoint: {url: " + server.url() + ", model: good}\ntasks: {path: installed.yaml}\nsamples: 3\nenv:\n  " +
        "call_seconds: 30\n  packages: {pypi: \"" + registry.url("/simple/") + "\", install: [pypi " + wanted + "]}\n");
  };
  ASSERT_EQ(run_eval({packages("hello==1.0"), "--out", night("installed").string()}), 0) << text(output());
  const Json results = json(night("installed") / "results.json");
  EXPECT_EQ(results.at("pass_rate"), 1.0) << results.dump(1);
  EXPECT_EQ(registry.asked("/files/hello-1.0-py3-none-any.whl"), 1);
  EXPECT_TRUE(envs::read_package_lock(night("installed") / envs::kLockName)->contains("pypi/simple/hello"));
  EXPECT_EQ(run_eval({packages("hello==9"), "--out", night("missing").string()}), 5) << "no verdict, never a 0";
  EXPECT_EQ(run_eval({packages("hello"), "--out", night("wrong").string(), "env.packages.before=soon"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("env.packages.before is \"soon\""));
}

}  // namespace
}  // namespace tandem
