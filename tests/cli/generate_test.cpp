// `tandem generate`: what is sampled is a function of the request and the weights, not of what runs beside it.
#include <algorithm>
#include <fstream>
#include <map>

#include "base/random.h"
#include "envs/protocol.h"
#include "envs/tools/tool.h"
#include "tests/cli/run_fixture.h"

namespace tandem {
namespace {

class Generate : public RunTest {
 protected:
  static std::vector<Json> requests() {
    std::vector<Json> lines;
    Random random(5);
    for (int i = 0; i < 40; ++i) {
      std::vector<int> tokens(2 + random.below(90));
      for (int& token : tokens) token = static_cast<int>(random.below(200));
      // Some prompts are the beginning of others, and share what was computed.
      if (i % 3 == 1) tokens = lines.back()["tokens"].get<std::vector<int>>();
      if (i % 3 == 1) tokens.resize(tokens.size() / 2 + 1);
      lines.push_back({{"id", i},
                       {"tokens", tokens},
                       {"seed", i},
                       {"max_tokens", 8 + random.below(40)},
                       {"temperature", i % 4 == 0 ? 0.0 : 1.0},
                       {"ignore_eos", i % 2 == 0}});
      if (i % 5 == 0) lines.back()["top_p"] = 0.9;
    }
    return lines;
  }
  // What came out, by id.
  static std::map<int, Json> generate(const std::vector<Json>& lines, const Arguments& options) {
    std::ofstream file(root() / "requests");
    for (const Json& line : lines) file << line.dump() << "\n";
    file.close();
    Arguments arguments = {"generate", "--model", (root() / "model").string(), "--input",
                           (root() / "requests").string()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    EXPECT_EQ(tandem(arguments), 0) << text(output());
    std::map<int, Json> answers;
    const std::string all = text(output());
    for (const auto line : split(trim(all), '\n')) {
      auto parsed = parse_json(line);
      if (!parsed || !parsed->contains("id")) continue;
      const int id = (*parsed)["id"].get<int>();
      answers[id] = std::move(*parsed);
    }
    return answers;
  }
};

TEST_F(Generate, slots_order_workers_and_threads_change_no_token_and_no_logprob) {
  const std::vector<Json> lines = requests();
  const auto expected = generate(lines, {"--slots", "1"});
  ASSERT_EQ(expected.size(), lines.size());
  size_t tokens = 0;
  for (const auto& [id, answer] : expected) tokens += answer["tokens"].size();
  EXPECT_GT(tokens, 500u);
  std::vector<Json> shuffled = lines;
  Random random(9);
  for (size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[random.below(i)]);
  const std::vector<std::pair<std::vector<Json>, Arguments>> ways = {{lines, {"--slots", "3"}},
                                                                     {lines, {"--slots", "16"}},
                                                                     {shuffled, {"--slots", "3"}},
                                                                     {shuffled, {"--slots", "16", "--threads", "1"}},
                                                                     {lines, {"--slots", "3", "--workers", "2"}},
                                                                     {shuffled, {"--slots", "16", "--workers", "2"}}};
  for (size_t way = 0; way < ways.size(); ++way) {
    SCOPED_TRACE(way);
    const auto got = generate(ways[way].first, ways[way].second);
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [id, answer] : expected) EXPECT_EQ(got.at(id), answer) << "request " << id;
  }
}

TEST_F(Generate, a_chat_goes_through_the_models_template_and_its_calls_come_back_as_a_message) {
  const auto task = envs::make_task({"echo", envs::Split::kTrain, 3});
  ASSERT_TRUE(task);
  Json messages = Json::array();
  for (const auto& message : envs::prompt(*task)) {
    messages.push_back({{"role", message.role}, {"content", message.content}});
  }
  std::ofstream(root() / "chat") << Json{{"messages", messages}, {"add_generation_prompt", true}}.dump() << "\n";
  ASSERT_EQ(tandem({"render", "--model", (root() / "model").string(), "--input", (root() / "chat").string()}), 0);
  const auto rendered = parse_json(trim(text(output())));
  ASSERT_TRUE(rendered);

  const Json settings = {{"temperature", 0}, {"max_tokens", 96}};
  Json chat = settings, tokens = settings;
  chat.update({{"id", 0}, {"messages", messages}});
  tokens.update({{"id", 1}, {"tokens", (*rendered)["ids"]}});
  const auto answers = generate({chat, tokens}, {});
  const Json& answer = answers.at(0);
  EXPECT_EQ(answer["tokens"], answers.at(1)["tokens"]);
  EXPECT_FALSE(answers.at(1).contains("message"));
  EXPECT_EQ(answer["finish_reason"], "tool_calls") << answer.dump();
  const Json& call = answer["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_TRUE(envs::find_tool(call["function"]["name"].get<std::string>()) != nullptr) << call.dump();
  const auto arguments = parse_json(call["function"]["arguments"].get<std::string>());
  EXPECT_TRUE(arguments && arguments->is_object()) << call.dump();
}

}  // namespace
}  // namespace tandem
