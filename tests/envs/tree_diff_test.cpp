#include "envs/tasks/tree_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "envs/tasks/task_base.h"
#include "tests/envs/cache_of.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TreeDiff difference(const Files& begun, const Files& left, bool complete = true) {
  Task task;
  task.files = begun;
  return tree_diff(task, {.files = begun}, {.files = left, .complete = complete});
}

std::string numbers(int from, int to, const std::string& after = "\n") {
  std::string text;
  for (int i = from; i < to; ++i) text += std::to_string(i) + after;
  return text;
}

TEST(TreeDiff, files_and_lines_are_counted_as_git_does) {
  const Files begun = {{"a.py", "1\n2\n3\n"}, {"b.py", "x\n"}, {"gone.py", "1\n2\n"}, {"same.py", "s\n"}};
  const auto diff =
      difference(begun, {{"a.py", "1\nzwei\n3\n4\n"}, {"b.py", "x"}, {"new.py", "n\nm"}, {"same.py", "s\n"}});
  EXPECT_EQ(diff.files, 4u);
  EXPECT_EQ(diff.lines_added, 2u + 1u + 2u);
  EXPECT_EQ(diff.lines_removed, 1u + 1u + 2u);
  EXPECT_EQ(diff.binary_files, 0u);
  EXPECT_FALSE(diff.at_least);
  EXPECT_THAT(diff.texts, ElementsAre("a.py", "b.py", "new.py"));
  EXPECT_THAT(diff.touched, ElementsAre("a.py", "b.py", "gone.py"));
}

TEST(TreeDiff, an_attempt_that_changed_nothing_has_no_difference) {
  const Files files = {{"a.py", "1\n"}, {"empty", ""}};
  const auto diff = difference(files, files);
  EXPECT_EQ(diff.files, 0u);
  EXPECT_FALSE(diff.at_least);
  EXPECT_THAT(diff.texts, IsEmpty());
}

TEST(TreeDiff, files_without_lines_count_as_files) {
  const Files begun = {{"picture", std::string("\0a", 2)}, {"text", "a\n"}, {"link", "(not a regular file)"}};
  const auto diff =
      difference(begun, {{"picture", std::string("\0b", 2)}, {"text", std::string("a\n\0", 3)}, {"empty", ""}});
  EXPECT_EQ(diff.files, 4u) << "two binary ones, a new one without a line, and a link that is gone";
  EXPECT_EQ(diff.binary_files, 2u);
  EXPECT_EQ(diff.lines_added + diff.lines_removed, 0u);
  EXPECT_THAT(diff.texts, ElementsAre("empty"));
}

TEST(TreeDiff, a_link_that_leads_elsewhere_is_a_change) {
  Collected begun{.files = {{"link", "(not a regular file)"}}}, left = begun;
  begun.details.links = left.details.links = {{"link", "a"}};
  EXPECT_EQ(tree_diff({}, begun, left).files, 0u);
  left.details.links["link"] = "b";
  EXPECT_EQ(tree_diff({}, begun, left).files, 1u);
}

TEST(TreeDiff, caches_and_what_git_ignores_are_not_counted) {
  const Files begun = {{".gitignore", "*.o\n/build/\n!keep.o\n"}, {"src/.gitignore", "made.c\n"}, {"given.o", "1\n"}};
  auto left = begun;
  for (const char* path :
       {"a.o", "src/b.o", "build/x.c", "build/deep/keep.o", "src/made.c", "__pycache__/a.pyc", "src/__pycache__/b.pyc",
        ".git/HEAD", "src/.git/config", ".pytest_cache/README.md", "src/.mypy_cache/x"}) {
    left[path] = "1\n";
  }
  EXPECT_EQ(difference(begun, left).files, 0u);
  left["keep.o"] = left["src/build/x.c"] = left["made.c"] = left["src/git"] = "1\n";
  EXPECT_EQ(difference(begun, left).files, 4u);
  left["given.o"] = "2\n";
  EXPECT_THAT(difference(begun, left).touched, ElementsAre("given.o")) << "the task brings it, as git tracks it";
}

TEST(TreeDiff, what_setup_has_built_is_no_change_where_git_ignores_it) {
  Task task;
  task.files = {{".gitignore", "out\n"}};
  const Collected begun{.files = {{".gitignore", "out\n"}, {"out", "1\n"}, {"made", "1\n"}}};
  const auto diff = tree_diff(task, begun, {.files = {{".gitignore", "out\n"}, {"out", "2\n"}, {"made", "2\n"}}});
  EXPECT_THAT(diff.touched, ElementsAre("made"));
}

TEST(TreeDiff, an_attempt_cannot_hide_its_work_by_rules_of_its_own) {
  const auto diff = difference({}, {{".gitignore", "*\n"}, {"work.py", "1\n"}});
  EXPECT_EQ(diff.files, 2u);
}

