// A process for each model: what is lost with one is started again, and the others go on.
#include <gmock/gmock.h>
#include <sys/ptrace.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <thread>

#include "serve/keys.h"
#include "serve/slow_start.h"
#include "tests/cli/serve_fixture.h"
#include "tests/model/small_adapter.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

class ServeIsolated : public Serve {
 protected:
  static fs::path folder(const std::string& name) { return root() / ("isolated-" + name); }
  static void SetUpTestSuite() {
    Serve::SetUpTestSuite();
    for (const char* const name : {"a", "b"}) fs::copy(root() / "model", folder(name), fs::copy_options::recursive);
    const auto config = model::read_config(root() / "model");
    ASSERT_TRUE(config) << config.error().to_string();
    for (const uint64_t seed : {1, 2}) {
      const auto adapter = model::small_adapter(*model::parameter_layout(*config), seed, 4);
      const Status written =
          model::write_adapter(adapter, folder("adapters") / ("poems" + std::to_string(seed)), "tiny");
      ASSERT_TRUE(written) << written.to_string();
    }
  }
  void SetUp() override {
    Serve::SetUp();
    std::ofstream(root() / "admins") << "the-admin\n";
    ::setenv("TANDEM_ADMIN_KEY", "the-admin", 1);
  }
  void TearDown() override {
    ::unsetenv("TANDEM_ADMIN_KEY");
    Serve::TearDown();
  }
  // Of "a" and "b", with what a test asks for.
  void start_isolated(const std::string& config = "", Arguments more = {}, bool isolated = true) {
    std::ofstream(root() / "isolated.yaml") << "serve:\n  threads: 1\n" << config;
    Arguments arguments = {TANDEM_BINARY,      "serve",
                           "--model",          "a=" + folder("a").string(),
                           "--model",          "b=" + folder("b").string(),
                           "--port",           "0",
                           "--config",         (root() / "isolated.yaml").string(),
                           "--admin-key-file", (root() / "admins").string()};
    if (isolated) arguments.emplace_back("--isolate");
    arguments.insert(arguments.end(), more.begin(), more.end());
    server_.reset();
    fs::remove(root() / "serve.out");
    server_ = std::make_unique<Process>(arguments, root() / "serve.out");
    ASSERT_TRUE(within(120s, [&] { return line().contains("url") || !server_->running(); }));
    ASSERT_TRUE(line().contains("url")) << text(root() / "serve.out");
    url_ = line()["url"].get<std::string>();
  }
  Json process(const std::string& model) const {
    const Json all = ask("/processes", "", "the-admin", "GET").json();
    for (const Json& one : all.value("processes", Json::array())) {
      if (one["model"] == Json(model)) return one;
    }
    return Json::object();
  }
  pid_t pid(const std::string& model) const {
    const Json one = process(model);
    return one.contains("pid") && one["pid"].is_number_integer() ? one["pid"].get<pid_t>() : 0;
  }
  bool is(const std::string& model, const std::string& state) const {
    return process(model).value("state", "") == state;
  }
  // By another process than that; both are looked at once.
  bool serves_again(const std::string& model, pid_t before) const {
    const Json one = process(model);
    return one.value("state", "") == "serving" && one.value("pid", Json()).is_number_integer() &&
           one["pid"].get<pid_t>() != before;
  }
  static Json question(const std::string& model, const std::string& about, int tokens = 6) {
    return chat(about,
                {{"model", model}, {"max_tokens", tokens}, {"seed", 5}, {"logprobs", true}, {"ignore_eos", true}});
  }

  // All of a stream; `begun` is set at its first bytes.
  std::string read_stream(Json body, std::atomic<bool>& begun) const {
    body["stream"] = true;
    wire::OutgoingRequest request{.url = url_ + "/v1/chat/completions", .body = dump_json(body)};
    request.headers = {{"Content-Type", "application/json"}};
    std::string got;
    (void)wire::http_request(request,
                             [&](const wire::HttpHead&, std::string_view bytes) {
                               got += bytes;
                               begun = true;
                               return Status();
                             },
                             {});
    return got;
  }

