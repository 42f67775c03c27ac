// Programs that are installed in a sandbox by the machine's own pip, npm and apt, from a registry of the test.
#include "envs/episodes/episode.h"
#include "envs/episodes/installed_backend.h"
#include "envs/packages/cache.h"
#include "tests/envs/package_registry.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

class SandboxPackages : public EitherSandbox {
 protected:
  void open(PackageSettings settings) {
    auto cache = PackageCache::open({.settings = std::move(settings),
                                     .call_seconds = 60,
                                     .record = scratch_.path / kLockName,
                                     .folder = scratch_.path / "store"});
    ASSERT_TRUE(cache.has_value()) << cache.error().to_string();
    cache_ = *cache;
    spec_.packages = cache_;
    spec_.call_time_limit_s = 60;
    make();
  }
  bool has_pip() { return shell("/usr/bin/python3 -m pip --version").find("pip ") == 0; }

  PackageRegistry registry_;
  Scratch scratch_;
  std::shared_ptr<PackageCache> cache_;
};

FOR_BOTH_KINDS_OF_SANDBOXES(SandboxPackages);

TEST_P(SandboxPackages, pip_installs_what_later_calls_import) {
  registry_.put_project("hello", {{"1.0", "", PackageRegistry::wheel("hello", "1.0")}});
  open({.pypi = registry_.url("/simple/")});
  if (!has_pip()) GTEST_SKIP() << "this machine has no pip";
  const auto installed = shell("/usr/bin/python3 -m pip install hello");
  EXPECT_THAT(installed, HasSubstr("Successfully installed hello-1.0"));
  EXPECT_THAT(installed, Not(HasSubstr("[network:")));
  EXPECT_EQ(shell("/usr/bin/python3 -c 'import hello; print(hello.version)'"), "1.0\n");
  const auto refused = shell("/usr/bin/python3 -m pip install nothing-of-that-name");
  EXPECT_THAT(
      refused,
      HasSubstr(
          "[network: GET /pypi/simple/nothing-of-that-name/ refused: the index has no project nothing-of-that-name]"));
  // There is nobody else.
  EXPECT_THAT(shell("/usr/bin/python3 -m pip install --index-url http://" + registry_.host() +
                    "/simple/ hello --force-reinstall"),
              Not(HasSubstr("Successfully")));
  EXPECT_EQ(registry_.asked("/files/hello-1.0-py3-none-any.whl"), 1);
}

TEST_P(SandboxPackages, a_registry_that_is_away_fails_the_call_and_not_the_model) {
  open({.pypi = registry_.url("/simple/")});
  if (!has_pip()) GTEST_SKIP() << "this machine has no pip";
  registry_.fail_with("/simple/hello/", 500);
  const auto outcome =
      sandbox_->call("run_terminal_cmd", {{"command", "/usr/bin/python3 -m pip install hello || true"}});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code(), Code::kUnavailable);
  EXPECT_THAT(outcome.error().message(),
              HasSubstr("GET /pypi/simple/hello/ failed: " + registry_.host() + " answered 500"));
}

TEST_P(SandboxPackages, npm_installs) {
  registry_.put_npm("left-pad", "1.3.0", PackageRegistry::archive_of_npm("left-pad", "1.3.0"));
  open({.npm = registry_.url("/npm/")});
  if (shell("npm --version").find("10.") != 0 && shell("node -e 'console.log(1)'") != "1\n") GTEST_SKIP() << "no npm";
  EXPECT_THAT(shell("npm install left-pad"), HasSubstr("added 1 package"));
  EXPECT_EQ(shell("node -e 'console.log(require(\"left-pad\"))'"), "1.3.0\n");
}

TEST_P(SandboxPackages, apt_downloads_what_dpkg_unpacks) {
  if (find_program("apt-get").empty() || find_program("dpkg-deb").empty()) GTEST_SKIP() << "no apt";
  scratch_.put("deb/usr/share/greeting", "hello\n");
  const std::string architecture =
#if defined(__aarch64__)
      "arm64";
#else
      "amd64";
#endif
  scratch_.put("deb/DEBIAN/control", "Package: greeting\nVersion: 1.0\nArchitecture: " + architecture +
                                         "\nMaintainer: T <t@example.org>\nDescription: A test\n");
  const auto made =
      run_process({.argv = {find_program("dpkg-deb"), "--root-owner-group", "--build", "deb", "greeting.deb"},
                   .directory = scratch_.path,
                   .environment = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}});
  ASSERT_TRUE(made && made->exit_code == 0) << made->output;
  const auto file = scratch_.get("greeting.deb");
  const std::string lists = "Package: greeting\nVersion: 1.0\nArchitecture: " + architecture +
                            "\nMaintainer: T <t@example.org>\nDescription: A test\nFilename: pool/g/greeting_1.0_" +
                            architecture + ".deb\nSize: " + std::to_string(file.size()) +
                            "\nSHA256: " + sha256_of(file) + "\n\n";
  const auto place = "main/binary-" + architecture + "/Packages";
  registry_.put(
      "/debian/dists/bookworm/Release",
      "Suite: bookworm\nCodename: bookworm\nDate: Mon, 01 Jan 2024 00:00:00 UTC\nComponents: main\nArchitectures: " +
          architecture + "\nSHA256:\n " + sha256_of(lists) + " " + std::to_string(lists.size()) + " " + place + "\n");
  registry_.put("/debian/dists/bookworm/" + place, lists);
  registry_.put("/debian/pool/g/greeting_1.0_" + architecture + ".deb", file);
  open({.debian = registry_.url("/debian/"), .debian_suites = {"bookworm main"}, .debian_keyring = ""});
  const auto said = shell(
      "apt-get update 2>&1 && apt-get download greeting 2>&1 && dpkg -x greeting_*.deb unpacked 2>&1 && cat "
      "unpacked/usr/share/greeting");
  EXPECT_THAT(said, HasSubstr("\nhello\n"));
  open({.debian = registry_.url("/debian/"),
        .debian_suites = {"bookworm main"},
        .debian_keyring = "",
        .install = {"debian greeting"}});
  InstalledBackend installed(*backend_, cache_, nullptr);
  const auto sandbox = installed.create(spec_);
  ASSERT_TRUE(sandbox.has_value()) << sandbox.error().to_string();
  const auto outcome = (*sandbox)->call("run_terminal_cmd", {{"command", "cat ~/.debian/usr/share/greeting && pwd"}});
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->output, "hello\n/workspace\n") << "what installed left the shell where it was";
}

