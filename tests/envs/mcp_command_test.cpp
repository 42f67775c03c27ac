// `tandem mcp` as a client meets it: the binary itself, over pipes and over HTTP.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "envs/tools/process.h"
#include "tests/envs/sandbox_fixture.h"
#include "tests/envs/scratch.h"

namespace tandem::envs {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int kPatienceMilliseconds = 60'000;

// A running `tandem mcp`, ended with the test.
class Server {
 public:
  explicit Server(std::vector<std::string> arguments) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) abort();
    arguments.insert(arguments.begin(), {TANDEM_BINARY, "mcp"});
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    process_ = fork();
    if (process_ == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      execv(argv[0], argv.data());
      _exit(127);
    }
    in_ = FileDescriptor(to[1]);
    out_ = FileDescriptor(from[0]);
    close(to[0]);
    close(from[1]);
  }
  ~Server() {
    if (process_ > 0) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
  }

  void say(const std::string& line) { ASSERT_TRUE(write_all(in_.get(), line + "\n", "stdin")); }
  void end_input() { in_.reset(); }
  void stop_reading() { out_.reset(); }
  pid_t process() const { return process_; }

  // The next line; empty at the end, or where none comes.
  std::string line() {
    for (;;) {
      if (const auto end = read_.find('\n'); end != std::string::npos) {
        auto line = read_.substr(0, end);
        read_.erase(0, end + 1);
        return line;
      }
      pollfd wait = {out_.get(), POLLIN, 0};
      if (poll(&wait, 1, kPatienceMilliseconds) <= 0) return "";
      char buffer[4096];
      const ssize_t count = read(out_.get(), buffer, sizeof buffer);
      if (count <= 0) return "";
      read_.append(buffer, static_cast<size_t>(count));
    }
  }
  std::string ask(const std::string& message) {
    say(message);
    return line();
  }
  void signal(int number) const { kill(process_, number); }

  // The exit code once it has ended.
  int wait() {
    int status = 0;
    for (int waited = 0; waitpid(process_, &status, WNOHANG) == 0; waited += 10) {
      if (waited > kPatienceMilliseconds) return -1;
      usleep(10'000);
    }
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t process_ = -1;
  FileDescriptor in_, out_;
  std::string read_;
};

std::string request(int id, const std::string& method, const Json& params = Json::object()) {
  return dump_json(Json{{"jsonrpc", "2.0"}, {"id", id}, {"method", method}, {"params", params}});
}
const std::string kInitialize = request(0, "initialize", {{"protocolVersion", "2025-11-25"}});

std::string call(int id, const std::string& tool, const Json& arguments) {
  return request(id, "tools/call", {{"name", tool}, {"arguments", arguments}});
}
std::string shell(int id, const std::string& command) { return call(id, "run_terminal_cmd", {{"command", command}}); }

std::string text_of(const std::string& response) {
  const auto json = parse_json(response);
  if (!json || !json->contains("result")) return "not a result: " + response;
  return json->at("result").at("content").at(0).at("text").get<std::string>();
}

class McpCommand : public testing::Test {
 protected:
  McpCommand() { fs::permissions(scratch_.path, fs::perms(0777)); }
  std::vector<std::string> here(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--workspace", scratch_.path.string()});
    return more;
  }
  // Sandboxed commands of this test that still run; each has the scratch folder's name in its arguments.
  size_t running() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const auto line = read_file(entry.path() / "cmdline");
      count += line && line->starts_with("sleep") && line->find(mark_) != std::string::npos;
    }
    return count;
  }
  std::string sleep() const { return "touch begun; sleep " + mark_; }

  Scratch scratch_;
  std::string mark_ = "864" + std::to_string(getpid());  // seconds; nobody else sleeps as long
};

TEST_F(McpCommand, what_the_official_sdk_asked_is_answered_with_the_same_bytes) {
  const auto transcript = read_file(TANDEM_SOURCE_DIR "/tests/golden/mcp/transcript.jsonl");
  ASSERT_TRUE(transcript);
  scratch_.put("a.txt", "one\n");
  Server server(here());
  // The version, and the tools, change with every release.
  const auto lasting = [](const std::string& line) {
    auto json = Json::parse(line);
    if (json.contains("result") && json["result"].contains("serverInfo")) json["result"]["serverInfo"].erase("version");
    if (json.contains("result")) json["result"].erase("tools");
    return dump_json(json);
  };
  size_t answers = 0;
  for (const auto line : split(*transcript, '\n')) {
    if (line.empty()) continue;
    const auto message = Json::parse(line);
    if (message.contains("client")) {
      server.say(message.at("client").get<std::string>());
      continue;
    }
    EXPECT_EQ(lasting(server.line()), lasting(message.at("server").get<std::string>()));
    ++answers;
  }
  EXPECT_GE(answers, 10u);
  server.end_input();
  EXPECT_EQ(server.wait(), 0);
  EXPECT_EQ(scratch_.get("a.txt"), "two\n");
}

