// `tandem eval` as its users meet it: the binary itself, on models of ours and on servers, night after night.
#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "eval/player.h"
#include "tests/cli/run_fixture.h"
#include "wire/http_server.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

// A server of chat completions whose model "good" knows the answer to every task, and "bad" only to the first two.
class AnsweringServer {
 public:
  AnsweringServer() : server_(*wire::HttpServer::listen("127.0.0.1", 0, {.body_bytes = size_t{16} << 20})) {
    handler_.answer = [this](const wire::HttpRequest& request, const wire::HttpReply& reply) {
      answer(request, reply);
    };
    thread_ = std::thread([this] { EXPECT_TRUE(server_.serve(handler_, stop_)); });
  }
  ~AnsweringServer() {
    stop_ = true;
    thread_.join();
    held_.clear();
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }
  size_t asked() const { return asked_; }

  // Answers so many requests, then holds the others.
  void hold_after(int answers) { left_ = answers; }
  // Refuses everything with this status and asks for a pause of an hour; 0: answers again.
  void refuse_with(int status) { refusal_ = status; }
  // Answers with what is no answer.
  void talk_nonsense(bool on) { nonsense_ = on; }

 private:
  void answer(const wire::HttpRequest& request, const wire::HttpReply& reply) {
    if (request.method == "GET") return reply({200, {}, R"({"data":[{"id":"good"}]})"});
    ++asked_;
    if (refusal_ != 0) return reply({refusal_, {{"Retry-After", "3600"}}, R"({"error":{"message":"too much"}})"});
    if (nonsense_) return reply({200, {{"Content-Type", "application/json"}}, "<html>it works</html>"});
    if (left_ == 0) return held_.push_back(reply);
    if (left_ > 0) --left_;
    const Json body = parse_json(request.body).value_or(Json::object());
    if (body.at("model") == "caller") return call_or_answer(body, reply);
    const auto text = body.at("messages").back().at("content").get<std::string>();
    const size_t at = text.find("number ") + 7;
    const int number = std::stoi(text.substr(at));
    const bool knows = body.at("model") == "good" || number < 2;
    const Json answer = {
        {"model", body.at("model")},
        {"choices",
         {{{"message", {{"role", "assistant"}, {"content", std::to_string(knows ? number * 11 + 100 : 0)}}},
           {"finish_reason", "stop"}}}},
        {"usage", {{"prompt_tokens", 30}, {"completion_tokens", 2}}}};
    reply({200, {{"Content-Type", "application/json"}}, dump_json(answer)});
  }

  // The model "caller" calls the last tool that it is offered, then answers with the result.
  static void call_or_answer(const Json& body, const wire::HttpReply& reply) {
    const Json& last = body.at("messages").back();
    Json message = {{"role", "assistant"}, {"content", last.at("content")}};
    const bool answers = last.at("role") == "tool";
    if (!answers) {
      const Json name = body.at("tools").back().at("function").at("name");
      message = {{"role", "assistant"}, {"content", nullptr}};
      message["tool_calls"] =
          Json::array({{{"id", "c"}, {"type", "function"}, {"function", {{"name", name}, {"arguments", "{}"}}}}});
    }
    const Json choice = {{"message", message}, {"finish_reason", answers ? "stop" : "tool_calls"}};
    reply(
        {200, {{"Content-Type", "application/json"}}, dump_json({{"model", "m"}, {"choices", Json::array({choice})}})});
  }

  wire::HttpServer server_;
  wire::HttpHandler handler_;
  std::vector<wire::HttpReply> held_;
  std::atomic<size_t> asked_{0};
  std::atomic<int> left_{-1}, refusal_{0};
  std::atomic<bool> nonsense_{false}, stop_{false};
  std::thread thread_;
};

// The tokens that a transcript's turns saw and sampled.
Json tokens_of(const fs::path& transcript) {
  const Json whole = json(transcript);
  Json turns = Json::array();
  for (const Json& step : whole.value("steps", Json::array())) {
    if (step.contains("metrics"))
      turns.push_back({step.at("metrics").at("prompt_token_ids"), step.at("metrics").at("completion_token_ids")});
  }
  return turns;
}

class Eval : public RunTest {
 protected:
  static constexpr int kTasks = 8;

