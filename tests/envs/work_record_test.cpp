// How an agent worked, counted over calls of the tools themselves.
#include "envs/episodes/work_record.h"

#include "tests/envs/tools_fixture.h"

namespace tandem::envs {
namespace {

class WorkRecordTest : public Tools {
 protected:
  // A message with these calls, which are run.
  void turn(const std::vector<Call>& calls) {
    std::vector<ParsedCall> parsed;
    std::vector<ToolOutcome> outcomes;
    for (const auto& each : calls) {
      parsed.push_back({each, "", ""});
      outcomes.push_back(call(each.name.c_str(), each.arguments));
      EXPECT_TRUE(outcomes.back().ok) << outcomes.back().output;
    }
    work_.turn(parsed, outcomes, seconds_ += 1);
  }
  static Call write(const char* path, const char* contents) {
    return {"write", {{"file_path", path}, {"contents", contents}}};
  }
  static Call replace(const char* path, const char* before, const char* after) {
    return {"search_replace", {{"file_path", path}, {"old_string", before}, {"new_string", after}}};
  }
  static Call read(const char* path) { return {"read_file", {{"target_file", path}}}; }
  Behaviour found() const { return work_.behaviour(seconds_); }

  WorkRecord work_;
  double seconds_ = 0;
};

TEST_F(WorkRecordTest, calls_that_follow_each_other_and_only_read_ran_in_parallel) {
  ASSERT_TRUE(write_file(scratch_.path / "a", "1\n"));
  ASSERT_TRUE(write_file(scratch_.path / "b", "2\n"));
  turn({read("a"), read("b"), write("c", "3\n"), read("c")});
  turn({read("a")});
  turn({});
  EXPECT_EQ(found().turns, 3);
  EXPECT_EQ(found().calls, 5);
  EXPECT_EQ(found().parallel_calls, 2);
  EXPECT_EQ(found().parallel_turns, 1);
  EXPECT_EQ(found().seconds, 3);
}

TEST_F(WorkRecordTest, reads_and_searches_count_before_the_first_edit) {
  ASSERT_TRUE(write_file(scratch_.path / "a", "1\n"));
  turn({{"grep", {{"pattern", "1"}}}, read("a")});
  turn({replace("a", "1", "2")});
  turn({read("a"), {"grep", {{"pattern", "2"}}}});
  EXPECT_EQ(found().reads_before_edit, 2);
  EXPECT_EQ(found().searches_before_edit, 1);
  EXPECT_EQ(found().searches, 2);
  EXPECT_EQ(found().edits, 1);
  EXPECT_GE(found().seconds_to_edit, 2);
}

TEST_F(WorkRecordTest, an_edit_that_is_put_back_line_by_line_was_undone_and_another_stands) {
  ASSERT_TRUE(write_file(scratch_.path / "a", "one\ntwo\nthree\nfour\n"));
  turn({replace("a", "two", "2")});
  turn({replace("a", "four", "4")});
  EXPECT_EQ(found().edits_undone, 0);
  turn({replace("a", "2", "two")});
  EXPECT_EQ(found().edits, 3);
  EXPECT_EQ(found().edits_undone, 1);
}

TEST_F(WorkRecordTest, a_file_with_its_content_of_before_has_all_edits_since_undone) {
  turn({write("a", "one\ntwo\n")});
  turn({replace("a", "one", "1")});
  turn({replace("a", "two", "2")});
  turn({write("a", "one\ntwo\n")});
  EXPECT_EQ(found().edits, 4);
  EXPECT_EQ(found().edits_undone, 2);
}

TEST_F(WorkRecordTest, a_file_that_was_made_and_deleted_was_undone) {
  turn({write("a", "one\n")});
  turn({{"delete_file", {{"target_file", "a"}}}});
  EXPECT_EQ(found().edits, 2);
  EXPECT_EQ(found().edits_undone, 1);
}

TEST_F(WorkRecordTest, lines_that_were_put_in_and_taken_out_were_undone) {
  ASSERT_TRUE(write_file(scratch_.path / "a", "one\r\ntwo\r\n"));
  turn({replace("a", "one\n", "one\nprint(1)\n")});
  turn({replace("a", "two", "2")});
  turn({replace("a", "print(1)\n", "")});
  EXPECT_EQ(found().edits_undone, 1);
}

TEST_F(WorkRecordTest, an_edit_of_several_files_is_undone_once_all_of_them_are) {
  context_.tools = {"apply_patch", "write", "delete_file"};
  ASSERT_TRUE(write_file(scratch_.path / "a", "one\n"));
  turn({{"apply_patch",
         {{"input", "*** Begin Patch\n*** Update File: a\n@@\n-one\n+1\n*** Add File: b\n+two\n*** End Patch\n"}}}});
  turn({write("a", "one\n")});
  EXPECT_EQ(found().edits_undone, 0);
  turn({{"delete_file", {{"target_file", "b"}}}});
  EXPECT_EQ(found().edits_undone, 1);
}

TEST_F(WorkRecordTest, a_change_that_goes_on_undoes_nothing) {
  turn({write("a", "one\n")});
  turn({replace("a", "one", "1")});
  turn({replace("a", "1", "uno")});
  turn({write("b", "1\n")});
  EXPECT_EQ(found().edits, 4);
  EXPECT_EQ(found().edits_undone, 0);
}

TEST_F(WorkRecordTest, a_command_is_an_edit_that_is_not_known) {
  turn({write("a", "one\n")});
  turn({{"run_terminal_cmd", {{"command", "rm a"}}}});
  EXPECT_EQ(found().edits, 2);
  EXPECT_EQ(found().edits_undone, 0);
}

TEST_F(WorkRecordTest, a_call_that_could_not_be_read_or_was_refused_is_counted_as_such) {
  const std::vector<ParsedCall> calls = {{{"", Json()}, "no JSON", ""}, {{"read_file", Json::object()}, "", ""}};
  const std::vector<ToolOutcome> outcomes = {{.output = "no JSON"}, call("read_file", Json::object())};
  work_.turn(calls, outcomes, 1);
  EXPECT_EQ(found().refused_calls, 2);
  EXPECT_EQ(found().parallel_calls, 0);
}

TEST_F(WorkRecordTest, outcomes_say_the_same_changes_beyond_a_socket) {
  const auto outcome = call("write", {{"file_path", "a"}, {"contents", "one\n"}});
  ASSERT_EQ(outcome.changes.size(), 1u);
  const auto again = outcome_from_json(*parse_json(dump_json(to_json(outcome))));
  EXPECT_EQ(again.changes, outcome.changes);
  EXPECT_TRUE(outcome_from_json({{"ok", true}, {"changes", {{1, 2}, "x", {1, 2, 3, 4, -5}}}}).changes.empty());
}

}  // namespace
}  // namespace tandem::envs
