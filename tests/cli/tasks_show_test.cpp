// `tandem tasks show` of tasks that bring servers of tools: what a model meets is what an episode opens with.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/cli/run_fixture.h"
#include "trainer/sft/tiny_template.h"

namespace tandem {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kServer = R"(import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    result = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                             "serverInfo": {"name": "counter", "version": "1"}},
              "tools/list": {"tools": [{"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}]}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result[message["method"]]}), flush=True)
)";

class TasksShow : public RunTest {
 protected:
  TasksShow() {
    put("harbor/task.toml",
        "version = \"1.0\"\n[[environment.mcp_servers]]\nname = \"t\"\ntransport = \"stdio\"\n"
        "command = \"python3\"\nargs = [\"/app/srv.py\"]\n");
    put("harbor/instruction.md", "Count.\n");
    put("harbor/environment/Dockerfile", "FROM debian:12\nWORKDIR /app\nCOPY srv.py /app/\n");
    put("harbor/environment/srv.py", kServer);
    put("harbor/tests/test.sh", "echo 1 > /logs/verifier/reward.txt\n");
    put("count.yaml",
        "instruction: Count.\nfiles: {server.py: {from: harbor/environment/srv.py}}\n"
        "mcp: {t: python3 server.py}\ncheck: {answer: '7'}\n");
    put("broken.yaml", "instruction: Count.\nmcp: {t: exit 7}\ncheck: {answer: '7'}\n");
    // One whose template writes the tools. Tokens are compared and none is sampled: it need not have learned any.
    if (fs::exists(model())) return;
    fs::copy(root() / "model", model(), fs::copy_options::recursive);
    Json config = json(model() / "tokenizer_config.json");
    config["chat_template"] = trainer::find_tiny_template("hermes")->source;
    EXPECT_TRUE(write_file(model() / "tokenizer_config.json", dump_json(config)));
  }
  static fs::path folder() { return root() / "shown"; }
  static fs::path model() { return folder() / "hermes"; }
  static void put(const std::string& name, const std::string& content) {
    fs::create_directories((folder() / name).parent_path());
    std::ofstream(folder() / name) << content;
  }
  // What is printed for `task`, as JSON; `more` is said before it.
  static Json shown(const char* task, int code, Arguments more = {}) {
    Arguments arguments = {"tasks", "show", (folder() / task).string(), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(tandem(arguments), code) << text(output());
    const std::string printed = text(output());
    return parse_json(printed.substr(std::min(printed.find("{\n"), printed.size()))).value_or(Json::object());
  }
  static std::vector<std::string> names_of(const Json& tools) {
    std::vector<std::string> names;
    for (const auto& tool : tools) names.push_back(tool["function"]["name"].get<std::string>());
    return names;
  }
};

TEST_F(TasksShow, tools_of_a_tasks_servers_are_among_those_that_a_model_meets) {
  for (const char* task : {"harbor", "count.yaml"}) {
    SCOPED_TRACE(task);
    EXPECT_THAT(shown(task, 0)["messages"][0]["content"].get<std::string>(), HasSubstr("\nt__add(): Adds.\n"));
    const Json shown_to_model = shown(task, 0, {"--model", model().string()});
    EXPECT_THAT(names_of(shown_to_model["tools"]), Contains("t__add"));
    EXPECT_FALSE(shown_to_model.contains("lacks"));
    const Json line = {
        {"messages", shown_to_model["messages"]}, {"tools", shown_to_model["tools"]}, {"add_generation_prompt", true}};
    put("line", dump_json(line) + "\n");
    ASSERT_EQ(tandem({"render", "--model", model().string(), "--input", (folder() / "line").string()}), 0);
    EXPECT_EQ(json(output())["ids"], shown_to_model["prompt_ids"]) << text(output());
    EXPECT_GT(shown_to_model["prompt_ids"].size(), 10u);
  }
}

TEST_F(TasksShow, where_a_server_does_not_begin_that_is_said_and_there_are_no_tokens) {
  const Json lacking = shown("broken.yaml", 5, {"--model", model().string()});
  EXPECT_THAT(lacking["lacks"].get<std::string>(), HasSubstr("the tools of t are left out: "));
  EXPECT_TRUE(lacking.contains("prompt_ids"));
  EXPECT_TRUE(lacking["prompt_ids"].is_null());
  EXPECT_THAT(names_of(lacking["tools"]), Not(Contains("t__add")));
  EXPECT_EQ(tandem({"tasks", "show", (folder() / "broken.yaml").string()}), 5);
  EXPECT_THAT(text(output()), HasSubstr("the tools of t are left out: "));
}

}  // namespace
}  // namespace tandem