  // Clients of one model, each with one request after the other, until the end.
  class Clients {
   public:
    Clients(const ServeIsolated& test, const std::string& model, int count = 3) {
      for (int client = 0; client < count; ++client) {
        threads_.emplace_back([this, &test, model, client] {
          for (int i = 0; !stop_; ++i) {
            const auto answer =
                test.ask("/v1/chat/completions", dump_json(question(model, fmt::format("{} {}", client, i % 7), 4)));
            const std::lock_guard lock(mutex_);
            if (answer.status == 200)
              ++answered_;
            else
              wrong_.push_back(fmt::format("{} {}", answer.status, answer.body));
          }
        });
      }
    }
    ~Clients() { end(); }
    void end() {
      stop_ = true;
      for (auto& thread : threads_) thread.join();
      threads_.clear();
    }
    int answered() const { return answered_; }
    std::vector<std::string> wrong() {
      const std::lock_guard lock(mutex_);
      return wrong_;
    }

   private:
    std::atomic<bool> stop_{false};
    std::atomic<int> answered_{0};
    std::mutex mutex_;
    std::vector<std::string> wrong_;
    std::vector<std::thread> threads_;
  };
};

bool is_gone(pid_t pid) {
  const std::string status = text(fs::path("/proc") / std::to_string(pid) / "status");
  return status.empty() || status.find("State:\tZ") != std::string::npos;
}

TEST_F(ServeIsolated, answers_are_those_of_one_process_to_the_bit) {
  start_isolated("", {}, false);
  std::vector<Json> expected;
  for (const char* const model : {"a", "b"})
    expected.push_back(post("/v1/chat/completions", question(model, "What is it?"))["choices"]);
  const Json unnamed = post("/tokenize", {{"prompt", "a b"}});
  start_isolated();
  EXPECT_EQ(line()["models"], Json::array({"a", "b"}));
  EXPECT_EQ(post("/v1/chat/completions", question("a", "What is it?"))["choices"], expected[0]);
  EXPECT_EQ(post("/v1/chat/completions", question("b", "What is it?"))["choices"], expected[1]);
  EXPECT_EQ(post("/tokenize", {{"prompt", "a b"}}), unnamed) << "the first model, where none is named";
  EXPECT_GE(stream("/v1/chat/completions", question("b", "What is it?")).size(), 2u);
  EXPECT_NE(pid("a"), pid("b"));
  EXPECT_NE(pid("a"), server_->pid());
  const Json models = ask("/v1/models", "", "", "GET").json();
  ASSERT_EQ(models["data"].size(), 2u);
  EXPECT_EQ(models["data"][0]["id"], "a");
  EXPECT_EQ(ask("/ready", "", "", "GET").status, 200);
  EXPECT_EQ(ask("/ready?model=b", "", "", "GET").status, 200);
  EXPECT_EQ(ask("/ready?model=c", "", "", "GET").status, 404);
  EXPECT_EQ(ask("/processes", "", "", "GET").status, 403) << "for admins alone";
  EXPECT_THAT(ask("/v1/embeddings", R"({"model":"b","input":"x"})").body, HasSubstr("a server with --isolate has no"));
  EXPECT_THAT(ask("/pause", "", "the-admin").body, HasSubstr("this server has"));
  // What one model's server refuses is passed on as it is.
  EXPECT_THAT(ask("/v1/chat/completions", dump_json(chat("x", {{"model", "a"}, {"temperature", -1}}))).body,
              HasSubstr("temperature"));
  const std::string page = ask("/metrics", "", "", "GET").body;
  EXPECT_THAT(page, HasSubstr("tandem_process_up{process=\"a\"} 1"));
  EXPECT_THAT(page, HasSubstr("tandem_process_restarts_total{process=\"b\"} 0"));
  EXPECT_THAT(page, HasSubstr("tandem_requests_running{process=\"b\","));
  // Nobody talks past the door, and the key of the processes stands on no command line.
  const std::string command = text(fs::path("/proc") / std::to_string(pid("a")) / "cmdline");
  const fs::path config = command.substr(
      command.find("--config") + 9, command.find('\0', command.find("--config") + 9) - command.find("--config") - 9);
  const std::string key(trim(text(config.parent_path() / "key")));
  EXPECT_GT(key.size(), 30u);
  EXPECT_THAT(command, Not(HasSubstr(key)));
  EXPECT_EQ(fs::status(config.parent_path()).permissions(), fs::perms::owner_all);
  EXPECT_EQ(tandem({"serve", "ctl", "processes", "--server", url_}), 0);
  EXPECT_THAT(text(output()), HasSubstr("serving"));
  server_->signal(SIGTERM);
  EXPECT_EQ(server_->wait(), 0);
  EXPECT_FALSE(fs::exists(config.parent_path()));
}

