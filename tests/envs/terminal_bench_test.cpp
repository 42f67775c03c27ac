#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/episodes/validate.h"
#include "envs/tasks/network_use.h"
#include "envs/tasks/task_set.h"
#include "tests/envs/only_task.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

// A program that says what pytest would say of the functions in a file.
constexpr const char* kRunner =
    "import sys\n"
    "names = {}\n"
    "exec(open(sys.argv[1]).read(), names)\n"
    "print('=== short test summary info ===')\n"
    "for name, test in names.items():\n"
    "    if not name.startswith('test_'):\n"
    "        continue\n"
    "    try:\n"
    "        test()\n"
    "        print('PASSED test_outputs.py::' + name)\n"
    "    except AssertionError as error:\n"
    "        print('FAILED test_outputs.py::' + name + ' - ' + repr(error))\n"
    "print('=== the end ===')\n"
    "sys.exit(5)\n";

class TerminalBench : public SandboxTest {
 protected:
  TerminalBench() {
    scratch_.put("t/task.yaml",
                 "instruction: |-\n  Write hello into /app/greeting.txt.\nauthor_name: A\ndifficulty: easy\ntags:\n"
                 "  - files\nparser_name: pytest\nmax_agent_timeout_sec: 360.0\nmax_test_timeout_sec: 20.0\n"
                 "run_tests_in_same_shell: false\n");
    scratch_.put("t/Dockerfile", "FROM ghcr.io/x/ubuntu-24-04:latest\nWORKDIR /app\nCOPY data/words.txt ./\n");
    scratch_.put("t/docker-compose.yaml",
                 "services:\n  client:\n    build:\n      dockerfile: Dockerfile\n"
                 "    image: ${T_BENCH_TASK_DOCKER_CLIENT_IMAGE_NAME}\n"
                 "    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}\n"
                 "    command: [ \"sh\", \"-c\", \"sleep infinity\" ]\n    environment:\n"
                 "      - TEST_DIR=${T_BENCH_TEST_DIR}\n      - MODE=it's\n    volumes:\n"
                 "      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}\n"
                 "      - ${T_BENCH_TASK_AGENT_LOGS_PATH}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}\n");
    scratch_.put("t/data/words.txt", "hello\n");
    scratch_.put("t/run-tests.sh", "#!/bin/bash\npython3 -I $TEST_DIR/runner.py $TEST_DIR/test_outputs.py\n");
    scratch_.put("t/tests/runner.py", kRunner);
    scratch_.put("t/tests/test_outputs.py",
                 "import os\ndef test_there():\n    assert os.path.exists('/app/greeting.txt')\n"
                 "def test_text():\n    assert open('/app/greeting.txt').read() == 'hello\\n'\n"
                 "def test_mode():\n    assert os.environ['MODE'] == \"it's\" and os.getcwd() == '/app'\n");
    scratch_.put("t/solution.sh", "cat words.txt > greeting.txt\n");
  }
  Result<Task> task() { return only_task(scratch_.path / "t"); }
  std::string mistakes() {
    const auto read = task();
    return read ? "" : read.error().message();
  }
  Grade play(const std::string& command) { return play_commands(*task(), *backend_, {command}, last_output_); }
  Scratch scratch_;
  std::string last_output_;
};

TEST_F(TerminalBench, a_folder_is_a_task_that_passes) {
  const auto read = task();
  ASSERT_TRUE(read.has_value()) << read.error().to_string();
  EXPECT_EQ(read->name, "t");
  EXPECT_EQ(read->instruction, "Write hello into /app/greeting.txt.");
  const auto v = validate(*read, *backend_, 2);
  EXPECT_EQ(v.verdict, Verdict::kPassed) << testing::PrintToString(v.findings);
}

TEST_F(TerminalBench, the_model_meets_the_files_and_neither_tests_nor_solution) {
  play("cat words.txt; echo $MODE; ls -a /app /tests /oracle 2>&1");
  EXPECT_THAT(last_output_, HasSubstr("hello\nit's\n"));
  for (const char* hidden : {"solution.sh", "test_outputs.py", "run-tests.sh", "task.yaml"})
    EXPECT_THAT(last_output_, testing::Not(HasSubstr(hidden)));
}

TEST_F(TerminalBench, all_tests_must_pass) {
  EXPECT_EQ(play("cp words.txt greeting.txt").reward, 1);
  const auto grade = play("touch greeting.txt");
  EXPECT_EQ(grade.reward, 0);
  EXPECT_THAT(grade.why, HasSubstr("test_outputs.py::test_text failed"));
}

