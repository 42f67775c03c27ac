// A small model that guesses for a large one: no token and no logprob is another, and what cannot guess is refused.
#include <gmock/gmock.h>

#include "tests/cli/serve_fixture.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class DraftModels : public Serve {
 protected:
  static std::string model() { return (root() / "model").string(); }
  // The tiny model with other texts for two of its tokens.
  static std::string stranger() {
    const fs::path folder = root() / "stranger";
    if (fs::exists(folder)) return folder.string();
    fs::copy(model(), folder, fs::copy_options::recursive);
    Json tokenizer = json(folder / "tokenizer.json");
    for (Json& added : tokenizer["added_tokens"])
      if (added["id"] == 1) added["content"] = "<|other|>";
    EXPECT_TRUE(write_file(folder / "tokenizer.json", dump_json(tokenizer)));
    return folder.string();
  }
  static std::vector<Json> lines() {
    std::vector<Json> all;
    for (int i = 0; i < 12; ++i) {
      all.push_back({{"id", i},
                     {"messages", Json::array({{{"role", "user"}, {"content", "Write DOBA into the file DOBA"}}})},
                     {"seed", i},
                     {"max_tokens", 40},
                     {"temperature", i % 2},
                     {"ignore_eos", true}});
    }
    return all;
  }
};

TEST_F(DraftModels, say_nothing_else_in_generate_and_in_a_server) {
  const auto expected = lines_of({"generate"}, lines());
  ASSERT_EQ(expected.size(), 12u);
  EXPECT_EQ(lines_of({"generate", "--draft-model", model()}, lines()), expected);
  EXPECT_EQ(lines_of({"generate", "--draft-model", model(), "--slots", "2", "--workers", "2"}, lines()), expected);

  start({"--draft-model", "tiny=" + model()});
  for (const int i : {1, 2, 3}) {
    const auto answer =
        post("/v1/chat/completions", chat("Write DOBA into the file DOBA", {{"seed", i},
                                                                            {"max_tokens", 40},
                                                                            {"temperature", i % 2},
                                                                            {"ignore_eos", true},
                                                                            {"logprobs", true},
                                                                            {"return_token_ids", true}}));
    EXPECT_EQ(answer["choices"][0]["token_ids"], expected[static_cast<size_t>(i)]["tokens"]);
    std::vector<float> logprobs;
    for (const Json& token : answer["choices"][0]["logprobs"]["content"])
      logprobs.push_back(token["logprob"].get<float>());
    EXPECT_EQ(logprobs, expected[static_cast<size_t>(i)]["logprobs"].get<std::vector<float>>());
  }
}

TEST_F(DraftModels, of_another_tokenizer_or_for_no_model_are_refused_by_name) {
  EXPECT_NE(tandem({"generate", "--model", model(), "--draft-model", stranger()}), 0);
  EXPECT_THAT(text(output()), HasSubstr("has another tokenizer than the model"));
  EXPECT_THAT(text(output()), HasSubstr("<|other|>"));
  for (const auto& [arguments, words] :
       {std::pair(Arguments{"--draft-model", stranger()}, "has another tokenizer"),
        {Arguments{"--draft-model", "base=" + model()}, "there is no model \"base\""},
        {Arguments{"--draft-model", model(), "--draft-model", "tiny=" + model()}, "has two draft models"},
        {Arguments{"--draft-model", model(), "--speculation", "off"}, "nothing is guessed"}}) {
    Arguments all = {"serve", "--port", "0", "--model", "tiny=" + model()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    EXPECT_NE(tandem(all), 0);
    EXPECT_THAT(text(output()), HasSubstr(words));
  }
}

}  // namespace
}  // namespace tandem