TEST_F(ServeIsolated, a_killed_process_costs_the_other_model_nothing_and_comes_back_with_the_same_bits) {
  start_isolated();
  const Json before = post("/v1/chat/completions", question("b", "What is it?"))["choices"];
  Clients of_a(*this, "a"), of_b(*this, "b");
  ASSERT_TRUE(within(120s, [&] { return of_a.answered() > 10 && of_b.answered() > 10; }));
  const pid_t killed = pid("b");
  ASSERT_GT(killed, 0);
  ::kill(killed, SIGKILL);
  EXPECT_TRUE(within(120s, [&] { return serves_again("b", killed); })) << text(root() / "serve.out");
  const int a = of_a.answered(), b = of_b.answered();
  EXPECT_TRUE(within(120s, [&] { return of_a.answered() > a + 10 && of_b.answered() > b + 10; }));
  of_a.end();
  of_b.end();
  EXPECT_THAT(of_a.wrong(), testing::IsEmpty());
  // No stream had begun: what was with it was asked again.
  EXPECT_THAT(of_b.wrong(), testing::IsEmpty());
  EXPECT_EQ(post("/v1/chat/completions", question("b", "What is it?"))["choices"], before);
  const Json one = process("b");
  EXPECT_EQ(one["restarts"], 1);
  EXPECT_THAT(one.value("last_cause", ""), HasSubstr("signal 9"));
  EXPECT_EQ(process("a")["restarts"], 0);
  EXPECT_THAT(text(root() / "serve.out"), HasSubstr("the process of the model \"b\" was ended by signal 9"));
  EXPECT_THAT(ask("/metrics", "", "", "GET").body, HasSubstr("tandem_process_restarts_total{process=\"b\"} 1"));
}

TEST_F(ServeIsolated, a_stream_that_has_begun_says_that_its_process_ended) {
  start_isolated();
  std::atomic<bool> begun{false};
  std::string got;
  std::thread client([&] { got = read_stream(question("b", "Say much.", 7000), begun); });
  EXPECT_TRUE(within(120s, [&] { return begun.load(); }));
  ::kill(pid("b"), SIGKILL);
  client.join();
  EXPECT_THAT(got, HasSubstr("event: error"));
  EXPECT_THAT(got, HasSubstr("the process of the model \\\"b\\\" ended in the middle of this answer"));
}

TEST_F(ServeIsolated, a_stopped_process_is_found_and_the_other_goes_on) {
  start_isolated("  silence_seconds: 3\n");
  Clients of_a(*this, "a"), of_b(*this, "b");
  ASSERT_TRUE(within(120s, [&] { return of_a.answered() > 10 && of_b.answered() > 10; }));
  const pid_t stopped = pid("b");
  ASSERT_GT(stopped, 0);
  ::kill(stopped, SIGSTOP);
  EXPECT_TRUE(within(120s, [&] { return serves_again("b", stopped); })) << text(root() / "serve.out");
  const int b = of_b.answered();
  EXPECT_TRUE(within(120s, [&] { return of_b.answered() > b + 5; }));
  of_a.end();
  of_b.end();
  EXPECT_THAT(of_a.wrong(), testing::IsEmpty());
  EXPECT_THAT(of_b.wrong(), testing::IsEmpty());
  EXPECT_THAT(process("b").value("last_cause", ""), HasSubstr("it gave no sign for"));
}