TEST_F(McpCommand, a_call_gives_the_text_that_tools_call_gives) {
  scratch_.put("src/a.py", "x = 1\n");
  const std::pair<std::string, Json> calls[] = {
      {"read_file", {{"target_file", "src/a.py"}}},
      {"read_file", {{"target_file", "none"}}},
      {"grep", {{"pattern", "x"}}},
      {"list_dir", {{"target_directory", "."}}},
      {"run_terminal_cmd", {{"command", "id -u; pwd; exit 4"}}},
      {"todo_write", {{"merge", true}}},
  };
  Server server(here());
  server.ask(kInitialize);
  for (const auto& [tool, arguments] : calls) {
    const auto alone = run_process(
        {{TANDEM_BINARY, "tools", "call", tool, dump_json(arguments), "--workspace", scratch_.path.string(), "--raw"},
         "/",
         {"PATH=/usr/bin:/bin"},
         60});
    ASSERT_TRUE(alone);
    const auto response = Json::parse(server.ask(call(1, tool, arguments)));
    EXPECT_EQ(response["result"]["content"][0]["text"], alone->output) << tool;
    EXPECT_EQ(response["result"]["isError"], alone->exit_code != 0) << tool;
  }
}

TEST_F(McpCommand, codebase_search_is_served_where_an_encoder_is_given_and_is_in_no_list_elsewhere) {
  scratch_.put("src/a.py", "def refresh_session():\n    return 1\n");
  const auto has_search = [](const std::string& response) {
    return response.find("codebase_search") != std::string::npos;
  };
  const auto ask = call(2, "codebase_search", {{"query", "refresh session"}});
  {
    Server server(here());
    server.ask(kInitialize);
    EXPECT_FALSE(has_search(server.ask(request(1, "tools/list"))));
    EXPECT_THAT(server.ask(ask), HasSubstr("there is no tool"));
  }
  Server server(here({"--encoder", TANDEM_SOURCE_DIR "/tests/golden/encoders/sentences"}));
  server.ask(kInitialize);
  EXPECT_TRUE(has_search(server.ask(request(1, "tools/list"))));
  EXPECT_THAT(text_of(server.ask(ask)), StartsWith("src/a.py:1-2 (score "));
  server.ask(shell(3, "sed -i s/refresh/renew/ src/a.py"));
  EXPECT_THAT(text_of(server.ask(ask)), HasSubstr("     1|def renew_session():"));
}

TEST_F(McpCommand, a_cancelled_command_ends_and_the_shell_goes_on) {
  Server server(here());
  server.ask(kInitialize);
  server.ask(shell(1, "cd /tmp; export A=kept"));
  server.say(shell(2, "cd /; touch /workspace/begun; sleep " + mark_));
  ASSERT_TRUE(within(30s, [&] { return fs::exists(scratch_.path / "begun"); }));
  server.say(dump_json(Json{{"jsonrpc", "2.0"},
                            {"method", "notifications/cancelled"},
                            {"params", {{"requestId", 2}, {"reason", "enough"}}}}));
  EXPECT_EQ(text_of(server.ask(shell(3, "pwd; echo $A"))), "/tmp\nkept\n");
  EXPECT_TRUE(within(30s, [&] { return running() == 0; }));
}

TEST_F(McpCommand, what_was_asked_before_the_input_ended_is_answered) {
  Server server(here());
  server.say(kInitialize);
  server.say(shell(1, "sleep 0.3; echo done > file; echo done"));
  server.end_input();
  EXPECT_THAT(server.line(), HasSubstr("2025-11-25"));
  EXPECT_EQ(text_of(server.line()), "done\n");
  EXPECT_EQ(server.wait(), 0);
  EXPECT_EQ(scratch_.get("file"), "done\n");
}

TEST_F(McpCommand, nothing_is_left_behind_by_a_signal_or_by_a_client_that_is_gone) {
  for (const bool gone : {false, true}) {
    fs::remove(scratch_.path / "begun");
    Server server(here());
    server.ask(kInitialize);
    server.say(shell(1, sleep()));
    ASSERT_TRUE(within(30s, [&] { return fs::exists(scratch_.path / "begun"); }));
    const auto children = children_of(server.process());
    if (gone) {
      server.end_input();
      server.stop_reading();
    } else {
      server.signal(SIGINT);
    }
    EXPECT_EQ(server.wait(), gone ? 1 : 0);
    EXPECT_TRUE(within(30s, [&] { return running() == 0; }));
    for (const pid_t child : children) EXPECT_TRUE(is_gone(child));
  }
}