TEST(TreeDiff, what_was_not_collected_is_neither_removed_nor_changed) {
  const Files begun = {{"a.py", "1\n"}, {"b.py", "1\n"}, {"c.py", "1\n"}};
  const auto diff = difference(begun, {{"a.py", ""}, {"b.py", "1\n2\n"}, {"large", ""}}, false);
  EXPECT_TRUE(diff.at_least);
  EXPECT_EQ(diff.files, 2u) << "b.py and large; a.py may be as it was, c.py may be there";
  EXPECT_EQ(diff.lines_added, 1u);
  EXPECT_EQ(diff.lines_removed, 0u);
  EXPECT_THAT(diff.texts, ElementsAre("b.py"));
}

TEST(TreeDiff, long_texts_that_have_much_in_common_are_counted_in_full) {
  const auto long_one = numbers(0, 200'000);
  const auto more = difference({{"a", long_one}}, {{"a", long_one + numbers(200'000, 300'000)}});
  EXPECT_EQ(more.lines_added, 100'000u);
  EXPECT_FALSE(more.at_least);
  const auto others = difference({{"a", long_one}}, {{"a", numbers(0, 200'000, "x\n")}});
  EXPECT_EQ(others.lines_added, 200'000u);
  EXPECT_EQ(others.lines_removed, 200'000u);
  EXPECT_FALSE(others.at_least) << "no line is the same";
}

TEST(TreeDiff, where_no_shortest_difference_is_looked_for_the_lines_are_at_least_so_many) {
  std::string before, after;
  for (int i = 0; i < 5000; ++i) {
    before += std::to_string(i) + "\n";
    after += std::to_string(i % 2 == 0 ? i : 4999 - i) + (i % 4 == 1 ? "x\n" : "\n");
  }
  const auto diff = difference({{"a", before}}, {{"a", after}});
  EXPECT_TRUE(diff.at_least);
  EXPECT_GE(diff.lines_added, 1250u);
  EXPECT_LE(diff.lines_added, 5000u);
}

TEST(TreeDiff, thousands_of_files_that_are_hard_to_compare_take_seconds) {
  Files begun, left;
  for (int i = 0; i < 5000; ++i) {
    const auto name = "f" + std::to_string(i);
    begun[name] = numbers(0, 500);
    left[name] = "x\n" + numbers(250, 500) + numbers(0, 250);
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto diff = difference(begun, left);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_EQ(diff.files, 5000u);
  EXPECT_TRUE(diff.at_least);
  EXPECT_GE(diff.lines_added, 5000u);
}

class TreeDiffOnBase : public testing::Test {
 protected:
  void SetUp() override {
    cache_.emplace(scratch_.path / "cache");
    scratch_.put("repo/src/a.py", "a = 1\n");
    scratch_.put("repo/src/b.py", "b = 1\nb = 2\n");
    scratch_.put("repo/.gitignore", "*.log\n");
    scratch_.put("repo/kept.log", "1\n");
    auto found = find_task_base(TaskBase::Kind::kFolder, scratch_.path / "repo");
    ASSERT_TRUE(found) << found.error().to_string();
    task_.base = std::move(*found);
    auto tree = prepare_base(*task_.base);
    ASSERT_TRUE(tree) << tree.error().to_string();
    task_.base->tree = std::move(*tree);
    task_.files = {{"notes.txt", "1\n"}};
  }
  Scratch scratch_;
  std::optional<CacheOf> cache_;
  Task task_;
};

TEST_F(TreeDiffOnBase, changes_are_compared_with_the_bases_files) {
  Collected left{.files = {{"src/a.py", "a = 2\n"}, {"new.py", "1\n"}, {"x.log", "1\n"}, {"kept.log", "2\n"}}};
  left.files["notes.txt"] = "1\n";
  left.removed = {"src/b.py"};
  const auto diff = tree_diff(task_, {.files = task_.files}, left);
  EXPECT_EQ(diff.files, 4u);
  EXPECT_EQ(diff.lines_added, 3u);
  EXPECT_EQ(diff.lines_removed, 4u);
  EXPECT_THAT(diff.touched, ElementsAre("kept.log", "src/a.py", "src/b.py"));
  EXPECT_FALSE(diff.at_least);
}

TEST_F(TreeDiffOnBase, what_was_put_over_the_base_and_is_gone_is_removed) {
  task_.files = {{"src/a.py", "a = 7\n"}, {"notes.txt", "1\n"}};
  // The base's own file is there again.
  const auto diff = tree_diff(task_, {.files = task_.files}, {.files = {{"notes.txt", "1\n"}}});
  EXPECT_THAT(diff.touched, ElementsAre("src/a.py"));
  EXPECT_EQ(diff.lines_added, 1u);
  EXPECT_EQ(diff.lines_removed, 1u);
}

}  // namespace
}  // namespace tandem::envs