// Threads of a process that stand still while its HTTP loop answers, as in an endless loop of the engine.
class StoppedThreads {
 public:
  explicit StoppedThreads(pid_t process) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(fs::path("/proc") / std::to_string(process) / "task", error)) {
      const pid_t thread = std::stoi(entry.path().filename().string());
      if (thread == process || ::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) continue;
      ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
      threads_.push_back(thread);
    }
  }
  size_t count() const { return threads_.size(); }
  // Who traces a thread has to take its end, before that of its process is seen.
  void take_ends() {
    std::erase_if(threads_, [](pid_t thread) {
      int status = 0;
      const pid_t found = ::waitpid(thread, &status, __WALL | WNOHANG);
      return found < 0 || (found == thread && !WIFSTOPPED(status));
    });
  }

 private:
  std::vector<pid_t> threads_;
};

TEST_F(ServeIsolated, a_process_whose_engine_stands_still_is_found) {
  start_isolated("  silence_seconds: 3\n");
  EXPECT_EQ(ask("/v1/chat/completions", dump_json(question("b", "x"))).status, 200);
  const pid_t stuck = pid("b");
  ASSERT_GT(stuck, 0);
  std::atomic<bool> begun{false};
  std::string got;
  std::thread client([&] { got = read_stream(question("b", "Say much.", 7000), begun); });
  EXPECT_TRUE(within(120s, [&] { return begun.load(); }));
  StoppedThreads threads(stuck);  // until they are killed
  if (threads.count() == 0) {
    server_.reset();
    client.join();
    GTEST_SKIP() << "this user may not trace processes";
  }
  EXPECT_TRUE(within(120s, [&] {
    threads.take_ends();
    return serves_again("b", stuck);
  })) << text(root() / "serve.out");
  client.join();
  EXPECT_THAT(got, HasSubstr("event: error"));
  EXPECT_THAT(process("b").value("last_cause", ""),
              // Its HTTP loop says so, unless it waits for a lock that a stopped thread has.
              testing::AnyOf(HasSubstr("has been in one step for"), HasSubstr("the thread that reads requests"),
                             HasSubstr("it gave no sign for")));
  EXPECT_EQ(process("a")["restarts"], 0);
}

TEST_F(ServeIsolated, one_request_that_takes_too_much_memory_ends_its_own_process_alone) {
  start_isolated();
  EXPECT_EQ(ask("/v1/chat/completions", dump_json(question("b", "x"))).status, 200);
  ASSERT_TRUE(within(60s, [&] { return process("b").value("memory_bytes", uint64_t{0}) > 0; }));
  const auto usual = static_cast<int>(process("b")["memory_bytes"].get<uint64_t>() >> 20);
  start_isolated(fmt::format("  memory_mb: {}\n", usual + 48));
  Clients of_a(*this, "a");
  ASSERT_TRUE(within(120s, [&] { return of_a.answered() > 5; }));
  // Its body is within the limits, and many times as large once it is read.
  Json large = {{"model", "b"}, {"messages", Json::array()}};
  while (large["messages"].size() < 200'000) large["messages"].push_back({{"role", "user"}, {"content", "x y z"}});
  const auto answer = ask("/v1/chat/completions", dump_json(large));
  EXPECT_EQ(answer.status, 503) << answer.body.substr(0, 500);
  EXPECT_THAT(answer.body, HasSubstr("serve.memory_mb"));
  EXPECT_THAT(answer.body, HasSubstr("this request was with it when it ended"));
  EXPECT_TRUE(answer.retry_after.has_value());
  EXPECT_TRUE(within(120s, [&] { return is("b", "serving"); }));
  EXPECT_EQ(ask("/v1/chat/completions", dump_json(question("b", "x"))).status, 200);
  of_a.end();
  EXPECT_THAT(of_a.wrong(), testing::IsEmpty());
  EXPECT_EQ(process("a")["restarts"], 0);
}

TEST_F(ServeIsolated, a_model_that_cannot_be_loaded_any_more_fails_by_name_and_the_other_is_served) {
  start_isolated("  max_restarts: 2\n");
  Clients of_a(*this, "a");
  const fs::path weights = folder("b") / "model.safetensors", kept = folder("b") / "kept";
  fs::rename(weights, kept);
  std::ofstream(weights) << "no weights";
  ::kill(pid("b"), SIGKILL);
  EXPECT_TRUE(within(120s, [&] { return is("b", "failed"); })) << text(root() / "serve.out");
  const auto refused = ask("/v1/chat/completions", dump_json(question("b", "x")));
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("the model \\\"b\\\" has failed"));
  EXPECT_THAT(refused.body, HasSubstr("model.safetensors"));
  EXPECT_EQ(ask("/ready", "", "", "GET").status, 503);
  EXPECT_EQ(ask("/ready?model=a", "", "", "GET").status, 200);
  EXPECT_EQ(ask("/ready?model=b", "", "", "GET").status, 503);
  EXPECT_EQ(ask("/health", "", "", "GET").status, 200);
  EXPECT_EQ(ask("/v1/models", "", "", "GET").json()["data"].size(), 2u);
  EXPECT_THAT(ask("/metrics", "", "", "GET").body, HasSubstr("tandem_process_failed{process=\"b\"} 1"));
  const int a = of_a.answered();
  EXPECT_TRUE(within(120s, [&] { return of_a.answered() > a + 5; }));
  of_a.end();
  EXPECT_THAT(of_a.wrong(), testing::IsEmpty());
  // What was missing is back.
  fs::rename(kept, weights);
  EXPECT_EQ(tandem({"serve", "ctl", "revive", "a", "--server", url_}), 2) << "it has not failed";
  EXPECT_EQ(tandem({"serve", "ctl", "revive", "b", "--server", url_}), 0) << text(output());
  EXPECT_TRUE(within(120s, [&] { return is("b", "serving"); }));
  EXPECT_EQ(ask("/v1/chat/completions", dump_json(question("b", "x"))).status, 200);
}

