#include "envs/mcp/foreign_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "envs/mcp/json_rpc.h"
#include "envs/mcp/schema_check.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;

std::string mistake_of_list(const std::string& result) {
  std::vector<ForeignTool> tools;
  std::vector<std::string> left_out;
  const auto read = read_foreign_tools("s", Json::parse(result), tools, left_out);
  return read ? "" : read.error().message();
}

TEST(ForeignTools, servers_are_named_and_have_a_command) {
  const auto servers = parse_mcp_servers(std::vector<std::string>{"a=python3 a.py --x=1", "b-2=b"});
  ASSERT_TRUE(servers.has_value()) << servers.error().to_string();
  EXPECT_EQ(*servers, (std::vector<McpServerSpec>{{"a", "python3 a.py --x=1"}, {"b-2", "b"}}));
  for (const auto& entries : std::vector<std::vector<std::string>>{
           {"a"}, {"=b"}, {"a= "}, {"A=b"}, {"a_b=c"}, {"a=1", "a=2"}, std::vector<std::string>(9, "a=b")}) {
    EXPECT_FALSE(parse_mcp_servers(entries).has_value()) << entries[0];
  }
}

TEST(ForeignTools, a_list_is_read_page_by_page_under_the_name_of_its_server) {
  std::vector<ForeignTool> tools;
  std::vector<std::string> left_out;
  auto cursor = read_foreign_tools(
      "maps", Json::parse(R"({"tools":[{"name":"find","description":"Finds\u0007.","inputSchema":{"type":"object"}}],
                              "nextCursor":"2"})"),
      tools, left_out);
  ASSERT_TRUE(cursor.has_value()) << cursor.error().to_string();
  EXPECT_EQ(*cursor, "2");
  cursor = read_foreign_tools(
      "maps", Json::parse(R"({"tools":[{"name":"route.v1","inputSchema":{"type":"object","properties":{}}}]})"), tools,
      left_out);
  ASSERT_TRUE(cursor.has_value()) << cursor.error().to_string();
  EXPECT_EQ(*cursor, std::nullopt);
  ASSERT_EQ(tools.size(), 2u);
  EXPECT_EQ(tools[0].name, "maps__find");
  EXPECT_EQ(tools[0].description, "Finds\xEF\xBF\xBD.");
  EXPECT_EQ(tools[1].tool, "route.v1");
  EXPECT_EQ(tool_schemas(tools)[1].at("function").at("name"), "maps__route.v1");
}

TEST(ForeignTools, a_tool_that_cannot_be_offered_is_left_out_by_name_and_the_others_are_there) {
  std::vector<ForeignTool> tools;
  std::vector<std::string> left_out;
  const std::string good = R"({"name":"a","inputSchema":{"type":"object"}})";
  const auto cursor =
      read_foreign_tools("s",
                         Json::parse(R"({"tools":[{"name":"a/b c","inputSchema":{"type":"object"}},{"name":")" +
                                     std::string(100, 'x') + R"(","inputSchema":{"type":"object"}},{"name":"none"},)" +
                                     R"({"name":"list","inputSchema":{"type":"array"}},1,)" + good + "," + good + "]}"),
                         tools, left_out);
  ASSERT_TRUE(cursor.has_value()) << cursor.error().to_string();
  ASSERT_EQ(tools.size(), 1u);
  EXPECT_EQ(tools[0].name, "s__a");
  EXPECT_THAT(left_out,
              testing::ElementsAre(HasSubstr("\"a/b c\" has a name that is not"), HasSubstr("has a name that is not"),
                                   HasSubstr("\"none\" has no inputSchema"), HasSubstr("\"list\" has no inputSchema"),
                                   HasSubstr("is no tool"), HasSubstr("\"a\" is there twice")));
}

TEST(ForeignTools, what_is_no_list_of_tools_is_refused) {
  EXPECT_THAT(mistake_of_list("[]"), HasSubstr("is not one"));
  EXPECT_THAT(mistake_of_list("{\"tools\":[{\"name\":\"a\",\"description\":\"" + std::string(300'000, 'x') +
                              "\",\"inputSchema\":{\"type\":\"object\"}}]}"),
              HasSubstr("more than 128 tools or"));
}

TEST(ForeignTools, the_outcome_of_a_call_is_its_texts) {
  const auto outcome = read_foreign_outcome(Json::parse(
      R"({"content":[{"type":"text","text":"one"},{"type":"image","data":"AAAA"},
          {"type":"resource","resource":{"text":"two"}},7],"isError":true})"));
  ASSERT_TRUE(outcome.has_value());
  EXPECT_FALSE(outcome->ok);
  EXPECT_EQ(outcome->output, "one\n[image, which is not shown]\ntwo\n[something that is not text, which is not shown]");
  EXPECT_EQ(read_foreign_outcome(Json::parse(R"({"content":[],"structuredContent":{"a":1}})"))->output, R"({"a":1})");
  EXPECT_EQ(read_foreign_outcome(Json::parse(R"({"content":[]})"))->output, "[no output]\n");
  EXPECT_FALSE(read_foreign_outcome(Json::parse("{}")).has_value());
  EXPECT_FALSE(read_foreign_outcome(Json::parse(R"({"content":"words"})")).has_value()) << "it says something";
  EXPECT_FALSE(read_foreign_outcome(Json::parse(R"({"content":null})")).has_value());
  EXPECT_FALSE(read_foreign_outcome(Json()).has_value());
}

