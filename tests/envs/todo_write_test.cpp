// GCC 12 sees overlapping and endless copies in sums of strings that are not there (GCC bug 105651).
#pragma GCC diagnostic ignored "-Wrestrict"
#pragma GCC diagnostic ignored "-Wstringop-overflow"

#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/tools_fixture.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

Json todo(const std::string& id, const std::string& content, const std::string& status) {
  return {{"id", id}, {"content", content}, {"status", status}};
}

class TodoWrite : public Tools {
 protected:
  TodoWrite() { context_.session = &session_; }
  ToolOutcome write(bool merge, const Json& todos) { return call("todo_write", {{"merge", merge}, {"todos", todos}}); }
  Session session_;
};

TEST_F(TodoWrite, replaces_the_list_or_merges_into_it_by_id) {
  const auto first = write(false, {todo("1", "read", "completed"), todo("2", "write", "pending")});
  EXPECT_EQ(first.output, "1 of 2 completed.\n1 [completed] read\n2 [pending] write\n");
  EXPECT_FALSE(first.changed_files);
  EXPECT_EQ(write(true, {todo("3", "test", "pending"), todo("2", "write it", "in_progress")}).output,
            "1 of 3 completed.\n1 [completed] read\n2 [in_progress] write it\n3 [pending] test\n");
  EXPECT_EQ(write(false, {todo("a", "x", "cancelled"), todo("b", "y", "pending")}).output,
            "0 of 2 completed.\na [cancelled] x\nb [pending] y\n");
}

TEST_F(TodoWrite, a_refused_call_names_the_item_and_changes_nothing) {
  write(false, {todo("1", "read", "completed"), todo("2", "write", "pending")});
  const auto before = session_;
  EXPECT_THAT(write(true, {todo("1", "x", "pending"), todo("1", "y", "pending")}).output,
              HasSubstr("\"1\" is given twice"));
  EXPECT_THAT(write(true, {todo("1", "x", "pending"), todo("", "y", "pending")}).output, HasSubstr("not empty"));
  EXPECT_THAT(write(true, {todo("1", "x", "pending"), todo("3", std::string(3000, 'y'), "pending")}).output,
              HasSubstr("\"3\" is longer than 2000 bytes"));
  Json many = Json::array();
  for (int i = 0; i < 200; ++i) many.push_back(todo(std::to_string(i), "x", "pending"));
  EXPECT_THAT(write(true, many).output, HasSubstr("may have 100 items"));
  EXPECT_EQ(session_, before);
}

TEST_F(TodoWrite, wrong_items_are_named_by_their_place) {
  EXPECT_THAT(write(false, Json::array({todo("1", "x", "pending")})).output,
              HasSubstr("\"todos\" must have at least 2 items, found 1. Use: todo_write{merge, todos}"));
  EXPECT_THAT(write(false, {todo("1", "x", "pending"), todo("2", "x", "done")}).output,
              HasSubstr("\"todos[1].status\" must be one of pending, in_progress, completed, cancelled"));
  EXPECT_THAT(write(false, {todo("1", "x", "pending"), {{"id", "2"}, {"status", "pending"}}}).output,
              HasSubstr("\"todos[1].content\" is missing"));
  Json misspelt = todo("2", "x", "pending");
  misspelt["contnet"] = "y";
  EXPECT_THAT(write(false, {todo("1", "x", "pending"), misspelt}).output,
              HasSubstr("there is no argument \"todos[1].contnet\"; did you mean \"content\"?"));
  EXPECT_THAT(write(false, {"a", "b"}).output, HasSubstr("\"todos[0]\" must be of type object, found string"));
  EXPECT_THAT(write(false, "a").output, HasSubstr("\"todos\" must be of type array, found string"));
}

TEST_F(SandboxTest, a_list_of_todos_lasts_from_call_to_call_and_ends_with_the_sandbox) {
  const Json arguments = {{"merge", true}, {"todos", {todo("1", "read", "completed"), todo("2", "write", "pending")}}};
  call("todo_write", arguments);
  shell("true");
  const Json more = {{"merge", true}, {"todos", {todo("2", "write", "completed"), todo("3", "test", "pending")}}};
  EXPECT_EQ(call("todo_write", more).output,
            "2 of 3 completed.\n1 [completed] read\n2 [completed] write\n3 [pending] test\n");
  make();
  EXPECT_THAT(call("todo_write", arguments).output, HasSubstr("1 of 2 completed."));
}

}  // namespace
}  // namespace tandem::envs