TEST_F(ServeIsolated, adapters_go_to_the_process_of_their_model_and_come_back_with_it) {
  start_isolated("", {"--candidates", folder("adapters").string(), "--adapter",
                      "first@b=" + (folder("adapters") / "poems1").string()});
  const auto load = [&](const std::string& name, const std::string& base) {
    return ask(
        "/v1/load_lora_adapter",
        dump_json({{"lora_name", name}, {"lora_path", (folder("adapters") / "poems2").string()}, {"base_model", base}}),
        "the-admin");
  };
  EXPECT_EQ(load("second", "b").status, 200);
  EXPECT_EQ(load("a", "b").status, 400) << "the name of a model";
  EXPECT_EQ(load("second", "a").status, 400) << "an adapter of the other";
  EXPECT_EQ(load("third", "c").status, 404);
  const Json first = post("/v1/chat/completions", question("first", "What is it?"))["choices"];
  const Json second = post("/v1/chat/completions", question("second", "What is it?"))["choices"];
  const Json plain = post("/v1/chat/completions", question("b", "What is it?"))["choices"];
  EXPECT_NE(first, second);
  EXPECT_NE(first, plain);
  const Json listed = ask("/v1/models/second", "", "", "GET").json();
  EXPECT_EQ(listed["parent"], "b");
  const pid_t killed = pid("b");
  ::kill(killed, SIGKILL);
  EXPECT_TRUE(within(120s, [&] { return serves_again("b", killed); }));
  EXPECT_EQ(post("/v1/chat/completions", question("first", "What is it?"))["choices"], first);
  EXPECT_EQ(post("/v1/chat/completions", question("second", "What is it?"))["choices"], second);
  EXPECT_EQ(ask("/v1/unload_lora_adapter", dump_json({{"lora_name", "second"}}), "the-admin").status, 200);
  EXPECT_EQ(ask("/v1/chat/completions", dump_json(question("second", "x"))).status, 404);
  EXPECT_EQ(ask("/v1/unload_lora_adapter", dump_json({{"lora_name", "second"}}), "the-admin").status, 404);
}