TEST_F(McpCommand, a_line_that_is_too_long_is_refused_and_the_next_one_read) {
  Server server(here());
  server.ask(kInitialize);
  std::thread writer([&] { server.say(fmt::format("\"{:x>{}}\"", "", 17 << 20)); });
  EXPECT_THAT(server.line(), HasSubstr("-32700"));
  writer.join();
  EXPECT_EQ(server.ask(request(1, "ping")), R"({"jsonrpc":"2.0","id":1,"result":{}})");
}

TEST_F(McpCommand, what_is_wrong_with_the_command_line_is_said_at_once) {
  EXPECT_EQ(Server({"--workspace", "/nowhere"}).wait(), 2);
  EXPECT_EQ(Server(here({"--http", "port"})).wait(), 2);
  EXPECT_EQ(Server(here({"--http", "70000"})).wait(), 2);
  EXPECT_EQ(Server(here({"--token", "x"})).wait(), 2);
}

// What comes back of one request to 127.0.0.1, whole.
std::string round_trip(uint16_t port, const std::string& bytes) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&where), sizeof where), 0);
  EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  const timeval patience = {kPatienceMilliseconds / 1000, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::string answer;
  char buffer[4096];
  for (ssize_t n; (n = recv(socket.get(), buffer, sizeof buffer, 0)) > 0;)
    answer.append(buffer, static_cast<size_t>(n));
  return answer;
}

struct Answer {
  int status = 0;
  std::string session, body;
};

class McpHttpCommand : public McpCommand {
 protected:
  using Headers = std::map<std::string, std::string>;

  void start(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--http", "0", "--json"});
    server_.emplace(here(more));
    const auto where = parse_json(server_->line());
    ASSERT_TRUE(where);
    const auto url = where->at("url").get<std::string>();
    ASSERT_THAT(url, testing::MatchesRegex("http://127.0.0.1:[0-9]+/mcp"));
    port_ = static_cast<uint16_t>(atoi(url.c_str() + url.rfind(':') + 1));
    token_ = where->at("token").is_string() ? where->at("token").get<std::string>() : "";
  }

  // An empty header is left out.
  Answer ask(const std::string& method, const std::string& body, const Headers& headers = {}) {
    Headers all = {{"Host", "127.0.0.1:" + std::to_string(port_)},
                   {"Authorization", "Bearer " + token_},
                   {"Content-Type", "application/json"},
                   {"Accept", "application/json, text/event-stream"},
                   {"Content-Length", std::to_string(body.size())}};
    for (const auto& [name, value] : headers) all[name] = value;
    std::string bytes = method + " HTTP/1.1\r\n";
    for (const auto& [name, value] : all) {
      if (!value.empty()) bytes += name + ": " + value + "\r\n";
    }
    const auto raw = round_trip(port_, bytes + "\r\n" + body);
    Answer answer;
    if (!raw.starts_with("HTTP/1.1 ")) return answer;
    answer.status = atoi(raw.c_str() + 9);
    const auto end = raw.find("\r\n\r\n");
    const auto session = raw.find("Mcp-Session-Id: ");
    if (session < end) answer.session = raw.substr(session + 16, 32);
    answer.body = raw.substr(end + 4);
    return answer;
  }
  std::string begin() {
    const auto answer = ask("POST /mcp", kInitialize);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.session.size(), 32u);
    return answer.session;
  }

  std::optional<Server> server_;
  uint16_t port_ = 0;
  std::string token_;
};

TEST_F(McpHttpCommand, a_session_lasts_from_initialize_to_delete) {
  start();
  scratch_.put("a.txt", "one\n");
  const auto id = begin();
  const Headers session = {{"Mcp-Session-Id", id}, {"MCP-Protocol-Version", "2025-11-25"}};
  EXPECT_EQ(ask("POST /mcp", R"({"jsonrpc":"2.0","method":"notifications/initialized"})", session).status, 202);
  EXPECT_EQ(text_of(ask("POST /mcp", call(1, "read_file", {{"target_file", "a.txt"}}), session).body), "     1|one\n");
  EXPECT_EQ(text_of(ask("POST /mcp", shell(2, "cd /tmp; echo $PWD"), session).body), "/tmp\n");
  EXPECT_EQ(text_of(ask("POST /mcp", shell(3, "pwd"), session).body), "/tmp\n");
  // Another session has the same files and a shell of its own.
  EXPECT_EQ(text_of(ask("POST /mcp", shell(2, "pwd; cat a.txt"), {{"Mcp-Session-Id", begin()}}).body),
            "/workspace\none\n");
  EXPECT_EQ(ask("DELETE /mcp", "", session).status, 204);
  EXPECT_EQ(ask("POST /mcp", request(4, "ping"), session).status, 404);
  EXPECT_EQ(ask("DELETE /mcp", "", session).status, 404);
  server_->signal(SIGTERM);
  EXPECT_EQ(server_->wait(), 0);
}

