#include "envs/mcp_server/mcp_session.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "base/text.h"
#include "envs/mcp/line_splitter.h"
#include "envs/mcp/revisions.h"
#include "envs/mcp_server/mcp_stdio.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const char* const kMcpSessionInitialize =
    R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},)"
    R"("clientInfo":{"name":"test","version":"1"}}})";

std::string initialize(const std::string& revision) {
  auto message = Json::parse(kMcpSessionInitialize);
  message["params"]["protocolVersion"] = revision;
  return dump_json(message);
}

std::string mcp_session_call(int id, const std::string& tool, const Json& arguments = Json::object()) {
  return dump_json(Json{{"jsonrpc", "2.0"},
                        {"id", id},
                        {"method", "tools/call"},
                        {"params", {{"name", tool}, {"arguments", arguments}}}});
}
const std::string kRead = "read_file", kChange = "run_terminal_cmd";

std::string cancelled(int id) {
  return R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":)" + std::to_string(id) + "}}";
}

// What the actions say, in words: "reply 3 {...}", "nothing 3", "refused 3 {...}", "start 1", "stop 1".
std::vector<std::string> words(const std::vector<McpAction>& actions) {
  std::vector<std::string> said;
  for (const auto& action : actions) {
    if (const auto* reply = std::get_if<McpReply>(&action)) {
      const char* kinds[] = {"nothing ", "reply ", "refused "};
      said.push_back(kinds[static_cast<int>(reply->kind)] + std::to_string(reply->exchange) +
                     (reply->text.empty() ? "" : " " + reply->text));
    } else if (const auto* start = std::get_if<McpCallStart>(&action)) {
      said.push_back("start " + std::to_string(start->call));
    } else {
      said.push_back("stop " + std::to_string(std::get<McpCallStop>(action).call));
    }
  }
  return said;
}

class McpSessionTest : public testing::Test {
 protected:
  // The one reply to a frame, as JSON.
  Json ask(const std::string& frame) {
    const auto actions = session_.step(++exchange_, frame);
    if (actions.size() != 1 || !std::holds_alternative<McpReply>(actions[0])) {
      ADD_FAILURE() << frame << "\n" << testing::PrintToString(words(actions));
      return {};
    }
    const auto& reply = std::get<McpReply>(actions[0]);
    EXPECT_EQ(reply.exchange, exchange_);
    return reply.text.empty() ? Json() : Json::parse(reply.text);
  }
  int error_of(const std::string& frame) {
    const auto reply = ask(frame);
    return reply.contains("error") ? reply.at("error").at("code").get<int>() : 0;
  }
  std::vector<std::string> step(const std::string& frame) { return words(session_.step(++exchange_, frame)); }
  std::vector<std::string> finish(uint64_t number, const std::string& output) {
    return words(session_.finished(number, ToolOutcome::done(output)));
  }

  McpSession session_{"1.2.3"};
  uint64_t exchange_ = 0;
};

TEST_F(McpSessionTest, each_revision_that_is_known_is_answered_by_itself_and_any_other_by_the_newest) {
  for (const char* revision : {"2025-11-25", "2025-06-18", "2025-03-26"}) {
    session_ = McpSession("1");
    EXPECT_EQ(ask(initialize(revision)).at("result").at("protocolVersion"), revision);
  }
  for (const char* revision : {"2024-11-05", "2099-01-01", ""}) {
    session_ = McpSession("1");
    EXPECT_EQ(ask(initialize(revision)).at("result").at("protocolVersion"), "2025-11-25");
  }
}

TEST_F(McpSessionTest, by_the_revision_without_a_beginning_each_request_is_answered_alone) {
  const auto request = [](const char* method, Json params, const char* revision) {
    params["_meta"] = {{kRevisionKey, revision}};
    return dump_json(Json{{"jsonrpc", "2.0"}, {"id", 1}, {"method", method}, {"params", params}});
  };
  const auto found = ask(request("server/discover", Json::object(), "2026-07-28")).at("result");
  EXPECT_EQ(found.at("resultType"), "complete");
  EXPECT_EQ(found.at("supportedVersions"), Json({"2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"}));
  EXPECT_TRUE(found.at("capabilities").contains("tools"));
  const auto listed = ask(request("tools/list", Json::object(), "2026-07-28")).at("result");
  EXPECT_EQ(listed.at("resultType"), "complete");
  EXPECT_FALSE(listed.at("tools").empty());
  EXPECT_THAT(step(request("tools/call", {{"name", kRead}, {"arguments", Json::object()}}, "2026-07-28")),
              ElementsAre("start 1"));
  EXPECT_THAT(finish(1, "text"), ElementsAre(HasSubstr(R"("resultType":"complete")")));
  // A revision that nobody knows is told which there are; a session begins as before.
  const auto refused = ask(request("tools/list", Json::object(), "2099-01-01")).at("error");
  EXPECT_EQ(refused.at("code"), -32022);
  EXPECT_EQ(refused.at("data").at("requested"), "2099-01-01");
  EXPECT_EQ(error_of(R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})"), -32600);
  EXPECT_EQ(ask(kMcpSessionInitialize).at("result").at("protocolVersion"), "2025-11-25");
}

