// A server that takes candidates for promotion, with traffic, for tests of `tandem promote`.
#pragma once

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "tests/cli/serve_fixture.h"

namespace tandem {

class Promote : public Serve {
 protected:
  static void SetUpTestSuite() {
    Serve::SetUpTestSuite();
    // Another model of the same shape: its answers have other logprobs.
    const fs::path other = root() / "candidates" / "other";
    if (fs::exists(other)) return;
    ASSERT_EQ(tandem({"sft", TANDEM_SOURCE_DIR "/configs/warm_start.yaml", "model=" + (root() / "model").string(),
                      "out=" + other.string(), "kinds=[set]", "max_tokens=1024", "transcripts_per_step=4",
                      "stages.first.steps=2", "stages.second.steps=0"}),
              0)
        << text(output());
  }
  void SetUp() override {
    Serve::SetUp();
    fs::remove_all(root() / "promotion");
    fs::remove(root() / "promoted.json");
    std::ofstream(root() / "admins") << "the-admin\n";
    ::setenv("TANDEM_ADMIN_KEY", "the-admin", 1);
  }
  void TearDown() override {
    stop_traffic();
    ::unsetenv("TANDEM_ADMIN_KEY");
    Serve::TearDown();
  }
  void start_server(const Arguments& more = {}) {
    Arguments arguments = {"--admin-key-file", (root() / "admins").string(),
                           "--candidates",     (root() / "candidates").string(),
                           "--promoted",       (root() / "promoted.json").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    start(arguments);
  }
  Arguments promotion(Arguments more = {}, const std::string& answers = "20") const {
    Arguments arguments = {"promote",   (root() / "candidates" / "other").string(),
                           "--server",  url_,
                           "--out",     (root() / "promotion").string(),
                           "--shares",  "50,100",
                           "--answers", answers,
                           "--seconds", "0",
                           "--limit",   "120"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  double first_logprob(const Json& answer) const {
    return answer["choices"][0]["logprobs"]["content"][0]["logprob"].get<double>();
  }
  Json asked(const std::string& session) const {
    return chat("What is it?", {{"max_tokens", 4}, {"temperature", 0}, {"logprobs", true}, {"user", session}});
  }
  // Sessions ask one after the other, each of them again and again; `judge` says whether an answer was of use.
  void start_traffic(std::function<bool(double logprob)> judge = {}) {
    for (int thread = 0; thread < 3; ++thread) {
      clients_.emplace_back([this, thread, judge](const std::stop_token& stop) {
        for (int i = 0; !stop.stop_requested(); ++i) {
          const auto answer = ask("/v1/chat/completions", dump_json(asked(fmt::format("{}.{}", thread, i % 40))));
          (answer.status == 200 ? answered_ : failed_) += 1;
          if (answer.status != 200 || !judge) continue;
          const Json json = answer.json();
          ask("/feedback", dump_json({{"id", json["id"]}, {"accepted", judge(first_logprob(json))}}));
        }
      });
    }
  }
  void stop_traffic() { clients_.clear(); }
  // A command whose first share, of half of the sessions, lasts.
  std::unique_ptr<Process> trial_without_end() const {
    Arguments arguments = promotion({"--max-slowdown", "1000"}, "1000000");
    arguments.insert(arguments.begin(), TANDEM_BINARY);
    return std::make_unique<Process>(arguments, output());
  }
  Answer admin(const std::string& path, const Json& body) const { return ask(path, dump_json(body), "the-admin"); }
  Json state() const { return ask("/promotion", "", "the-admin", "GET").json(); }
  std::string served() const { return state()["current"]["directory"].get<std::string>(); }
  static std::vector<Json> audit() {
    std::vector<Json> lines;
    const std::string all = text(root() / "promotion" / "audit.jsonl");
    for (const auto line : split_lines(all)) lines.push_back(*parse_json(line));
    return lines;
  }

  std::atomic<int> answered_ = 0, failed_ = 0;
  std::vector<std::jthread> clients_;
};

}  // namespace tandem