TEST(JsonRpc, an_error_of_null_beside_a_result_is_none) {
  const auto frame = decode_rpc_frame(R"({"jsonrpc":"2.0","id":1,"error":null,"result":{"a":1}})");
  EXPECT_EQ(frame.messages.at(0).result, Json({{"a", 1}}));
  EXPECT_EQ(frame.messages.at(0).error.message, "");
  EXPECT_NE(decode_rpc_frame(R"({"jsonrpc":"2.0","id":1,"error":null})").messages.at(0).error.message, "");
}

std::string wrong(const std::string& schema, const std::string& value) {
  return check_by_schema(Json::parse(schema), Json::parse(value));
}

TEST(SchemaCheck, says_what_is_wrong_and_where) {
  const std::string schema = R"({"type":"object","required":["city"],"additionalProperties":false,"properties":{
      "city":{"type":"string","minLength":1,"maxLength":5},"days":{"type":"integer","minimum":1,"maximum":7},
      "unit":{"enum":["c","f"]},"at":{"type":"array","maxItems":2,"items":{"$ref":"#/$defs/point"}},
      "level":{"anyOf":[{"type":"null"},{"type":"number","exclusiveMinimum":0}]}},
      "$defs":{"point":{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]}}})";
  EXPECT_EQ(wrong(schema, R"({"city":"Oslo","days":7,"unit":"c","at":[{"x":1.5}],"level":null})"), "");
  EXPECT_EQ(wrong(schema, R"({"city":"Oslo","days":2.0,"level":0.1})"), "");
  EXPECT_EQ(wrong(schema, "{}"), "argument \"city\" is missing");
  EXPECT_EQ(wrong(schema, "[]"), "the arguments must be of type object");
  EXPECT_EQ(wrong(schema, R"({"city":7})"), "argument \"city\" must be of type string");
  EXPECT_EQ(wrong(schema, R"({"city":"Ålesund"})"), "argument \"city\" must have at most 5 characters, found 7");
  EXPECT_EQ(wrong(schema, R"({"city":"Oslo","days":8})"), "argument \"days\" must be at most 7");
  EXPECT_EQ(wrong(schema, R"({"city":"Oslo","days":1.5})"), "argument \"days\" must be of type integer");
  EXPECT_EQ(wrong(schema, R"({"city":"Oslo","unit":"k"})"), "argument \"unit\" must be one of c, f");
  EXPECT_EQ(wrong(schema, R"({"city":"Oslo","dayz":8})"), "there is no argument \"dayz\"; did you mean \"days\"?");
  EXPECT_EQ(wrong(schema, R"({"city":"Oslo","at":[{"x":1},{}]})"), "argument \"at[1].x\" is missing");
  EXPECT_EQ(wrong(schema, R"({"city":"Oslo","at":[{"x":1},{"x":1},{"x":1}]})"),
            "argument \"at\" must have at most 2 items, found 3");
  EXPECT_EQ(wrong(schema, R"({"city":"Oslo","level":0})"), "argument \"level\" must be of type null");
}

TEST(SchemaCheck, what_it_does_not_know_it_leaves_to_the_server) {
  EXPECT_EQ(wrong(R"({"type":"object","properties":{"a":{"type":"string","pattern":"^x","format":"email"}},"if":true})",
                  R"({"a":"y","b":1})"),
            "");
  EXPECT_EQ(wrong(R"({"properties":7,"required":"a","enum":{},"type":["spaceship",3],"items":[]})", R"({"a":1})"), "");
}

TEST(SchemaCheck, a_schema_without_an_end_takes_no_more_than_its_share) {
  EXPECT_EQ(wrong(R"({"$ref":"#"})", "{}"), "");
  EXPECT_EQ(wrong(R"({"allOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]})", "{}"), "");
  EXPECT_EQ(wrong(R"({"$ref":"#/no/~2where"})", "{}"), "");
}

}  // namespace
}  // namespace tandem::envs
