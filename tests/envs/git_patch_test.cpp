#include "envs/tasks/git_patch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

struct Outcome {
  Files files;
  std::set<std::string> programs;
  std::string error;
};
Outcome apply(Files files, const std::string& patch) {
  std::set<std::string> programs;
  const auto paths = apply_git_patch(patch, files, programs);
  return {files, programs, paths ? "" : paths.error().message()};
}

TEST(GitPatch, files_are_changed_made_moved_and_taken_away) {
  const auto [files, programs, error] = apply(
      {{"a.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n"}, {"gone.txt", "x\n"}, {"old name.txt", "same\nline\n"}, {"run", ""}},
      "From: somebody\n\ndiff --git a/a.txt b/a.txt\nindex 12..34 100644\n--- a/a.txt\n+++ b/a.txt\n"
      "@@ -1,3 +1,4 @@\n+0\n 1\n 2\n 3\n@@ -7,3 +8,2 @@ def f():\n 7\n-8\n-9\n+nine\n"
      "diff --git a/gone.txt b/gone.txt\ndeleted file mode 100644\n--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
      "diff --git a/new/b.sh b/new/b.sh\nnew file mode 100755\n--- /dev/null\n+++ b/new/b.sh\n@@ -0,0 +1,2 @@\n+a\n+b\n"
      "diff --git a/empty b/empty\nnew file mode 100644\nindex 0..0\n"
      "diff --git a/old name.txt b/new name.txt\nsimilarity index 90%\nrename from old name.txt\nrename to new "
      "name.txt\n"
      "--- a/old name.txt\t\n+++ b/new name.txt\t\n@@ -1,2 +1,2 @@\n same\n-line\n+other\n"
      "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n-- \n2.39\n");
  EXPECT_EQ(error, "");
  EXPECT_THAT(files, ElementsAre(Pair("a.txt", "0\n1\n2\n3\n4\n5\n6\n7\nnine\n"), Pair("empty", ""),
                                 Pair("new name.txt", "same\nother\n"), Pair("new/b.sh", "a\nb\n"), Pair("run", "")));
  EXPECT_THAT(programs, ElementsAre("new/b.sh", "run"));
}

TEST(GitPatch, the_end_of_the_last_line_is_as_the_patch_has_it) {
  const std::string head = "--- a/a\n+++ b/a\n";
  EXPECT_EQ(apply({{"a", "x"}}, head + "@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+y\n").files.at("a"), "y\n");
  EXPECT_EQ(apply({{"a", "x\n"}}, head + "@@ -1 +1 @@\n-x\n+y\n\\ No newline at end of file\n").files.at("a"), "y");
  EXPECT_EQ(apply({{"a", "x\ny\nz\nend"}}, head + "@@ -1,1 +1,1 @@\n-x\n+1\n").files.at("a"), "1\ny\nz\nend");
  EXPECT_EQ(apply({{"a", "x\n\ny\n"}}, head + "@@ -1,3 +1,3 @@\n x\n\n-y\n+z\n").files.at("a"), "x\n\nz\n");
}

TEST(GitPatch, what_does_not_fit_changes_nothing_and_names_its_line) {
  const Files files = {{"a", "1\n2\n"}};
  const auto error = [&](const std::string& patch) {
    const auto outcome = apply(files, patch);
    EXPECT_EQ(outcome.files, files);
    return outcome.error;
  };
  const std::string head = "--- a/a\n+++ b/a\n";
  EXPECT_THAT(error("hello"), HasSubstr("is no patch"));
  EXPECT_THAT(error(head + "@@ -1,2 +1,1 @@\n 1\n-3\n"),
              HasSubstr("line 3 of the patch: line 2 of the file is not \"3\""));
  EXPECT_THAT(error(head + "@@ -9,1 +9,1 @@\n-1\n+2\n"), HasSubstr("lies beyond the file"));
  EXPECT_THAT(error(head + "@@ -1,2 +1,2 @@\n 1\n*\n"), HasSubstr("line 5 of the patch: the hunk has other lines"));
  EXPECT_THAT(error(head + "@@ -1,2 +1,2 @@\n 1"), HasSubstr("the hunk is cut short"));
  EXPECT_THAT(error(head + "@@ -x +1 @@\n"), HasSubstr("is no heading of a hunk"));
  EXPECT_THAT(error("@@ -1 +1 @@\n"), HasSubstr("a hunk without a file"));
  EXPECT_THAT(error("--- a/b\n+++ b/b\n@@ -1 +1 @@\n-1\n+2\n"), HasSubstr("there is no file b"));
  EXPECT_THAT(error("--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+2\n"), HasSubstr("a is there already"));
  EXPECT_THAT(error("--- /dev/null\n+++ b/../x\n@@ -0,0 +1 @@\n+2\n"), HasSubstr("leads out of the workspace"));
  EXPECT_THAT(error("diff --git a/l b/l\nnew file mode 120000\n"), HasSubstr("neither links nor modules"));
  EXPECT_THAT(error("diff --git a/l b/l\nindex 1..2\nGIT binary patch\n"), HasSubstr("binary files are not supported"));
  EXPECT_THAT(error("--- a/a\n+++ \"b/\\303\"\n"), HasSubstr("names in quotes"));
}

}  // namespace
}  // namespace tandem::envs