TEST_F(ServeIsolated, an_adapter_that_cannot_be_loaded_again_is_left_out_and_its_model_is_served) {
  const fs::path broken = folder("broken"), gone = folder("gone");
  for (const auto& one : {broken, gone})
    fs::copy(folder("adapters") / "poems2", one, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  start_isolated("  max_restarts: 2\n",
                 {"--adapter", "first@b=" + (folder("adapters") / "poems1").string(), "--adapter",
                  "broken@b=" + broken.string(), "--adapter", "gone@b=" + gone.string()});
  EXPECT_EQ(line()["models"], Json::array({"a", "b"}));
  EXPECT_EQ(line()["adapters"], Json::array({"first", "broken", "gone"}));
  EXPECT_EQ(ask("/v1/chat/completions", dump_json(question("broken", "x"))).status, 200);
  std::ofstream(broken / "adapter_model.safetensors") << "no factors";
  fs::remove(gone / "adapter_model.safetensors");
  const pid_t killed = pid("b");
  ASSERT_GT(killed, 0);
  ::kill(killed, SIGKILL);
  EXPECT_TRUE(within(120s, [&] { return serves_again("b", killed) || is("b", "failed"); }));
  EXPECT_TRUE(is("b", "serving")) << text(root() / "serve.out");
  EXPECT_EQ(process("b")["adapters"], Json::array({"first"}));
  EXPECT_EQ(ask("/v1/chat/completions", dump_json(question("first", "x"))).status, 200);
  for (const char* const lost : {"broken", "gone"}) {
    EXPECT_EQ(ask("/v1/chat/completions", dump_json(question(lost, "x"))).status, 404);
    EXPECT_THAT(text(root() / "serve.out"), HasSubstr(fmt::format("the adapter \"{}\" is not loaded again", lost)));
  }
}

TEST_F(ServeIsolated, an_adapter_whose_process_ends_while_it_is_loaded_says_so) {
  start_isolated("", {"--candidates", folder("adapters").string()});
  const pid_t killed = pid("b");
  ASSERT_GT(killed, 0);
  ::kill(killed, SIGSTOP);
  decltype(ask("", "")) answer;
  std::thread admin([&] {
    answer =
        ask("/v1/load_lora_adapter",
            dump_json(
                {{"lora_name", "late"}, {"lora_path", (folder("adapters") / "poems2").string()}, {"base_model", "b"}}),
            "the-admin");
  });
  EXPECT_TRUE(within(
      60s, [&] { return text(root() / "serve.out").find("asks for the adapter \"late\"") != std::string::npos; }));
  ::kill(killed, SIGKILL);
  admin.join();
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("the process of the model \\\"b\\\" ended before it answered this request"));
  EXPECT_TRUE(answer.retry_after.has_value());
}

TEST_F(ServeIsolated, an_answer_is_gone_on_from_by_its_own_model_alone) {
  start_isolated();
  const auto go_on = [&](const std::string& model, const std::string& id) {
    return ask(
        "/v1/responses",
        dump_json({{"model", model}, {"input", "And then?"}, {"max_output_tokens", 4}, {"previous_response_id", id}}));
  };
  const Json first = post("/v1/responses", {{"model", "b"}, {"input", "a"}, {"max_output_tokens", 4}});
  const std::string id = first["id"].get<std::string>();
  EXPECT_EQ(go_on("b", id).status, 200);
  const auto other = go_on("a", id);
  EXPECT_EQ(other.status, 400) << other.body;
  EXPECT_THAT(other.body, HasSubstr("is of \\\"b\\\""));
  EXPECT_FALSE(other.retry_after.has_value()) << "it will not be otherwise";
  EXPECT_EQ(go_on("nobody", id).status, 404);
  const auto none = go_on("b", "resp_none");
  EXPECT_EQ(none.status, 400) << "as in one process";
  EXPECT_THAT(none.body, HasSubstr("send the whole input"));
}

TEST_F(ServeIsolated, what_is_not_known_of_a_process_is_left_out_of_the_usage_log) {
  fs::remove(root() / "usage.jsonl");
  start_isolated("", {"--usage-log", (root() / "usage.jsonl").string()});
  EXPECT_EQ(ask("/v1/chat/completions", dump_json(question("b", "x"))).status, 200);
  ASSERT_TRUE(within(60s, [&] { return text(root() / "usage.jsonl").ends_with("\n"); }));
  const auto used = parse_json(text(root() / "usage.jsonl"));
  ASSERT_TRUE(used);
  EXPECT_EQ((*used)["answer_tokens"], 6);
  EXPECT_FALSE(used->contains("core_seconds"));
}

