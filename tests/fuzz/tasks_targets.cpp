// Tasks that somebody wrote, and reports of their tests.
#include "envs/tasks/dockerfile.h"
#include "envs/tasks/git_patch.h"
#include "envs/tasks/harbor.h"
#include "envs/tasks/humanevalpack.h"
#include "envs/tasks/script_failures.h"
#include "envs/tasks/swe_bench.h"
#include "envs/tasks/terminal_bench.h"
#include "envs/tasks/test_report.h"
#include "envs/tasks/yaml_task.h"
#include "tests/fuzz/targets.h"

namespace tandem::fuzz {
namespace {

void dockerfile(std::string_view bytes) {
  static Folder folder;
  folder.put("Dockerfile", bytes);
  folder.put("src/a.txt", "a");
  static constexpr std::string_view kHidden[] = {"tests"};
  envs::Mistakes mistakes;
  (void)envs::read_dockerfile(folder.path(), "/app", kHidden, mistakes);
}
std::vector<std::string> dockerfile_seeds() {
  return {
      "# a comment\nFROM debian:12 AS base\nARG X=1\nENV A=b C=\"d e\"\nWORKDIR /app\nCOPY src/ ./src/\nCOPY "
      "[\"src/a.txt\", "
      "\"b c\"]\nRUN apt-get update && \\\n    apt-get install -y python3\nRUN [\"sh\", \"-c\", \"echo hi\"]\nUSER "
      "root\nCMD x\n"};
}

void harbor(std::string_view bytes) {
  static Folder folder;
  folder.put("task.toml", bytes);
  folder.put("instruction.md", "Do it.\n");
  folder.put("tests/test.sh", "echo 1 > /logs/verifier/reward.txt\n");
  folder.put("solution/solve.sh", "true\n");
  folder.put("steps/a/instruction.md", "Do more.\n");
  envs::Mistakes mistakes;
  (void)envs::read_harbor_task(folder.path(), envs::Recipes::kFollowed, mistakes);
}
std::vector<std::string> harbor_seeds() {
  return {
      "version = \"1.0\"\n[metadata]\nauthor_name = \"a\"\ntags = [\"x\"]\n[agent]\ntimeout_sec = 60.0\n[verifier]\n"
      "timeout_sec = 30.0\n[environment]\ncpus = 1\nmemory_mb = 512\nallow_internet = false\n",
      "multi_step_reward_strategy = \"final\"\n[agent]\nnetwork_mode = \"allowlist\"\nallowed_hosts = [\"a.example\"]\n"
      "[[environment.mcp_servers]]\nname = \"s\"\ntransport = \"stdio\"\ncommand = \"x\"\nargs = [\"y\"]\n[[steps]]\n"
      "name = \"a\"\nmin_reward = {reward = 1}\n[steps.verifier]\ntimeout_sec = 3\nenv = {A = \"1\"}\n"};
}

// task.yaml, a line of equals signs, docker-compose.yaml, another such line, run-tests.sh.
void terminal_bench(std::string_view bytes) {
  static Folder folder;
  constexpr std::string_view kBetween = "\n===\n";
  for (const char* name : {"task.yaml", "docker-compose.yaml", "run-tests.sh"}) {
    const size_t end = std::min(bytes.find(kBetween), bytes.size());
    folder.put(name, bytes.substr(0, end));
    bytes.remove_prefix(std::min(bytes.size(), end + kBetween.size()));
  }
  folder.put("Dockerfile", "FROM debian\nWORKDIR /app\n");
  folder.put("tests/test_outputs.py", "def test_a():\n    pass\n");
  envs::Mistakes mistakes;
  (void)envs::read_terminal_bench_task(folder.path(), envs::Recipes::kFollowed, mistakes);
}
std::vector<std::string> terminal_bench_seeds() {
  return {
      "instruction: |-\n  Do it.\nauthor_name: a\ndifficulty: easy\ntags:\n  - x\nparser_name: pytest\n"
      "max_agent_timeout_sec: 360.0\nmax_test_timeout_sec: 60.0\nrun_tests_in_same_shell: false\n\n===\n"
      "services:\n  client:\n    build:\n      dockerfile: Dockerfile\n    image: ${I}\n    command: [ \"sh\", \"-c\", "
      "\"sleep infinity\" ]\n    environment:\n      - TEST_DIR=${T_BENCH_TEST_DIR}\n      - A=b\n    volumes:\n      "
      "- "
      "${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}\n\n===\n"
      "cd /app && A=1 python3 -m pytest $TEST_DIR/test_outputs.py -rA | tee 'a b'; curl http://localhost:1/\n",
      "descriptions:\n  - key: base\n    description: x\n\n===\nversion: '3'\nservices: {client: {build: ., "
      "environment: {A: "
      "b}}}\n\n===\npip install x\n"};
}

void test_report(std::string_view bytes) {
  const auto report = envs::read_test_report(bytes);
  for (const auto& [name, end] : report) {
    if (envs::test_name(name) != name) continue;  // a second form of the same name
    const std::string wanted[] = {name};
    if (envs::why_not_passed(report, wanted).empty() != (end == envs::TestEnd::kPassed)) __builtin_trap();
  }
  (void)envs::why_not_passed(report, {});
}
std::vector<std::string> test_report_seeds() {
  return {
      "t.py::test_a PASSED [ 50%]\nt.py::test_b[x y] FAILED [100%]\n=== short test summary info ===\nFAILED "
      "t.py::test_b[x "
      "y] - assert 1\nSKIPPED [1] t.py:3: why\n=== 1 failed in 0.1s ===\n",
      "=== short test summary info ===\nPASSED t.py::test_a[b c]\nXFAIL t.py::test_b\n",
      "test_a (m.A.test_a) ... ok\ntest_b (m.A)\nIt holds. ... FAIL\ntest_c (m.A.test_c) ... hello\nskipped 'why'\n"};
}

// A script of tests, a line of equals signs, and what was printed.
void script_of_tests(std::string_view bytes) {
  constexpr std::string_view kBetween = "\n===\n";
  const size_t end = std::min(bytes.find(kBetween), bytes.size());
  envs::CommandCheck check;
  check.files["tandem-tests/test.sh"] = std::string(bytes.substr(0, end));
  const auto printed = bytes.substr(std::min(bytes.size(), end + kBetween.size()));
  (void)envs::missing_program(check, printed, [](const std::string&) { return false; });
  (void)envs::failure_of_script(check, printed);
}
std::vector<std::string> script_of_tests_seeds() {
  return {
      "#!/bin/bash\nset -e; A=1 x=$(uvx \"a $(b `c`)\" | d) && timeout 5 e\nfor v in 3.1 3.2; do python$v -m f; done\n"
      "bash -c 'g; h' > i\n===\n/tests/test.sh: line 3: python3.1: command not found\nxargs: e: No such file or "
      "directory\n/tests/test.sh: line 2: /tests/test.sh: Permission denied\n"};
}

void yaml_task(std::string_view bytes) {
  static Folder folder;
  folder.put("task.yaml", bytes);
  envs::Mistakes mistakes;
  (void)envs::read_yaml_task(folder.path() / "task.yaml", mistakes);
}
std::vector<std::string> yaml_task_seeds() {
  return {
      "instruction: Make b of a.\nfiles:\n  a.txt: |\n    hello\ncheck:\n  files:\n    b.txt: |\n      "
      "hello\nsolution:\n  "
      "- cp a.txt b.txt\n",
      "instruction: How many?\nkind: count\nmax_turns: 4\nfiles: {a.txt: 'x'}\ncheck:\n  answer: '1'\n  commands:\n    "
      "- "
      "{run: 'test -f a.txt', weight: 0.5}\n"};
}

void humanevalpack(std::string_view bytes) {
  static Folder folder;
  folder.put("tasks.jsonl", bytes);
  envs::Mistakes mistakes;
  (void)envs::read_humanevalpack(folder.path() / "tasks.jsonl", mistakes);
}
std::vector<std::string> humanevalpack_seeds() {
  return {
      R"({"task_id":"Python/0","prompt":"def f(x):\n    \"\"\" Twice\n    >>> f(1)\n    2\n    \"\"\"\n","declaration":)"
      R"("def f(x):\n","canonical_solution":"    return 2 * x\n","buggy_solution":"    return x\n","bug_type":"x",)"
      R"("failure_symptoms":"y","entry_point":"f","import":"","test_setup":"","test":"def check(f):\n    assert f(1) == 2\n)"
      R"(check(f)\n","example_test":"","signature":"f","docstring":"Twice","instruction":"Write"})"
      "\n"};
}

