// What a model reads of a call: the same bytes whoever makes it.
//
// Golden transcripts of the tools of other agents' habits, and of their errors, played over `tandem tools call`,
// `tandem mcp`, `tandem agent` and an episode as rollouts have them, each on a folder of its own that begins alike.
#include <gmock/gmock.h>

#include <fstream>

#include "envs/episodes/episode.h"
#include "envs/sandbox/namespace_backend.h"
#include "envs/tools/process.h"
#include "tests/cli/run_fixture.h"
#include "tests/cli/scripted_server.h"
#include "tests/envs/scratch.h"

namespace tandem {
namespace {

struct Step {
  std::string tool;
  Json arguments;
  std::string words;
};

const std::string kTools = "read_file,bash,str_replace_based_edit_tool,edit_file,apply_patch";

const envs::Files kFiles = {
    {"app.ini", "[cache]\nlimit = 20\n"},
    {"src/a.py", "import os\n\ndef start():\n    return 1\n\ndef stop():\n    return 2\n"},
};

Json editor(const std::string& command, const std::string& path, const Json& more = Json::object()) {
  Json arguments = {{"command", command}, {"path", path}};
  arguments.update(more);
  return arguments;
}

std::vector<Step> transcript() {
  const std::string edit = "str_replace_based_edit_tool";
  return {
      {"bash", {{"command", "cat app.ini; exit 3"}}, "[cache]\nlimit = 20\n[exit code 3]\n"},
      {"bash", {{"restart", true}}, "The shell is a new one, in /workspace."},
      {"bash", Json::object(), "Error: argument \"command\" is missing. Use: bash{command}, or bash{restart: true}"},
      {"bash",
       {{"cmd", "ls"}},
       "Error: there is no argument \"cmd\"; expected one of command, restart. Use: bash{command?, restart?}"},
      {edit, editor("view", "/workspace"), "app.ini\nsrc/\nsrc/a.py\n"},
      {edit, editor("view", "app.ini", {{"view_range", {2, -1}}}), "     2|limit = 20\n"},
      {edit, editor("view", "app.ini", {{"view_range", {2, 1}}}),
       "Error: view_range must be [FIRST, LAST], counted from 1, where LAST is not before FIRST; -1 is the end of the "
       "file"},
      {edit, editor("create", "src/new.py", {{"file_text", "x = 1\n"}}), "Created src/new.py (6 bytes)."},
      {edit, editor("str_replace", "app.ini", {{"old_str", "limit = 20"}, {"new_str", "limit = 40"}}),
       "Edited app.ini: replaced 1 occurrence."},
      {edit, editor("str_replace", "app.ini", {{"old_str", "limit = 30"}, {"new_str", "x"}}),
       "Error: old_str was not found in app.ini. The nearest lines are:\n     2|limit = 40\nCopy the text exactly."},
      {edit, editor("insert", "app.ini", {{"insert_line", 1}, {"insert_text", "# here"}}),
       "Edited app.ini: inserted 1 line after line 1."},
      {edit, editor("insert", "app.ini", {{"insert_line", 9}, {"insert_text", "# here"}}),
       "Error: insert_line 9 is past the end; app.ini has 3 lines"},
      {edit, editor("undo_edit", "app.ini"),
       "Error: argument \"command\" must be one of view, create, str_replace, insert. Use: "
       "str_replace_based_edit_tool{command, path, view_range?, file_text?, old_str?, new_str?, insert_line?, "
       "insert_text?}"},
      {"edit_file",
       {{"target_file", "src/a.py"}, {"code_edit", "# ... existing code ...\n\ndef stop():\n    return 3\n"}},
       "Edited src/a.py: lines 6 to 7 became 2."},
      {"edit_file",
       {{"target_file", "src/a.py"}, {"code_edit", "# ... existing code ...\ndef stopp():\n    return 3\n"}},
       "Error: part 1 of code_edit begins with \"def stopp():\", and there is no such line. The nearest lines are:\n"
       "     3|def start():\n     6|def stop():\nCopy such lines exactly. Nothing was changed in src/a.py"},
      {"apply_patch",
       {{"input", "*** Begin Patch\n*** Delete File: src/new.py\n*** End Patch"}},
       "Applied the patch:\nD src/new.py\n"},
      {"write",
       {{"file_path", "a"}, {"contents", "b"}},
       "Error: there is no tool \"write\"; the tools are read_file, apply_patch, bash, str_replace_based_edit_tool, "
       "edit_file"},
      {"edit_fil", Json::object(), "Error: there is no tool \"edit_fil\"; did you mean \"edit_file\"?"},
  };
}

class ToolWords : public testing::Test {
 protected:
  ToolWords() {
    for (const auto& [name, content] : kFiles) scratch_.put(name, content);
    fs::permissions(scratch_.path, fs::perms(0777));
    for (const auto& entry : fs::recursive_directory_iterator(scratch_.path)) {
      fs::permissions(entry.path(), entry.is_directory() ? fs::perms(0777) : fs::perms(0666));
    }
  }
  std::string folder() const { return scratch_.path.string(); }
  static std::pair<std::string, int> on_host(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TANDEM_BINARY);
    const auto result = envs::run_process({std::move(arguments), "/", {"PATH=/usr/bin:/bin"}, 60});
    return result ? std::pair(result->output, result->exit_code) : std::pair(result.error().message(), -1);
  }
  envs::Scratch scratch_;
};

TEST_F(ToolWords, tools_call_prints_them) {
  for (const auto& step : transcript()) {
    const auto [output, code] = on_host(
        {"tools", "call", step.tool, dump_json(step.arguments), "--tools", kTools, "--workspace", folder(), "--raw"});
    EXPECT_EQ(output, step.words);
    EXPECT_EQ(code, step.words.starts_with("Error: ") ? 1 : 0) << output;
  }
}

TEST_F(ToolWords, mcp_gives_them_as_texts_and_names_the_same_tools) {
  std::string requests = R"({"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}})"
                         "\n"
                         R"({"jsonrpc":"2.0","id":"list","method":"tools/list"})"
                         "\n";
  const auto steps = transcript();
  for (size_t i = 0; i < steps.size(); ++i) {
    requests += dump_json(Json{{"jsonrpc", "2.0"},
                               {"id", i + 1},
                               {"method", "tools/call"},
                               {"params", {{"name", steps[i].tool}, {"arguments", steps[i].arguments}}}}) +
                "\n";
  }
  scratch_.put("../" + scratch_.path.filename().string() + ".jsonl", requests);
  const auto file = folder() + ".jsonl";
  const auto result = envs::run_process(
      {{"/bin/sh", "-c", "exec '" TANDEM_BINARY "' mcp --tools " + kTools + " --workspace " + folder() + " < " + file},
       "/",
       {"PATH=/usr/bin:/bin"},
       60});
  fs::remove(file);
  ASSERT_TRUE(result.has_value());
  std::map<std::string, Json> answers;
  for (const auto line : split(trim(result->output), '\n')) {
    const auto answer = parse_json(line);
    ASSERT_TRUE(answer.has_value()) << line;
    answers[answer->at("id").dump()] = *answer;
  }
  std::vector<std::string> names;
  for (const auto& tool : answers["\"list\""].at("result").at("tools"))
    names.push_back(tool.at("name").get<std::string>());
  EXPECT_THAT(names,
              testing::ElementsAre("read_file", "apply_patch", "bash", "str_replace_based_edit_tool", "edit_file"));
  EXPECT_THAT(answers["0"].at("result").at("instructions").get<std::string>(), testing::HasSubstr("Each bash starts"));
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto& answer = answers[std::to_string(i + 1)];
    // A tool that is not there is an error of the protocol.
    EXPECT_EQ(answer.contains("error") ? answer.at("error").at("message")
                                       : answer.at("result").at("content").at(0).at("text"),
              steps[i].words);
  }
}