TEST_F(McpSessionTest, says_who_it_is_and_that_it_has_tools) {
  const auto result = ask(kMcpSessionInitialize).at("result");
  EXPECT_EQ(dump_json(result.at("serverInfo")), R"({"name":"tandem","version":"1.2.3"})");
  EXPECT_EQ(dump_json(result.at("capabilities")), R"({"tools":{}})");
  EXPECT_THAT(step(R"({"jsonrpc":"2.0","method":"notifications/initialized"})"), ElementsAre("nothing 2"));
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":"a","method":"ping"})"),
            Json::parse(R"({"jsonrpc":"2.0","id":"a","result":{}})"));
}

TEST_F(McpSessionTest, lists_every_tool_with_the_schema_that_models_are_trained_on) {
  ask(kMcpSessionInitialize);
  const auto listed = ask(R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})").at("result").at("tools");
  const auto schemas = tool_schemas();
  ASSERT_EQ(listed.size(), schemas.size());
  for (size_t i = 0; i < listed.size(); ++i) {
    const auto& function = schemas[i].at("function");
    EXPECT_EQ(listed[i].at("name"), function.at("name"));
    EXPECT_EQ(listed[i].at("description"), function.at("description"));
    EXPECT_EQ(listed[i].at("inputSchema"), function.at("parameters"));
    EXPECT_EQ(listed[i].at("annotations").at("readOnlyHint"),
              find_tool(listed[i].at("name").get<std::string>())->effect == ToolEffect::kReads);
  }
  EXPECT_EQ(error_of(R"({"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}})"), -32602);
}

TEST_F(McpSessionTest, what_a_tool_says_is_the_text_of_the_result_and_a_refusal_is_an_error_of_the_tool) {
  ask(kMcpSessionInitialize);
  EXPECT_THAT(step(mcp_session_call(5, kRead)), ElementsAre("start 1"));
  EXPECT_THAT(finish(1, "     1|one\n"),
              ElementsAre("reply 2 {\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{\"content\":[{\"type\":\"text\",\"text\":"
                          "\"     1|one\\n\"}],\"isError\":false}}"));
  EXPECT_THAT(step(mcp_session_call(6, kRead)), ElementsAre("start 2"));
  EXPECT_THAT(words(session_.finished(2, ToolOutcome::refused("no such file"))),
              ElementsAre("reply 3 {\"jsonrpc\":\"2.0\",\"id\":6,\"result\":{\"content\":[{\"type\":\"text\",\"text\":"
                          "\"Error: no such file\"}],\"isError\":true}}"));
}

TEST_F(McpSessionTest, a_failure_of_the_infrastructure_is_an_error_of_the_protocol_and_the_session_goes_on) {
  ask(kMcpSessionInitialize);
  step(mcp_session_call(5, kRead));
  const auto said = words(session_.finished(1, fail(Status::unavailable("the sandbox is gone"))));
  EXPECT_THAT(said, ElementsAre("reply 2 {\"jsonrpc\":\"2.0\",\"id\":5,\"error\":{\"code\":-32603,\"message\":\"the "
                                "sandbox is gone\"}}"));
  EXPECT_THAT(step(mcp_session_call(6, kRead)), ElementsAre("start 2"));
}