  void SetUp() override {
    fs::remove_all(root() / "suite");
    fs::remove_all(nights());
    fs::create_directories(root() / "suite/tasks");
    for (int i = 0; i < kTasks; ++i) {
      std::ofstream(root() / "suite/tasks" / ("t" + std::to_string(i) + ".yaml"))
          << "instruction: What is the value of number " << i << "? Answer with it alone.\n"
          << "files:\n  notes.txt: hello\ncheck:\n  answer: \"" << i * 11 + 100 << "\"\n"
          << "solution:\n  answer: \"" << i * 11 + 100 << "\"\n";
    }
  }
  static fs::path nights() { return root() / "nights"; }
  static fs::path night(const std::string& name) { return nights() / name; }
  static std::string suite(const std::string& more) {
    const auto path = root() / "suite/nightly.yaml";
    std::ofstream(path) << more;
    return path.string();
  }
  static std::string suite_of(const AnsweringServer& server, const std::string& more = "") {
    return suite("endpoint:\n  url: " + server.url() +
                 "\n  model: good\ntasks:\n  path: tasks\nsamples: 2\nconcurrency: 4\nlimits: {seconds: 30}\n" + more);
  }
  static Arguments eval(Arguments more) {
    more.insert(more.begin(), {TANDEM_BINARY, "eval"});
    return more;
  }
  static int run_eval(Arguments more) {
    return Process(eval(std::move(more)), output(), {"no_proxy=127.0.0.1"}).wait(120s);
  }
  static std::vector<std::string> lines(const fs::path& file) {
    const auto all = text(file);
    const auto views = split_lines(all);
    return {views.begin(), views.end()};
  }
};

TEST_F(Eval, a_night_of_a_model_directory_is_repeated_by_the_next_one_to_the_token) {
  const auto file = suite("model: " + (root() / "model").string() +
                          "\ntasks: {kinds: [echo], split: heldout, limit: 6}\nsamples: 2\nconcurrency: 4\n"
                          "limits: {max_new_tokens: 48, seconds: 60}\n");
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  ASSERT_EQ(run_eval({file, "--out", night("two").string(), "--against", night("one").string(), "concurrency=1"}), 0)
      << text(output());
  const Json one = json(night("one") / "results.json"), two = json(night("two") / "results.json");
  for (const char* key : {"suite", "model_digest", "tasks_digest", "started", "seconds", "pass_rate", "ci95", "pass_at",
                          "outcomes", "tasks", "gates", "against"}) {
    EXPECT_TRUE(one.contains(key)) << key;
  }
  EXPECT_TRUE(one.at("against").is_null());
  EXPECT_EQ(one.at("tasks").size(), 6u);
  EXPECT_EQ(one.at("model_digest"), two.at("model_digest"));
  EXPECT_EQ(two.at("against").at("points"), 0.0);
  EXPECT_EQ(two.at("against").at("regressed").size(), 0u);
  const auto tokens = [&](const std::string& name) {
    Json all = Json::array();
    for (int task = 0; task < 6; ++task) {
      for (const int sample : {0, 1})
        all.push_back(tokens_of(night(name) / "transcripts/echo/heldout" / std::to_string(task) /
                                (std::to_string(sample) + ".json")));
    }
    return all;
  };
  EXPECT_GE(tokens("one")[0].size(), 1u);
  EXPECT_EQ(tokens("one"), tokens("two")) << "beside others or alone, a sample draws the same";
}

TEST_F(Eval, a_trained_model_is_better_than_what_it_was_trained_from_and_swapped_it_is_a_regression) {
  const auto trained = root() / "trained";
  ASSERT_EQ(tandem({"run", std::string(TANDEM_SOURCE_DIR) + "/configs/tiny.yaml", "run.deterministic=true",
                    "trainer.max_lag=0", "tasks.heldout=0", "--run-dir", trained.string()}),
            0)
      << text(output());
  const auto file = suite("model: ../trained\ntasks: {kinds: [echo], limit: 30}\nlimits: {max_new_tokens: 48}\n");
  const auto untrained = "model=" + (trained / "model").string();
  ASSERT_EQ(run_eval({file, untrained, "--out", night("one").string()}), 0) << text(output());
  ASSERT_EQ(run_eval({file, "--out", night("two").string(), "--against", night("one").string()}), 0) << text(output());
  const Json gain = json(night("two") / "results.json").at("against");
  EXPECT_GT(gain.at("ci95")[0].get<double>(), 0) << gain.dump();
  ASSERT_EQ(run_eval({file, untrained, "--out", night("three").string(), "--against", night("two").string()}), 4)
      << text(output());
  const Json loss = json(night("three") / "results.json").at("against");
  EXPECT_EQ(loss.at("points").get<double>(), -gain.at("points").get<double>());
  EXPECT_EQ(loss.at("regressed"), gain.at("improved"));
}