TEST_F(TerminalBench, tests_that_say_nothing_or_are_killed_give_no_verdict) {
  scratch_.put("t/run-tests.sh", "echo begun; bash /app/run.sh\n");
  const auto why = [&](const std::string& run) {
    const auto episode = *Episode::open(*task(), *backend_);
    (void)episode->call("run_terminal_cmd", {{"command", "echo \"" + run + "\" > run.sh"}});
    const auto grade = episode->score("");
    return grade ? "a reward of " + std::to_string(grade->reward) : grade.error().message();
  };
  EXPECT_THAT(why("exit 0"), HasSubstr("run-tests.sh gave no verdict: no tests were reported"));
  EXPECT_THAT(why("exit 0"), HasSubstr("begun"));
  const std::string said = "echo '=== short test summary info ==='; echo 'PASSED a::b'; ";
  EXPECT_THAT(why(said + "kill -9 \\$PPID"), HasSubstr("run-tests.sh was ended by signal 9"));
  EXPECT_EQ(why(said), "a reward of 1.000000") << "the run of the two above";
  scratch_.put("t/run-tests.sh", "no_such_program\n");
  EXPECT_THAT(why(""), HasSubstr("it needs no_such_program"));
  scratch_.put("t/run-tests.sh", "python3 -S -m pytest\n");  // without packages
  EXPECT_THAT(why(""), HasSubstr("it needs pytest, which this machine does not have"));
}

TEST_F(TerminalBench, wordings_of_the_oldest_form_are_read) {
  scratch_.put("t/task.yaml",
               "descriptions:\n  - key: hard\n    description: Guess.\n  - key: base\n    description: Do it.\n");
  EXPECT_EQ(task()->instruction, "Do it.");
}

TEST_F(TerminalBench, variables_of_a_service_are_read_as_compose_reads_them) {
  const auto compose = [&](const std::string& more) {
    scratch_.put("t/docker-compose.yaml", "x-a: {b: c}\nservices:\n  client:\n    build: .\n" + more);
  };
  compose("    environment:\n      MODE: ${A:-it}'${B-s}${C:+no}\n      DOLLAR: $$5\n      NONE:\n");
  const auto read = task();
  ASSERT_TRUE(read.has_value()) << read.error().message();
  std::string setup;
  for (const auto& command : read->setup) setup += command + "\n";
  EXPECT_THAT(setup, HasSubstr("export MODE='it'\\''s'; export DOLLAR='$5';"));
  EXPECT_THAT(setup, testing::Not(HasSubstr("NONE")));
  compose("    environment:\n      DEEP: ${A:-${B:-deep}}/$$x\n");
  EXPECT_THAT(task()->setup, testing::Contains(HasSubstr("export DEEP='deep/$x';")));
  compose("    environment:\n      A: x${B}\n      C: ${D:?must be set}\n      E: ${F\n");
  EXPECT_THAT(mistakes(), HasSubstr("docker-compose.yaml:6: environment: A: B is not set; variables of this machine"));
  EXPECT_THAT(mistakes(), HasSubstr("environment: C: D is not set: must be set"));
  EXPECT_THAT(mistakes(), HasSubstr("environment: E: ${F has no end"));
  scratch_.put("t/.env", "# FOO\nexport FOO=from\n");
  compose("    environment: {A: '${FOO}', B: '${BAR}'}\n");
  EXPECT_THAT(mistakes(), HasSubstr("environment: A: FOO is set in .env, which is not read here; write its value"));
  EXPECT_THAT(mistakes(), testing::Not(HasSubstr("BAR")));
  compose("    deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu]}]}}}\n");
  EXPECT_THAT(mistakes(), HasSubstr("docker-compose.yaml:5: client: deploy asks for devices"));
  for (const char* deploy :
       {"{replicas: 1}", "{resources: {limits: {cpus: '2'}}}", "{resources: {reservations: {devices: []}}}"}) {
    compose(std::string("    deploy: ") + deploy + "\n");
    EXPECT_EQ(mistakes(), "") << deploy;
  }
}

