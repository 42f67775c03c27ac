// A reward model behind `tandem serve`, asked by clients and by a run.
#include <gmock/gmock.h>

#include <fstream>
#include <set>
#include <thread>

#include "tests/cli/serve_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class ServeRewards : public Serve {
 protected:
  // A reward model of the tiny model, that learns to like short answers.
  static const fs::path& judge() {
    static const fs::path out = root() / "rewards-judge";
    if (fs::exists(out)) return out;
    const fs::path pairs = root() / "rewards-pairs.jsonl";
    std::ofstream lines(pairs);
    for (int i = 0; i < 12; ++i) {
      const std::string name = std::to_string(i);
      lines << Json{{"prompt", "number " + name}, {"chosen", name}, {"rejected", name + " and more words"}}.dump()
            << "\n";
    }
    lines.close();
    EXPECT_EQ(tandem({"sft", "model=" + (root() / "model").string(), "data.preferences=[" + pairs.string() + "]",
                      "data.tool_calls=text", "out=" + out.string(), "preference.loss=reward", "threads=1",
                      "trainer.epochs=2", "trainer.tokens_per_step=256", "trainer.learning_rate=1e-4",
                      "reward.learning_rate=1e-2"}),
              0)
        << text(output());
    return out;
  }
  static Json conversation(int i) {
    Json messages = Json::array({{{"role", "system"}, {"content", "You count."}}});
    for (int turn = 0; turn <= i % 3; ++turn) {
      messages.push_back({{"role", "user"}, {"content", fmt::format("number {} {}", i, turn)}});
      messages.push_back({{"role", "assistant"}, {"content", fmt::format("it is {}", i * turn)}});
    }
    Json body = Json::object();
    body["messages"] = messages;
    return body;
  }
  // Rewards of conversations by `tandem score`, and the trainer's code.
  static std::vector<double> scored(const std::vector<Json>& conversations) {
    std::ofstream file(root() / "rewards-input");
    for (const Json& one : conversations) file << dump_json(one) << "\n";
    file.close();
    EXPECT_EQ(tandem({"score", "--reward", "--path", "trainer", "--model", judge().string(), "--input",
                      (root() / "rewards-input").string()}),
              0)
        << text(output());
    std::vector<double> rewards;
    const std::string said = text(output());
    for (const auto line : split_lines(said)) {
      if (const auto parsed = parse_json(line); parsed && parsed->contains("reward"))
        rewards.push_back(parsed->at("reward").get<double>());
    }
    return rewards;
  }
  double reward(const Json& body) const { return post("/v1/rewards", body)["terms"]["reward_model"].get<double>(); }
};

TEST_F(ServeRewards, have_the_bits_of_the_trainer_alone_and_beside_others) {
  std::vector<Json> asked;
  for (int i = 0; i < 12; ++i) asked.push_back(conversation(i));
  const auto expected = scored(asked);
  ASSERT_EQ(expected.size(), asked.size()) << text(output());
  start({"--model", "judge=" + judge().string()});
  for (size_t i = 0; i < asked.size(); ++i) EXPECT_EQ(reward(asked[i]), expected[i]) << "the first with a head";
  std::vector<double> beside(asked.size());
  std::vector<std::thread> clients;
  for (size_t i = 0; i < asked.size(); ++i) {
    clients.emplace_back([&, i] {
      Json body = asked[i];
      body["model"] = "judge";
      post("/v1/chat/completions", chat("Say much.", {{"model", "judge"}, {"max_tokens", 40}}));
      beside[i] = reward(body);
    });
  }
  for (auto& client : clients) client.join();
  EXPECT_EQ(beside, expected);

  // An episode as reward.http sends it is the conversation in it.
  Json episode = *parse_json(text(TANDEM_SOURCE_DIR "/examples/rewards/episode.json"));
  Json of_episode = Json::object();
  of_episode["messages"] = episode["messages"];
  const auto of_messages = scored({of_episode});
  ASSERT_EQ(of_messages.size(), 1U);
  EXPECT_EQ(post("/v1/rewards", episode), (Json{{"terms", {{"reward_model", of_messages[0]}}}}));

  const auto refused = [&](const Json& body, int status, const char* words) {
    const auto answer = ask("/v1/rewards", dump_json(body));
    EXPECT_EQ(answer.status, status) << answer.body;
    EXPECT_THAT(answer.body, HasSubstr(words));
  };
  Json other = asked[0];
  other["model"] = "tiny";
  refused(other, 400, "is no reward model: it has no reward_head.safetensors");
  other["model"] = "nobody";
  refused(other, 404, "there is no model");
  other = asked[0];
  other["messages"] = chat("q")["messages"];
  refused(other, 400, "no assistant message");
  other["messages"] = 1;
  refused(other, 400, "messages");
  other = asked[0];
  other["mesages"] = 1;
  refused(other, 400, "mesages");
  EXPECT_EQ(ask("/v1/rewards", "", "", "GET").status, 405);
  EXPECT_THAT(ask("/openapi.json", "", "", "GET").body, HasSubstr("/v1/rewards"));
}

