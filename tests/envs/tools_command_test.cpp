// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "envs/backends/checks.h"
#include "envs/tools/process.h"
#include "envs/tools/tool.h"
#include "tests/envs/local_server.h"
#include "tests/envs/scratch.h"
#include "tests/within.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

// What a shell prints, and its exit code.
std::pair<std::string, int> on_host(const std::string& command) {
  const auto result = run_process({{"/bin/sh", "-c", command}, "/", {"PATH=/usr/bin:/bin:/usr/sbin:/sbin"}, 30});
  return result ? std::pair(result->output, result->exit_code) : std::pair(result.error().message(), -1);
}

class ToolsCommand : public testing::Test {
 protected:
  // `tandem tools call`, started by `prefix`; the folder is one that everybody may write.
  std::pair<std::string, int> call(const std::string& arguments, const std::string& prefix = "") {
    fs::permissions(scratch_.path, fs::perms(0777));
    return on_host(prefix + " '" TANDEM_BINARY "' tools call " + arguments + " --workspace " + scratch_.path.string());
  }
  Scratch scratch_;
};

TEST_F(ToolsCommand, prints_one_object_and_exits_by_what_the_tool_did) {
  const auto [output, code] = call("run_terminal_cmd '{\"command\": \"echo hi; id -u; exit 4\"}'");
  EXPECT_EQ(code, 0) << output;
  const auto json = Json::parse(output);
  EXPECT_EQ(json.at("output"), "hi\n1000\n[exit code 4]\n");
  EXPECT_EQ(json.at("exit_code"), 4);
  EXPECT_EQ(json.at("ok"), true);
  EXPECT_TRUE(json.contains("truncated") && json.contains("seconds"));
  EXPECT_EQ(call("read_file '{\"target_file\": \"none\"}'").second, 1);
  EXPECT_EQ(call("read_file '{'").second, 2);
  EXPECT_EQ(
      on_host("'" TANDEM_BINARY "' tools call list_dir '{\"target_directory\": \".\"}' --workspace /nowhere").second,
      2);
}

TEST_F(ToolsCommand, raw_prints_what_the_model_sees_the_same_with_and_without_a_sandbox) {
  scratch_.put("a.txt", "one\n");
  const std::string read = "read_file '{\"target_file\": \"a.txt\"}' --raw";
  EXPECT_EQ(call(read).first, "     1|one\n");
  EXPECT_EQ(call(read + " --no-sandbox").first, "     1|one\n");
}

TEST_F(ToolsCommand, list_prints_every_tool_and_what_the_parameters_of_one_mean) {
  const std::string list = "'" TANDEM_BINARY "' tools list ";
  const auto [all, code] = on_host(list);
  EXPECT_EQ(code, 0);
  for (const auto& tool : tools()) EXPECT_THAT(all, HasSubstr(std::string(tool.name) + "{"));
  EXPECT_THAT(all, HasSubstr("read_file{target_file, offset?, limit?}\n    Reads a text file"));
  EXPECT_THAT(on_host(list + "glob_file_search").first,
              testing::ContainsRegex("  target_directory   string   Folder to look in."));
  const auto [wrong, wrong_code] = on_host(list + "reed_file");
  EXPECT_EQ(wrong_code, 2);
  EXPECT_THAT(wrong, HasSubstr("did you mean \"read_file\""));
}

TEST_F(ToolsCommand, opens_the_hosts_that_are_named_and_tells_of_each_request) {
  scratch_.put("a.txt", "the text\n");
  const LocalServer server(scratch_.path);
  const std::string fetch =
      "run_terminal_cmd '{\"command\": \"python3 -c \\\"import urllib.request as r; "
      "print(r.urlopen(\\u0027http://" +
      server.host() + "/a.txt\\u0027).read())\\\"\"}' --raw";
  const auto [text, code] = call(fetch + " --network " + server.host());
  EXPECT_EQ(code, 0);
  EXPECT_THAT(text, HasSubstr("b'the text\\n'\n"));
  EXPECT_THAT(text, HasSubstr("network: GET " + server.host() + ", "));
  EXPECT_THAT(call(fetch).first, HasSubstr("Connection refused"));
  const auto [wrong, wrong_code] = call(fetch + " --network 169.254.169.254");
  EXPECT_EQ(wrong_code, 2);
  EXPECT_THAT(wrong, HasSubstr("--network: \"169.254.169.254\" is an address where clouds tell secrets"));
}