TEST_F(ToolWords, the_agent_s_model_reads_them) {
  ScriptedServer server;
  const auto steps = transcript();
  for (const auto& step : steps) server.stream("", {ScriptedServer::call("c", step.tool, step.arguments)});
  server.stream("Done.");
  const auto output = scratch_.path.parent_path() / (scratch_.path.filename().string() + ".out");
  Process agent({TANDEM_BINARY, "agent", "--workspace", folder(), "--tools", kTools, "--model-name", "m", "--endpoint",
                 server.url(), "--dry-run", "Do it."},
                output, {"XDG_STATE_HOME=" + folder() + ".state", "no_proxy=127.0.0.1"});
  EXPECT_EQ(agent.wait(), 0) << text(output);
  fs::remove(output);
  fs::remove_all(folder() + ".state");
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), steps.size() + 1);
  EXPECT_EQ(requests[0]["tools"].size(), 5u);
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(requests[i + 1]["messages"].back()["content"], steps[i].words);
}

TEST_F(ToolWords, an_episode_s_model_reads_them_and_its_prompt_names_the_tools) {
  auto backend = envs::NamespaceBackend::start(envs::IsolatedBy::kNamespaces);
  ASSERT_TRUE(backend.has_value()) << backend.error().to_string();
  envs::Task task;
  task.instruction = "Do it.";
  task.files = kFiles;
  std::vector<std::string> tools;
  for (const auto name : split(kTools, ',')) tools.emplace_back(name);
  auto episode = envs::Episode::open(task, **backend, {.output_limit = 20'000, .tools = *envs::choose_tools(tools)});
  ASSERT_TRUE(episode.has_value()) << episode.error().to_string();
  const auto system = (*episode)->opening(envs::ToolListing::kInMessages).messages.front().content;
  EXPECT_THAT(system, testing::StartsWith("You work in a folder by calling tools:\nread_file(target_file)\n"
                                          "apply_patch(input): Changes several files at once"));
  EXPECT_THAT(system, testing::HasSubstr("\nbash(command, restart): Runs a command line in bash"));
  EXPECT_THAT(system, testing::Not(testing::HasSubstr("run_terminal_cmd")));
  for (const auto& step : transcript()) {
    const std::vector<envs::ParsedCall> calls = {{.call = {step.tool, step.arguments}}};
    const auto outcomes = (*episode)->turn(calls);
    ASSERT_TRUE(outcomes.has_value());
    EXPECT_EQ(outcomes->front().output, step.words);
  }
}

TEST_F(ToolWords, a_list_of_tools_is_checked_before_anything_is_done) {
  const auto with = [&](const std::string& tools) {
    return on_host(
        {"tools", "call", "bash", R"({"command": "touch made"})", "--tools", tools, "--workspace", folder()});
  };
  const auto [misspelt, code] = with("bash,str_replace_edit_tool");
  EXPECT_EQ(code, 2);
  EXPECT_THAT(misspelt, testing::HasSubstr("--tools: there is no tool \"str_replace_edit_tool\"; did you mean "
                                           "\"str_replace_based_edit_tool\"?"));
  EXPECT_THAT(with("bash,bash").first, testing::HasSubstr("\"bash\" is named twice"));
  EXPECT_THAT(with("codebase_search,bash").first, testing::HasSubstr("codebase_search needs an encoder"));
  EXPECT_FALSE(fs::exists(scratch_.path / "made"));
  const auto [list, list_code] = on_host({"tools", "list"});
  EXPECT_EQ(list_code, 0);
  EXPECT_THAT(list, testing::HasSubstr("offered only where --tools"));
  EXPECT_EQ(Json::parse(on_host({"tools", "schema"}).first).size(), 11u);
  EXPECT_EQ(Json::parse(on_host({"tools", "schema", "--tools", "bash,grep"}).first).size(), 2u);
  const auto [config, config_code] =
      on_host({"config", "check", TANDEM_SOURCE_DIR "/configs/tiny.yaml", "env.tools=[bash, edit_fille]"});
  EXPECT_EQ(config_code, 2);
  EXPECT_THAT(config, testing::HasSubstr("edit_file"));
}

}  // namespace
}  // namespace tandem
