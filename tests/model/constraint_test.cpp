// Texts under a grammar: which are let through, by jsonschema's word (tests/golden/make_constraints.py), and which
// tokens a mask has, by following every token alone.
#include "tests/model/constraint_parts.h"
#include "tests/model/reference_validator.h"
#include "tests/repetitions.h"

namespace tandem::model::constraint {
namespace {

TEST(Constraint, lets_through_what_jsonschema_calls_valid_and_nothing_else) {
  size_t valid = 0, invalid = 0;
  for (const Json& item : cases()) {
    const auto grammar = compiled(item["schema"]);
    ASSERT_TRUE(grammar) << item["name"];
    for (const Json& text : item["valid"]) {
      EXPECT_TRUE(lets_through(grammar, text.get<std::string>())) << item["name"] << ": " << text;
      ++valid;
    }
    for (const Json& text : item["invalid"]) {
      EXPECT_FALSE(lets_through(grammar, text.get<std::string>())) << item["name"] << ": " << text;
      ++invalid;
    }
  }
  EXPECT_GT(valid, 500u);
  EXPECT_GT(invalid, 5000u);
}

TEST(Constraint, every_way_to_cut_a_valid_text_into_tokens_is_allowed_by_the_masks) {
  Random random(1);
  const auto tokens = vocabulary();
  std::vector<uint64_t> mask(tokens->mask_words());
  for (const Json& item : cases()) {
    const auto grammar = compiled(item["schema"]);
    for (const Json& one : item["valid"]) {
      const auto text = one.get<std::string>();
      if (random.below(3) != 0) continue;
      Matcher matcher(grammar, tokens);
      for (size_t at = 0; at < text.size();) {
        std::vector<TokenId> fitting;
        for (TokenId t = 0; t < 900; ++t)
          if (!tokens->bytes_of(t).empty() && text.compare(at, tokens->bytes_of(t).size(), tokens->bytes_of(t)) == 0)
            fitting.push_back(t);
        const TokenId token = random.pick(fitting);
        matcher.mask(mask);
        ASSERT_TRUE(mask[token / 64] >> (token % 64) & 1)
            << item["name"] << ": " << text << " at " << at << " token " << tokens->bytes_of(token);
        ASSERT_TRUE(matcher.accept(token).ok());
        at += tokens->bytes_of(token).size();
      }
      EXPECT_TRUE(matcher.complete()) << item["name"] << ": " << text;
    }
  }
}

// Keys that are not known when a token ends them, all tokens together.
TEST(Constraint, a_key_stands_once_also_where_one_token_holds_two) {
  const auto tokens = vocabulary();
  std::vector<uint64_t> mask(tokens->mask_words());
  const auto allowed = [&](std::string_view before, std::string_view token) {
    Matcher matcher(compiled(*parse_json(R"({"type":"object","properties":{"age":{"type":"integer"}}})")), tokens);
    EXPECT_TRUE(matcher.accept_text(before).ok());
    matcher.mask(mask);
    for (TokenId t = 0; t < 900; ++t)
      if (tokens->bytes_of(t) == token) return (mask[t / 64] >> (t % 64) & 1) != 0;
    ADD_FAILURE() << "no token " << token;
    return false;
  };
  EXPECT_TRUE(allowed("{\"name\": 1, ", "\"name"));
  EXPECT_FALSE(allowed("{\"name\": 1, ", "\"name\""));
  EXPECT_TRUE(allowed("{\"nam\": 1, ", "\"name\""));
  EXPECT_FALSE(allowed("{", "\"a\":1,\"a\""));
  EXPECT_TRUE(allowed("{", "\"x\":1,\""));
  EXPECT_FALSE(allowed("{\"", "x\",\"y\":"));
}

TEST(Constraint, any_walk_under_the_masks_ends_in_a_valid_text) {
  Random random(2);
  const auto tokens = vocabulary();
  std::vector<uint64_t> mask(tokens->mask_words());
  int ended = 0, walks = 0;
  for (const Json& item : cases()) {
    const auto grammar = compiled(item["schema"]);
    const ReferenceValidator validator(item["schema"]);
    for (const Json& text : item["valid"]) EXPECT_TRUE(validator.valid(*parse_json(text.get<std::string>()))) << text;
    const int count = repetitions(6, 200);
    for (int i = 0; i < count; ++i) {
      ++walks;
      Matcher matcher(grammar, tokens);
      std::string text;
      bool over = false;
      for (int step = 0; step < 400 && !over; ++step) {
        if (matcher.complete() && random.below(step < 20 ? 6 : 1) == 0) {
          over = true;
          break;
        }
        matcher.mask(mask);
        std::vector<TokenId> allowed, closing;
        for (size_t w = 0; w < mask.size(); ++w)
          for (uint64_t word = mask[w]; word != 0; word &= word - 1)
            allowed.push_back(static_cast<TokenId>(w * 64 + static_cast<size_t>(__builtin_ctzll(word))));
        ASSERT_TRUE(!allowed.empty() || matcher.complete()) << item["name"] << ": nothing may follow " << text;
        if (allowed.empty()) {
          over = true;
          break;
        }
        // The mask is what following each token alone says.
        const int looked_at = random.below(8) == 0 ? repetitions(8, 900) : 0;
        for (int k = 0; k < looked_at; ++k) {
          const auto t = static_cast<TokenId>(random.below(900));
          Matcher alone = matcher;
          const bool allows = !tokens->bytes_of(t).empty() && alone.accept(t).ok();
          ASSERT_EQ(allows, (mask[t / 64] >> (t % 64) & 1) != 0)
              << item["name"] << " token " << tokens->bytes_of(t) << " behind " << text;
        }
        for (const TokenId t : allowed) {
          const char last = tokens->bytes_of(t).back();
          if (last == '}' || last == ']' || last == '"') closing.push_back(t);
        }
        const TokenId token =
            step > 15 && !closing.empty() && random.below(4) != 0 ? random.pick(closing) : random.pick(allowed);
        text += tokens->bytes_of(token);
        ASSERT_TRUE(matcher.accept(token).ok()) << text;
      }
      if (!over) continue;
      ++ended;
      const auto value = parse_json(text);
      ASSERT_TRUE(value) << item["name"] << ": " << text << ": " << value.error().message();
      EXPECT_TRUE(validator.valid(*value)) << item["name"] << ": " << text;
    }
  }
  EXPECT_GT(ended, walks * 8 / 10) << "of " << walks;
}

}  // namespace
}  // namespace tandem::model::constraint
