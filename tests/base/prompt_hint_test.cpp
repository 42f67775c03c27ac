// A hint in a prompt: what it replaces, and what is read of it.
#include "base/prompt_hint.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

using Tokens = std::vector<int32_t>;

TEST(PromptHint, is_what_differs_between_what_both_prompts_begin_and_end_with) {
  const Tokens prompt = {1, 2, 3, 4};
  EXPECT_EQ(hint_between(prompt, Tokens{1, 2, 8, 9, 3, 4}), (PromptHint{2, 0, {8, 9}})) << "put in between";
  EXPECT_EQ(hint_between(prompt, Tokens{1, 7, 8, 9, 4}), (PromptHint{1, 2, {7, 8, 9}})) << "in place of two";
  EXPECT_EQ(hint_between(prompt, Tokens{1, 2, 3, 3, 4}), (PromptHint{3, 0, {3}})) << "a token that is there twice";
  EXPECT_EQ(hint_between(prompt, Tokens{5, 6}), (PromptHint{0, 4, {5, 6}}));
  EXPECT_TRUE(hint_between(prompt, prompt).empty());
  EXPECT_TRUE(hint_between(prompt, Tokens{1, 4}).empty()) << "nothing is added";
  EXPECT_EQ(hint_between({}, Tokens{5}), (PromptHint{0, 0, {5}}));
}

TEST(PromptHint, fits_a_prompt_that_goes_on_behind_it) {
  const PromptHint hint{1, 2, {7}};
  EXPECT_TRUE(hint.fits(4));
  EXPECT_FALSE(hint.fits(3));
  EXPECT_TRUE(PromptHint().fits(0));
  EXPECT_FALSE((PromptHint{UINT32_MAX, UINT32_MAX, {7}}.fits(100)));
  EXPECT_FALSE((PromptHint{0, 0, Tokens(kMostHintTokens + 1)}.fits(100)));
}

TEST(PromptHint, is_read_as_it_was_written_and_what_is_none_is_damage) {
  const PromptHint hint{3, 1, {7, 0, INT32_MAX}};
  const auto read = read_prompt_hint(to_json(hint));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(*read, hint);
  for (const char* wrong :
       {"7", "{}", R"({"at": 1, "replaced": 0})", R"({"at": -1, "replaced": 0, "tokens": [1]})",
        R"({"at": 1, "replaced": 4294967296, "tokens": [1]})", R"({"at": 1, "replaced": 0, "tokens": "1"})",
        R"({"at": 1, "replaced": 0, "tokens": [2147483648]})", R"({"at": 1, "replaced": 0, "tokens": [1.5]})"}) {
    const auto refused = read_prompt_hint(Json::parse(wrong));
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code(), Code::kCorrupt) << wrong;
  }
}

}  // namespace
}  // namespace tandem
