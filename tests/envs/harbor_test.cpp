#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/episodes/validate.h"
#include "envs/tasks/task_set.h"
#include "tests/envs/only_task.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

class Harbor : public SandboxTest {
 protected:
  Harbor() {
    scratch_.put("t/task.toml", "version = \"1.0\"\n[verifier]\ntimeout_sec = 20\n[environment]\nmemory = \"2G\"\n");
    scratch_.put("t/instruction.md", "Write hello into /app/out/greeting.txt.\n");
    scratch_.put("t/environment/Dockerfile",
                 "# a comment\nFROM ubuntu:24.04\nWORKDIR /app\nCOPY data/ ./data\nCOPY one.txt two.txt /app/more/\n"
                 "ENV WHO=\"the world\" \\\n    MODE=test\nRUN mkdir -p out && \\\n    echo $WHO > out/who.txt\n"
                 "WORKDIR /app\nCMD [\"bash\"]\n");
    scratch_.put("t/environment/data/a.txt", "a\n");
    scratch_.put("t/environment/one.txt", "1\n");
    scratch_.put("t/environment/two.txt", "2\n");
    scratch_.put("t/tests/test.sh",
                 "cd /app\nif [[ $(cat out/greeting.txt) == hello && $MODE == test ]]; then echo '{\"reward\": 1.0, "
                 "\"seconds\": 3}' > /logs/verifier/reward.json; else echo 0.25 > /logs/verifier/reward.txt; fi\n");
    scratch_.put("t/solution/solve.sh", "echo hello > /app/out/greeting.txt\n");
  }
  Result<Task> task() { return only_task(scratch_.path / "t"); }
  std::string mistakes() {
    const auto read = task();
    return read ? "" : read.error().message();
  }
  Grade play(const std::vector<std::string>& commands) {
    return play_commands(*task(), *backend_, commands, last_output_);
  }
  Result<double> reward_of(const std::vector<std::string>& commands) {
    const auto episode = *Episode::open(*task(), *backend_);
    for (const auto& command : commands) (void)episode->call("run_terminal_cmd", {{"command", command}});
    return episode->score("").transform([](const Grade& grade) { return grade.reward; });
  }
  Scratch scratch_;
  std::string last_output_;
};

TEST_F(Harbor, its_environment_is_there_by_the_names_that_it_uses) {
  const auto read = task();
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(read->name, "t");
  play(
      {"cat /app/data/a.txt more/one.txt /app/more/two.txt out/who.txt; echo $MODE; ls -d /tests /solution; ls /logs"});
  EXPECT_THAT(last_output_, HasSubstr("a\n1\n2\nthe world\ntest\n"));
  EXPECT_THAT(last_output_, HasSubstr("verifier"));
  play({"ls -A /tests /solution"});
  EXPECT_EQ(last_output_, "/solution:\n\n/tests:\n");
  play({"pwd; find /app -name a.txt; find /app/ -maxdepth 0 -type d; readlink /app /tests"});
  EXPECT_EQ(last_output_, "/app\n/app/data/a.txt\n/app/\n[exit code 1]\n") << "they are no links";
}

TEST_F(Harbor, the_reward_is_what_the_tests_leave) {
  EXPECT_EQ(play({}).reward, 0.25);
  EXPECT_EQ(play({"echo hello > /app/out/greeting.txt"}).reward, 1);
  EXPECT_EQ(play_solution(*task(), *backend_)->reward, 1);
}

TEST_F(Harbor, a_reward_that_the_model_leaves_does_not_count) {
  scratch_.put("t/tests/test.sh", "bash /app/run.sh\n");
  for (const char* attack :
       {"mkdir -p /logs/verifier logs/verifier; echo 1 > /logs/verifier/reward.txt; echo 1 > logs/verifier/reward.txt",
        "mkdir -p tandem-tests; echo 'echo 1 > /logs/verifier/reward.txt' > tandem-tests/test.sh",
        "echo 'kill -9 $PPID' > run.sh", "echo '(sleep 0.5; echo 1 > /logs/verifier/reward.txt) & exit 0' > run.sh",
        "echo 'echo 7 > /logs/verifier/reward.txt' > run.sh",
        "echo 'echo 1 > /logs/verifier/reward.txt; kill -9 $PPID' > run.sh"}) {
    EXPECT_EQ(reward_of({attack}).value_or(0), 0) << attack;
  }
}