TEST_F(TerminalBench, what_dotenv_gives_a_name_alone_is_refused) {
  const auto compose = [&](const std::string& more) {
    scratch_.put("t/docker-compose.yaml", "services:\n  client:\n" + more);
  };
  scratch_.put("t/.env", "A=from\nB=from\n");
  for (const char* more : {"    build: .\n    environment: [A, C]\n", "    build: .\n    environment:\n      A:\n",
                           "    build: {context: ., args: [A]}\n", "    build: {context: ., args: {A: }}\n"}) {
    compose(more);
    EXPECT_THAT(mistakes(), HasSubstr(": A: A is set in .env, which is not read here; write its value")) << more;
  }
  compose("    build: {context: ., args: [C]}\n    environment: [C]\n");
  EXPECT_EQ(mistakes(), "");
  compose("    build: .\n    environment:\n      A: $\n      B: cost $1\n      C: ${1x:-ok}\n");
  for (const char* why : {"yaml:5: environment: A: invalid interpolation format: $",
                          "yaml:6: environment: B: invalid interpolation format: $1",
                          "yaml:7: environment: C: invalid interpolation format: ${1x:-ok}"})
    EXPECT_THAT(mistakes(), HasSubstr(why));
}

TEST_F(TerminalBench, volumes_of_logs_with_defaults_say_nothing) {
  scratch_.put("t/docker-compose.yaml",
               "services:\n  client:\n    build: .\n    volumes:\n"
               "      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}\n"
               "      - ${T_BENCH_TASK_LOGS_PATH:-./logs}:${T_BENCH_CONTAINER_LOGS_PATH:-/logs}\n"
               "      - ${T_BENCH_TASK_AGENT_LOGS_PATH-./logs}:${T_BENCH_CONTAINER_AGENT_LOGS_PATH}\n");
  EXPECT_EQ(mistakes(), "");
  scratch_.put("t/docker-compose.yaml",
               "services:\n  client:\n    build: .\n    volumes: ['${T_BENCH_OTHER:-LOGS_PATH}:${X}']\n");
  EXPECT_THAT(mistakes(), HasSubstr("is not supported"));
}

TEST_F(TerminalBench, arguments_target_and_folder_of_a_service_are_followed) {
  scratch_.put("t/Dockerfile", "ARG BASE=debian:12\nFROM ${BASE} AS last\nARG WHO=nobody\nRUN echo $WHO > who.txt\n");
  const auto compose = [&](const std::string& build, const std::string& more = "") {
    scratch_.put("t/docker-compose.yaml", "services:\n  client:\n    build: {context: ., " + build + "}\n" + more);
  };
  const auto setup = [&] {
    const auto read = task();
    if (!read) return read.error().message();
    std::string text;
    for (const auto& command : read->setup) text += command + "\n";
    return text;
  };
  compose("args: {WHO: somebody, NONE:, OTHER: 3}, target: last", "    working_dir: /app/\n");
  EXPECT_THAT(setup(), HasSubstr("export WHO='somebody'"));
  EXPECT_THAT(setup(), HasSubstr("cd '/app'"));
  compose("args: [WHO=else, NONE]", "");
  EXPECT_THAT(setup(), HasSubstr("export WHO='else'"));
  compose("target: LAST", "");
  EXPECT_EQ(mistakes(), "");
  compose("target: first", "");
  EXPECT_THAT(mistakes(), HasSubstr("Dockerfile: has no stage \"first\" at its end"));
  compose("network: host, args: {WHO: a$$b}", "    working_dir: src\n");
  EXPECT_THAT(mistakes(), HasSubstr("build: network is not supported"));
  EXPECT_THAT(mistakes(), HasSubstr("args: WHO: a value with a dollar"));
  EXPECT_THAT(mistakes(), HasSubstr("working_dir must be an absolute path"));
  scratch_.put("t/Dockerfile", "FROM debian:12\nWORKDIR /srv\n");
  compose("dockerfile: Dockerfile", "    working_dir: /opt/x\n");
  EXPECT_THAT(mistakes(), HasSubstr("the last WORKDIR is /srv, docker-compose has working_dir /opt/x"));
}