TEST_F(ServeRewards, go_with_sleep_and_come_back_and_stand_behind_a_door) {
  const Json body = conversation(4);
  const double expected = scored({body}).at(0);
  ASSERT_TRUE(write_file(root() / "rewards-admins", "an-admin-key-of-tests\n"));
  start({"--model", "judge=" + judge().string(), "--admin-key-file", (root() / "rewards-admins").string()});
  ASSERT_EQ(ask("/sleep", "", "an-admin-key-of-tests").status, 200);
  const auto asleep = ask("/v1/rewards", dump_json(body));
  EXPECT_EQ(asleep.status, 503) << asleep.body;
  ASSERT_EQ(ask("/wake_up", "", "an-admin-key-of-tests").status, 200);
  EXPECT_EQ(reward(body), expected);
  start({"--model", "judge=" + judge().string(), "--isolate"});
  Json named = body;
  named["model"] = "judge";
  EXPECT_EQ(reward(named), expected);
  server_->signal(SIGTERM);  // its private folder goes with it
  EXPECT_EQ(server_->wait(), 0);
}

TEST_F(ServeRewards, a_head_that_is_none_ends_the_start_by_its_name) {
  const fs::path broken = root() / "rewards-broken";
  fs::remove_all(broken);
  fs::copy(judge(), broken, fs::copy_options::recursive);
  fs::copy_file(broken / "model.safetensors", broken / "reward_head.safetensors", fs::copy_options::overwrite_existing);
  EXPECT_NE(tandem({"serve", "--model", broken.string(), "--port", "0"}), 0);
  EXPECT_THAT(text(output()), HasSubstr("reward_head.safetensors: has a tensor"));
}

TEST_F(ServeRewards, a_run_learns_from_them) {
  start({"--model", "judge=" + judge().string()});
  const fs::path run_dir = root() / "rewards-run";
  ASSERT_EQ(run({"run.steps=2", "tasks.heldout=2", "tasks.floors=false", "reward.http=" + url_ + "/v1/rewards",
                 "reward.task=0", "reward.weights=[reward_model=0.5]"},
                run_dir),
            0)
      << text(output());
  // The first model has no head; the one that has is found.
  int trained = 0;
  std::set<double> different;
  for (const Json& episode : episodes(run_dir)) {
    EXPECT_NE(episode["outcome"], "infra_error") << episode.dump();
    if (episode["state"] != "trained") continue;
    ASSERT_TRUE(episode["terms"].contains("reward_model")) << episode.dump();
    different.insert(episode["terms"]["reward_model"].get<double>());
    ++trained;
  }
  EXPECT_GT(trained, 0);
  EXPECT_GT(different.size(), 1U);
  expect_books_to_agree(run_dir);
  expect_nothing_left(run_dir);
}

}  // namespace
}  // namespace tandem