TEST_F(McpSessionTest, bad_frames_are_refused_by_the_code_for_what_is_wrong_with_them) {
  ask(kMcpSessionInitialize);
  const struct {
    const char* frame;
    int code;
  } cases[] = {
      {"{", -32700},
      {"nonsense", -32700},
      {"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}", -32700},
      {"\"\xff\"", -32700},
      {"7", -32600},
      {"[]", -32600},
      {R"([{"jsonrpc":"2.0","id":1,"method":"ping"}])", -32600},  // no batches in this revision
      {R"({"id":1,"method":"ping"})", -32600},
      {R"({"jsonrpc":"1.0","id":1,"method":"ping"})", -32600},
      {R"({"jsonrpc":"2.0","id":1})", -32600},
      {R"({"jsonrpc":"2.0","id":1,"method":7})", -32600},
      {R"({"jsonrpc":"2.0","id":null,"method":"ping"})", -32600},
      {R"({"jsonrpc":"2.0","id":1.5,"method":"ping"})", -32600},
      {R"({"jsonrpc":"2.0","id":{},"method":"ping"})", -32600},
      {kMcpSessionInitialize, -32600},  // comes once
      {R"({"jsonrpc":"2.0","id":1,"method":"tools/lsit"})", -32601},
      {R"({"jsonrpc":"2.0","id":1,"method":"resources/list"})", -32601},
      {R"({"jsonrpc":"2.0","id":1,"method":"ping","params":[1]})", -32602},
      {R"({"jsonrpc":"2.0","id":1,"method":"tools/call"})", -32602},
      {R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}})", -32602},
      {R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"reed_file"}})", -32602},
      {R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":[]}})", -32602},
  };
  for (const auto& item : cases) EXPECT_EQ(error_of(item.frame), item.code) << item.frame;
  EXPECT_FALSE(session_.busy());
}

TEST_F(McpSessionTest, errors_name_the_request_and_what_was_meant) {
  ask(kMcpSessionInitialize);
  const auto method = ask(R"({"jsonrpc":"2.0","id":"x","method":"tools/lsit"})");
  EXPECT_EQ(method.at("id"), "x");
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":1.5,"method":"ping"})").at("id"), 1.5) << "who asked waits for it";
  EXPECT_EQ(method.at("error").at("message"), "there is no method \"tools/lsit\"; did you mean \"tools/list\"?");
  const auto tool = ask(mcp_session_call(3, "reed_file"));
  EXPECT_EQ(tool.at("error").at("message"), "Error: there is no tool \"reed_file\"; did you mean \"read_file\"?");
  EXPECT_EQ(ask("{").at("id"), Json());
  EXPECT_THAT(ask(std::string(kLargestRpcFrame + 1, ' ')).at("error").at("message").get<std::string>(),
              HasSubstr("a message has more than"));
}

TEST_F(McpSessionTest, nothing_but_ping_and_discovery_is_answered_before_initialize) {
  EXPECT_EQ(error_of(R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})"), -32600);
  EXPECT_EQ(error_of(mcp_session_call(1, kRead)), -32600);
  EXPECT_EQ(error_of(R"({"jsonrpc":"2.0","id":1,"method":"ping"})"), 0);
  EXPECT_EQ(error_of(R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":{}})"), -32602);
  EXPECT_FALSE(session_.initialized());
  // What a younger client tries first, which begins nothing.
  EXPECT_EQ(error_of(R"({"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}})"), 0);
  EXPECT_FALSE(session_.initialized());
}

TEST_F(McpSessionTest, notifications_and_responses_are_never_answered) {
  ask(kMcpSessionInitialize);
  for (const char* frame :
       {R"({"jsonrpc":"2.0","method":"notifications/progress"})", R"({"jsonrpc":"2.0","method":"x"})",
        R"({"jsonrpc":"2.0","id":9,"result":{}})", R"({"jsonrpc":"2.0","id":9,"error":{"code":1,"message":"m"}})"}) {
    EXPECT_EQ(ask(frame), Json()) << frame;
  }
}

TEST_F(McpSessionTest, calls_that_read_run_beside_each_other_and_one_that_changes_runs_alone_and_in_its_turn) {
  ask(kMcpSessionInitialize);
  EXPECT_THAT(step(mcp_session_call(1, kRead)), ElementsAre("start 1"));
  EXPECT_THAT(step(mcp_session_call(2, kRead)), ElementsAre("start 2"));
  EXPECT_THAT(step(mcp_session_call(3, kChange)), IsEmpty());
  EXPECT_THAT(step(mcp_session_call(4, kRead)), IsEmpty());  // it may read what the change before it writes
  EXPECT_THAT(finish(2, ""), ElementsAre(HasSubstr("reply 3 ")));
  EXPECT_THAT(finish(1, ""), ElementsAre(HasSubstr("reply 2 "), "start 3"));
  EXPECT_THAT(finish(3, ""), ElementsAre(HasSubstr("reply 4 "), "start 4"));
  EXPECT_THAT(finish(4, ""), ElementsAre(HasSubstr("reply 5 ")));
  EXPECT_FALSE(session_.busy());
}

