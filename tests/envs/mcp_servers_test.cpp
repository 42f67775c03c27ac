// Servers of somebody else that speak the Model Context Protocol, as real processes in a sandbox.
#include <fmt/format.h>

#include "envs/episodes/episode.h"
#include "envs/fleet/watched_backend.h"
#include "envs/sandbox/capabilities.h"
#include "envs/tasks/task_set.h"
#include "tests/envs/only_task.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A counter and its ways to fail. Before it answers it prints what is no message, asks for something and tells
// something, as servers do.
const std::string kToolServer = R"(import json, os, sys, time
print("starting up", flush=True)
print("to the log", file=sys.stderr)
def say(message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def text(words, error=False): return {"content": [{"type": "text", "text": words}], "isError": error}
def tool(name, properties={}, required=[]):
    return {"name": name, "description": "Does " + name + ".",
            "inputSchema": {"type": "object", "properties": properties, "required": required}}
count = 0
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if "id" not in message or method is None: continue
    say({"method": "notifications/message", "params": {"level": "info", "data": "hello"}})
    say({"id": "p", "method": "ping"})
    say({"id": "r", "method": "roots/list"})
    if method == "initialize":
        say({"id": message["id"], "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
             "serverInfo": {"name": "counter", "version": "1"}}})
    elif method == "tools/list" and "cursor" not in params:
        say({"id": message["id"], "result": {"tools": [tool("add", {"by": {"type": "integer", "minimum": 1}}, ["by"]),
             tool("write", {"path": {"type": "string"}})], "nextCursor": "more"}})
    elif method == "tools/list":
        say({"id": message["id"], "result": {"tools": [tool(name) for name in
             ["fail", "refuse", "wait", "end", "much", "who"]]}})
    elif params["name"] == "add":
        count += params["arguments"]["by"]
        say({"id": message["id"], "result": text(str(count))})
    elif params["name"] == "write":
        open(params["arguments"]["path"], "w").write("written")
        say({"id": message["id"], "result": text("done")})
    elif params["name"] == "fail": say({"id": message["id"], "result": text("it did not work", True)})
    elif params["name"] == "refuse": say({"id": message["id"], "error": {"code": -32000, "message": "not today"}})
    elif params["name"] == "wait": pass
    elif params["name"] == "end": sys.exit(3)
    elif params["name"] == "much": say({"id": message["id"], "result": text("x" * 1000000)})
    elif params["name"] == "who":
        say({"id": message["id"], "result": text(" ".join([os.getcwd(), str(os.getuid()), os.environ["HOME"],
             open("/proc/self/status").read().split("Seccomp:")[1].split()[0], str(os.path.exists("/etc/shadow"))]))})
)";

class McpServers : public SandboxTest {
 protected:
  void begin() {
    ASSERT_TRUE(sandbox_->put({{"server.py", kToolServer}}));
    const Status begun = start_servers(*sandbox_, servers_);
    ASSERT_TRUE(begun) << begun.to_string();
  }
  ToolOutcome ask(const std::string& tool, const Json& arguments = Json::object()) {
    return call(("counter__" + tool).c_str(), arguments);
  }
  const std::vector<McpServerSpec> servers_ = {{"counter", "exec python3 server.py"}};
};

TEST_F(McpServers, their_tools_are_called_by_their_names_and_keep_their_state) {
  begin();
  std::vector<std::string> names;
  for (const auto& tool : foreign_tools_of(*sandbox_)) names.push_back(tool.name);
  EXPECT_THAT(names, ElementsAre("counter__add", "counter__write", "counter__fail", "counter__refuse", "counter__wait",
                                 "counter__end", "counter__much", "counter__who"));
  EXPECT_EQ(ask("add", {{"by", 2}}).output, "2");
  EXPECT_EQ(ask("add", {{"by", 3}}).output, "5");
  const auto written = ask("write", {{"path", "new.txt"}});
  EXPECT_TRUE(written.ok && written.changed_files);
  EXPECT_FALSE(ask("add", {{"by", 1}}).changed_files);
  EXPECT_EQ(shell("cat new.txt; cat /tmp/counter.mcp.log"), "writtento the log\n");
}