TEST_F(TerminalBench, merge_keys_of_a_service_are_followed) {
  scratch_.put(
      "t/docker-compose.yaml",
      "x-env: &env {MODE: merged, OWN: merged}\nx-service: &service\n  build: .\n  environment: &more {MORE: 1}\n"
      "services:\n  client:\n    <<: *service\n    environment:\n      <<: [*env, *more]\n      OWN: own\n");
  const auto read = task();
  ASSERT_TRUE(read.has_value()) << read.error().message();
  std::string setup;
  for (const auto& command : read->setup) setup += command + "\n";
  for (const char* words : {"export OWN='own';", "export MODE='merged';", "export MORE='1';"})
    EXPECT_THAT(setup, HasSubstr(words));
  EXPECT_THAT(setup, testing::Not(HasSubstr("export OWN='merged'")));
  scratch_.put("t/docker-compose.yaml", "x-s: &s {ports: ['80:80']}\nservices:\n  client:\n    build: .\n    <<: *s\n");
  EXPECT_THAT(mistakes(), HasSubstr("docker-compose.yaml:1: client: ports is not supported"));
  scratch_.put("t/docker-compose.yaml", "services:\n  client: &c\n    build: .\n    <<: *c\n");
  EXPECT_THAT(mistakes(), HasSubstr("docker-compose.yaml"));
}

TEST_F(TerminalBench, what_a_sandbox_cannot_give_is_refused_by_name_and_line) {
  scratch_.put("t/task.yaml",
               "instruction: x\nparser_name: swebench\nrun_tests_in_same_shell: true\ntest_scripts: [a.sh]\n"
               "max_test_timeout_sec: soon\ndificulty: easy\n");
  scratch_.put("t/docker-compose.yaml",
               "services:\n  client:\n    build: ..\n    command: python3 server.py\n    ports: [\"80:80\"]\n"
               "    environment:\n      KEY: a${KEY}\n    volumes:\n      - ./data:/data\n  db:\n    image: postgres\n"
               "networks: {}\n");
  scratch_.put(
      "t/run-tests.sh",
      "# pip install in a comment\ncurl -LsSf https://astral.sh/uv/install.sh | sh\ncurl http://localhost:80/\n"
      "cd /app && uv run pytest -rA\n");
  scratch_.put("t/Dockerfile", "FROM a\nWORKDIR /app\nCOPY . .\nCOPY tests/ /app/\nRUN pip install -r flask\n");
  scratch_.put("t/solution.yaml", "- command: ls\n");
  const auto all = mistakes();
  for (const char* part :
       {"task.yaml:2: parser_name: only the results of pytest", "task.yaml:3: run_tests_in_same_shell",
        "task.yaml:4: test_scripts is not supported", "task.yaml:5: max_test_timeout_sec: \"soon\" is not a number",
        "task.yaml:6: unknown key dificulty; did you mean difficulty?", "docker-compose.yaml:3: build: context must be",
        "docker-compose.yaml:4: client: a command that does more than wait",
        "docker-compose.yaml:5: client: ports is not supported",
        "docker-compose.yaml:7: environment: KEY: KEY is not set; variables",
        "docker-compose.yaml:9: volumes: ./data:/data is not supported",
        "docker-compose.yaml:10: the service db is not supported", "docker-compose.yaml:12: networks is not supported",
        "run-tests.sh:2: `curl` needs a network", "run-tests.sh:4: `uv run` needs a network",
        "Dockerfile:4: COPY: tests/ would show tests", "Dockerfile:5: RUN: `pip install` needs a network",
        "solution.yaml: types keys into a terminal"}) {
    EXPECT_THAT(all, HasSubstr(part));
  }
  EXPECT_THAT(all, testing::Not(HasSubstr("run-tests.sh:1:")));
  EXPECT_THAT(all, testing::Not(HasSubstr("run-tests.sh:3:")));
}

TEST_F(TerminalBench, missing_parts_are_named) {
  fs::remove(scratch_.path / "t/run-tests.sh");
  scratch_.put("t/task.yaml", "parser_name: pytest\n");
  const auto all = mistakes();
  EXPECT_THAT(all, HasSubstr("task.yaml:1: the task has no instruction"));
  EXPECT_THAT(all, HasSubstr("run-tests.sh"));
}

TEST(NetworkUse, is_found_where_it_stands_as_a_command) {
  for (const char* command : {"pip install x", "cd a && sudo apt-get -y install b", "python3 -m pip install c",
                              "A=1 /usr/bin/uvx pytest", "if ! wget -q 'https://a/b'; then", "git -q clone https://a"})
    EXPECT_NE(network_user(command), "") << command;
  for (const char* command : {"echo pip install x", "pip --version", "curl -s http://127.0.0.1:8000/a", "git status",
                              "grep 'apt-get install' log", "# uvx", "pip install --no-index ./a.whl",
                              "uv run --offline pytest", "echo \"wget https://a\""})
    EXPECT_EQ(network_user(command), "") << command;
}

}  // namespace
}  // namespace tandem::envs
