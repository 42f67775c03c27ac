#include "trainer/sft/tiny_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "envs/episodes/opening.h"
#include "envs/tasks/workspace/kinds.h"
#include "model/tokenizer.h"
#include "model/weights.h"
#include "rollout/agent/conversation.h"
#include "trainer/sft/phrase_tokenizer.h"

namespace tandem::trainer {
namespace {

class TinyModel : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(make_directories(folder_)); }
  void TearDown() override { fs::remove_all(folder_); }
  const fs::path folder_ = fs::temp_directory_path() / fmt::format("tandem-tiny-{}", ::getpid());
};

TEST(PhraseTokenizer, a_phrase_of_every_text_is_one_token_and_what_is_cut_is_not_merged) {
  std::vector<std::string> texts;
  for (int i = 0; i < 40; ++i) texts.push_back(fmt::format("the same words in all: BA{}", i % 7));
  const auto json = make_phrase_tokenizer(texts, {.least_count = 40, .cut = "[A-Z][AEIOU]", .special = {}});
  ASSERT_TRUE(json.has_value()) << json.error().to_string();
  const auto tokenizer = model::Tokenizer::from_json(json->dump());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().to_string();
  EXPECT_EQ(tokenizer->encode("the same words in all: ")->size(), 1u);
  EXPECT_EQ(tokenizer->encode("the same words in all: BA3")->size(), 3u);
  EXPECT_EQ(tokenizer->encode("BABA")->size(), 2u);
  EXPECT_EQ(tokenizer->decode(*tokenizer->encode("déjà vu\n")), "déjà vu\n");
}

TEST_F(TinyModel, is_a_model_directory_with_short_prompts_and_the_same_bits_for_the_same_seed) {
  for (const char* name : {"a", "b"}) {
    const Status made = make_tiny_model(folder_ / name, {.seed = 3, .warm_steps = 2, .threads = name[0] == 'a' ? 1 : 2},
                                        [](const std::string&) {});
    ASSERT_TRUE(made.ok()) << made.to_string();
  }
  const auto a = model::load_weights(folder_ / "a", false), b = model::load_weights(folder_ / "b", false);
  ASSERT_TRUE(a.has_value()) << a.error().to_string();
  EXPECT_EQ(a->digest(), b->digest());
  const auto conversation = rollout::Conversation::load(folder_ / "a");
  ASSERT_TRUE(conversation.has_value()) << conversation.error().to_string();
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto task = envs::make_task({.kind = "echo", .split = envs::Split::kHeldout, .seed = seed});
    const auto opening = envs::opening(*task, envs::prompted_tools(), {}, conversation->listing());
    EXPECT_LT(conversation->prompt(opening)->size(), 200u) << task->instruction;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2) << "nothing is left aside";
}

}  // namespace
}  // namespace tandem::trainer