TEST_F(McpServers, the_log_of_one_that_writes_much_keeps_its_end) {
  ASSERT_TRUE(sandbox_->put({{"server.py", kToolServer}}));
  const std::vector<McpServerSpec> loud = {
      {"counter", R"(for i in $(seq 40); do head -c 1000000 /dev/zero | tr '\0' 'x'; echo " end of $i"; done >&2
                     until [ $(wc -c < /tmp/counter.mcp.log) -le 2097152 ]; do sleep 0.02; done
                     exec python3 server.py)"}};
  const Status begun = start_servers(*sandbox_, loud);
  ASSERT_TRUE(begun) << begun.to_string();
  EXPECT_THAT(shell("head -c 40 /tmp/counter.mcp.log"),
              testing::MatchesRegex("\\[... [0-9]+ bytes left out ...\\](.|\n)*"));
  EXPECT_THAT(shell("tail -c 11 /tmp/counter.mcp.log"), "to the log\n");
  EXPECT_LE(std::stoll(shell("stat -c %s /tmp/counter.mcp.log")), 2 << 20);
  EXPECT_EQ(ask("add", {{"by", 2}}).output, "2");
  EXPECT_FALSE(ask("end").ok) << "its end is seen";
}

// A server of the revision without a beginning, which checks that each request says its revision; ids come back as
// texts.
TEST_F(McpServers, one_that_knows_no_beginning_is_asked_what_it_speaks) {
  for (const bool answers_initialize : {false, true}) {
    const std::string server = fmt::format(R"(import json, sys
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {{}})
    def say(**parts): print(json.dumps({{"jsonrpc": "2.0", "id": str(message["id"]), **parts}}), flush=True)
    if "id" not in message: continue
    if method == "initialize" and {}:
        say(result={{"protocolVersion": "2026-07-28", "capabilities": {{"tools": {{}}}}}})
    elif params.get("_meta", {{}}).get("io.modelcontextprotocol/protocolVersion") != "2026-07-28":
        say(error={{"code": -32602, "message": "_meta is missing; supported: 2026-07-28"}})
    elif method == "server/discover":
        say(result={{"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {{"tools": {{}}}}}})
    elif method == "tools/list":
        say(result={{"resultType": "complete", "tools": [{{"name": "echo", "inputSchema": {{"type": "object"}}}},
                                                        {{"name": "ask me", "inputSchema": {{"type": "object"}}}}]}})
    elif params["arguments"].get("ask"):
        say(result={{"resultType": "input_required", "requests": []}})
    else:
        say(result={{"resultType": "complete", "content": [{{"type": "text", "text": "heard"}}]}})
)",
                                           answers_initialize ? "True" : "False");
    ASSERT_TRUE(sandbox_->put({{"stateless.py", server}}));
    const std::string name = answers_initialize ? "one" : "other";
    const Status begun = start_servers(*sandbox_, std::vector<McpServerSpec>{{name, "exec python3 stateless.py"}});
    ASSERT_TRUE(begun) << begun.to_string();
    EXPECT_EQ(call((name + "__echo").c_str(), Json::object()).output, "heard");
    EXPECT_THAT(call((name + "__echo").c_str(), {{"ask", true}}).output, HasSubstr("asks for words of the user's"));
  }
}

TEST_F(McpServers, arguments_are_checked_before_the_server_hears_of_them) {
  begin();
  EXPECT_EQ(ask("add").output, "Error: argument \"by\" is missing");
  EXPECT_EQ(ask("add", {{"by", "2"}}).output, "Error: argument \"by\" must be of type integer");
  EXPECT_EQ(ask("add", {{"by", 0}}).output, "Error: argument \"by\" must be at least 1");
  EXPECT_EQ(ask("add", Json::array()).output, "Error: the arguments must be a JSON object");
  EXPECT_EQ(ask("add", {{"by", 1}}).output, "1");
  EXPECT_THAT(ask("subtract").output, HasSubstr("there is no tool \"counter__subtract\""));
  EXPECT_THAT(call("no_such_tool_at_all", Json::object()).output,
              testing::AllOf(HasSubstr("; the tools are read_file, "), HasSubstr("counter__add")));
  EXPECT_EQ(call("conter__add", Json::object()).output,
            "Error: there is no tool \"conter__add\"; did you mean \"counter__add\"?");
}

TEST_F(McpServers, what_goes_wrong_is_told_to_the_model) {
  spec_.call_time_limit_s = 3;
  make();
  begin();
  const auto failed = ask("fail");
  EXPECT_FALSE(failed.ok);
  EXPECT_EQ(failed.output, "it did not work");
  EXPECT_EQ(ask("refuse").output, "Error: the server counter refused: not today");
  const auto late = ask("wait");
  EXPECT_FALSE(late.ok);
  EXPECT_EQ(late.output, "Error: the server counter did not answer in time");
  EXPECT_EQ(ask("add", {{"by", 1}}).output, "1");  // and goes on
  EXPECT_EQ(ask("end").output, "Error: the server counter has ended");
  EXPECT_EQ(ask("add", {{"by", 1}}).output, "Error: the server counter has ended");
  EXPECT_EQ(shell("echo well"), "well\n");
}

TEST_F(McpServers, answers_are_bounded) {
  begin();
  const auto much = ask("much");
  EXPECT_TRUE(much.truncated);
  EXPECT_LT(much.output.size(), spec_.output_limit + 200);
}

TEST_F(McpServers, they_run_in_the_sandbox_as_its_commands_do) {
  begin();
  EXPECT_EQ(ask("who").output, "/workspace 1000 /tmp/home 2 False");
}

TEST_F(McpServers, a_call_can_be_cancelled_and_the_server_goes_on) {
  begin();
  std::stop_source stop;
  std::thread soon([&] {
    usleep(100'000);
    stop.request_stop();
  });
  const auto cancelled = sandbox_->call("counter__wait", Json::object(), stop.get_token());
  soon.join();
  ASSERT_FALSE(cancelled.has_value());
  EXPECT_EQ(cancelled.error().code(), Code::kCancelled);
  EXPECT_EQ(ask("add", {{"by", 1}}).output, "1");
}

TEST_F(McpServers, one_that_does_not_begin_is_named_with_what_it_wrote) {
  const auto begin_by = [&](const std::string& command) {
    const Status begun = start_servers(*sandbox_, std::vector<McpServerSpec>{{"broken", command}});
    return begun.message();
  };
  EXPECT_EQ(begin_by("echo no such library >&2; exit 1"), "the server broken has ended; it wrote:\nno such library\n");
  EXPECT_THAT(begin_by("yes"), StartsWith("the server broken does not speak the protocol: "));
  EXPECT_THAT(
      begin_by("read line; echo '{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": {\"protocolVersion\": \"1999\"}}'; "
               "sleep 60"),
      HasSubstr("speaks revision \"1999\""));
  EXPECT_EQ(begin_by(""), "broken: there is no command to start the server by");
  EXPECT_EQ(shell("echo well"), "well\n");
}

TEST_F(McpServers, they_end_with_their_sandbox_and_before_its_files_are_collected) {
  begin();
  const auto collected = sandbox_->collect();
  ASSERT_TRUE(collected.has_value());
  EXPECT_EQ(shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'server.p[y]'"), "0\n[exit code 1]\n");
  EXPECT_EQ(ask("add", {{"by", 1}}).output, "Error: the server counter has ended");
}

TEST_F(McpServers, a_task_names_them_and_the_model_is_told_of_their_tools) {
  Scratch set;
  set.put("t.yaml",
          "instruction: Count.\nfiles: {server.py: {from: server.files}}\nmcp: {counter: python3 server.py}\n"
          "check: {answer: '2'}\n");
  set.put("server.files", kToolServer);
  const auto task = only_task(set.path);
  ASSERT_TRUE(task.has_value()) << task.error().to_string();
  const SystemClock clock;
  WatchedBackend watched(*backend_, clock, 1);
  const auto opened = Episode::open(*task, watched);
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  const auto& episode = *opened;
  EXPECT_THAT(episode->opening(ToolListing::kInMessages).messages.front().content,
              HasSubstr("run_terminal_cmd(command)\ncounter__add(by): Does add.\ncounter__write(path): Does write.\n"));
  EXPECT_EQ(episode->call("counter__add", {{"by", 2}})->output, "2");
  const std::vector<ParsedCall> calls = {{.call = {"counter__add", {{"by", 1}}}}};
  EXPECT_EQ(episode->turn(calls)->at(0).output, "3");
  const auto branch = episode->branch();
  ASSERT_TRUE(branch.has_value()) << branch.error().to_string();
  EXPECT_EQ((*branch)->call("counter__add", {{"by", 1}})->output, "1");  // a server of its own, from its beginning
  EXPECT_EQ(episode->score("2")->reward, 1);
}

TEST_F(McpServers, mistakes_in_a_task_are_told_where_they_stand) {
  Scratch set;
  set.put("t.yaml", "instruction: Count.\nmcp: {My Server: python3 server.py}\ncheck: {answer: '2'}\n");
  const auto task = only_task(set.path);
  ASSERT_FALSE(task.has_value());
  EXPECT_THAT(task.error().message(), HasSubstr("t.yaml:2: mcp: \"My Server\" is no name of a server"));
}

}  // namespace
}  // namespace tandem::envs
