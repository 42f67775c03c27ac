// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include "base/random.h"
#include "tests/envs/tools_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

class ApplyPatch : public Tools {
 protected:
  // The lines between the first and the last of a patch.
  ToolOutcome patch(const std::string& body) {
    return call("apply_patch", {{"input", "*** Begin Patch\n" + body + "*** End Patch\n"}});
  }
  void expect_refused(const std::string& body, const std::string& why) {
    const auto before = contents();
    const auto outcome = patch(body);
    EXPECT_FALSE(outcome.ok) << body;
    EXPECT_FALSE(outcome.changed_files);
    EXPECT_THAT(outcome.output, HasSubstr(why));
    EXPECT_THAT(outcome.output, testing::EndsWith("Nothing was changed."));
    EXPECT_EQ(contents(), before);
  }
  std::map<std::string, std::string> contents() {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(scratch_.path)) {
      const auto name = entry.path().lexically_relative(scratch_.path).string();
      files[name] = entry.is_regular_file() ? scratch_.get(name) : "";
    }
    return files;
  }
};

TEST_F(ApplyPatch, adds_deletes_updates_and_moves_files_at_once) {
  scratch_.put("a.py", "def f():\n    x = 1\n    return x\n");
  scratch_.put("old.txt", "gone\n");
  scratch_.put("from.txt", "one\ntwo\n");
  fs::permissions(scratch_.path / "from.txt", fs::perms(0751));
  const auto outcome = patch(
      "*** Update File: a.py\n@@ def f():\n-    x = 1\n+    x = 2\n     return x\n"
      "*** Delete File: old.txt\n"
      "*** Add File: src/new.txt\n+hello\n+\n+world\n"
      "*** Update File: from.txt\n*** Move to: deep/to.txt\n@@\n one\n-two\n+2\n");
  EXPECT_EQ(outcome.output, "Applied the patch:\nM a.py\nD old.txt\nA src/new.txt\nM from.txt -> deep/to.txt\n");
  EXPECT_TRUE(outcome.changed_files);
  const std::map<std::string, std::string> expected = {{"a.py", "def f():\n    x = 2\n    return x\n"},
                                                       {"deep", ""},
                                                       {"deep/to.txt", "one\n2\n"},
                                                       {"src", ""},
                                                       {"src/new.txt", "hello\n\nworld\n"}};
  EXPECT_EQ(contents(), expected);
  EXPECT_EQ(fs::status(scratch_.path / "deep/to.txt").permissions(), fs::perms(0751));
}

TEST_F(ApplyPatch, hunks_are_placed_one_after_another_and_behind_their_anchors) {
  scratch_.put("a.py", "class A:\n  def f():\n    pass\nclass B:\n  def f():\n    pass\n  def g():\n    pass\n");
  EXPECT_TRUE(patch("*** Update File: a.py\n@@ class B:\n@@   def g():\n-    pass\n+    return 1\n").ok);
  EXPECT_EQ(scratch_.get("a.py"),
            "class A:\n  def f():\n    pass\nclass B:\n  def f():\n    pass\n  def g():\n    return 1\n");
  EXPECT_TRUE(patch("*** Update File: a.py\n@@\n-    pass\n+    return 2\n@@\n-    pass\n+    return 3\n").ok);
  EXPECT_EQ(scratch_.get("a.py"),
            "class A:\n  def f():\n    return 2\nclass B:\n  def f():\n    return 3\n  def g():\n    return 1\n");
}

TEST_F(ApplyPatch, lines_without_context_go_behind_the_anchor_or_to_the_end) {
  scratch_.put("a.txt", "one\ntwo\n");
  EXPECT_TRUE(patch("*** Update File: a.txt\n@@ one\n+between\n@@\n+last\n").ok);
  EXPECT_EQ(scratch_.get("a.txt"), "one\nbetween\ntwo\nlast\n");
}

TEST_F(ApplyPatch, the_end_of_the_file_can_be_asked_for) {
  scratch_.put("a.txt", "x\ny\nx\n");
  EXPECT_TRUE(patch("*** Update File: a.txt\n@@\n-x\n+z\n*** End of File\n").ok);
  EXPECT_EQ(scratch_.get("a.txt"), "x\ny\nz\n");
  expect_refused("*** Update File: a.txt\n@@\n-y\n+q\n*** End of File\n",
                 "lines that should end the file were not found");
}