TEST_F(Eval, the_agent_says_the_same_tokens_for_the_same_seed) {
  const auto model = (root() / "model").string();
  const auto file = suite("model: " + model + "\ntasks: {path: tasks, limit: 3}\nsamples: 2\n" +
                          "limits: {max_new_tokens: 48, turns: 3}\n");
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  fs::create_directories(root() / "suite/work");
  std::ofstream(root() / "suite/work/notes.txt") << "hello\n";
  for (const int sample : {0, 1}) {
    const auto transcript = root() / "suite/agent.json";
    const auto seed = std::to_string(eval::seed_of_sample(1, "t1", sample));
    tandem({"agent", "--workspace", (root() / "suite/work").string(), "--model", model, "--seed", seed, "--temperature",
            "1", "--max-tokens", "48", "--max-turns", "3", "--dry-run", "--transcript", transcript.string(),
            "What is the value of number 1? Answer with it alone."});
    const Json said = tokens_of(transcript);
    ASSERT_GE(said.size(), 1u) << text(output());
    EXPECT_EQ(said, tokens_of(night("one") / "transcripts/t1" / (std::to_string(sample) + ".json")));
  }
}

TEST_F(Eval, the_page_of_its_keys_is_what_its_reader_says) {
  ASSERT_EQ(tandem({"config", "reference", "--of", "eval"}), 0);
  EXPECT_EQ(text(output()), text(fs::path(TANDEM_SOURCE_DIR) / "docs/suite.md"))
      << "tandem config reference --of eval > docs/suite.md";
  EXPECT_EQ(
      tandem({"config", "check", "--of", "eval", std::string(TANDEM_SOURCE_DIR) + "/examples/nightly/suite.yaml"}), 0)
      << text(output());
}

TEST_F(Eval, a_server_of_ours_is_evaluated_over_http) {
  fs::remove(root() / "serve.out");
  Process server({TANDEM_BINARY, "serve", "--model", "tiny=" + (root() / "model").string(), "--port", "0"},
                 root() / "serve.out");
  const auto url = [&]() -> std::string {
    for (const auto& line : lines(root() / "serve.out")) {
      const auto parsed = parse_json(line);
      if (parsed && parsed->is_object() && parsed->contains("url")) return parsed->at("url").get<std::string>();
    }
    return "";
  };
  ASSERT_TRUE(within(60s, [&] { return !url().empty() || !server.running(); }));
  const auto file =
      suite("model: not/used\ntasks: {kinds: [echo], limit: 4}\nsamples: 2\nlimits: {max_new_tokens: 24}\n");
  ASSERT_EQ(run_eval({file, "--out", night("one").string(), "--endpoint", url()}), 0) << text(output());
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("model"), "tiny") << "the only model there";
  EXPECT_EQ(results.at("samples").at("verdicts"), 8);
  EXPECT_GT(results.at("tasks")[0].at("samples")[0].at("tokens").get<int>(), 0);
  ASSERT_EQ(run_eval({file, "--out", night("two").string(), "--endpoint", url(), "--against", night("one").string()}),
            0)
      << text(output());
}