void git_patch(std::string_view bytes) {
  envs::Files files = {{"a.txt", "1\n2\n3\n4\n5\n"}, {"b.txt", "x"}};
  std::set<std::string> programs;
  (void)envs::apply_git_patch(bytes, files, programs);
}
std::vector<std::string> git_patch_seeds() {
  return {
      "diff --git a/a.txt b/a.txt\nindex 12..34 100644\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,3 @@\n+0\n 1\n 2\n@@ -5 "
      "+6,1 @@ "
      "f\n-5\n+five\n\\ No newline at end of file\ndiff --git a/b.txt b/c.txt\nsimilarity index 100%\nrename from "
      "b.txt\n"
      "rename to c.txt\ndiff --git a/d b/d\nnew file mode 100755\n--- /dev/null\n+++ b/d\n@@ -0,0 +1 @@\n+d\n"};
}

// Reads lines whose repository is not there; git's own answers are not foreign bytes.
void swe_bench(std::string_view bytes) {
  static Folder folder;
  folder.put("tasks.jsonl", bytes);
  envs::Mistakes mistakes;
  (void)envs::is_swe_bench(folder.path() / "tasks.jsonl");
  (void)envs::read_swe_bench(folder.path() / "tasks.jsonl", mistakes);
}
std::vector<std::string> swe_bench_seeds() {
  return {
      R"({"repo":"a/b","instance_id":"a__b-1","base_commit":"0123456789abcdef","patch":"","test_patch":"","problem_statement":"x",)"
      R"("hints_text":"","FAIL_TO_PASS":"[\"t.py::a\"]","PASS_TO_PASS":[],"install":["true"],"test_cmd":"pytest -rA"})"
      "\n"};
}

constexpr Target kTasksTargets[] = {{"dockerfile", dockerfile, dockerfile_seeds},
                                    {"harbor", harbor, harbor_seeds},
                                    {"terminal_bench", terminal_bench, terminal_bench_seeds},
                                    {"test_report", test_report, test_report_seeds},
                                    {"script_of_tests", script_of_tests, script_of_tests_seeds},
                                    {"yaml_task", yaml_task, yaml_task_seeds},
                                    {"humanevalpack", humanevalpack, humanevalpack_seeds},
                                    {"git_patch", git_patch, git_patch_seeds},
                                    {"swe_bench", swe_bench, swe_bench_seeds}};

}  // namespace

std::span<const Target> tasks_targets() { return kTasksTargets; }

}  // namespace tandem::fuzz