TEST_F(ApplyPatch, forgives_spaces_and_typographic_quotes_and_keeps_the_lines_of_the_file) {
  scratch_.put("a.py", "if x:  \n\tprint(\u201Chi\u201D)\n\tdone()\n");
  const auto outcome = patch("*** Update File: a.py\n@@\n if x:\n print(\"hi\")\n-done()\n+\tstop()\n");
  EXPECT_THAT(outcome.output, HasSubstr("M a.py (some lines were matched though their spaces or quotes differ)"));
  EXPECT_EQ(scratch_.get("a.py"), "if x:  \n\tprint(\u201Chi\u201D)\n\tstop()\n");
}

TEST_F(ApplyPatch, keeps_line_ends_and_a_last_line_without_one) {
  scratch_.put("windows", "one\r\ntwo\r\n");
  scratch_.put("open", "one\ntwo");
  EXPECT_TRUE(patch("*** Update File: windows\n@@\n-one\n+1\n*** Update File: open\n@@\n one\n-two\n+2\n").ok);
  EXPECT_EQ(scratch_.get("windows"), "1\r\ntwo\r\n");
  EXPECT_EQ(scratch_.get("open"), "one\n2");
}

TEST_F(ApplyPatch, one_wrong_part_leaves_everything_as_it_was) {
  scratch_.put("a.txt", "timeout = 30\n");
  scratch_.put("b.txt", "b\n");
  const std::string good = "*** Add File: c.txt\n+c\n*** Delete File: b.txt\n";
  expect_refused(good + "*** Update File: a.txt\n@@\n-timeout = 31\n+timeout = 9\n",
                 "\"a.txt\": the hunk at line 6 of the patch cannot be placed: its lines were not found. The nearest "
                 "lines are:\n     1|timeout = 30\n");
  expect_refused(good + "*** Update File: a.txt\n@@ no such\n-timeout = 30\n+x\n",
                 "the line \"no such\" that stands after @@ was not found");
  expect_refused(good + "*** Update File: b.txt\n@@\n-b\n+x\n", "an earlier part of the patch deletes");
  expect_refused(good + "*** Update File: nowhere.txt\n@@\n-b\n+x\n", "there is no file \"nowhere.txt\"");
  expect_refused(good + "*** Add File: a.txt\n+x\n", "is there already");
  expect_refused(good + "*** Delete File: nowhere\n", "there is no file \"nowhere\"");
  expect_refused(good + "*** Update File: a.txt\n*** Move to: c.txt\n", "is there already");
  expect_refused(good + "*** Update File: a.txt\n@@\n timeout = 30\n", "would change nothing");
  expect_refused(good + "*** Add File: ../out\n+x\n", "leads outside");
  expect_refused(good + "*** Add File: a.txt/below\n+x\n", "");
  expect_refused(good + "*** Add File: d/e\n+x\n*** Add File: d\n+x\n", "");
  expect_refused("*** Update File: a.txt\n@@\n-x\n+y\n@@\n", "");
}

TEST_F(ApplyPatch, hunks_out_of_order_are_told_where_their_lines_are) {
  scratch_.put("a.txt", "one\ntwo\nthree\n");
  expect_refused("*** Update File: a.txt\n@@\n-three\n+3\n@@\n-one\n+1\n", "after line 3, but at line 1");
}

TEST_F(ApplyPatch, what_is_not_in_the_grammar_is_named_with_its_line) {
  scratch_.put("a.txt", "one\n");
  expect_refused("", "the patch changes no file");
  expect_refused("*** Change File: a.txt\n", "line 2 of the patch: expected \"*** Add File: PATH\"");
  expect_refused("*** Add File: b.txt\nx\n", "line 3 of the patch: every line of an added file begins with \"+\"");
  expect_refused("*** Update File: a.txt\n", "line 2 of the patch: the update of \"a.txt\" has no hunk");
  expect_refused("*** Update File: a.txt\n@@\none\n", "line 4 of the patch: a hunk needs lines");
  expect_refused("*** Update File: a.txt\n@@\n-one\ntwo\n", "line 5 of the patch: lines of a hunk begin with");
  expect_refused("*** Delete File: \n", "names no file");
  EXPECT_THAT(call("apply_patch", {{"input", "*** Add File: b.txt\n+x\n"}}).output, HasSubstr("must begin with"));
  EXPECT_THAT(call("apply_patch", {{"input", "*** Begin Patch\n*** Add File: b.txt\n+x\n"}}).output,
              HasSubstr("must end with"));
  EXPECT_THAT(call("apply_patch", {{"input", ""}}).output, HasSubstr("must begin with"));
}

