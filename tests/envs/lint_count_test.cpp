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
  EXPECT_THAT(problems_in("a.py:3:1: error: redefinition of unused 'os' from line 12 (pyflakes)\n"),
              problems_in("a.py:9:1: error: redefinition of unused 'os' from line 7 (pyflakes)\n"));
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

class NewLintsTest : public SandboxTest {
 protected:
  std::optional<NewLints> lints(const Collected& begun, const Collected& left, const std::set<std::string>& changed) {
    const auto found = new_lints({}, begun, left, changed, *backend_, {});
    EXPECT_TRUE(found) << found.error().to_string();
    return found.value_or(std::nullopt);
  }
};

TEST_F(NewLintsTest, what_was_not_reported_before_counts_and_where_no_linter_looked_nothing_is_said) {
  const Collected begun{.files = {{"a.py", "import os\nprint(1)\n"}, {"notes.txt", "a\n"}}};
  auto left = begun;
  EXPECT_EQ(lints(begun, left, {}), std::nullopt);
  left.files["notes.txt"] = "b\n";
  EXPECT_EQ(lints(begun, left, {"notes.txt"}), std::nullopt) << "no linter reads it";
  left.files["a.py"] = "\nimport os\nprint(2)\n";
  EXPECT_EQ(lints(begun, left, {"a.py", "notes.txt"}), (NewLints{.count = 0, .files = 1}));
  left.files["a.py"] += "import sys\n";
  left.files["new.py"] = "print(x)\n";
  EXPECT_EQ(lints(begun, left, {"a.py", "new.py"}), (NewLints{.count = 2, .files = 2}));
  left.complete = false;
  EXPECT_EQ(lints(begun, left, {"a.py", "new.py"}), (NewLints{.count = 2, .files = 2, .at_least = true}));
}

TEST_F(NewLintsTest, a_file_with_more_old_problems_than_are_reported_is_left_out) {
  std::string many;
  for (int i = 0; i < 250; ++i) many += "print(x" + std::to_string(i) + ")\n";
  const Collected begun{.files = {{"many.py", many}, {"one.py", "a = 1\n"}}};
  const Collected left{.files = {{"many.py", "print(y)\n" + many}, {"one.py", "print(z)\n"}}};
  EXPECT_EQ(lints(begun, left, {"many.py"}), std::nullopt);
  EXPECT_EQ(lints(begun, left, {"many.py", "one.py"}), (NewLints{.count = 1, .files = 1, .at_least = true}));
  const auto fresh = lints({}, left, {"many.py"});
  ASSERT_TRUE(fresh);
  EXPECT_EQ(*fresh, (NewLints{.count = 200, .files = 1, .at_least = true}));
}

TEST_F(NewLintsTest, more_files_than_are_looked_at_give_a_lower_bound) {
  Collected left;
  std::set<std::string> changed;
  for (int i = 0; i < 101; ++i) {
    const auto path = "f" + std::to_string(i) + ".py";
    left.files[path] = i % 10 == 0 ? "print(x)\n" : "a = 1\n";
    changed.insert(path);
  }
  const auto found = lints({}, left, changed);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->at_least);
  EXPECT_EQ(found->files, 100u);
  EXPECT_GE(found->count, 10u);
}

TEST_F(NewLintsTest, links_and_files_that_are_gone_do_no_harm) {
  const Collected begun{.files = {{"a.py", "import b\nb.f()\n"}, {"b.py", "def f(): pass\n"}}};
  Collected left{.files = {{"a.py", "(not a regular file)"}, {"c.py", "print(x)\n"}}};
  EXPECT_EQ(lints(begun, left, {"c.py"}), (NewLints{.count = 1, .files = 1}));
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
