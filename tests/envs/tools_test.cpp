#include <sys/stat.h>

#include "base/clock.h"
#include "envs/tools/output.h"
#include "envs/tools/process.h"
#include "tests/envs/tools_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(Tools, read_file_numbers_its_lines) {
  scratch_.put("a.txt", "one\ntwo\nthree\n");
  EXPECT_EQ(call("read_file", {{"target_file", "a.txt"}}).output, "     1|one\n     2|two\n     3|three\n");
  EXPECT_EQ(call("read_file", {{"target_file", "/workspace/a.txt"}, {"offset", 2}, {"limit", 1}}).output,
            "     2|two\n... 1 more lines\n");
}

TEST_F(Tools, an_empty_file_says_so) {
  scratch_.put("a.txt", "");
  EXPECT_EQ(call("read_file", {{"target_file", "a.txt"}}).output, "File is empty.");
}

TEST_F(Tools, a_missing_file_is_answered_with_the_nearest_name) {
  scratch_.put("src/server.py", "x\n");
  const auto outcome = call("read_file", {{"target_file", "server.py"}});
  EXPECT_FALSE(outcome.ok);
  EXPECT_THAT(outcome.output, HasSubstr("did you mean \"src/server.py\""));
}

TEST_F(Tools, wrong_arguments_are_named_with_what_would_be_right) {
  EXPECT_THAT(call("read_file", {{"file", "a"}}).output, HasSubstr("target_file"));
  EXPECT_THAT(call("read_file", Json::object()).output, HasSubstr("\"target_file\" is missing"));
  EXPECT_THAT(call("read_file", {{"target_file", 3}}).output, HasSubstr("must be of type string, found integer"));
  EXPECT_THAT(call("grep", {{"pattern", "a"}, {"output_mode", "all"}}).output,
              HasSubstr("content, files_with_matches, count"));
  EXPECT_THAT(call("read_fil", Json::object()).output, HasSubstr("did you mean \"read_file\""));
  EXPECT_THAT(call("write", Json::array()).output, HasSubstr("must be a JSON object"));
}

TEST_F(Tools, search_replace_changes_the_one_place) {
  scratch_.put("a.ini", "port = 80\nhost = x\n");
  const auto outcome = call("search_replace", {{"file_path", "a.ini"}, {"old_string", "80"}, {"new_string", "81"}});
  EXPECT_TRUE(outcome.ok) << outcome.output;
  EXPECT_TRUE(outcome.changed_files);
  EXPECT_EQ(scratch_.get("a.ini"), "port = 81\nhost = x\n");
}

TEST_F(Tools, search_replace_refuses_several_places_unless_told) {
  scratch_.put("a.txt", "a b a\n");
  const Json once = {{"file_path", "a.txt"}, {"old_string", "a"}, {"new_string", "c"}};
  EXPECT_THAT(call("search_replace", once).output, HasSubstr("occurs 2 times"));
  Json all = once;
  all["replace_all"] = true;
  EXPECT_TRUE(call("search_replace", all).ok);
  EXPECT_EQ(scratch_.get("a.txt"), "c b c\n");
}

TEST_F(Tools, search_replace_forgives_indentation_and_trailing_spaces_with_a_note) {
  scratch_.put("a.py", "def f():\n    x = 1  \n    return x\n");
  const auto outcome =
      call("search_replace",
           {{"file_path", "a.py"}, {"old_string", "x = 1\nreturn x"}, {"new_string", "x = 2\nif x:\n    return x"}});
  EXPECT_TRUE(outcome.ok) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("indentation"));
  EXPECT_EQ(scratch_.get("a.py"), "def f():\n    x = 2\n    if x:\n        return x\n");
}

TEST_F(Tools, search_replace_shows_the_nearest_lines) {
  scratch_.put("a.ini", "timeout = 30\nretries = 4\n");
  const auto outcome =
      call("search_replace", {{"file_path", "a.ini"}, {"old_string", "timeout = 31"}, {"new_string", "timeout = 9"}});
  EXPECT_FALSE(outcome.ok);
  EXPECT_THAT(outcome.output, HasSubstr("     1|timeout = 30"));
}

TEST_F(Tools, an_edit_that_changes_nothing_is_an_error) {
  scratch_.put("a.txt", "a\n");
  const auto outcome = call("search_replace", {{"file_path", "a.txt"}, {"old_string", "a"}, {"new_string", "a"}});
  EXPECT_FALSE(outcome.ok);
  EXPECT_FALSE(outcome.changed_files);
}

