// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include <sys/stat.h>

#include "envs/episodes/turn.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/tools_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kHabits = {"bash", "str_replace_based_edit_tool"};

class TextEditor : public Tools {
 protected:
  TextEditor() { context_.tools = kHabits; }
  ToolOutcome edit(Json arguments) { return call("str_replace_based_edit_tool", arguments); }
  std::string said(const Json& arguments) { return edit(arguments).output; }
};

TEST_F(TextEditor, view_prints_a_file_as_read_file_does_and_a_part_of_it) {
  scratch_.put("a.txt", "one\ntwo\nthree\n");
  EXPECT_EQ(said({{"command", "view"}, {"path", "a.txt"}}), "     1|one\n     2|two\n     3|three\n");
  EXPECT_EQ(said({{"command", "view"}, {"path", "/workspace/a.txt"}, {"view_range", {2, 2}}}),
            "     2|two\n... 1 more lines\n");
  EXPECT_EQ(said({{"command", "view"}, {"path", "a.txt"}, {"view_range", {2, -1}}}), "     2|two\n     3|three\n");
  EXPECT_EQ(said({{"command", "view"}, {"path", "a.txt"}, {"view_range", {4, 9}}}),
            "Error: view_range: line 4 is past the end; the file has 3 lines");
  for (const auto& range : {Json{0, 2}, Json{3, 2}, Json{2, -2}, Json{-1, -1}}) {
    EXPECT_THAT(said({{"command", "view"}, {"path", "a.txt"}, {"view_range", range}}),
                HasSubstr("view_range must be [FIRST, LAST]"))
        << range;
  }
  EXPECT_THAT(said({{"command", "view"}, {"path", "a.txt"}, {"view_range", {1, 2, 3}}}),
              HasSubstr("argument \"view_range\" must have at most 2 items, found 3"));
  EXPECT_THAT(said({{"command", "view"}, {"path", "b.txt"}}), HasSubstr("did you mean \"a.txt\"?"));
}

TEST_F(TextEditor, view_of_a_folder_lists_two_levels_without_what_is_hidden) {
  for (const char* name : {"src/deep/deeper/a.py", "src/b.py", "README", ".git/config", "node_modules/x/y.js"})
    scratch_.put(name, "x\n");
  fs::create_directory_symlink("src", scratch_.path / "link");
  EXPECT_EQ(said({{"command", "view"}, {"path", "."}}), "README\nlink\nsrc/\nsrc/b.py\nsrc/deep/\n");
  EXPECT_EQ(said({{"command", "view"}, {"path", "src"}}), "b.py\ndeep/\ndeep/deeper/\n");
  EXPECT_EQ(said({{"command", "view"}, {"path", "src"}, {"view_range", {1, 2}}}),
            "Error: \"src\" is a folder; view_range is for files");
  EXPECT_THAT(said({{"command", "view"}, {"path", "../"}}), HasSubstr("outside the workspace"));
}

TEST_F(TextEditor, create_and_str_replace_say_what_write_and_search_replace_say_in_names_of_their_own) {
  EXPECT_EQ(said({{"command", "create"}, {"path", "src/a.py"}, {"file_text", "x = 1\ny = 1\n"}}),
            "Created src/a.py (12 bytes).");
  EXPECT_EQ(said({{"command", "str_replace"}, {"path", "src/a.py"}, {"old_str", "x = 1"}, {"new_str", "x = 2"}}),
            "Edited src/a.py: replaced 1 occurrence.");
  EXPECT_EQ(said({{"command", "str_replace"}, {"path", "src/a.py"}, {"old_str", "y = 1\n"}}),
            "Edited src/a.py: replaced 1 occurrence.");
  EXPECT_EQ(scratch_.get("src/a.py"), "x = 2\n");
  scratch_.put("b.py", "a\na\n");
  EXPECT_EQ(said({{"command", "str_replace"}, {"path", "b.py"}, {"old_str", "a"}, {"new_str", "b"}}),
            "Error: old_str occurs 2 times in b.py; add surrounding lines so that it occurs once");
  EXPECT_EQ(said({{"command", "str_replace"}, {"path", "b.py"}, {"old_str", ""}, {"new_str", "b"}}),
            "Error: old_str is empty; give the text to replace, or use the command create for the whole file");
  EXPECT_THAT(said({{"command", "str_replace"}, {"path", "b.py"}, {"old_str", "zz"}, {"new_str", "b"}}),
              HasSubstr("old_str was not found in b.py"));
}