TEST_F(Harbor, a_verifier_that_gives_no_verdict_gives_no_reward_and_says_why) {
  const auto why = [&](const std::string& script) {
    scratch_.put("t/tests/test.sh", script);
    const auto grade = reward_of({});
    return grade ? "a reward of " + std::to_string(*grade) : grade.error().message();
  };
  EXPECT_THAT(why("echo looking; exit 0\n"), HasSubstr("gave no reward: the tests left no reward"));
  EXPECT_THAT(why("echo looking; exit 0\n"), HasSubstr("looking"));
  EXPECT_THAT(why("set -e\nno_such_program /tests\n"), HasSubstr("it needs no_such_program, which this machine"));
  EXPECT_THAT(why("no_such_program; echo 0 > /logs/verifier/reward.txt\n"), HasSubstr("it needs no_such_program"));
  EXPECT_THAT(why("/usr/bin/python3 -S -m pytest; echo 0 > /logs/verifier/reward.txt\n"), HasSubstr("it needs pytest"));
  EXPECT_THAT(why("cd /app\r\nif true; then\r\necho 1 > /logs/verifier/reward.txt\r\nfi\r\n"), HasSubstr("CRLF"));
  EXPECT_THAT(why("echo dying; kill -9 $$\n"), HasSubstr("was ended by signal 9; its output ends:\ndying"));
  EXPECT_THAT(why("echo much > /logs/verifier/reward.txt\n"),
              HasSubstr("reward.txt holds \"much\" in place of a number"));
  EXPECT_THAT(why("echo 7 > /logs/verifier/reward.txt\n"), HasSubstr("a reward of 7, which is not from 0 to 1"));
  EXPECT_EQ(why("bash -c no_such_program 2> /dev/null; echo 0 > /logs/verifier/reward.txt\n"), "a reward of 0.000000");
}

TEST_F(Harbor, the_time_of_a_verifier_is_the_tasks) {
  scratch_.put("t/task.toml", "version = \"1.0\"\n[verifier]\ntimeout_sec = 600\n");
  EXPECT_EQ(task()->expectation.commands->commands[0].seconds, 600);
  scratch_.put("t/task.toml", "version = \"1.0\"\n");
  EXPECT_EQ(task()->expectation.commands->commands[0].seconds, 600) << "Harbor's default";
  scratch_.put("t/task.toml", "version = \"1.0\"\n[verifier]\ntimeout_sec = 1\n");
  scratch_.put("t/tests/test.sh", "echo 1 > /logs/verifier/reward.txt; echo begun; sleep 60\n");
  const auto late = reward_of({});
  ASSERT_FALSE(late.has_value());
  EXPECT_THAT(late.error().message(), HasSubstr("the time that the task gives it"));
  EXPECT_THAT(late.error().message(), HasSubstr("begun"));
  // Who waits no longer than that says so.
  scratch_.put("t/task.toml", "version = \"1.0\"\n[verifier]\ntimeout_sec = 600\n");
  const auto early = (*Episode::open(*task(), *backend_, {.most_test_seconds = 1}))->score("");
  ASSERT_FALSE(early.has_value());
  EXPECT_THAT(early.error().message(), HasSubstr("the task gives it 600 s"));
}

TEST_F(Harbor, tests_meet_links_empty_folders_and_modes_as_they_were_left_behind) {
  scratch_.put("t/tests/expected.txt", "the answer\n");
  scratch_.put("t/tests/test.sh",
               "cd /app\n"
               "[ \"$(readlink latest)\" = data/a.txt ] && [ \"$(cat latest)\" = a ] && [ \"$(readlink /app/deep/up)\" "
               "= ../more ]"
               " && [ \"$(readlink whole)\" = /app/data ] && [ \"$(readlink shell)\" = /bin/sh ] && [ -d empty/within ]"
               " && [ \"$(stat -c %a secret)\" = 600 ] && [ \"$(stat -c %a closed)\" = 700 ]; echo $((!$?)) > "
               "/logs/verifier/reward.txt\n");
  const std::vector<std::string> made = {
      "cd /app; ln -s data/a.txt latest; ln -s /app/data whole; mkdir -p deep empty/within closed; ln -s ../more "
      "deep/up; "
      "ln -s /bin/sh shell; echo x > secret; chmod 600 secret; chmod 700 closed"};
  const auto right = reward_of(made);
  ASSERT_TRUE(right.has_value()) << right.error().to_string();
  EXPECT_EQ(*right, 1);
  const auto wrong = reward_of({made[0] + "; chmod 640 secret"});
  ASSERT_TRUE(wrong.has_value()) << wrong.error().to_string();
  EXPECT_EQ(*wrong, 0);
}