TEST_F(McpHttpCommand, who_may_not_ask_and_what_cannot_be_answered_is_refused_with_its_status) {
  start();
  const auto id = begin();
  const auto with = [&](const Headers& headers) { return ask("POST /mcp", kInitialize, headers).status; };
  EXPECT_EQ(with({{"Authorization", ""}}), 401);
  EXPECT_EQ(with({{"Authorization", fmt::format("Bearer {:0>32}", "")}}), 401);
  EXPECT_EQ(with({{"Host", "evil.example:" + std::to_string(port_)}}), 403);
  EXPECT_EQ(with({{"Origin", "http://evil.example"}}), 403);
  EXPECT_EQ(with({{"Origin", "null"}}), 403);
  EXPECT_EQ(with({{"Origin", "http://127.0.0.1:" + std::to_string(port_)}}), 200);
  EXPECT_EQ(with({{"Host", "LOCALHOST:" + std::to_string(port_)}}), 200) << "hosts are the same in any case";
  EXPECT_EQ(with({{"Content-Type", "Application/JSON; charset=utf-8"}}), 200);
  EXPECT_EQ(with({{"MCP-Protocol-Version", "2024-11-05"}}), 400);
  const auto other = ask("POST /mcp", request(7, "server/discover"), {{"MCP-Protocol-Version", "2026-07-28"}});
  EXPECT_EQ(other.status, 400);
  EXPECT_THAT(other.body, HasSubstr("\"id\":7")) << "the client waits for it";
  EXPECT_EQ(with({{"Accept", "text/html"}}), 406);
  EXPECT_EQ(with({{"Content-Type", "text/plain"}}), 415);
  EXPECT_EQ(with({{"Mcp-Session-Id", "unknown"}}), 404);
  EXPECT_EQ(with({{"Content-Length", std::to_string(size_t{20} << 20)}}), 413);
  EXPECT_EQ(with({{"X", std::string(20'000, 'x')}}), 431);
  EXPECT_EQ(ask("GET /mcp", "").status, 405);
  EXPECT_EQ(ask("PUT /mcp", "{}").status, 405);
  EXPECT_EQ(ask("POST /", kInitialize).status, 404);
  EXPECT_EQ(ask("POST /mcp", request(1, "ping")).status, 400);
  EXPECT_EQ(ask("POST /mcp", "{", {{"Mcp-Session-Id", id}}).status, 400);
  EXPECT_EQ(ask("POST /mcp", request(1, "nonsense"), {{"Mcp-Session-Id", id}}).status, 200);
  EXPECT_EQ(ask("POST /mcp", request(1, "server/discover")).status, 400);
  EXPECT_EQ(ask("DELETE /mcp", "").status, 400);
  EXPECT_THAT(round_trip(port_, "nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(ask("POST /mcp", request(1, "ping"), {{"Mcp-Session-Id", id}}).status, 200);
}

TEST_F(McpHttpCommand, sessions_are_bounded_and_idle_ones_are_let_go) {
  start({"--sessions", "1", "--idle-minutes", "0.05"});
  const auto id = begin();
  EXPECT_EQ(ask("POST /mcp", kInitialize).status, 503);
  EXPECT_TRUE(within(30s, [&] { return ask("POST /mcp", kInitialize).status == 200; }));
  EXPECT_EQ(ask("POST /mcp", request(1, "ping"), {{"Mcp-Session-Id", id}}).status, 404);
}

TEST_F(McpHttpCommand, a_session_that_is_deleted_ends_its_call_and_so_does_a_signal) {
  start();
  for (const bool by_signal : {false, true}) {
    fs::remove(scratch_.path / "begun");
    const Headers session = {{"Mcp-Session-Id", begin()}};
    Answer answer;
    std::thread client([&] { answer = ask("POST /mcp", shell(1, sleep()), session); });
    EXPECT_TRUE(within(30s, [&] { return fs::exists(scratch_.path / "begun"); }));
    if (by_signal) {
      server_->signal(SIGINT);
      EXPECT_EQ(server_->wait(), 0);
    } else {
      EXPECT_EQ(ask("DELETE /mcp", "", session).status, 204);
    }
    client.join();
    EXPECT_EQ(answer.status, by_signal ? 0 : 404);
    EXPECT_TRUE(within(30s, [&] { return running() == 0; }));
  }
}

}  // namespace
}  // namespace tandem::envs