TEST_F(Tools, edits_keep_mode_and_line_ends) {
  scratch_.put("run.sh", "one\r\ntwo\r\n");
  fs::permissions(scratch_.path / "run.sh", fs::perms(0751));
  EXPECT_TRUE(call("search_replace", {{"file_path", "run.sh"}, {"old_string", "one\ntwo"}, {"new_string", "1\n2"}}).ok);
  EXPECT_EQ(scratch_.get("run.sh"), "1\r\n2\r\n");
  EXPECT_EQ(fs::status(scratch_.path / "run.sh").permissions(), fs::perms(0751));
}

TEST_F(Tools, write_makes_folders_and_says_when_nothing_changed) {
  EXPECT_TRUE(call("write", {{"file_path", "a/b/c.txt"}, {"contents", "hi\n"}}).changed_files);
  EXPECT_EQ(scratch_.get("a/b/c.txt"), "hi\n");
  EXPECT_FALSE(call("write", {{"file_path", "a/b/c.txt"}, {"contents", "hi\n"}}).changed_files);
}

TEST_F(Tools, paths_that_leave_the_workspace_are_refused) {
  Scratch outside;
  outside.put("secret", "s3cret\n");
  fs::create_symlink(outside.path / "secret", scratch_.path / "link");
  fs::create_directory_symlink(outside.path, scratch_.path / "folder");
  for (const std::string& path : {std::string("link"), std::string("folder/secret"), std::string("/etc/passwd"),
                                  "../" + outside.path.filename().string() + "/secret", std::string("folder/new")}) {
    for (const auto& [name, arguments] :
         {std::pair<const char*, Json>{"read_file", {{"target_file", path}}},
          {"write", {{"file_path", path}, {"contents", "x"}}},
          {"search_replace", {{"file_path", path}, {"old_string", "s"}, {"new_string", "x"}}},
          {"grep", {{"pattern", "s"}, {"path", path}}},
          {"list_dir", {{"target_directory", path}}},
          {"glob_file_search", {{"glob_pattern", "*"}, {"target_directory", path}}}}) {
      const auto outcome = call(name, arguments);
      EXPECT_FALSE(outcome.ok) << name << " " << path;
      EXPECT_THAT(outcome.output, Not(HasSubstr("s3cret")));
    }
  }
  EXPECT_EQ(outside.get("secret"), "s3cret\n");
  EXPECT_FALSE(fs::exists(outside.path / "new"));
}

TEST_F(Tools, grep_prints_path_line_and_text) {
  scratch_.put("b/x.ini", "port = 1\n");
  scratch_.put("a.ini", "host\nPORT = 2\n");
  scratch_.put(".env", "port=3\n");
  EXPECT_EQ(call("grep", {{"pattern", "port"}, {"-i", true}}).output,
            ".env:1:port=3\na.ini:2:PORT = 2\nb/x.ini:1:port = 1\n");
  EXPECT_EQ(call("grep", {{"pattern", "port"}, {"output_mode", "count"}, {"path", "b"}}).output, "b/x.ini:1\n");
  EXPECT_EQ(call("grep", {{"pattern", "port"}, {"output_mode", "files_with_matches"}, {"glob", "*.ini"}}).output,
            "b/x.ini\n");
  EXPECT_EQ(call("grep", {{"pattern", "nothing"}}).output, "No matches for \"nothing\".");
  EXPECT_FALSE(call("grep", {{"pattern", "(("}}).ok);
}

TEST_F(Tools, list_dir_marks_folders) {
  scratch_.put("b/x", "");
  scratch_.put("a", "");
  EXPECT_EQ(call("list_dir", {{"target_directory", "."}}).output, "a\nb/\n");
}

TEST_F(Tools, a_command_reports_output_and_exit_code) {
  const auto outcome = call("run_terminal_cmd", {{"command", "echo hi; echo no >&2; exit 3"}});
  EXPECT_TRUE(outcome.ok);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.output, "hi\nno\n[exit code 3]\n");
  EXPECT_FALSE(outcome.changed_files);
}

TEST_F(Tools, a_command_that_changes_files_is_seen_and_one_that_rewrites_them_alike_is_not) {
  scratch_.put("a", "x\n");
  EXPECT_TRUE(call("run_terminal_cmd", {{"command", "echo y >> a"}}).changed_files);
  EXPECT_FALSE(call("run_terminal_cmd", {{"command", "sed -i s/q/r/ a"}}).changed_files);
  EXPECT_TRUE(call("run_terminal_cmd", {{"command", "chmod +x a"}}).changed_files);
}

