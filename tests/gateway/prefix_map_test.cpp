#include "gateway/prefix_map.h"

#include <gtest/gtest.h>

#include <string>

#include "gateway/request_view.h"

namespace tandem::gateway {
namespace {

std::vector<uint64_t> chain(std::initializer_list<std::string_view> parts) {
  PrefixChain made("");
  for (const auto part : parts) made.add(part);
  return made.take();
}

TEST(PrefixMap, the_longest_beginning_is_known_by_upstream) {
  PrefixMap map(1000);
  map.add(chain({"system", "a"}), 0);
  map.add(chain({"system", "a", "b"}), 2);
  EXPECT_EQ(map.matches(chain({"system", "a", "b", "c"}), 3), (std::vector<size_t>{2, 0, 3}));
  EXPECT_EQ(map.matches(chain({"other", "a", "b"}), 3), (std::vector<size_t>{0, 0, 0}))
      << "a part counts only behind the same beginning";
  map.forget(2);
  EXPECT_EQ(map.matches(chain({"system", "a", "b", "c"}), 3), (std::vector<size_t>{2, 0, 0}));
  map.forget(0);
  EXPECT_EQ(map.size(), 0u);
}

TEST(PrefixMap, what_was_touched_least_recently_goes_first_its_end_before_its_beginning) {
  PrefixMap map(4);
  map.add(chain({"a", "b", "c"}), 63);
  map.add(chain({"d", "e"}), 1);
  EXPECT_EQ(map.size(), 4u);
  EXPECT_EQ(map.matches(chain({"a", "b", "c"}), 64)[63], 2u);
  EXPECT_EQ(map.matches(chain({"d", "e"}), 64)[1], 2u);
}

TEST(PrefixChain, long_parts_are_cut_and_very_long_ones_end) {
  const std::string part(3 * PrefixChain::kPiece, 'x');
  auto longer = part;
  longer += "y";
  const auto first = chain({part}), second = chain({longer});
  EXPECT_EQ(first.size(), 3u);
  ASSERT_EQ(second.size(), 4u);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), second.begin()));
  EXPECT_EQ(chain({std::string(PrefixChain::kPiece * 2 * PrefixChain::kMostHashes, 'x')}).size(),
            PrefixChain::kMostHashes);
}

TEST(RequestView, a_turn_more_keeps_the_chain_of_those_before) {
  const auto first = view_of(R"({"model":"m","messages":[{"role":"user","content":"a"}]})", "");
  const auto second = view_of(
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}],"model":"m","stream":true,"user":"u"})",
      "");
  ASSERT_TRUE(first && second);
  ASSERT_EQ(second->prefix.size(), first->prefix.size() + 1);
  EXPECT_TRUE(std::equal(first->prefix.begin(), first->prefix.end(), second->prefix.begin()));
  EXPECT_EQ(second->model, "m");
  EXPECT_TRUE(second->stream);
  EXPECT_EQ(second->session, "u");
  const auto salted = view_of(R"({"model":"m","messages":[{"role":"user","content":"a"}]})", "key");
  EXPECT_NE(salted->prefix, first->prefix);
}

TEST(RequestView, prompts_as_texts_and_as_tokens) {
  EXPECT_EQ(view_of(R"({"model":"m","prompt":"a"})", "")->prefix.size(), 1u);
  EXPECT_EQ(view_of(R"({"model":"m","prompt":["a","b"]})", "")->prefix.size(), 2u);
  EXPECT_EQ(view_of(R"({"model":"m","token_ids":[1,2,3]})", "")->prefix.size(), 1u);
  const auto view = view_of(R"({"prompt":"abcd","max_tokens":100,"previous_response_id":"resp_1"})", "");
  EXPECT_GE(view->tokens, 100);
  EXPECT_EQ(view->previous, "resp_1");
  EXPECT_EQ(view->model, "");
}

TEST(RequestView, what_is_no_request_is_said) {
  EXPECT_FALSE(view_of("", ""));
  EXPECT_FALSE(view_of("[]", ""));
  EXPECT_FALSE(view_of(R"({"model":7})", ""));
  EXPECT_TRUE(view_of(R"({"model":null,"stream":7,"max_tokens":-1e300,"messages":{}})", ""));
}

}  // namespace
}  // namespace tandem::gateway
