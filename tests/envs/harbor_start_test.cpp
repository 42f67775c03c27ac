// Where the shell, the solution and the tests of a task begin, and with which variables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/episodes/validate.h"
#include "tests/envs/recipe_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class HarborStart : public Recipe {};

TEST_F(HarborStart, what_a_container_is_started_with_goes_before_ENV) {
  scratch_.put("t/environment/docker-compose.yaml",
               "services:\n  main:\n    build: .\n    environment: {B: compose, ONLY: c}\n");
  scratch_.put("t/task.toml", "version = \"1.0\"\n[environment.env]\nA = \"toml\"\n");
  scratch_.put("t/solution/solve.sh", "echo \"$A $B $C $D\" > /app/solved\n");
  scratch_.put(
      "t/tests/test.sh",
      "test \"$A $B $C $D\" = 'toml compose file file/file' && test \"$(cat /app/solved)\" = \"$A $B $C $D\" && "
      "echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n");
  const auto file = kInApp + "ENV A=file B=file C=file\nENV D=$A/$B\nRUN echo \"$A $B [$ONLY]\" > f\n";
  EXPECT_EQ(run(file, "cat f; echo $A $B $C $D $ONLY"), "file file []\ntoml compose file file/file c\n");
  EXPECT_THAT(validate(*task_of(file), *backend_, 1).findings, IsEmpty());
}

TEST_F(HarborStart, the_folder_of_task_toml_goes_before_WORKDIR) {
  const auto begin_in = [&](const std::string& folder) {
    scratch_.put("t/task.toml", "version = \"1.0\"\n[environment]\nworkdir = \"" + folder + "\"\n");
  };
  begin_in("/app/sub/");
  EXPECT_EQ(run(kInApp + "RUN echo 1 > f\n", "pwd; cat ../f"), "/app/sub\n1\n");
  scratch_.put("t/solution/solve.sh", "pwd > out\n");
  scratch_.put("t/tests/test.sh",
               "test \"$(pwd) $(cat out)\" = '/app/sub /app/sub' && test -e /app/f && echo 1 > "
               "/logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n");
  EXPECT_THAT(validate(*task_of(kInApp + "RUN echo 1 > f\n"), *backend_, 1).findings, IsEmpty());
  begin_in("/app");
  EXPECT_EQ(run("FROM x\nWORKDIR /app/sub\nRUN echo 1 > f\n", "pwd; cat sub/f"), "/app\n1\n");
  begin_in("/srv");
  EXPECT_EQ(run("FROM x\n", "pwd"), "/srv\n");
  for (const char* other : {"/srv", "/"}) {
    begin_in(other);
    EXPECT_THAT(run(kInApp, "pwd"),
                HasSubstr(std::string("the last WORKDIR is /app, task.toml has environment.workdir ") + other + ";"));
  }
}

TEST_F(HarborStart, without_a_dockerfile_is_one_mistake) {
  const auto error = only_task(scratch_.path / "t").error().message();
  EXPECT_THAT(error, HasSubstr("environment/Dockerfile: No such file"));
  EXPECT_THAT(error, testing::Not(HasSubstr("WORKDIR")));
  EXPECT_EQ(error.find("environment/Dockerfile"), error.rfind("environment/Dockerfile")) << error;
}

TEST_F(HarborStart, a_solution_with_line_ends_of_windows_is_named) {
  scratch_.put("t/tests/test.sh",
               "test -e /app/out && echo 1 > /logs/verifier/reward.txt || echo 0 > "
               "/logs/verifier/reward.txt\n");
  scratch_.put("t/solution/solve.sh", "set -e\r\necho 1 > /app/out\r\n");
  EXPECT_THAT(validate(*task_of(kInApp), *backend_, 1).findings,
              testing::Contains(HasSubstr("solve.sh has line ends of Windows (CRLF)")));
}

}  // namespace
}  // namespace tandem::envs