TEST_F(Harbor, a_link_to_what_tests_bring_along_is_not_followed) {
  scratch_.put("t/tests/expected.txt", "the answer\n");
  scratch_.put("t/tests/test.sh",
               "cmp /app/result.txt /tests/expected.txt; echo $((!$?)) > /logs/verifier/reward.txt\n");
  const auto right = reward_of({"echo the answer > /app/result.txt"});
  ASSERT_TRUE(right.has_value()) << right.error().to_string();
  EXPECT_EQ(*right, 1);
  for (const char* cheat :
       {"ln -s /tests/expected.txt /app/result.txt", "ln -s ../tests/expected.txt /app/result.txt",
        "ln -s /app/../tests/expected.txt /app/result.txt", "ln -s tandem-tests/expected.txt /app/result.txt",
        "cd /app; mkdir -p a/b; ln -s /app a/b/c; ln -s a/b/c/../tests/expected.txt result.txt",
        "cd /app; ln -s tandem-tests t; ln -s t/expected.txt result.txt",
        "ln -s /proc/self/root/tests/expected.txt /app/result.txt",
        "ln -s /app/tandem-tests/expected.txt /app/result.txt", "ln -s /usr/../tests/expected.txt /app/result.txt",
        "ln -s /workspace/tandem-tests/expected.txt /app/result.txt"}) {
    const auto cheated = reward_of({cheat});
    ASSERT_TRUE(cheated.has_value()) << cheated.error().to_string();
    EXPECT_EQ(*cheated, 0) << cheat;
  }
}

TEST_F(Harbor, a_command_of_a_check_that_is_cut_short_gives_no_grade) {
  Task own{.spec = {.kind = "slow"}, .name = "slow/one", .instruction = "Wait."};
  own.expectation.commands =
      CommandCheck{.commands = {{.command = "sleep 0.7", .seconds = 60}, {.command = "sleep 60", .seconds = 60}}};
  const auto cut = (*Episode::open(own, *backend_, {.most_test_seconds = 1}))->score("");
  ASSERT_FALSE(cut.has_value());
  EXPECT_THAT(cut.error().message(), HasSubstr("`sleep 60` was still running after"));
  own.expectation.commands->commands[1].seconds = 1;
  const auto failed = (*Episode::open(own, *backend_, {}))->score("");
  ASSERT_TRUE(failed.has_value()) << failed.error().to_string();
  EXPECT_EQ(failed->reward, 0) << "its own time";
}

TEST_F(Harbor, a_failing_verifier_is_shown_with_its_output_where_a_task_is_validated) {
  scratch_.put("t/tests/test.sh", "echo looking around; no_such_program\n");
  const auto v = validate(*task(), *backend_, 1);
  EXPECT_EQ(v.verdict, Verdict::kFailed);
  ASSERT_EQ(v.findings.size(), 1u);
  EXPECT_THAT(v.findings[0], HasSubstr("the solution gets no grade: tests/test.sh gave no reward"));
  EXPECT_THAT(v.findings[0], HasSubstr("looking around"));
}

TEST_F(Harbor, a_program_that_is_missing_by_its_path_or_by_env_is_a_lack_of_the_machine) {
  for (const char* call : {"/usr/local/bin/no_such_tool x", "env no_such_tool x", "/usr/bin/env no_such_tool x"}) {
    scratch_.put("t/tests/test.sh", std::string(call) +
                                        " && echo 1 > /logs/verifier/reward.txt || echo 0 > "
                                        "/logs/verifier/reward.txt\n");
    const auto reward = reward_of({});
    ASSERT_FALSE(reward.has_value()) << call;
    EXPECT_THAT(reward.error().message(), HasSubstr("no_such_tool, which this machine does not have")) << call;
  }
}

