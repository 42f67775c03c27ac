// What of a commit's message becomes an instruction, and what of its tests must be told beside it.
#include "envs/tasks/commit_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/tasks/commit_rules.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

TEST(CommitWords, trailers_and_links_of_issues_go_and_the_rest_stays) {
  EXPECT_EQ(message_of_task("Read empty lines (#12)\n\nThey were an error, see https://a.example/issues/12.\n\n"
                            "Fixes: #12\nCo-authored-by: A <a@b.example>\n"
                            "(cherry picked from commit 0123456789abcdef0123456789abcdef01234567)\n"),
            "Read empty lines\n\nThey were an error, see");
  EXPECT_EQ(message_of_task("parser: keep `a: b` and\nnote: this stays\n"),
            "parser: keep `a: b` and\nnote: this stays");
  EXPECT_EQ(message_of_task("Fix the reader, fixes #3 and #4"), "Fix the reader,");
  EXPECT_EQ(message_of_task("Use 100 columns and C# names"), "Use 100 columns and C# names");
  EXPECT_EQ(message_of_task(" \n\n"), "");
  EXPECT_EQ(message_of_task("caf\xe9 was wrong here"), "") << "no UTF-8";
  EXPECT_EQ(message_of_task("a \x1b[31m red one"), "") << "control characters";
  EXPECT_EQ(message_of_task(std::string(100'000, 'a')).size(), 8000u);
}

TEST(CommitWords, words_of_code_are_names_and_texts_outside_of_comments) {
  const auto python =
      words_of_code("a.py", "# a comment\nname = 'a text'  # more\n\"\"\"A long\nstring.\"\"\"\nx1 = \"\"\n");
  EXPECT_THAT(python.names, UnorderedElementsAre("name"));
  EXPECT_THAT(python.texts, UnorderedElementsAre("a text"));
  const auto c = words_of_code("a.c", "// a comment\n/* another */ int number = call(\"it's\");");
  EXPECT_THAT(c.names, UnorderedElementsAre("int", "number", "call"));
  EXPECT_THAT(c.texts, UnorderedElementsAre("it's"));
  for (const char* open : {"\"", "'", "/*", "\"\"\"", "\"\\"}) {
    EXPECT_THAT(words_of_code("a.py", open).names, IsEmpty());
    EXPECT_THAT(words_of_code("a.c", open).texts, IsEmpty());
  }
}

TEST(CommitWords, names_that_only_the_tests_would_tell_are_told) {
  const std::vector<ChangedText> source = {
      {"a.py", "def old(): pass\n",
       "def old(): raise ValueError('no such word')\ndef fresh(): pass\ndef said(): pass\n"}};
  const std::vector<ChangedText> tests = {
      {"test_a.py", "old()\n", "old()\nfresh()\nsaid()\nassert str(error) == 'no such word'\nlocal = 1\n"}};
  EXPECT_THAT(untold_words(source, tests, "Add said, and more"), ElementsAre("fresh", "\"no such word\""));
  EXPECT_THAT(untold_words(source, tests, "Add said and fresh; old says: no such word"), IsEmpty());
  const auto text = instruction_of_commit("words", "Add it", {"fresh"});
  EXPECT_THAT(text, HasSubstr("the source of words"));
  EXPECT_THAT(text, HasSubstr("- fresh\n"));
  EXPECT_THAT(instruction_of_commit("words", "Add it", {}), Not(HasSubstr("names")));
}

TEST(CommitRules, paths_that_no_workspace_may_have_are_refused_by_name) {
  const GitCommit commit{.id = "c", .parents = {"p"}, .message = "m"};
  const auto refusal = [&](const std::string& path) {
    const std::vector<GitChange> changes = {{.path = path, .before = "100644", .after = "100644"},
                                            {.path = "tests/test_a.py", .before = "100644", .after = "100644"}};
    return refuse_changes(commit, changes, {});
  };
  EXPECT_FALSE(refusal("a.py"));
  for (const char* path :
       {"../a.py", "/a.py", "a/../../b.py", "a\x01.py", "a\x7f.py", "a\xff.py", ".git/hooks/x", "b/.GIT/x"}) {
    const auto refused = refusal(path);
    ASSERT_TRUE(refused) << path;
    EXPECT_EQ(refused->why, NoTask::kPath) << path;
    EXPECT_EQ(refused->detail.find_first_of("\x01\x7f\xff"), std::string::npos) << path;
  }
}

TEST(CommitRules, every_reason_has_a_word_of_its_own_that_is_read_again) {
  for (size_t i = 0; i < kNoTaskCount; ++i) {
    const auto why = static_cast<NoTask>(i);
    EXPECT_FALSE(to_string(why).empty());
    EXPECT_EQ(no_task_from(to_string(why)), why);
  }
  EXPECT_FALSE(no_task_from("something"));
}

}  // namespace
}  // namespace tandem::envs