TEST_F(Tools, the_environment_of_the_host_does_not_pass_through) {
  setenv("TANDEM_SECRET", "s3cret", 1);
  EXPECT_THAT(call("run_terminal_cmd", {{"command", "env"}}).output, Not(HasSubstr("s3cret")));
}

TEST_F(Tools, a_time_limit_ends_the_whole_group_and_is_a_result) {
  context_.time_limit_s = 2;
  const SystemClock clock;
  const Time start = clock.now();
  const auto outcome =
      call("run_terminal_cmd", {{"command", "echo begun; (sleep 60; echo late > late) & tail -f /dev/null"}});
  EXPECT_TRUE(outcome.ok);
  EXPECT_EQ(outcome.exit_code, 124);
  EXPECT_EQ(outcome.output, "begun\n[ended after the time limit of 2 s]\n");
  EXPECT_LT(to_seconds(clock.now() - start), 50);
}

TEST_F(Tools, endless_output_is_bounded_while_it_streams) {
  context_.time_limit_s = 1;
  const auto outcome = call("run_terminal_cmd", {{"command", "yes abcdefg"}});
  EXPECT_TRUE(outcome.truncated);
  EXPECT_LT(outcome.output.size(), 4300u);
  EXPECT_THAT(outcome.output, HasSubstr("bytes left out"));
  EXPECT_THAT(outcome.output, HasSubstr("time limit"));
}

TEST_F(Tools, a_command_that_leaves_a_child_does_not_hold_the_call) {
  const SystemClock clock;
  const Time start = clock.now();
  EXPECT_EQ(call("run_terminal_cmd", {{"command", "sleep 60 & echo done"}}).output, "done\n");
  EXPECT_LT(to_seconds(clock.now() - start), 50);
}

TEST_F(Tools, schemas_are_an_openai_tools_array) {
  const auto schemas = tool_schemas();
  ASSERT_EQ(schemas.size(), tools().size());
  EXPECT_EQ(schemas[0].at("type"), "function");
  EXPECT_EQ(schemas[0].at("function").at("name"), "read_file");
  EXPECT_EQ(schemas[0].at("function").at("parameters").at("required"), Json::array({"target_file"}));
}

TEST(Output, binary_and_broken_text_becomes_printable) {
  EXPECT_EQ(make_printable("a\xFF"
                           "b\x01\x1b[31mred\x1b[0m\r\n\xC3\xA9"),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD"
            "red\n\xC3\xA9");
}

TEST(Output, head_and_tail_are_kept) {
  BoundedOutput output(10);
  for (int i = 0; i < 1000; ++i) output.append("0123456789");
  EXPECT_TRUE(output.truncated());
  EXPECT_EQ(output.text(), "01234\n[... 9990 bytes left out ...]\n56789");
  bool truncated = false;
  EXPECT_EQ(bound_output(output.text(), 8, truncated), "0123\n[... 9992 bytes left out ...]\n6789") << "cut twice";
}

TEST_F(Tools, a_file_of_rules_that_is_a_pipe_is_named_at_once) {
  if (find_program("rg").empty()) GTEST_SKIP() << "needs ripgrep";
  scratch_.put("src/lib/a.txt", "one\n");
  const Json find = {{"pattern", "one"}}, below = {{"pattern", "one"}, {"path", "src/lib"}};
  for (const char* name : {"src/.gitignore", ".ignore", "src/lib/.rgignore"}) {
    ASSERT_EQ(mkfifo((scratch_.path / name).c_str(), 0600), 0);
    const std::string words = "\"" + std::string(name) + "\" is a pipe";
    EXPECT_THAT(call("grep", find).output, HasSubstr(words));
    EXPECT_THAT(call("grep", below).output, HasSubstr(words));
    EXPECT_THAT(call("glob_file_search", {{"glob_pattern", "*.txt"}}).output, HasSubstr(words));
    EXPECT_THAT(call("grep", {{"pattern", "one"}, {"path", "src/lib/a.txt"}}).output, HasSubstr(":one"));
    fs::remove(scratch_.path / name);
  }
  EXPECT_THAT(call("grep", find).output, HasSubstr("src/lib/a.txt:1:one"));
}

}  // namespace
}  // namespace tandem::envs