TEST_F(Eval, an_equal_night_passes_and_a_worse_model_ends_with_4_and_its_tasks_in_every_output) {
  AnsweringServer server;
  const auto file = suite_of(server);
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  ASSERT_EQ(run_eval({file, "--out", night("two").string(), "--against", night("one").string()}), 0) << text(output());
  EXPECT_EQ(json(night("two") / "results.json").at("pass_rate"), 1.0);
  ASSERT_EQ(run_eval({"bless", night("one").string()}), 0) << text(output());
  ASSERT_EQ(
      run_eval({file, "endpoint.model=bad", "--out", night("three").string(), "--against", night("two").string()}), 4)
      << text(output());
  EXPECT_THAT(text(output()), HasSubstr("gate max_regression_points failed"));
  EXPECT_THAT(text(output()), HasSubstr("gate max_regression_points_blessed failed"));
  const Json results = json(night("three") / "results.json");
  const Json& against = results.at("against");
  EXPECT_EQ(against.at("points"), -0.75);
  EXPECT_LT(against.at("ci95")[1].get<double>(), 0);
  EXPECT_LT(against.at("p_value").get<double>(), 0.01);
  ASSERT_EQ(against.at("regressed").size(), 6u);
  for (const Json& task : against.at("regressed")) {
    for (const char* name : {"report.md", "report.html", "junit.xml"})
      EXPECT_THAT(text(night("three") / name), HasSubstr(task.get<std::string>())) << name;
  }
  EXPECT_THAT(text(night("three") / "junit.xml"), HasSubstr("tests=\"8\" failures=\"6\" errors=\"0\""));
  EXPECT_EQ(lines(night("three") / "history.jsonl").size(), 3u);

  EXPECT_EQ(run_eval({"compare", night("two").string(), night("three").string(), "--json"}), 4);
  EXPECT_EQ(parse_json(text(output()))->at("points"), -0.75);
  EXPECT_EQ(run_eval({"compare", night("three").string(), night("two").string()}), 0);
  EXPECT_THAT(text(output()), HasSubstr("better by 75.0 points"));
  EXPECT_EQ(run_eval({"history", nights().string(), "--json"}), 0);
  EXPECT_EQ(lines(output()).size(), 3u);
}

TEST_F(Eval, gates_may_change_on_a_finished_folder_which_asks_nothing_and_its_suite_may_not) {
  AnsweringServer server;
  const auto file = suite_of(server);
  ASSERT_EQ(run_eval({file, "endpoint.model=bad", "--out", night("one").string()}), 0) << text(output());
  const size_t asked = server.asked();
  const auto before = text(night("one") / "results.json");
  ASSERT_EQ(run_eval({file, "endpoint.model=bad", "--out", night("one").string()}), 0);
  EXPECT_EQ(text(night("one") / "results.json"), before);
  EXPECT_EQ(run_eval({file, "endpoint.model=bad", "gates.min_pass_rate=0.9", "--out", night("one").string()}), 4);
  EXPECT_EQ(server.asked(), asked);
  const auto refused = [&](const Arguments& more, const std::string& why) {
    Arguments all = {file, "--out", night("one").string()};
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(run_eval(all), 2);
    EXPECT_THAT(text(output()), HasSubstr(why));
  };
  refused({}, "the folder has model bad");
  refused({"endpoint.model=bad", "samples=3"}, "samples 2, this is 3");
  refused({"endpoint.model=bad", "temperature=0"}, "temperature 1, this is 0");
  refused({"endpoint.model=bad", "tasks.limit=3"}, "the folder has 8 tasks, this suite 3");
  refused({"endpoint.model=bad", "sampls=3"}, "did you mean samples?");
  std::ofstream(root() / "suite/tasks/t3.yaml") << "instruction: Another one.\ncheck:\n  answer: \"1\"\n";
  refused({"endpoint.model=bad"}, "task t3 is another one");
  EXPECT_EQ(server.asked(), asked);
}

TEST_F(Eval, a_killed_evaluation_goes_on_where_it_was_and_comes_to_the_same_end) {
  AnsweringServer server;
  const auto file = suite_of(server);
  server.hold_after(5);
  {
    Process process(eval({file, "--out", night("one").string()}), output(), {"no_proxy=127.0.0.1"});
    ASSERT_TRUE(within(60s, [&] { return lines(night("one") / "episodes.jsonl").size() == 5; })) << text(output());
    process.signal(SIGKILL);
    EXPECT_EQ(process.wait(), -SIGKILL);
  }
  std::ofstream(night("one") / "episodes.jsonl", std::ios::app) << R"({"task":"t7","samp)";
  const size_t asked = server.asked();
  server.hold_after(-1);
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  EXPECT_EQ(server.asked() - asked, 11u);
  EXPECT_EQ(lines(night("one") / "episodes.jsonl").size(), 16u);
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("pass_rate"), 1.0);
  EXPECT_EQ(results.at("outcomes").at("completed"), 16);
}