TEST_F(TextEditor, insert_puts_lines_behind_a_line_and_keeps_ends_and_mode) {
  const auto insert = [&](const char* path, int line, const char* text) {
    return said({{"command", "insert"}, {"path", path}, {"insert_line", line}, {"insert_text", text}});
  };
  scratch_.put("a.txt", "one\ntwo\n");
  chmod((scratch_.path / "a.txt").c_str(), 0750);
  EXPECT_EQ(insert("a.txt", 1, "between"), "Edited a.txt: inserted 1 line after line 1.");
  EXPECT_EQ(insert("a.txt", 0, "zero\nhalf\n"), "Edited a.txt: inserted 2 lines at the beginning.");
  EXPECT_EQ(insert("a.txt", 5, "last"), "Edited a.txt: inserted 1 line after line 5.");
  EXPECT_EQ(scratch_.get("a.txt"), "zero\nhalf\none\nbetween\ntwo\nlast\n");
  struct stat info {};
  ASSERT_EQ(stat((scratch_.path / "a.txt").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0750u);
  EXPECT_EQ(insert("a.txt", 7, "x"), "Error: insert_line 7 is past the end; a.txt has 6 lines");
  scratch_.put("open.txt", "one");
  EXPECT_EQ(insert("open.txt", 1, "two"), "Edited open.txt: inserted 1 line after line 1.");
  EXPECT_EQ(scratch_.get("open.txt"), "one\ntwo");
  scratch_.put("windows.txt", "one\r\ntwo\r\n");
  insert("windows.txt", 1, "x\ny\r\n");
  EXPECT_EQ(scratch_.get("windows.txt"), "one\r\nx\r\ny\r\ntwo\r\n");
  scratch_.put("empty.txt", "");
  insert("empty.txt", 0, "x");
  EXPECT_EQ(scratch_.get("empty.txt"), "x\n");
  EXPECT_THAT(insert("none.txt", 0, "x"), HasSubstr("there is no file \"none.txt\""));
  EXPECT_THAT(insert("empty.txt", 0, ""), HasSubstr("insert_text is empty"));
  EXPECT_EQ(said({{"command", "insert"}, {"path", "empty.txt"}, {"insert_line", 1}, {"new_str", "y"}}),
            "Edited empty.txt: inserted 1 line after line 1.");
}

TEST_F(TextEditor, a_command_says_what_it_needs_and_what_it_does_not_take) {
  EXPECT_EQ(said({{"command", "create"}, {"path", "a"}}),
            "Error: the command create needs \"file_text\". Use: create{path, file_text}");
  EXPECT_EQ(said({{"command", "view"}, {"path", "a"}, {"old_str", "x"}}),
            "Error: the command view takes no \"old_str\". Use: view{path, view_range?}");
  EXPECT_EQ(said({{"command", "insert"}, {"path", "a"}, {"insert_line", 0}}),
            "Error: the command insert needs \"insert_text\". Use: insert{path, insert_line, insert_text}");
  EXPECT_THAT(said({{"command", "undo_edit"}, {"path", "a"}}),
              HasSubstr("argument \"command\" must be one of view, create, str_replace, insert"));
}

TEST_F(TextEditor, bash_says_what_run_terminal_cmd_says) {
  EXPECT_EQ(call("bash", {{"command", "echo hi; exit 3"}}).output, "hi\n[exit code 3]\n");
  EXPECT_EQ(call("bash", Json::object()).output,
            "Error: argument \"command\" is missing. Use: bash{command}, or bash{restart: true}");
  EXPECT_EQ(call("bash", {{"restart", false}}).ok, false);
  EXPECT_THAT(call("bash", {{"command", "ls"}, {"timeout", 3}}).output,
              HasSubstr("there is no argument \"timeout\"; expected one of command, restart"));
}

class HabitsInSandbox : public SandboxTest {
 protected:
  HabitsInSandbox() { spec_.tools = kHabits; }
};

TEST_F(HabitsInSandbox, bash_keeps_its_shell_until_it_is_restarted) {
  EXPECT_EQ(call("bash", {{"command", "cd /tmp; export X=1"}}).output, "[no output]\n");
  EXPECT_EQ(call("bash", {{"command", "pwd; echo \"[$X]\""}}).output, "/tmp\n[1]\n");
  EXPECT_EQ(call("bash", {{"restart", true}}).output, "The shell is a new one, in /workspace.");
  EXPECT_EQ(call("bash", {{"command", "pwd; echo \"[$X]\""}}).output, "/workspace\n[]\n");
  call("bash", {{"command", "cd /tmp"}});
  EXPECT_EQ(call("bash", {{"command", "pwd"}, {"restart", true}}).output, "/workspace\n");
}

TEST_F(HabitsInSandbox, views_of_one_message_run_at_once_and_edits_wait_for_them) {
  ASSERT_TRUE(sandbox_->put({{"a.txt", "one\n"}}));
  const auto editor = [](Json arguments) {
    arguments["path"] = "a.txt";
    return ParsedCall{{"str_replace_based_edit_tool", std::move(arguments)}, ""};
  };
  const std::vector<ParsedCall> calls = {editor({{"command", "view"}}),
                                         editor({{"command", "str_replace"}, {"old_str", "one"}, {"new_str", "two"}}),
                                         editor({{"command", "view"}}), editor({{"command", 7}})};
  const auto outcomes = run_turn(*sandbox_, calls);
  ASSERT_TRUE(outcomes.has_value());
  EXPECT_EQ((*outcomes)[0].output, "     1|one\n");
  EXPECT_TRUE((*outcomes)[1].changed_files);
  EXPECT_EQ((*outcomes)[2].output, "     1|two\n");
  EXPECT_FALSE((*outcomes)[3].ok);
  const Tool* tool = find_tool("str_replace_based_edit_tool");
  EXPECT_EQ(effect_of(*tool, {{"command", "view"}}), ToolEffect::kReads);
  EXPECT_EQ(effect_of(*tool, {{"command", "create"}}), ToolEffect::kChanges);
  EXPECT_EQ(effect_of(*tool, Json::array({"view"})), ToolEffect::kChanges);
}

}  // namespace
}  // namespace tandem::envs