TEST_F(McpSessionTest, a_cancelled_call_is_ended_and_not_answered_and_the_next_waits_until_it_is_gone) {
  ask(kMcpSessionInitialize);
  step(mcp_session_call(1, kChange));
  EXPECT_THAT(step(mcp_session_call(2, kChange)), IsEmpty());
  EXPECT_THAT(step(mcp_session_call(3, kChange)), IsEmpty());
  EXPECT_THAT(step(cancelled(1)), ElementsAre("stop 1", "nothing 2", "nothing 5"));
  EXPECT_THAT(step(cancelled(1)), ElementsAre("nothing 6"));
  EXPECT_THAT(step(cancelled(2)), ElementsAre("nothing 3", "nothing 7"));
  EXPECT_THAT(step(cancelled(99)), ElementsAre("nothing 8"));
  EXPECT_THAT(finish(1, "late"), ElementsAre("start 3"));
  EXPECT_THAT(finish(3, ""), ElementsAre(HasSubstr("reply 4 ")));
}

TEST_F(McpSessionTest, the_id_of_a_call_that_is_under_way_cannot_be_used_again_until_it_has_ended) {
  ask(kMcpSessionInitialize);
  step(mcp_session_call(1, kRead));
  EXPECT_EQ(error_of(mcp_session_call(1, kRead)), -32600);
  finish(1, "");
  EXPECT_THAT(step(mcp_session_call(1, kRead)), ElementsAre("start 2"));
}

TEST_F(McpSessionTest, more_calls_than_it_keeps_are_refused_and_may_be_sent_again) {
  ask(kMcpSessionInitialize);
  for (size_t i = 0; i < McpSession::kMostCalls; ++i) step(mcp_session_call(static_cast<int>(i), kChange));
  EXPECT_EQ(error_of(mcp_session_call(1000, kChange)), -32603);
  finish(1, "");
  EXPECT_THAT(step(mcp_session_call(1000, kChange)), IsEmpty());
}

TEST_F(McpSessionTest, a_batch_of_the_revision_that_has_them_is_answered_at_once_when_all_of_it_is_done) {
  ask(initialize("2025-03-26"));
  const auto ping = R"({"jsonrpc":"2.0","id":"p","method":"ping"})";
  EXPECT_THAT(step(fmt::format("[{},{},7,{}]", mcp_session_call(1, kRead), ping, mcp_session_call(2, kRead))),
              ElementsAre("start 1", "start 2"));
  EXPECT_THAT(finish(2, "two"), IsEmpty());
  const auto said = finish(1, "one");
  ASSERT_EQ(said.size(), 1u);
  const auto answers = Json::parse(said[0].substr(std::string("reply 2 ").size()));
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers[0].at("id"), "p");
  EXPECT_EQ(answers[1].at("error").at("code"), -32600);
  EXPECT_EQ(answers[2].at("id"), 2);
  EXPECT_EQ(answers[3].at("id"), 1);
  EXPECT_EQ(step(fmt::format("[{}]", cancelled(1))), std::vector<std::string>{"nothing 3"});
  EXPECT_THAT(step(fmt::format("[{},{}]", mcp_session_call(4, kChange), cancelled(4))), ElementsAre("nothing 4"));
}