TEST_F(Eval, an_interrupted_one_ends_with_75_and_goes_on) {
  AnsweringServer server;
  const auto file = suite_of(server);
  server.hold_after(3);
  {
    Process process(eval({file, "--out", night("one").string()}), output(), {"no_proxy=127.0.0.1"});
    ASSERT_TRUE(within(60s, [&] { return lines(night("one") / "episodes.jsonl").size() == 3; })) << text(output());
    EXPECT_EQ(run_eval({file, "--out", night("one").string()}), 2) << "it is in use";
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(60s), 75);
  }
  EXPECT_FALSE(fs::exists(night("one") / "results.json"));
  server.hold_after(-1);
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  EXPECT_EQ(lines(night("one") / "episodes.jsonl").size(), 16u);
}

TEST_F(Eval, samples_that_a_server_refused_have_no_verdict_and_are_tried_again_by_the_same_command) {
  AnsweringServer server;
  const auto file = suite_of(server);
  server.refuse_with(429);
  ASSERT_EQ(run_eval({file, "--out", night("one").string(), "tasks.limit=2"}), 5) << text(output());
  Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("outcomes").at("infra_error"), 4);
  EXPECT_TRUE(results.at("pass_rate").is_null());
  EXPECT_THAT(results.at("tasks")[0].at("samples")[0].at("why").get<std::string>(), HasSubstr("too much"));
  EXPECT_THAT(text(night("one") / "junit.xml"), HasSubstr("failures=\"0\" errors=\"2\""));
  server.refuse_with(0);
  ASSERT_EQ(run_eval({file, "--out", night("one").string(), "tasks.limit=2"}), 0) << text(output());
  results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("pass_rate"), 1.0);
  EXPECT_EQ(results.at("outcomes").at("infra_error"), 0);
}

TEST_F(Eval, a_model_that_is_half_written_is_named_and_leaves_no_folder_behind) {
  const auto half = root() / "suite/half";
  fs::copy(root() / "model", half, fs::copy_options::recursive);
  fs::resize_file(half / "model.safetensors", fs::file_size(half / "model.safetensors") / 2);
  const auto file = suite("model: half\ntasks: {path: tasks, limit: 1}\n");
  EXPECT_NE(run_eval({file, "--out", night("one").string()}), 0);
  EXPECT_THAT(text(output()), HasSubstr("model.safetensors"));
  EXPECT_FALSE(fs::exists(night("one")));
}

TEST_F(Eval, answers_that_are_none_are_failures_of_the_server_and_no_verdict) {
  AnsweringServer server;
  const auto file = suite_of(server);
  server.talk_nonsense(true);
  ASSERT_EQ(run_eval({file, "--out", night("one").string(), "tasks.limit=1", "samples=1"}), 5) << text(output());
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("outcomes").at("infra_error"), 1);
  EXPECT_EQ(results.at("tasks")[0].at("samples")[0].at("attempt"), 3);
}

TEST_F(Eval, tools_that_a_task_brings_are_offered_and_called) {
  std::ofstream(root() / "suite/tools.py") << R"(import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    result = {"initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                             "serverInfo": {"name": "counter", "version": "1"}},
              "tools/list": {"tools": [{"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}]},
              "tools/call": {"content": [{"type": "text", "text": "7"}]}}[message["method"]]
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
)";
  std::ofstream(root() / "suite/count.yaml") << "instruction: Count.\nfiles: {server.py: {from: tools.py}}\n"
                                                "mcp: {counter: python3 server.py}\ncheck: {answer: '7'}\n"
                                                "solution: {answer: '7'}\n";
  AnsweringServer server;
  const auto file =
      suite("endpoint: {url: " + server.url() + ", model: caller}\ntasks: {path: count.yaml}\nsamples: 1\n");
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("pass_rate"), 1.0) << results.dump(1);
  EXPECT_EQ(results.at("tasks")[0].at("samples")[0].at("tool_calls"), 1);
}

