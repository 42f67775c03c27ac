#include "envs/tasks/lint_count.h"

#include <gmock/gmock.h>

#include "envs/episodes/episode.h"
#include "tests/envs/sandbox_fixture.h"

namespace tandem::envs {
namespace {

TEST(LintCount, problems_are_read_without_their_places) {
  EXPECT_THAT(problems_in("b.py:3:1: error: undefined name 'x' (pyflakes)\n"
                          "odd:name.sh:12:7: warning: quote this (shellcheck SC2086)\n"
                          "notes.txt was not checked: no linter is known for files of this type\n"
                          "2 problems in 2 files (pyflakes, shellcheck).\n"),
              testing::ElementsAre("b.py: error: undefined name 'x' (pyflakes)",
                                   "odd:name.sh: warning: quote this (shellcheck SC2086)"));
  EXPECT_THAT(problems_in("No problems in 1 file (pyflakes).\nx: y\n::: z"), testing::IsEmpty());
}

class LintCountTest : public SandboxTest {
 protected:
  int count(const Files& before, const Files& after) {
    const auto lints = count_new_lints(before, after, *backend_, {});
    EXPECT_TRUE(lints) << lints.error().to_string();
    return lints.value_or(-1);
  }
};

TEST_F(LintCountTest, only_what_the_episode_caused_counts) {
  const Files before = {{"a.py", "import os\nprint(1)\n"}, {"b.py", "print(x)\n"}, {"c.txt", "import os\n"}};
  EXPECT_EQ(count(before, before), 0);
  auto after = before;
  after["a.py"] = "\n\nimport os\nprint(2)\n";  // the old problem, further down
  EXPECT_EQ(count(before, after), 0);
  after["a.py"] = "import os\nimport sys\nprint(2)\n";
  EXPECT_EQ(count(before, after), 1);
  after["new.py"] = "print(y)\nprint(z)\n";
  EXPECT_EQ(count(before, after), 3);
  after = before;
  after["b.py"] = "print(1)\n";  // mended
  after["c.txt"] = "no code\n";
  EXPECT_EQ(count(before, after), 0);
}

TEST_F(LintCountTest, what_setup_has_made_is_not_the_models_doing) {
  Task task;
  task.name = "lints";
  task.files = {{"given.py", "import os\n"}};
  task.setup = {"printf 'import sys\\n' > made.py"};
  task.expectation.contains = {{"given.py", "import os\n"}};
  const auto lints_of = [&](const EpisodeOptions& options) -> std::optional<double> {
    const auto episode = Episode::open(task, *backend_, options);
    if (!episode) return std::nullopt;
    EXPECT_TRUE((*episode)->call("write", {{"file_path", "own.py"}, {"contents", "import re\n"}}));
    const auto grade = (*episode)->score("");
    if (!grade || !grade->terms.contains("lints")) return std::nullopt;
    return grade->terms.at("lints");
  };
  EXPECT_EQ(lints_of({}), std::nullopt);
  EXPECT_EQ(lints_of({.count_lints = true}), 1);
}

}  // namespace
}  // namespace tandem::envs