// The way to the registries of the one before was still there: "the port of the proxy: Address already in use".
TEST_P(SandboxPackages, one_after_the_other_have_a_network_of_their_own) {
  open({.pypi = registry_.url("/simple/")});
  std::vector<std::unique_ptr<Sandbox>> kept;
  for (int i = 0; i < 12; ++i) {
    auto sandbox = backend_->create(spec_);
    ASSERT_TRUE(sandbox.has_value()) << i << ": " << sandbox.error().to_string();
    if (i % 3 == 0) kept.push_back(std::move(*sandbox));
  }
}

// A Dockerfile's `pip install`, where a registry is open.
TEST_P(SandboxPackages, what_a_task_needs_is_installed_for_the_model_and_for_its_tests) {
  registry_.put_project("hello", {{"1.0", "", PackageRegistry::wheel("hello", "1.0")}});
  open({.pypi = registry_.url("/simple/")});
  if (!has_pip()) GTEST_SKIP() << "this machine has no pip";
  PreparedSnapshots prepared(uint64_t{64} << 20);
  Task task;
  task.name = "greet";
  task.instruction = "Write the version.";
  task.needs = {"python hello==1.0"};
  task.expectation.commands.emplace();
  task.expectation.commands->commands.push_back(
      {.command = "/usr/bin/python3 -c 'import hello; assert hello.version == open(\"out\").read().strip()'"});
  EpisodeOptions options;
  options.packages = cache_;
  options.prepared = &prepared;
  options.call_time_limit_s = 60;
  for (int i = 0; i < 2; ++i) {
    auto episode = Episode::open(task, *backend_, options);
    ASSERT_TRUE(episode.has_value()) << episode.error().to_string();
    const auto said = (*episode)->call(
        "run_terminal_cmd", {{"command", "/usr/bin/python3 -c 'import hello; print(hello.version)' > out; cat out"}});
    ASSERT_TRUE(said.has_value());
    EXPECT_EQ(said->output, "1.0\n");
    const auto grade = (*episode)->score("");
    ASSERT_TRUE(grade.has_value()) << grade.error().to_string();
    EXPECT_EQ(grade->reward, 1) << grade->why;
  }
  EXPECT_EQ(registry_.asked("/files/hello-1.0-py3-none-any.whl"), 1);
}

TEST_P(SandboxPackages, installed_for_all_are_a_layer_that_is_made_once) {
  registry_.put_project("hello", {{"1.0", "", PackageRegistry::wheel("hello", "1.0")}});
  open({.pypi = registry_.url("/simple/"), .install = {"pypi hello==1.0"}});
  if (!has_pip()) GTEST_SKIP() << "this machine has no pip";
  PreparedSnapshots prepared(uint64_t{64} << 20);
  InstalledBackend installed(*backend_, cache_, &prepared);
  const auto begun_with = [&](bool open) -> std::string {
    auto spec = spec_;
    if (!open) spec.packages = nullptr;
    auto sandbox = installed.create(spec);
    if (!sandbox) return sandbox.error().to_string();
    const auto outcome =
        (*sandbox)->call("run_terminal_cmd", {{"command", "/usr/bin/python3 -c 'import hello; print(hello.version)'"}});
    return outcome ? outcome->output : outcome.error().to_string();
  };
  EXPECT_EQ(begun_with(true), "1.0\n");
  EXPECT_EQ(begun_with(true), "1.0\n");
  EXPECT_EQ(begun_with(false), "1.0\n") << "as tests have it";
  if (GetParam() == IsolatedBy::kNamespaces && geteuid() == 0) {
    EXPECT_EQ(prepared.counters().made, 1u);
  }
  EXPECT_EQ(registry_.asked("/files/hello-1.0-py3-none-any.whl"), 1);
  open({.pypi = registry_.url("/simple/"), .install = {"pypi hello==9"}});
  InstalledBackend wrong(*backend_, cache_, &prepared);
  const auto failed = wrong.create(spec_);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code(), Code::kUnavailable);
  EXPECT_THAT(failed.error().message(), HasSubstr("packages: `python3 -m pip install"));
}

}  // namespace
}  // namespace tandem::envs