TEST_F(ToolsCommand, offers_the_tools_of_servers_that_are_named) {
  scratch_.put("server.sh",
               "answer() { echo \"{\\\"jsonrpc\\\": \\\"2.0\\\", \\\"id\\\": $1, \\\"result\\\": $2}\"; }\n"
               "read -r line; answer 1 '{\"protocolVersion\": \"2025-06-18\"}'\n"
               "read -r line; read -r line; answer 2 '{\"tools\": [{\"name\": \"hi\", \"inputSchema\": {\"type\": "
               "\"object\"}}]}'\n"
               "read -r line; answer 3 '{\"content\": [{\"type\": \"text\", \"text\": \"hello\"}]}'\n");
  EXPECT_EQ(call("greeter__hi '{}' --raw --mcp-server 'greeter=bash server.sh'").first, "hello");
  const auto [wrong, code] = call("greeter__hi '{}' --mcp-server greeter");
  EXPECT_EQ(code, 2);
  EXPECT_THAT(wrong, HasSubstr("--mcp-server: \"greeter\" is not NAME=COMMAND"));
}

TEST_F(ToolsCommand, every_kind_of_tool_works_on_a_bound_folder) {
  scratch_.put("src/a.py", "x = 1\n");
  scratch_.put("old.txt", "old\n");
  EXPECT_EQ(call("glob_file_search '{\"glob_pattern\": \"*.py\"}' --raw"), std::pair(std::string("src/a.py\n"), 0));
  EXPECT_EQ(call("delete_file '{\"target_file\": \"old.txt\"}' --raw"), std::pair(std::string("Deleted old.txt."), 0));
  EXPECT_EQ(
      call("apply_patch '{\"input\": \"*** Begin Patch\\n*** Update File: src/a.py\\n@@\\n-x = 1\\n+x = 2\\n*** End "
           "Patch\"}' --raw"),
      std::pair(std::string("Applied the patch:\nM src/a.py\n"), 0));
  EXPECT_THAT(call("read_lints '{}' --raw").first, testing::StartsWith("No problems in 1 file ("));
  EXPECT_EQ(
      call("todo_write '{\"merge\": false, \"todos\": [{\"id\": \"1\", \"content\": \"a\", \"status\": \"pending\"}]}'")
          .second,
      1);
  EXPECT_EQ(scratch_.get("src/a.py"), "x = 2\n");
  EXPECT_FALSE(fs::exists(scratch_.path / "old.txt"));
}

TEST_F(ToolsCommand, works_for_an_ordinary_user) {
  if (geteuid() != 0) GTEST_SKIP() << "already one";
  const auto binary = scratch_.path / "tandem";
  fs::copy_file(TANDEM_BINARY, binary);
  const auto [output, code] = on_host(
      "setpriv --reuid 12345 --regid 12345 --clear-groups " + binary.string() +
      " tools call run_terminal_cmd '{\"command\": \"id -u; ls /proc | grep -c .\"}' --raw " + "--workspace /tmp");
  fs::permissions(scratch_.path, fs::perms(0777));
  const auto again =
      on_host("setpriv --reuid 12345 --regid 12345 --clear-groups " + binary.string() +
              " tools call run_terminal_cmd '{\"command\": \"id -u; echo x > made\"}' --raw --workspace " +
              scratch_.path.string());
  EXPECT_EQ(again.second, 0) << again.first << output << code;
  EXPECT_EQ(again.first, "1000\n");
  EXPECT_EQ(scratch_.get("made"), "x\n");
}

// A machine on which we may make no namespaces of users, and bubblewrap those that it needs. Root of a namespace is an
// ordinary user outside of it.
constexpr const char* kNoUserNamespaces =
    "unshare -Urm sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; exec \"$@\"' sh";
constexpr const char* kNoBubblewrapEither =
    "unshare -Urm sh -c 'echo 0 > /proc/sys/user/max_user_namespaces; mount --bind /dev/null /usr/bin/bwrap; "
    "exec \"$@\"' sh";