// In one process and in several.
TEST_F(ServeIsolated, a_slow_start_takes_on_the_same_users_first_and_then_all) {
  std::vector<std::pair<std::string, std::string>> keys;  // name and text
  std::ofstream book(root() / "users.yaml");
  for (int i = 0; i < 12; ++i) {
    const auto key = serve::make_key();
    keys.emplace_back(fmt::format("user-{}", i), key.text);
    book << keys.back().first << ":\n  sha256: " << key.sha256 << "\n";
  }
  book.close();
  const auto status = [&](const std::string& key) {
    return ask("/v1/chat/completions", dump_json(question("b", "x", 2)), key).status;
  };
  for (const bool isolated : {true, false}) {
    const Arguments more = {"--keys", (root() / "users.yaml").string()};
    start_isolated("  slots: 2\n  slow_start: 1\n  slow_start_seconds: 3600\n", more, isolated);
    EXPECT_EQ(ask("/ready", "", "", "GET").json()["admission_share"], 0.25);
    int taken_on = 0;
    for (const auto& [name, key] : keys) {
      const bool first = serve::SlowStart::place_of(name) < 0.25;
      taken_on += first ? 1 : 0;
      EXPECT_EQ(status(key), first ? 200 : 503) << name;
    }
    EXPECT_GT(taken_on, 0);
    EXPECT_LT(taken_on, 12);
    EXPECT_THAT(ask("/metrics", "", keys[0].second, "GET").body, HasSubstr("\ntandem_admission_share 0.25\n"));
    start_isolated("  slots: 2\n  slow_start: 1\n  slow_start_seconds: 0.1\n", more, isolated);
    EXPECT_TRUE(within(60s, [&] { return !ask("/ready", "", "", "GET").json().contains("admission_share"); }));
    for (const auto& [name, key] : keys) EXPECT_EQ(status(key), 200) << name;
  }
}

TEST_F(ServeIsolated, no_process_is_left_when_the_parent_is_killed_or_asked_to_end) {
  start_isolated();
  const pid_t a = pid("a"), b = pid("b");
  ASSERT_GT(a, 0);
  ASSERT_GT(b, 0);
  server_->signal(SIGKILL);
  server_->wait();
  EXPECT_TRUE(within(60s, [&] { return is_gone(a) && is_gone(b); }));
  start_isolated();
  const pid_t again = pid("a"), other = pid("b");
  // What runs has its time to end.
  std::atomic<bool> begun{false};
  std::string got;
  std::thread client([&] { got = read_stream(question("b", "Say something.", 400), begun); });
  EXPECT_TRUE(within(120s, [&] { return begun.load(); }));
  server_->signal(SIGTERM);
  EXPECT_EQ(server_->wait(), 0) << text(root() / "serve.out");
  client.join();
  EXPECT_THAT(got, testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_TRUE(is_gone(again) && is_gone(other));
}

TEST_F(ServeIsolated, what_it_cannot_do_is_refused_at_the_start_by_name) {
  const std::string model = "a=" + folder("a").string();
  EXPECT_EQ(tandem({"serve", "--isolate", "--model", model, "--promoted", "p.json"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("--promoted is not there with --isolate"));
  EXPECT_EQ(tandem({"serve", "--isolate", "--model", model, "--embedding-model", folder("a").string()}), 2);
  EXPECT_THAT(text(output()), HasSubstr("--embedding-model is not there with --isolate"));
  EXPECT_EQ(tandem({"serve", "--isolate", "--upstream", "http://127.0.0.1:1"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("--isolate"));
  EXPECT_EQ(tandem({"serve", "--isolate", "--model", model, "--adapter", "x@c=" + folder("a").string()}), 2);
  EXPECT_THAT(text(output()), HasSubstr("there is no model \"c\""));
  EXPECT_EQ(tandem({"serve", "--model", model, "--memory-mb", "100"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("--memory-mb is of processes of models"));
  // A model that cannot be loaded ends the start, as in one process.
  fs::create_directories(folder("none"));
  fs::copy_file(folder("a") / "config.json", folder("none") / "config.json", fs::copy_options::overwrite_existing);
  EXPECT_NE(tandem({"serve", "--isolate", "--port", "0", "--model", model, "--model", "x=" + folder("none").string()}),
            0);
  EXPECT_THAT(text(output()), HasSubstr("the process of the model \"x\" ended with code"));
}

}  // namespace
}  // namespace tandem