TEST_F(ApplyPatch, blank_lines_around_headings_and_windows_ends_are_forgiven) {
  scratch_.put("a.txt", "one\n\ntwo\n");
  const auto outcome =
      call("apply_patch", {{"input",
                            "\n*** Begin Patch\r\n*** Update File: a.txt\r\n@@\r\n one\r\n\r\n-two\r\n+2\r\n"
                            "\r\n*** Add File: b.txt\r\n+b\r\n\r\n*** End Patch\r\n\r\n"}});
  EXPECT_TRUE(outcome.ok) << outcome.output;
  EXPECT_EQ(scratch_.get("a.txt"), "one\n\n2\n");
  EXPECT_EQ(scratch_.get("b.txt"), "b\n");
}

TEST_F(ApplyPatch, a_patch_made_of_two_texts_turns_the_first_into_the_second) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    std::string before, after, hunk;
    for (uint64_t line = 1 + random.below(20); line > 0; --line) {
      const auto text = std::string(1, "abcd"[random.below(4)]) + std::to_string(random.below(3));
      if (const double what = random.uniform(); what < 0.7) {
        before += text + "\n", after += text + "\n", hunk += " " + text + "\n";
      } else if (what < 0.85) {
        before += text + "\n", hunk += "-" + text + "\n";
      } else {
        after += text + "\n", hunk += "+" + text + "\n";
      }
    }
    if (before == after || before.empty()) continue;
    scratch_.put("f", before);
    const auto outcome = patch("*** Update File: f\n@@\n" + hunk);
    ASSERT_TRUE(outcome.ok) << outcome.output << hunk;
    ASSERT_EQ(scratch_.get("f"), after) << hunk;
  }
}

TEST_F(ApplyPatch, any_text_is_applied_whole_or_refused_with_nothing_changed) {
  const std::string whole =
      "*** Begin Patch\n*** Update File: a.py\n@@ def f():\n-    x = 1\n+    x = 2\n     return x\n*** End of File\n"
      "*** Delete File: b.txt\n*** Add File: c/d.txt\n+one\n+two\n*** Update File: e.txt\n*** Move to: f.txt\n@@\n "
      "one\n"
      "-two\n+2\n*** End Patch\n";
  const std::vector<std::string> pieces = {"*** Begin Patch\n",
                                           "*** End Patch\n",
                                           "*** Add File: c\n",
                                           "@@\n",
                                           "@@ one\n",
                                           "-one\n",
                                           "+x\n",
                                           " one\n",
                                           "*** End of File\n",
                                           "*** Move to: ../x\n",
                                           "*** Delete File: e.txt\n",
                                           "*** Update File: a.py\n",
                                           "\n"};
  Random random(4);
  for (int round = 0; round < 2000; ++round) {
    fs::remove_all(scratch_.path);
    fs::create_directory(scratch_.path);
    scratch_.put("a.py", "def f():\n    x = 1\n    return x\n");
    scratch_.put("b.txt", "gone\n");
    scratch_.put("e.txt", "one\ntwo\n");
    const auto before = contents();
    std::string text = whole;
    for (uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
      const size_t place = random.below(text.size() + 1);
      if (random.chance(0.5)) {
        const size_t line = text.rfind('\n', place);
        text.insert(line == std::string::npos ? 0 : line + 1, random.pick(pieces));
      } else if (random.chance(0.5)) {
        text.erase(place, random.below(40));
      } else if (place < text.size()) {
        text[place] = random.pick(std::string_view("*@+- \nax\xff\0/."));
      }
      if (text.empty()) text = "\n";
    }
    const auto outcome = call("apply_patch", {{"input", text}});
    if (!outcome.ok) {
      ASSERT_EQ(contents(), before) << text;
    }
    EXPECT_EQ(outcome.ok, outcome.changed_files);
    for (const auto& [name, content] : contents()) ASSERT_THAT(name, Not(HasSubstr(".tandem-"))) << text;
  }
}

TEST_F(ApplyPatch, a_file_that_cannot_be_written_leaves_everything_as_it_was) {
  scratch_.put("a.txt", "one\n");
  // A name that fits, but not with what is put beside it while it is written.
  const std::string name(250, 'n');
  expect_refused("*** Update File: a.txt\n@@\n-one\n+1\n*** Add File: new/b.txt\n+b\n*** Add File: " + name + "\n+x\n",
                 "File name too long");
}

}  // namespace
}  // namespace tandem::envs