TEST_F(ToolsCommand, runs_in_bubblewrap_where_user_namespaces_are_refused) {
  if (!fs::exists("/usr/bin/bwrap")) GTEST_SKIP() << "no bubblewrap";
  const auto [output, code] = call(
      "run_terminal_cmd '{\"command\": \"hostname; ls /; ls /sys /home; echo made > made; "
      "grep -E \\\"Cap|NoNew|Seccomp:\\\" /proc/self/status; cat /proc/sys/kernel/osrelease\"}' --raw",
      kNoUserNamespaces);
  EXPECT_EQ(code, 0) << output;
  EXPECT_THAT(output, testing::StartsWith("tandem\nbin\n"));
  EXPECT_THAT(output, HasSubstr("/sys:\ndevices\n")) << "numbers of processors alone";
  EXPECT_THAT(output, HasSubstr("'/home': No such file"));
  EXPECT_THAT(output, testing::ContainsRegex("CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
                                             "CapBnd:\t0000000000000000\n"));
  EXPECT_THAT(output, HasSubstr("NoNewPrivs:\t1\nSeccomp:\t2\n"));
  EXPECT_THAT(output, HasSubstr("osrelease: No such file"));
  EXPECT_EQ(scratch_.get("made"), "made\n");
  const auto [doctor, fit] = on_host(std::string(kNoUserNamespaces) + " '" TANDEM_BINARY "' doctor");
  EXPECT_THAT(doctor, HasSubstr("made one by bubblewrap and ran a command in it"));
  EXPECT_THAT(doctor, HasSubstr("without bubblewrap: no sandbox can be made here: new namespaces: "));
}

TEST_F(ToolsCommand, the_environment_says_what_keeps_sandboxes_apart) {
  if (!fs::exists("/usr/bin/bwrap")) GTEST_SKIP() << "no bubblewrap";
  const std::string list = "run_terminal_cmd '{\"command\": \"ls /etc | grep -c machine; id -u\"}' --raw";
  EXPECT_EQ(call(list).first, "1\n1000\n");
  EXPECT_EQ(call(list, "TANDEM__ENV__SANDBOX=bubblewrap").first, "0\n1000\n");
  EXPECT_EQ(call(list, "TANDEM__ENV__SANDBOX=namespaces " + std::string(kNoUserNamespaces)).second, 3);
  const auto [output, code] = call(list, "TANDEM__ENV__SANDBOX=none");
  EXPECT_EQ(code, 2);
  EXPECT_THAT(output, HasSubstr("TANDEM__ENV__SANDBOX is \"none\", which is none of auto, namespaces, bubblewrap"));
}

TEST_F(ToolsCommand, runs_nothing_and_exits_with_three_where_no_sandbox_can_be_had) {
  const auto [output, code] = call("run_terminal_cmd '{\"command\": \"echo ran > ran\"}'", kNoBubblewrapEither);
  EXPECT_EQ(code, 3) << output;
  EXPECT_THAT(output, HasSubstr("no sandbox can be made here: new namespaces: "));
  EXPECT_THAT(output, HasSubstr("; with bubblewrap: no sandbox can be made here: /usr/bin/bwrap"));
  EXPECT_FALSE(fs::exists(scratch_.path / "ran"));
}

TEST_F(ToolsCommand, nothing_survives_when_it_is_killed) {
  const auto running = [] {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const auto line = read_file(entry.path() / "cmdline");
      count += line && line->starts_with("sleep") && line->find("86399") != std::string::npos;
    }
    return count;
  };
  const auto command = std::string("'" TANDEM_BINARY "' tools call run_terminal_cmd ") +
                       "'{\"command\": \"setsid sleep 86399 & sleep 86399\"}' --workspace " + scratch_.path.string();
  for (const char* kind : {"namespaces", "bubblewrap"}) {
    if (kind == std::string("bubblewrap") && !fs::exists("/usr/bin/bwrap")) continue;
    const pid_t process = fork();
    if (process == 0) {
      setenv("TANDEM__ENV__SANDBOX", kind, 1);
      execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
      _exit(127);
    }
    (void)within(30s, [&] { return running() == 2; });
    EXPECT_EQ(running(), 2u) << kind;
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
    (void)within(30s, [&] { return running() == 0; });
    EXPECT_EQ(running(), 0u) << kind;
  }
}

TEST(Checks, say_what_this_machine_has_and_how_to_mend_what_is_missing) {
  const auto checks = check_machine();
  ASSERT_GE(checks.size(), 6u);
  for (const auto& check : checks) {
    EXPECT_FALSE(check.name.empty());
    EXPECT_FALSE(check.found.empty());
    EXPECT_EQ(check.mend.empty(), check.level == CheckLevel::kOk) << check.name;
  }
}

}  // namespace
}  // namespace tandem::envs
