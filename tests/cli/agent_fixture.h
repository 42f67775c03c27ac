// An agent on a folder, with a scripted server for a model.
#pragma once

#include <fstream>

#include "tests/cli/run_fixture.h"
#include "tests/cli/scripted_server.h"

namespace tandem {

inline const std::string kAgentKey = "secret-key-of-the-test";

class Agent : public RunTest {
 protected:
  void SetUp() override {
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    fs::remove_all(root() / "work");
    fs::remove_all(root() / "state");
    put("app.ini", "[cache]\ncache_limit = 20\n");
    put("notes/a.txt", "alpha\n");
    put("notes/b.txt", "beta\n");
  }
  static fs::path folder() { return root() / "work"; }
  static void put(const std::string& name, const std::string& content) {
    fs::create_directories((folder() / name).parent_path());
    std::ofstream(folder() / name, std::ios::binary) << content;
  }
  static std::string get(const std::string& name) { return text(folder() / name); }
  static std::vector<std::string> environment() {
    return {"XDG_STATE_HOME=" + (root() / "state").string(), "TANDEM_API_KEY=" + kAgentKey, "no_proxy=127.0.0.1"};
  }
  static Arguments command(Arguments more) {
    more.insert(more.begin(), {TANDEM_BINARY, "agent", "--workspace", folder().string()});
    return more;
  }
  static Arguments with(const ScriptedServer& server, Arguments more = {}) {
    more.insert(more.begin(), {"--model-name", "m", "--endpoint", server.url(), "Do it."});
    return command(std::move(more));
  }
  static int run(const Arguments& arguments) { return Process(arguments, output(), environment()).wait(); }
  // Lines of --json by their event.
  static std::vector<Json> events(const std::string& kind = "") {
    std::vector<Json> found;
    const auto all = text(output());
    for (const auto line : split(trim(all), '\n')) {
      const auto json = parse_json(line);
      if (json && json->is_object() && (kind.empty() || json->value("event", "") == kind)) found.push_back(*json);
    }
    return found;
  }
  static Json end() { return events("end").empty() ? Json(Json::object()) : events("end").back(); }
  static Json edit(const std::string& id, const std::string& file, const std::string& from, const std::string& to) {
    return ScriptedServer::call(id, "search_replace", {{"file_path", file}, {"old_string", from}, {"new_string", to}});
  }
  static void script_an_edit(ScriptedServer& server) {
    server.stream("I change it.", {edit("c1", "app.ini", "cache_limit = 20", "cache_limit = 40")});
    server.stream("Done.");
  }
  // Processes of the sandbox that run a command with this mark.
  static size_t running(const std::string& mark) {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const auto line = text(entry.path() / "cmdline");
      count += line.starts_with("sleep") && line.find(mark) != std::string::npos;
    }
    return count;
  }
};

}  // namespace tandem
