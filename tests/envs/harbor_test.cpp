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
  EXPECT_EQ(play({"ls /tests/ /solution/ && echo hello > out/greeting.txt"}).reward, 0.25);
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
    EXPECT_EQ(play({attack}).reward, 0) << attack;
  }
}

TEST_F(Harbor, files_beside_the_tests_are_not_taken_over) {
  scratch_.put("t/tests/test.sh", "test -e /tests/extra.sh; echo $? > /logs/verifier/reward.txt\n");
  EXPECT_EQ(play({"mkdir -p tandem-tests; touch tandem-tests/extra.sh"}).reward, 1);
}

TEST_F(Harbor, what_is_not_supported_is_refused_by_name_and_line) {
  scratch_.put("t/task.toml",
               "schema_version = \"2.0\"\nartifacts = [\"/x\"]\n[environment]\ngpus = 1\nskills_dir = \"a/b\"\n"
               "memry_mb = 4\n[agent]\nuser = \"bob\"\n[verifier.env]\nKEY = \"${KEY}\"\n");
  scratch_.put("t/environment/docker-compose.yaml", "services: {}\n");
  scratch_.put(
      "t/environment/Dockerfile",
      "FROM a AS x\nFROM b\nWORKDIR /app\nARG X=1\nUSER bob\nCOPY --from=x /y /app\nCOPY ../z .\nCOPY data /etc/\n"
      "ADD http://x/y .\nRUN <<EOF\nENV 1-2=3\nHEALTHCHECK NONE\n");
  const auto all = mistakes();
  for (const char* part :
       {"task.toml:1: schema_version must be", "task.toml:2: artifacts is not supported",
        "task.toml:4: environment.gpus", "task.toml:5: environment.skills_dir is not supported",
        "task.toml:6: unknown key environment.memry_mb; did you mean environment.memory_mb?",
        "task.toml:8: agent.user is not supported", "task.toml:10: verifier.env: variables of this machine",
        "docker-compose.yaml: several services are not supported", "Dockerfile:2: FROM: builds of several stages",
        "Dockerfile:4: ARG: not supported", "Dockerfile:5: USER: not supported",
        "Dockerfile:6: COPY: --from=x is not supported", "Dockerfile:7: COPY: ../z leads out",
        "Dockerfile:8: COPY: /etc/ lies outside of WORKDIR /app", "Dockerfile:9: ADD: there is no network",
        "Dockerfile:10: RUN: texts in place", "Dockerfile:11: ENV: \"1-2\" is no name",
        "Dockerfile:12: HEALTHCHECK: not supported"}) {
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

}  // namespace
}  // namespace tandem::envs
