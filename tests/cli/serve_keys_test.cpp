// Keys with names and limits, and what an admin says of requests, on a real server.
#include <gmock/gmock.h>

#include <thread>

#include "serve/keys.h"
#include "tests/cli/serve_fixture.h"
#include "tests/wire/certificate.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class ServeKeys : public Serve {
 protected:
  void SetUp() override {
    Serve::SetUp();
    fs::remove(root() / "usage.jsonl");
    ::setenv("TANDEM_ADMIN_KEY", chief_.text.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("TANDEM_ADMIN_KEY");
    Serve::TearDown();
  }
  void write_book(const std::string& of_editor) const {
    std::ofstream(root() / "keys.yaml") << "editor:\n  sha256: " << editor_.sha256 << "\n"
                                        << of_editor << "nightly:\n  sha256: " << nightly_.sha256 << "\n"
                                        << "chief:\n  sha256: " << chief_.sha256 << "\n  admin: true\n";
  }
  void start_with(const std::string& of_editor) {
    write_book(of_editor);
    start({"--keys", (root() / "keys.yaml").string(), "--usage-log", (root() / "usage.jsonl").string()});
  }
  Answer say(const serve::NewKey& key, Json more = Json::object()) const {
    Json body = chat("What is it?", {{"max_tokens", 4}});
    body.update(more);
    return ask("/v1/chat/completions", dump_json(body), key.text);
  }
  int ctl(Arguments arguments) const {
    Arguments all = {"serve", "ctl"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    all.insert(all.end(), {"--server", url_});
    return tandem(all);
  }
  static std::vector<Json> usage() {
    std::vector<Json> lines;
    const std::string all = text(root() / "usage.jsonl");
    for (const auto line : split_lines(all)) lines.push_back(*parse_json(line));
    return lines;
  }
  const serve::NewKey editor_ = serve::make_key(), nightly_ = serve::make_key(), chief_ = serve::make_key();
};

TEST_F(ServeKeys, limits_and_models_are_those_of_the_key) {
  start_with("  requests_per_minute: 2\n  models: [tiny]\n");
  EXPECT_EQ(ask("/v1/models", "", "", "GET").status, 401);
  EXPECT_EQ(say(editor_).status, 200);
  EXPECT_EQ(say(editor_).status, 200);
  const auto refused = say(editor_);
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("this key has used up its 2 requests a minute"));
  EXPECT_TRUE(refused.retry_after);
  EXPECT_EQ(say(nightly_).status, 200) << "another key has its own";
  // The book says otherwise now, and a signal has it read at once.
  write_book("  models: [other]\n");
  ::kill(line()["pid"].get<int>(), SIGHUP);
  EXPECT_TRUE(within(60s, [&] { return say(editor_).status == 403; }));
  EXPECT_THAT(say(editor_).body, HasSubstr("this key may not use the model \\\"tiny\\\"; it may use other"));
}

TEST_F(ServeKeys, who_used_how_much_is_written_and_counts_after_a_restart) {
  start_with("  priority: agent\n  tokens_per_day: 40\n");
  const auto answer = say(editor_);
  ASSERT_EQ(answer.status, 200) << answer.body;
  ASSERT_TRUE(within(60s, [] { return !usage().empty(); }));
  const Json used = usage().front();
  const Json counts = answer.json()["usage"];
  EXPECT_EQ(used["key"], "editor");
  EXPECT_EQ(used["outcome"], "done");
  EXPECT_EQ(used["priority"], "agent") << "an interactive request of a key of a lower class";
  EXPECT_EQ(used["prompt_tokens"], counts["prompt_tokens"]);
  EXPECT_EQ(used["answer_tokens"], counts["completion_tokens"]);
  EXPECT_GT(used["core_seconds"].get<double>(), 0);
  EXPECT_THAT(text(root() / "usage.jsonl"), testing::Not(HasSubstr("What is it")));
  while (say(editor_).status == 200) {
  }
  // A program that rotates logs moves it away, and says so; what it had is put back for the next start.
  fs::rename(root() / "usage.jsonl", root() / "usage.jsonl.1");
  ::kill(line()["pid"].get<int>(), SIGHUP);
  ASSERT_TRUE(within(60s, [] { return fs::exists(root() / "usage.jsonl"); }));
  EXPECT_EQ(say(nightly_).status, 200);
  ASSERT_TRUE(within(60s, [] { return !usage().empty(); }));
  EXPECT_EQ(usage().front()["key"], "nightly");
  fs::rename(root() / "usage.jsonl.1", root() / "usage.jsonl");
  start_with("  tokens_per_day: 40\n");
  EXPECT_EQ(say(editor_).status, 429) << "of the day, not of the process";
  EXPECT_EQ(say(nightly_).status, 200);
}

