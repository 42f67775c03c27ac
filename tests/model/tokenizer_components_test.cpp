// Tokenizers of components put together at random, beside HF tokenizers (tests/golden/compare_components.py --golden).
#include <gtest/gtest.h>

#include <map>

#include "base/text.h"
#include "model/tokenizer.h"

namespace tandem::model {
namespace {

TEST(TokenizerComponents, give_the_ids_and_texts_of_hf_tokenizers_or_are_refused_by_name) {
  const auto file = read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/golden/tokenizers/components.json", 64 << 20);
  ASSERT_TRUE(file) << file.error().to_string();
  Json models;
  std::map<std::string, int> refused;
  int read = 0;
  for (const auto line : split_lines(*file)) {
    if (line.empty()) continue;
    const Json item = *parse_json(line);
    if (item.contains("models")) {
      models = item["models"];
      continue;
    }
    Json whole = item["tokenizer"];
    whole["model"] = models[item["model"].get<std::string>()];
    for (const auto& [key, value] : item["settings"].items()) whole["model"][key] = value;
    const auto tokenizer = Tokenizer::from_json(whole.dump());
    if (!tokenizer) {
      const std::string why = tokenizer.error().message();
      EXPECT_NE(why.find("not supported"), std::string::npos) << why << "\n" << item["tokenizer"].dump();
      ++refused[why];
      continue;
    }
    ++read;
    for (size_t i = 0; i < item["texts"].size(); ++i) {
      const auto text = item["texts"][i].get<std::string>();
      const auto ids = item["ids"][i].get<std::vector<TokenId>>();
      const auto encoded = tokenizer->encode(text, AddSpecial::kYes);
      ASSERT_TRUE(encoded) << encoded.error().to_string();
      EXPECT_EQ(*encoded, ids) << text << "\n" << item["tokenizer"].dump();
      EXPECT_EQ(tokenizer->decode(ids), item["decoded"][i].get<std::string>()) << item["tokenizer"].dump();
      // Where tokens end is told as well.
      const auto ends = tokenizer->encode_with_ends(text);
      ASSERT_TRUE(ends) << ends.error().to_string();
      EXPECT_EQ(tokenizer->with_special(ends->ids), ids);
      EXPECT_TRUE(std::ranges::is_sorted(ends->ends)) << item["tokenizer"].dump();
      // The stream says the same.
      StreamDecoder stream(*tokenizer);
      std::string streamed;
      for (const TokenId id : ids) streamed += stream.push(id);
      EXPECT_EQ(streamed + stream.finish(), item["decoded"][i].get<std::string>()) << item["tokenizer"].dump();
    }
  }
  EXPECT_GT(read, 200);
  for (const auto& [why, count] : refused) std::printf("%3d %s\n", count, why.c_str());
}

// A pattern that matches nothing between two characters parts them, whatever becomes of what it matches (HF tokenizers
// 0.23).
TEST(TokenizerComponents, empty_matches_of_a_split_part_the_text) {
  struct Case {
    const char *pattern, *behavior, *pieces;
  };
  const Case cases[] = {
      {"\\b", "Removed", "ab12|-|3xx|\n|c"},
      {"\\b", "Isolated", "ab12|-|3xx|\n|c"},
      {"\\b", "MergedWithPrevious", "ab12|-|3xx|\n|c"},
      {"\\b", "MergedWithNext", "ab12|-|3xx|\n|c"},
      {"\\b", "Contiguous", "ab12|-|3xx|\n|c"},
      {"(?=\\d)|-", "Removed", "ab|1|2|3xx\nc"},
      {"(?=\\d)|-", "Isolated", "ab|1|2|-|3xx\nc"},
      {"(?=\\d)|-", "MergedWithPrevious", "ab|1|2-|3xx\nc"},
      {"(?=\\d)|-", "MergedWithNext", "ab|1|2|-3xx\nc"},
      {"(?=\\d)|-", "Contiguous", "ab|1|2|-|3xx\nc"},
      {"x*", "Removed", "a|b|1|2|-|3|\n|c"},
      {"x*", "Isolated", "a|b|1|2|-|3|xx|\n|c"},
      {"x*", "MergedWithPrevious", "a|b|1|2|-|3xx|\n|c"},
      {"x*", "MergedWithNext", "a|b|1|2|-|3|xx\n|c"},
      {"x*", "Contiguous", "a|b|1|2|-|3|xx|\n|c"},
      {"^|$", "Removed", "ab12-3xx|\n|c"},
      {"^|$", "Isolated", "ab12-3xx|\n|c"},
      {"^|$", "MergedWithPrevious", "ab12-3xx|\n|c"},
      {"^|$", "MergedWithNext", "ab12-3xx|\n|c"},
      {"^|$", "Contiguous", "ab12-3xx|\n|c"},
  };
  const std::string text = "ab12-3xx\nc";
  Json vocabulary = {{"<unk>", 0}};
  for (size_t begin = 0; begin < text.size(); ++begin) {
    for (size_t length = 1; begin + length <= text.size(); ++length)
      vocabulary.emplace(text.substr(begin, length), vocabulary.size());
  }
  for (const auto& [pattern, behavior, pieces] : cases) {
    const Json whole = {
        {"version", "1.0"},
        {"added_tokens", Json::array()},
        {"normalizer", nullptr},
        {"pre_tokenizer",
         {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behavior}, {"invert", false}}},
        {"post_processor", nullptr},
        {"decoder", nullptr},
        {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "<unk>"}}}};
    const auto tokenizer = Tokenizer::from_json(whole.dump());
    ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
    const auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids) << ids.error().to_string();
    std::string got;
    for (const TokenId id : *ids) got += (got.empty() ? "" : "|") + tokenizer->decode(std::span(&id, 1));
    EXPECT_EQ(got, pieces) << pattern << " " << behavior;
  }
}

TEST(TokenizerComponents, byte_fallback_behind_byte_level_is_refused_where_it_would_be_taken) {
  Json whole = {
      {"version", "1.0"},
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"}, {"vocab", {{"a", 0}, {"<0xC3>", 1}}}, {"merges", Json::array()}, {"byte_fallback", true}}}};
  EXPECT_TRUE(Tokenizer::from_json(whole.dump())) << "no byte has all of its parts";
  whole["model"]["vocab"]["<0x42>"] = 2;
  const auto refused = Tokenizer::from_json(whole.dump());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("byte_fallback behind ByteLevel, of B"), std::string::npos);
  whole["model"]["vocab"]["B"] = 3;
  EXPECT_TRUE(Tokenizer::from_json(whole.dump()));
}

}  // namespace
}  // namespace tandem::model