TEST_F(Harbor, rewards_are_read_as_harbor_reads_them) {
  const auto graded = [&](const std::string& json) {
    scratch_.put("t/tests/test.sh", "echo '" + json + "' > /logs/verifier/reward.json");
    return play({});
  };
  EXPECT_EQ(graded("{\"score\": 0.5}").reward, 0.5);
  EXPECT_EQ(graded("{\"passed\": true}").reward, 1);
  EXPECT_EQ(graded("0.75").reward, 0.75);
  const auto several = graded("{\"reward\": 0.5, \"style\": 0.25, \"tests\": 3}");
  EXPECT_EQ(several.reward, 0.5);
  EXPECT_EQ(several.terms.at("style"), 0.25);
  EXPECT_EQ(several.terms.at("tests (metric)"), 3);
  const auto noted = graded("{\"reward\": 1, \"lint\": 0.5, \"note\": \"hi\"}");
  EXPECT_EQ(noted.reward, 1);
  EXPECT_EQ(noted.terms.at("lint"), 0.5);
  EXPECT_FALSE(noted.terms.contains("note")) << "a text";
  scratch_.put("t/tests/test.sh",
               "rm -f /logs/verifier/*; printf '\\357\\273\\2771\\r\\n' > /logs/verifier/reward.txt\n");
  EXPECT_EQ(play({}).reward, 1) << "as editors of Windows write it";
  scratch_.put("t/tests/test.sh", "printf '\\357\\273\\277{\"reward\": 1}\\r\\n' > /logs/verifier/reward.json\n");
  EXPECT_EQ(play({}).reward, 1);
  for (const char* wrong :
       {"{\"a\": 1, \"b\": 1}", "{\"reward\": \"1\"}", "{\"reward\": 1, \"more\": {}}", "[1]", "", "{}"}) {
    scratch_.put("t/tests/test.sh", "echo '" + std::string(wrong) + "' > /logs/verifier/reward.json");
    EXPECT_FALSE(reward_of({}).has_value()) << wrong;
  }
}

TEST_F(Harbor, a_reward_that_the_code_under_test_writes_does_not_count) {
  scratch_.put("t/tests/test.sh", "bash /app/run.sh; echo 0 > /logs/verifier/reward.txt; true\n");
  for (const char* attack :
       {"echo 1 > /logs/verifier/reward.json",
        "echo 1 > /logs/verifier/reward.txt; chmod 444 /logs/verifier/reward.txt",
        "echo 1 > /logs/verifier/reward.json; chmod 555 /logs/verifier",
        "ln -s /dev/null /logs/verifier/reward.txt; echo 1 > /logs/verifier/reward.json",
        "mkdir /logs/verifier/reward.txt; echo 1 > /logs/verifier/reward.json",
        "echo '{\"reward\": 1}' > /logs/verifier/reward.json; echo 1 > /logs/verifier/reward.txt"}) {
    EXPECT_EQ(reward_of({std::string("cat > run.sh <<'END'\n") + attack + "\nEND\n"}).value_or(0), 0) << attack;
  }
  // Both files by the tests themselves.
  scratch_.put(
      "t/tests/test.sh",
      "echo '{\"reward\": 0.5, \"a\": 1}' > /logs/verifier/reward.json; echo 0.5 > /logs/verifier/reward.txt\n");
  EXPECT_EQ(play({}).reward, 0.5);
}

TEST_F(Harbor, what_is_tested_cannot_change_the_programs_that_tests_run) {
  scratch_.put("t/tests/t.py", "import sys\nsys.exit(sys.argv[1] != '42')\n");
  scratch_.put("t/tests/test.sh",
               "out=$(bash /app/run.sh)\nif python3 /tests/t.py \"$out\"; then echo 1; else echo 0; fi > "
               "/logs/verifier/reward.txt\n");
  const auto with = [&](const std::string& attack) {
    return reward_of({fmt::format("cat > run.sh <<'END'\n{}\nEND", attack)});
  };
  EXPECT_EQ(*with("echo 42"), 1);
  for (const char* attack :
       {"mkdir -p ~/.local/bin; printf '#!/bin/sh\nexit 0\n' > ~/.local/bin/python3; chmod +x ~/.local/bin/python3",
        "d=$(/usr/bin/python3 -c 'import site; print(site.getusersitepackages())'); mkdir -p $d; echo 'import os; "
        "os._exit(0)' > $d/usercustomize.py"})
    EXPECT_EQ(*with(std::string(attack) + "; echo 41"), 0) << attack;
}

TEST_F(Harbor, files_beside_the_tests_are_not_taken_over) {
  scratch_.put("t/tests/test.sh", "test -e /tests/extra.sh; echo $? > /logs/verifier/reward.txt\n");
  EXPECT_EQ(play({"mkdir -p tandem-tests; touch tandem-tests/extra.sh"}).reward, 1);
}