TEST_F(ServeKeys, an_admin_blocks_lowers_and_allows_while_it_runs) {
  start_with("");
  ASSERT_EQ(ctl({"block", "key=editor", "--reason", "asks in a loop"}), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("block  key=editor  (chief, \"asks in a loop\")"));
  const auto blocked = say(editor_);
  EXPECT_EQ(blocked.status, 403);
  EXPECT_THAT(blocked.body, HasSubstr("requests of this key are blocked: asks in a loop"));
  EXPECT_EQ(say(nightly_).status, 200);
  EXPECT_EQ(ctl({"allow", "key=editor"}), 0) << text(output());
  EXPECT_EQ(say(editor_).status, 200);
  EXPECT_EQ(ctl({"allow", "key=editor"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("there is no rule about the key"));
  EXPECT_EQ(ctl({"drain", "session=s1"}), 0) << text(output());
  const auto drained = say(nightly_, {{"user", "s1"}});
  EXPECT_EQ(drained.status, 200) << "a user's name is within its key: " << drained.body;
  EXPECT_EQ(ctl({"drain", "class=interactive"}), 0) << text(output());
  EXPECT_EQ(say(nightly_).status, 503);
  EXPECT_EQ(say(nightly_, {{"priority", 20}}).status, 200);
  EXPECT_EQ(ctl({"allow", "class=interactive"}), 0);
  EXPECT_EQ(ctl({"lower", "model=tiny", "--to", "batch"}), 0) << text(output());
  EXPECT_EQ(say(nightly_).status, 200);
  EXPECT_TRUE(within(60s, [] { return usage().back()["priority"] == "batch"; }));
  EXPECT_EQ(ctl({"list", "--json"}), 0);
  EXPECT_THAT(text(output()), HasSubstr("\"to\":\"batch\""));
  EXPECT_THAT(text(root() / "serve.out"), HasSubstr("an admin (chief) says: block key \"editor\", \"asks in a loop\""));
  EXPECT_EQ(ctl({"block", "editor"}), 2);
  EXPECT_EQ(ctl({"block", "key=edtor"}), 2) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("there is no key called"));
  EXPECT_EQ(ctl({"list", "key=editor"}), 2) << "nothing is ignored";
  EXPECT_EQ(ctl({"block", "class=slow"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("must be one of autocomplete, interactive, agent, batch"));
  ::setenv("TANDEM_ADMIN_KEY", nightly_.text.c_str(), 1);
  EXPECT_EQ(ctl({"list"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("needs the key of an admin"));
}

TEST_F(ServeKeys, over_tls_all_is_as_without) {
  const fs::path certificate = root() / "certificate.pem", key = root() / "key.pem";
  write_certificate(certificate, key, "a server");
  const char* const before = ::getenv("SSL_CERT_FILE");
  const std::optional<std::string> was = before == nullptr ? std::nullopt : std::optional<std::string>(before);
  ::setenv("SSL_CERT_FILE", certificate.c_str(), 1);
  write_book("");
  const Arguments tls = {"--keys", (root() / "keys.yaml").string(), "--tls-certificate", certificate.string()};
  Arguments both = tls;
  both.insert(both.end(), {"--tls-key", key.string()});
  start(both);
  EXPECT_THAT(url_, testing::StartsWith("https://127.0.0.1:"));
  const auto answer = say(editor_);
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(ctl({"list"}), 0) << text(output());
  Arguments half = {"serve", "--model", (root() / "model").string(), "--port", "0"};
  half.insert(half.end(), tls.begin(), tls.end());
  EXPECT_EQ(tandem(half), 2);
  EXPECT_THAT(text(output()), HasSubstr("are set together, or none of them"));
  was ? ::setenv("SSL_CERT_FILE", was->c_str(), 1) : ::unsetenv("SSL_CERT_FILE");
}

TEST_F(ServeKeys, a_block_ends_what_has_begun_and_nothing_else) {
  start_with("");
  const auto admin = [&](const std::string& path) { return ask(path, "", chief_.text).status; };
  ASSERT_EQ(admin("/pause"), 200);  // so that both are there when the rule comes
  std::vector<int> statuses(2);
  std::vector<std::jthread> asking;
  for (int i = 0; i < 2; ++i) {
    asking.emplace_back([&, i] { statuses[i] = say(i == 0 ? editor_ : nightly_).status; });
  }
  ASSERT_TRUE(within(60s, [&] { return ask("/load", "", chief_.text, "GET").json()["server_load"] == 2; }));
  EXPECT_EQ(ctl({"block", "key=editor"}), 0) << text(output());
  EXPECT_TRUE(within(60s, [] {
    const auto lines = usage();
    return std::ranges::any_of(lines, [](const Json& l) { return l["key"] == "editor" && l["outcome"] == "ended"; });
  }));
  ASSERT_EQ(admin("/resume"), 200);
  asking.clear();
  EXPECT_EQ(statuses[0], 403);
  EXPECT_EQ(statuses[1], 200);
}

}  // namespace
}  // namespace tandem