TEST_F(Eval, where_one_server_is_gone_the_next_one_is_asked) {
  AnsweringServer server;
  std::string gone;
  {
    const AnsweringServer other;
    gone = other.url();
  }
  const auto file = suite("endpoint:\n  url: " + gone + "\n  model: good\n  fallbacks: [\"" + server.url() +
                          "\"]\ntasks: {path: tasks, limit: 2}\nsamples: 1\n");
  ASSERT_EQ(run_eval({file, "--out", night("one").string()}), 0) << text(output());
  EXPECT_EQ(json(night("one") / "results.json").at("pass_rate"), 1.0);
}

TEST_F(Eval, a_dead_endpoint_is_given_up_and_every_sample_says_why) {
  std::string url;
  {
    const AnsweringServer gone;
    url = gone.url();
  }
  const auto file = suite("endpoint: {url: " + url + ", model: good}\ntasks: {path: tasks}\nsamples: 1\n");
  Process process(eval({file, "--out", night("one").string()}), output(), {"no_proxy=127.0.0.1"});
  EXPECT_EQ(process.wait(90s), 5) << text(output());
  const Json results = json(night("one") / "results.json");
  EXPECT_EQ(results.at("outcomes").at("infra_error"), kTasks);
  for (const Json& task : results.at("tasks")) {
    EXPECT_TRUE(task.at("samples")[0].at("passed").is_null());
    EXPECT_THAT(task.at("samples")[0].at("why").get<std::string>(), HasSubstr("127.0.0.1"));
  }
}

TEST_F(Eval, parts_are_made_one_and_a_part_that_lacks_is_named) {
  AnsweringServer server;
  const auto file = suite_of(server);
  ASSERT_EQ(run_eval({file, "--out", night("whole").string()}), 0);
  for (const char* part : {"1/3", "2/3", "3/3"})
    ASSERT_EQ(run_eval({file, "--out", (root() / "suite" / std::string(1, part[0])).string(), "--shard", part}), 0)
        << text(output());
  const auto part = [&](const char* name) { return (root() / "suite" / name).string(); };
  EXPECT_EQ(run_eval({"merge", part("1"), part("3"), "--out", night("merged").string()}), 2);
  EXPECT_THAT(text(output()), HasSubstr("part 2/3 is not among them"));
  ASSERT_EQ(run_eval({"merge", part("1"), part("2"), part("3"), "--out", night("merged").string(), "--against",
                      night("whole").string()}),
            0)
      << text(output());
  const Json merged = json(night("merged") / "results.json"), whole = json(night("whole") / "results.json");
  EXPECT_EQ(merged.at("tasks_digest"), whole.at("tasks_digest"));
  EXPECT_EQ(merged.at("tasks").size(), 8u);
  EXPECT_EQ(merged.at("pass_rate"), whole.at("pass_rate"));
  EXPECT_TRUE(fs::exists(night("merged") / "transcripts/t7/1.json"));
}

TEST_F(Eval, what_it_cannot_work_with_is_refused_before_anything_is_asked) {
  AnsweringServer server;
  const auto file = suite_of(server);
  EXPECT_EQ(run_eval({file}), 2);
  EXPECT_THAT(text(output()), HasSubstr("--out"));
  EXPECT_EQ(run_eval({"--out", night("one").string()}), 2);
  EXPECT_EQ(run_eval({file, "--out", night("one").string(), "--shard", "5/4"}), 2);
  EXPECT_EQ(run_eval({"history", (root() / "suite").string()}), 2);
  EXPECT_EQ(run_eval({"bless", (root() / "suite").string()}), 2);
  EXPECT_EQ(run_eval({file, "--out", night("one").string(), "--against", (root() / "nowhere").string()}), 2);
  EXPECT_EQ(run_eval({file, "--out", night("one").string(), "endpoint.api_key_env=NOT_SET_ANYWHERE"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("NOT_SET_ANYWHERE"));
  EXPECT_EQ(run_eval({suite("model: " + root().string() + "\ntasks: {path: tasks}\n"), "--out", night("one").string()}),
            2);
  EXPECT_THAT(text(output()), HasSubstr("no model directory"));
  EXPECT_FALSE(fs::exists(night("one")));
  EXPECT_EQ(server.asked(), 0u);
}

}  // namespace
}  // namespace tandem