TEST_F(Harbor, what_is_not_supported_is_refused_by_name_and_line) {
  scratch_.put("t/task.toml",
               "schema_version = \"2.0\"\nartifacts = [\"/x\"]\n[environment]\ngpus = 1\nskills_dir = \"a/b\"\n"
               "memry_mb = 4\n[agent]\nuser = \"bob\"\n");
  scratch_.put("t/environment/docker-compose.yaml", "services:\n  main:\n    deploy: {}\n  db:\n    image: x\n");
  scratch_.put(
      "t/environment/Dockerfile",
      "FROM a AS x\nFROM b\nWORKDIR /app\nARG X=1\nUSER bob\nCOPY --from=x /y /app\nCOPY ../z .\nCOPY data /etc/\n"
      "ADD http://x/y .\nRUN <<EOF\necho a\nEOF\nENV 1-2=3\nHEALTHCHECK NONE\nONBUILD RUN x\nRUN "
      "--mount=type=secret,id=a b\n"
      "COPY solution /app/\nRUN bash -lc \"pip install -r x\"\n");
  const auto all = mistakes();
  for (const char* part :
       {"task.toml:1: schema_version must be", "task.toml:2: artifacts is not supported",
        "task.toml:4: environment.gpus", "task.toml:5: environment.skills_dir is not supported",
        "task.toml:6: unknown key environment.memry_mb; did you mean environment.memory_mb?",
        "task.toml:8: agent.user is not supported", "docker-compose.yaml:4: the service db is not supported",
        "Dockerfile:2: FROM: builds of several stages", "Dockerfile:6: COPY: --from=x is not supported",
        "Dockerfile:7: COPY: ../z leads out", "Dockerfile:8: COPY: /etc/ lies outside of WORKDIR /app",
        "Dockerfile:9: ADD: there is no network", "Dockerfile:13: ENV: \"1-2\" is no name",
        "Dockerfile:15: ONBUILD: not supported", "Dockerfile:16: RUN: --mount=type=secret,id=a is not supported",
        "Dockerfile:17: COPY: solution would show solution", "Dockerfile:18: RUN: `pip install` needs a network"}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
}

TEST_F(Harbor, an_image_takes_the_place_of_the_recipe) {
  scratch_.put("t/task.toml",
               "schema_version = \"1.1\"\n[environment]\ndocker_image = \"quay.io/a/b:1\"\nworkdir = \"/app\"\n");
  scratch_.put("t/environment/Dockerfile", "FROM x AS y\nFROM y\nARG A=1\n");
  const auto read = task();
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(read->image, "quay.io/a/b:1");
  EXPECT_EQ(read->links.at("/app"), "/workspace");
  EXPECT_TRUE(read->needs.empty());
  scratch_.put("t/task.toml", "schema_version = \"1.1\"\n[environment]\ndocker_image = \"../b\"\n");
  EXPECT_THAT(mistakes(), HasSubstr("task.toml:3: environment.docker_image: \"../b\" is no name of an image"));
}

TEST_F(Harbor, packages_that_a_recipe_installs_must_be_there) {
  scratch_.put(
      "t/environment/Dockerfile",
      "FROM debian\nRUN apt-get update && apt-get install -y --no-install-recommends bash no-such-package && rm -rf "
      "/var/lib/apt/lists/*\nWORKDIR /app\nCOPY one.txt .\n");
  EXPECT_THAT(task()->needs, testing::ElementsAre("package bash", "package no-such-package"));
  EXPECT_THAT(validate(*task(), *backend_, 1).findings,
              testing::Contains("t needs package no-such-package, which this machine does not have"));
}

TEST_F(Harbor, a_recipe_that_cannot_be_followed_in_a_sandbox_is_no_episode) {
  scratch_.put("t/environment/Dockerfile", "FROM debian\nWORKDIR /app\nRUN touch /etc/x\n");
  const auto episode = Episode::open(*task(), *backend_);
  ASSERT_FALSE(episode.has_value());
  EXPECT_THAT(episode.error().message(), HasSubstr("touch /etc/x"));
}

TEST_F(Harbor, missing_parts_are_named) {
  fs::remove(scratch_.path / "t/instruction.md");
  fs::remove(scratch_.path / "t/tests/test.sh");
  scratch_.put("t/tests/other.py", "");
  fs::remove(scratch_.path / "t/environment/Dockerfile");
  const auto all = mistakes();
  EXPECT_THAT(all, HasSubstr("instruction.md"));
  EXPECT_THAT(all, HasSubstr("tests: has no test.sh"));
  EXPECT_THAT(all, HasSubstr("Dockerfile"));
}

TEST_F(Harbor, a_script_that_fails_by_itself_is_no_reward_whoever_says_so) {
  const std::string zero = "\necho 0 > /logs/verifier/reward.txt\n";
  scratch_.put("t/tests/inner.sh", "no_such_program_x --run\n");
  scratch_.put("t/tests/inner.py", "import subprocess\nsubprocess.run(['no_such_program_x', 'a'])\n");
  for (const char* line : {"sh -c 'no_such_program_x'", "sh /tests/inner.sh", "timeout 5 no_such_program_x",
                           "echo a | xargs no_such_program_x", "python3 /tests/inner.py", "nohup no_such_program_x",
                           "env no_such_program_x"}) {
    scratch_.put("t/tests/test.sh", line + zero);
    const auto reward = reward_of({});
    ASSERT_FALSE(reward.has_value()) << line;
    EXPECT_THAT(reward.error().message(), HasSubstr("it needs no_such_program_x")) << line;
  }
  scratch_.put("t/tests/inner.sh", "cd /app\r\nif true; then\r\n  echo 1 > /logs/verifier/reward.txt\r\nfi\r\n");
  scratch_.put("t/tests/test.sh", zero + "bash /tests/inner.sh\n");
  EXPECT_THAT(reward_of({}).error().message(), HasSubstr("line ends of Windows"));
  scratch_.put("t/tests/inner.sh", "#!/bin/bash\nexit 0\n");
  scratch_.put("t/tests/test.sh", "/tests/inner.sh" + zero);
  EXPECT_THAT(reward_of({}).error().message(), HasSubstr("no mode of a program"));
  scratch_.put("t/tests/inner.sh", "#!/no/such/shell -e\nexit 0\n");
  fs::permissions(scratch_.path / "t/tests/inner.sh", fs::perms::owner_all);
  EXPECT_THAT(reward_of({}).error().message(),
              HasSubstr("could not run /tests/inner.sh, whose interpreter is not there"));
}

TEST_F(Harbor, a_program_that_what_is_tested_lacks_is_a_reward_of_0) {
  scratch_.put("t/tests/test.sh", "python3 /app/sol.py; cat result.txt\necho 0 > /logs/verifier/reward.txt\n");
  EXPECT_EQ(*reward_of({"echo 'import subprocess; subprocess.run([\"no_such_program_x\"])' > sol.py"}), 0);
  EXPECT_EQ(*reward_of({"echo 'open(\"result.txt\")' > sol.py"}), 0) << "a file that was to be made";
}

TEST_F(Harbor, a_program_that_the_instruction_asks_for_is_no_lack_of_the_machine) {
  scratch_.put("t/instruction.md", "Put a script greet into ~/.local/bin, and a tool at /opt/made/bin/made.\n");
  for (const char* program :
       {"~/.local/bin/greet", "$HOME/.local/bin/greet", "/opt/made/bin/made", "/opt/made/bin/x/made"}) {
    scratch_.put("t/tests/test.sh", fmt::format("{} x\necho 0 > /logs/verifier/reward.txt\n", program));
    const auto reward = reward_of({});
    ASSERT_TRUE(reward.has_value()) << program << ": " << reward.error().message();
    EXPECT_EQ(*reward, 0) << program;
  }
  scratch_.put("t/instruction.md", "Do it.\n");
  scratch_.put("t/tests/test.sh", "/opt/other/bin/other x\necho 0 > /logs/verifier/reward.txt\n");
  EXPECT_FALSE(reward_of({}).has_value());
}

TEST_F(Harbor, what_is_tested_cannot_say_that_the_tests_lack_a_program) {
  scratch_.put("t/tests/test.sh",
               "out=$(bash /app/run.sh 2>&1); echo \"$out\"; python3 -c 1\necho 0 > /logs/verifier/reward.txt\n");
  for (const char* line :
       {"env frobnicate", "timeout 3 frobnicate", "sh -c frobnicate", "echo 'sh: 1: frobnicate: not found'",
        "echo '/tests/test.sh: line 2: frobnicate: command not found'",
        "echo '/tests/test.sh: line 2: python3: command not found'",
        "echo '/tests/test.sh: line 2: /tests/test.sh: Permission denied'",
        "echo '/tests/test.sh: line 2: /tests/x.sh: /no/such: bad interpreter: No such file or directory'",
        "echo '/usr/bin/python3: No module named pytest'"}) {
    const auto reward = reward_of({fmt::format("cat > run.sh <<'END'\n{}\nEND", line)});
    ASSERT_TRUE(reward.has_value()) << line << ": " << reward.error().message();
    EXPECT_EQ(*reward, 0) << line;
  }
}

}  // namespace
}  // namespace tandem::envs