// Frames made from pieces of good ones: whatever comes, every exchange has one reply, and the session goes on.
TEST_F(McpSessionTest, any_frame_has_one_reply_and_leaves_a_session_that_works) {
  std::vector<std::string> seeds = {kMcpSessionInitialize,
                                    initialize("2025-03-26"),
                                    mcp_session_call(1, kRead, {{"target_file", "a"}}),
                                    mcp_session_call(2, kChange, {{"command", "ls"}}),
                                    cancelled(1),
                                    cancelled(2),
                                    R"({"jsonrpc":"2.0","id":3,"method":"tools/list"})",
                                    R"({"jsonrpc":"2.0","id":"ü","method":"ping"})"};
  seeds.push_back(fmt::format("[{}]", join(seeds, ",")));
  Random random(7);
  for (int round = 0; round < 60; ++round) {
    McpSession session("1");
    std::set<uint64_t> running, open;
    const auto carry_out = [&](const std::vector<McpAction>& actions) {
      for (const auto& action : actions) {
        if (const auto* reply = std::get_if<McpReply>(&action)) {
          EXPECT_EQ(open.erase(reply->exchange), 1u);
          EXPECT_EQ(reply->text.find('\n'), std::string::npos);
          EXPECT_TRUE(reply->text.empty() || parse_json(reply->text)) << reply->text;
        } else if (const auto* start = std::get_if<McpCallStart>(&action)) {
          EXPECT_TRUE(running.insert(start->call).second);
        } else {
          EXPECT_TRUE(running.contains(std::get<McpCallStop>(action).call));
        }
      }
    };
    for (uint64_t exchange = 1; exchange < 60; ++exchange) {
      std::string frame = random.pick(seeds);
      if (random.chance(0.1)) frame = frame.substr(0, random.below(frame.size())) + random.pick(seeds);
      if (random.chance(0.1)) frame.resize(random.below(frame.size()));
      for (uint64_t flips = random.chance(0.4) ? random.below(4) : 0; flips > 0 && !frame.empty(); --flips) {
        frame[random.below(frame.size())] ^= static_cast<char>(1 << random.below(8));
      }
      open.insert(exchange);
      carry_out(session.step(exchange, frame));
      if (!running.empty() && random.chance(0.5)) {
        const uint64_t ended = *running.begin();
        running.erase(ended);
        carry_out(session.finished(ended, ToolOutcome::done("x\n")));
      }
    }
    while (!running.empty()) {
      const uint64_t ended = *running.begin();
      running.erase(ended);
      carry_out(session.finished(ended, ToolOutcome::done("x\n")));
    }
    EXPECT_THAT(open, IsEmpty());
    EXPECT_FALSE(session.busy());
    open.insert(1000);
    carry_out(session.step(1000, R"({"jsonrpc":"2.0","id":1,"method":"ping"})"));
    EXPECT_THAT(open, IsEmpty());
  }
}

TEST(JsonRpc, who_sends_what_cannot_be_read_is_answered_by_the_id_of_his_request) {
  const auto id = [](const std::string& text) {
    const auto frame = decode_rpc_frame(text);
    EXPECT_EQ(frame.messages.at(0).kind, RpcMessage::Kind::kMalformed) << text.substr(0, 100);
    return frame.messages.at(0).id;
  };
  EXPECT_EQ(id(R"({"jsonrpc":"2.0","id":80,"method":"x","params":{"a":"\ud83d"}})"), Json(80));
  EXPECT_EQ(id(R"({"params":{"id":1,"b":["\"id\":2}"]},"id" : "s-1", oops})"), Json("s-1"));
  EXPECT_EQ(id(R"({"jsonrpc":"2.0","id":7,"method":"x)"), Json(7));
  EXPECT_EQ(id(R"({"params":{"id":1},"id":1.5,)"), Json(1)) << "what is read of it";
  for (const char* none : {"{not json}", R"([{"id":1,])", R"({"params":{"id":1},)", R"({"id":{},)", R"("id":1)"})
    EXPECT_EQ(id(none), Json()) << none;
  const std::string large(kLargestRpcFrame, 'x');
  EXPECT_EQ(id(R"({"jsonrpc":"2.0","id":77,"params":{"a":")" + large + "\"}}"), Json(77));
  LineSplitter lines(kLargestRpcFrame);
  lines.append(R"({"method":"x","params":{"a":")" + large + large + R"(\"id\":3}"},"jsonrpc":"2.0","id":78})" + "\n");
  EXPECT_EQ(id(*lines.next()), Json(78)) << "behind what was left out";
}

TEST(LineSplitter, lines_are_the_same_however_the_bytes_come) {
  Random random(3);
  const std::string bytes = "one\n\n  \r\ntwo\r\n" + std::string(1000, 'x') + "the end\nthree";
  for (int round = 0; round < 200; ++round) {
    LineSplitter splitter(20);
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = 1 + random.below(9);
      splitter.append(std::string_view(bytes).substr(at, count));
      at += count;
    }
    std::vector<std::string> lines;
    while (auto line = splitter.next()) lines.push_back(*line);
    EXPECT_THAT(lines, ElementsAre("one", "two\r", std::string(21 + 512 - 7, 'x') + "the end"));
    splitter.append("\n");
    EXPECT_EQ(splitter.next(), "three");
  }
}

}  // namespace
}  // namespace tandem::envs
