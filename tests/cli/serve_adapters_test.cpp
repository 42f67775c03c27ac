// LoRA adapters of a server: several in one batch, loaded and unloaded while it answers.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <thread>

#include "base/text.h"
#include "serve/keys.h"
#include "tests/cli/serve_fixture.h"
#include "tests/model/small_adapter.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::Not;

class ServeAdapters : public Serve {
 protected:
  static fs::path folder(const std::string& name) { return root() / "adapters" / name; }
  // A random one for the tiny model.
  static void write(const std::string& name, uint64_t seed, int rank = 4) {
    const auto config = model::read_config(root() / "model");
    ASSERT_TRUE(config) << config.error().to_string();
    const auto adapter = model::small_adapter(*model::parameter_layout(*config), seed, rank);
    const Status written = model::write_adapter(adapter, folder(name), "tiny");
    ASSERT_TRUE(written) << written.to_string();
  }
  static void SetUpTestSuite() {
    Serve::SetUpTestSuite();
    write("a", 1);
    write("b", 2, 7);
    write("large", 3, 128);
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
  void start_with(Arguments more = {}) {
    Arguments arguments = {
        "--adapter",        "a=" + folder("a").string(),  "--adapter",    "b=" + folder("b").string(),
        "--admin-key-file", (root() / "admins").string(), "--candidates", (root() / "adapters").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    start(arguments);
  }
  Answer load(const std::string& name, const fs::path& path, Json more = Json::object()) const {
    Json body = {{"lora_name", name}, {"lora_path", path.string()}};
    for (const auto& [key, value] : more.items()) body[key] = value;
    return ask("/v1/load_lora_adapter", dump_json(body), "the-admin");
  }
  Answer unload(const std::string& name) const {
    return ask("/v1/unload_lora_adapter", dump_json({{"lora_name", name}}), "the-admin");
  }
  static Json question(const std::string& model, int number, int tokens = 24) {
    return chat(fmt::format("What is number {}?", number), {{"model", model},
                                                            {"seed", 70 + number},
                                                            {"max_tokens", tokens},
                                                            {"logprobs", true},
                                                            {"ignore_eos", true},
                                                            {"return_token_ids", true}});
  }
  // What it said: [[token ids], [logprobs]].
  static Json said(const Json& answer) {
    const Json& choice = answer["choices"][0];
    Json logprobs = Json::array();
    for (const Json& one : choice["logprobs"]["content"]) logprobs.push_back(one["logprob"]);
    return {choice["token_ids"], logprobs};
  }
  Json said_of_stream(const Json& body) const {
    Json ids = Json::array(), logprobs = Json::array();
    for (const Json& chunk : stream("/v1/chat/completions", body)) {
      if (chunk["choices"].empty()) continue;
      const Json& part = chunk["choices"][0];
      for (const Json& token : part.value("token_ids", Json::array())) ids.push_back(token);
      const Json said = part.value("logprobs", Json());
      if (!said.is_object()) continue;
      for (const Json& one : said["content"]) logprobs.push_back(one["logprob"]);
    }
    return {ids, logprobs};
  }
  static std::vector<std::string> names_of(const Json& list) {
    std::vector<std::string> names;
    for (const Json& one : list["data"]) names.push_back(one["id"].get<std::string>());
    return names;
  }
};

TEST_F(ServeAdapters, many_streams_of_two_and_of_none_say_what_each_says_alone) {
  constexpr int kStreams = 16;
  const std::string models[] = {"tiny", "a", "b", "a"};
  // What `generate` says, by the model, or with the adapter beside it.
  std::vector<Json> expected(kStreams);
  for (const std::string name : {"tiny", "a", "b"}) {
    std::vector<Json> lines;
    for (int i = 0; i < kStreams; ++i) {
      if (models[i % 4] != name) continue;
      const Json asked = question(name, i);
      lines.push_back({{"id", i},
                       {"messages", asked["messages"]},
                       {"seed", asked["seed"]},
                       {"max_tokens", asked["max_tokens"]},
                       {"ignore_eos", true}});
    }
    Arguments command = {"generate"};
    if (name != "tiny") command.insert(command.end(), {"--adapter", folder(name).string(), "--live"});
    for (const Json& line : lines_of(command, lines))
      expected[line["id"].get<size_t>()] = {line["tokens"], line["logprobs"]};
  }
  start_with({"--slots", "8"});
  EXPECT_EQ(line()["adapters"], (Json{"a", "b"}));
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(said(post("/v1/chat/completions", question(models[i], i))), expected[i]) << "alone, " << models[i];
  EXPECT_NE(said(post("/v1/chat/completions", question("a", 0))), expected[0]);
  for (int round = 0; round < 2; ++round) {
    std::vector<Json> found(kStreams);
    std::vector<std::jthread> clients;
    for (int i = 0; i < kStreams; ++i)
      clients.emplace_back([&, i] { found[i] = said_of_stream(question(models[i % 4], i)); });
    clients.clear();
    for (int i = 0; i < kStreams; ++i) EXPECT_EQ(found[i], expected[i]) << i << ", " << models[i % 4];
  }
}

TEST_F(ServeAdapters, every_endpoint_takes_their_names_and_the_list_says_whose_they_are) {
  start_with({"--usage-log", (root() / "adapter-usage.jsonl").string()});
  const Json list = ask("/v1/models", "", "", "GET").json();
  EXPECT_EQ(names_of(list), (std::vector<std::string>{"tiny", "a", "b"}));
  EXPECT_EQ(list["data"][1]["parent"], "tiny");
  EXPECT_EQ(list["data"][1]["root"], folder("a").string());
  EXPECT_GT(list["data"][1]["max_model_len"].get<int>(), 0);
  EXPECT_FALSE(list["data"][0].contains("parent"));
  EXPECT_EQ(ask("/v1/models/b", "", "", "GET").json()["parent"], "tiny");
  const Json messages = question("a", 1)["messages"];
  const Json ids = post("/tokenize", {{"model", "a"}, {"prompt", "What is it?"}})["tokens"];
  const std::pair<const char*, Json> requests[] = {
      {"/v1/completions", {{"prompt", ids}, {"max_tokens", 5}, {"temperature", 0}, {"logprobs", 1}}},
      {"/v1/responses", {{"input", "What is it?"}, {"max_output_tokens", 5}}},
      {"/v1/messages", {{"messages", messages}, {"max_tokens", 5}}},
  };
  for (auto [path, body] : requests) {
    body["model"] = "a";
    EXPECT_EQ(post(path, body)["model"], "a") << path;
  }
  const auto logprobs = [&](const char* model) {
    Json body = requests[0].second;
    body["model"] = model;
    return post("/v1/completions", body)["choices"][0]["logprobs"]["token_logprobs"];
  };
  EXPECT_NE(logprobs("a"), logprobs("tiny"));
  EXPECT_NE(logprobs("a"), logprobs("b"));
  const auto generated = [&](const char* model) {
    return post("/inference/v1/generate",
                {{"model", model},
                 {"token_ids", ids},
                 {"sampling_params", {{"max_tokens", 4}, {"logprobs", 1}, {"seed", 1}}}})["choices"];
  };
  EXPECT_NE(generated("a"), generated("tiny"));
  const auto unknown = ask("/v1/chat/completions", dump_json(question("c", 1)));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("there is no model \\\"c\\\"; there is tiny, a, b"));
  // Who used which is written and counted.
  const auto page = ask("/metrics", "", "", "GET").body;
  EXPECT_THAT(page, HasSubstr("tandem_adapter_requests_total{model_name=\"tiny\",adapter=\"a\"}"));
  EXPECT_THAT(page, HasSubstr("vllm:lora_requests_info{max_lora=\"64\",running_lora_adapters=\"\","));
  EXPECT_THAT(page, HasSubstr("tandem_adapter_rank{model_name=\"tiny\",adapter=\"b\"} 7"));
  const std::string usage = text(root() / "adapter-usage.jsonl");
  EXPECT_THAT(usage, HasSubstr("\"model\":\"tiny\""));
  EXPECT_THAT(usage, HasSubstr("\"adapter\":\"a\""));
  EXPECT_THAT(ask("/openapi.json", "", "", "GET").body, HasSubstr("/v1/load_lora_adapter"));
}

TEST_F(ServeAdapters, keys_and_rules_are_about_their_names_too) {
  const auto key = serve::make_key();
  std::ofstream(root() / "adapter-keys.yaml") << fmt::format("one:\n  sha256: {}\n  models: [a]\n", key.sha256);
  start_with({"--keys", (root() / "adapter-keys.yaml").string()});
  const auto status = [&](const char* model) {
    return ask("/v1/chat/completions", dump_json(question(model, 1, 2)), key.text).status;
  };
  EXPECT_EQ(status("a"), 200);
  EXPECT_EQ(status("b"), 403);
  EXPECT_EQ(status("tiny"), 403);
  EXPECT_EQ(ask("/v1/load_lora_adapter", R"({"lora_name":"c","lora_path":"/"})", key.text).status, 403);
  const auto rule = [&](const char* path, Json body) { return ask(path, dump_json(body), "the-admin").status; };
  EXPECT_EQ(rule("/rules/set", {{"of", "model"}, {"name", "a"}, {"action", "block"}}), 200);
  EXPECT_EQ(status("a"), 403);
  EXPECT_EQ(ask("/v1/chat/completions", dump_json(question("b", 1, 2)), "the-admin").status, 200);
  EXPECT_EQ(rule("/rules/remove", {{"of", "model"}, {"name", "a"}}), 200);
  EXPECT_EQ(status("a"), 200);
}

TEST_F(ServeAdapters, what_cannot_be_loaded_is_one_clear_error) {
  start_with();
  const auto refused = [&](const Answer& answer, int status, const std::string& words) {
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr(words));
  };
  const auto changed = [&](const std::string& name, const std::string& from, const std::string& to) {
    fs::create_directories(folder(name));
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      fs::copy_file(folder("a") / file, folder(name) / file, fs::copy_options::overwrite_existing);
    auto config = text(folder("a") / "adapter_config.json");
    const size_t at = config.find(from);
    ASSERT_NE(at, std::string::npos) << config;
    std::ofstream(folder(name) / "adapter_config.json") << config.replace(at, from.size(), to);
  };
  refused(ask("/v1/load_lora_adapter", R"({"lora_name":"c","lora_path":"/"})"), 403, "admin");
  refused(load("c", "/etc"), 400, "is not below a folder of serve.candidate_folders");
  refused(load("c", folder("nothing")), 400, "is no folder that this server can see");
  refused(load("tiny", folder("a")), 400, "a model is called \\\"tiny\\\" already");
  refused(load("a b", folder("a")), 400, "letters, digits");
  refused(load("c", folder("a"), {{"base_model", "other"}}), 404, "there is no model");
  refused(load("c", folder("a"), {{"rank", 3}}), 400, "rank");
  changed("dora", "\"use_dora\": false", "\"use_dora\": true");
  refused(load("c", folder("dora")), 400, "use_dora is not supported");
  changed("rank", "\"r\": 4", "\"r\": 5");
  refused(load("c", folder("rank")), 400, "not of rank 5");
  write("wide", 1, 300);
  refused(load("c", folder("wide")), 400, "r is 300, and serve.max_adapter_rank is 256");
  fs::create_directories(folder("other"));
  const fs::path golden = fs::path(TANDEM_SOURCE_DIR) / "tests/golden/adapters/rslora";
  fs::copy(golden, folder("other"), fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  refused(load("c", folder("other")), 400, "adapter_model.safetensors");
  {
    const auto config = model::read_config(root() / "model");
    auto adapter = model::small_adapter(*model::parameter_layout(*config), 1, 4);
    adapter.factors.begin()->second.a[0] = std::numeric_limits<float>::quiet_NaN();
    ASSERT_TRUE(model::write_adapter(adapter, folder("nan"), "tiny"));
    refused(load("c", folder("nan")), 400, "hold NaN");
  }
  fs::create_directories(root() / "elsewhere");
  fs::copy_file(folder("a") / "adapter_model.safetensors", root() / "elsewhere" / "adapter_model.safetensors",
                fs::copy_options::overwrite_existing);
  changed("link", "\"r\": 4", "\"r\": 4");
  fs::remove(folder("link") / "adapter_model.safetensors");
  fs::create_symlink(root() / "elsewhere" / "adapter_model.safetensors", folder("link") / "adapter_model.safetensors");
  refused(load("c", folder("link")), 400, "a link to what is not below");
  fs::remove(folder("link") / "adapter_model.safetensors");
  ASSERT_EQ(::mkfifo((folder("link") / "adapter_model.safetensors").c_str(), 0600), 0);
  refused(load("c", folder("link")), 400, "is no file");
  // The same once more is no change; another of the name only where that is asked for.
  EXPECT_EQ(load("a", folder("a")).status, 200);
  refused(load("a", folder("b")), 400, "has already been loaded");
  const Json of_a = said(post("/v1/chat/completions", question("a", 1)));
  const Json of_b = said(post("/v1/chat/completions", question("b", 1)));
  EXPECT_EQ(load("a", folder("b"), {{"load_inplace", true}}).status, 200);
  EXPECT_EQ(said(post("/v1/chat/completions", question("a", 1))), of_b);
  EXPECT_EQ(load("a", folder("a"), {{"load_inplace", true}}).status, 200);
  EXPECT_EQ(said(post("/v1/chat/completions", question("a", 1))), of_a);
  refused(unload("c"), 404, "the lora adapter 'c' cannot be found; there is a, b");
  EXPECT_EQ(unload("b").status, 200);
  refused(ask("/v1/chat/completions", dump_json(question("b", 1))), 404, "there is tiny, a");
  // What a server was not started for.
  start({"--admin-key-file", (root() / "admins").string()});
  refused(load("c", folder("a")), 400, "start the server with --candidates DIR");
}

TEST_F(ServeAdapters, a_server_that_cannot_have_them_does_not_start) {
  const auto words = [&](Arguments more) {
    Arguments arguments = {"serve", "--model", "tiny=" + (root() / "model").string(), "--port", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_NE(tandem(arguments), 0);
    return text(output());
  };
  EXPECT_THAT(words({"--adapter", "a"}), HasSubstr("write NAME=DIR, or NAME@MODEL=DIR"));
  EXPECT_THAT(words({"--adapter", "a=/no/such/folder"}), HasSubstr("there is no folder /no/such/folder"));
  EXPECT_THAT(words({"--adapter", "a@other=" + folder("a").string()}), HasSubstr("there is no model \"other\""));
  EXPECT_THAT(words({"--device", "emulated:0", "--adapter", "a=" + folder("a").string()}),
              HasSubstr("computes with no adapters beside the weights"));
  EXPECT_THAT(words({"--adapter", "tiny=" + folder("a").string()}), HasSubstr("are called \"tiny\""));
  std::ofstream(root() / "few.yaml") << "serve:\n  max_adapters: 1\n";
  EXPECT_THAT(words({"--config", (root() / "few.yaml").string(), "--adapter", "a=" + folder("a").string(), "--adapter",
                     "b=" + folder("b").string()}),
              HasSubstr("serve.max_adapters allows no more"));
}

TEST_F(ServeAdapters, come_and_go_under_load_without_a_failed_request_or_a_leak) {
  start_with();
  const Json expected_a = said(post("/v1/chat/completions", question("a", 1)));
  const Json expected_base = said(post("/v1/chat/completions", question("tiny", 1)));
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0, answered = 0;
  std::vector<std::jthread> traffic;
  for (int i = 0; i < 4; ++i) {
    traffic.emplace_back([&, i] {
      const bool adapted = i % 2 == 0;
      while (!stop) {
        const auto answer = ask("/v1/chat/completions", dump_json(question(adapted ? "a" : "tiny", 1)));
        wrong += answer.status != 200 || said(answer.json()) != (adapted ? expected_a : expected_base);
        ++answered;
      }
    });
  }
  const pid_t pid = server_->pid();
  const auto resident_mb = [&] {
    const auto status = text(fmt::format("/proc/{}/status", pid));
    const size_t at = status.find("VmRSS:");
    return at == std::string::npos ? 0.0 : std::atof(status.c_str() + at + 6) / 1024;
  };
  const auto descriptors = [&] {
    return std::distance(fs::directory_iterator(fmt::format("/proc/{}/fd", pid)), fs::directory_iterator());
  };
  constexpr int kCycles = 200, kWarm = 40;
  double memory = 0, bytes = 0;
  ptrdiff_t open = 0;
  for (int i = 0; i < kCycles && !HasFailure(); ++i) {
    const auto loaded = load("c", folder("large"));
    ASSERT_EQ(loaded.status, 200) << loaded.body;
    bytes = loaded.json()["bytes"].get<double>();
    // One that is being answered as it goes.
    std::jthread last;
    if (i % 10 == 0) {
      const Json first = said(post("/v1/chat/completions", question("c", 2, 4)));
      EXPECT_EQ(first[0].size(), 4u);
      last = std::jthread([&] {
        const auto answer = ask("/v1/chat/completions", dump_json(question("c", 2)));
        // It may come too late to be one of it.
        wrong += answer.status != 200 && answer.status != 404;
      });
    }
    const auto gone = unload("c");
    ASSERT_EQ(gone.status, 200) << gone.body;
    if (last.joinable()) last.join();
    if (i == kWarm) {
      memory = resident_mb();
      open = descriptors();
    }
  }
  const double grown = resident_mb() - memory;
  stop = true;
  traffic.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(answered, 0);
  // Half of what was loaded and unloaded at most: a leak would keep all of it, and what the allocator keeps between
  // threads, under traffic, was a third on a fast machine.
  EXPECT_LT(grown, bytes / (1 << 20) * (kCycles - kWarm) / 2 + 16);
  EXPECT_LT(descriptors(), open + 16);
  EXPECT_EQ(names_of(ask("/v1/models", "", "", "GET").json()), (std::vector<std::string>{"tiny", "a", "b"}));
  EXPECT_EQ(said(post("/v1/chat/completions", question("a", 1))), expected_a);
}

TEST_F(ServeAdapters, stay_through_sleep_and_go_with_their_model_to_a_promoted_version) {
  const fs::path same = folder("same"), other = folder("llama");
  if (!fs::exists(same)) fs::copy(root() / "model", same, fs::copy_options::recursive);
  std::ofstream(same / "version.txt") << "another version of the same weights\n";
  if (!fs::exists(other)) fs::copy(fs::path(TANDEM_SOURCE_DIR) / "tests/golden/models/llama", other);
  start_with();
  const auto of_a = [&] { return said(post("/v1/chat/completions", question("a", 1))); };
  const Json expected = of_a();
  const auto admin = [&](const char* path, Json body) { return ask(path, dump_json(body), "the-admin"); };
  ASSERT_EQ(admin("/sleep", Json::object()).status, 200);
  ASSERT_EQ(admin("/wake_up", Json::object()).status, 200);
  EXPECT_EQ(of_a(), expected);
  const auto refused = admin("/promotion/begin", {{"directory", other.string()}});
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_THAT(refused.body, HasSubstr("the adapter \\\"a\\\" of tiny does not fit it"));
  ASSERT_EQ(admin("/promotion/begin", {{"directory", same.string()}}).status, 200);
  ASSERT_EQ(admin("/promotion/share", {{"share", 1}}).status, 200);
  EXPECT_EQ(of_a(), expected);
  ASSERT_EQ(admin("/promotion/end", {{"promote", true}}).status, 200);
  EXPECT_EQ(of_a(), expected);
  EXPECT_EQ(load("c", folder("a")).status, 200);
  EXPECT_EQ(said(post("/v1/chat/completions", question("c", 1))), expected);
}

TEST_F(ServeAdapters, are_loaded_and_unloaded_from_the_command_line) {
  start_with();
  const auto ctl = [&](Arguments arguments) {
    Arguments all = {"serve", "ctl"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    all.insert(all.end(), {"--server", url_});
    return tandem(all);
  };
  EXPECT_EQ(ctl({"load", "c=" + folder("b").string()}), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("loaded c of tiny"));
  EXPECT_EQ(ctl({"adapters"}), 0);
  EXPECT_THAT(text(output()), HasSubstr("c  of tiny  (" + folder("b").string() + ")"));
  EXPECT_EQ(ctl({"load", "c=" + folder("a").string()}), 2);
  EXPECT_THAT(text(output()), HasSubstr("has already been loaded"));
  EXPECT_THAT(text(output()), HasSubstr("--replace loads it in place"));
  EXPECT_EQ(ctl({"load", "c=" + folder("a").string(), "--replace"}), 0) << text(output());
  EXPECT_EQ(ctl({"unload", "c", "--json"}), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("\"status\":\"unloaded\""));
  EXPECT_EQ(ctl({"load", "c"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("write NAME=DIR"));
}

}  // namespace
}  // namespace tandem
