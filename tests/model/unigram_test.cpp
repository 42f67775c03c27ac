#include "model/unigram.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "base/utf8.h"
#include "model/precompiled.h"
#include "model/tokenizer.h"

namespace tandem::model {
namespace {

const fs::path kUnigramGolden = fs::path(TANDEM_SOURCE_DIR) / "tests/golden/tokenizers";

Unigram read_unigram(const char* json) {
  auto model = Unigram::from_json(*parse_json(json));
  EXPECT_TRUE(model) << model.error().to_string();
  return std::move(*model);
}

std::vector<TokenId> encode(const Unigram& model, std::string_view text) {
  std::vector<TokenId> ids;
  model.encode(text, ids);
  return ids;
}

TEST(Unigram, takes_the_way_whose_scores_add_up_to_the_most) {
  const auto model = read_unigram(
      R"({"unk_id":0,"vocab":[["<unk>",0],["a",0],["b",0],["c",0],["d",0],["cd",1],["ab",2],["abc",5],["abcd",10]]})");
  EXPECT_EQ(encode(model, "abcdacdxx"), (std::vector<TokenId>{8, 1, 5, 0}));
  EXPECT_EQ(encode(model, ""), std::vector<TokenId>());
}

TEST(Unigram, of_ways_that_are_as_good_the_one_whose_last_token_begins_first_is_taken) {
  const auto model = read_unigram(R"({"unk_id":0,"vocab":[["<unk>",0],["a",-1],["aa",-2],["aaa",-3]]})");
  EXPECT_EQ(encode(model, "aaa"), std::vector<TokenId>{3});
}

TEST(Unigram, unknown_characters_in_a_row_are_one_token_or_their_bytes_and_lengths_add_up) {
  const std::string text =
      "a\u00e9\u00e8"
      "a";
  const auto fused = read_unigram(R"({"unk_id":1,"vocab":[["a",-1],["<unk>",0]]})");
  EXPECT_EQ(encode(fused, text), (std::vector<TokenId>{0, 1, 0}));
  const auto bytes = read_unigram(
      R"({"unk_id":1,"byte_fallback":true,"vocab":[["a",-1],["<unk>",0],["<0xC3>",0],["<0xA9>",0],["<0xA8>",0]]})");
  std::vector<TokenId> ids;
  std::vector<size_t> lengths;
  bytes.encode(text, ids, &lengths);
  EXPECT_EQ(ids, (std::vector<TokenId>{0, 2, 3, 2, 4, 0}));
  EXPECT_EQ(lengths, std::vector<size_t>(6, 1));
  EXPECT_EQ(encode(bytes, "\u00ea"), std::vector<TokenId>{1}) << "no token for 0xAA";
}

TEST(Unigram, what_no_vocabulary_can_be_is_refused_with_its_place) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "vocab is not a list"},
      {R"({"vocab":[]})", "vocab is not a list"},
      {R"({"vocab":[["a",-1],["b"]],"unk_id":0})", "vocab[1] is not a pair"},
      {R"({"vocab":[["a","b"]],"unk_id":0})", "vocab[0] is not a pair"},
      {R"({"vocab":[["a",-1]]})", "unk_id (none)"},
      {R"({"vocab":[["a",-1]],"unk_id":null})", "unk_id null"},
      {R"({"vocab":[["a",-1]],"unk_id":1})", "unk_id 1"},
      {R"({"vocab":[["a",-1]],"unk_id":-1})", "unk_id -1"},
      {R"({"vocab":[["a",-1]],"unk_id":0,"byte_fallback":1})", "byte_fallback is 1, not a bool"},
  };
  for (const auto& [json, expected] : cases) {
    const auto model = Unigram::from_json(*parse_json(json));
    ASSERT_FALSE(model) << json;
    EXPECT_NE(model.error().message().find(expected), std::string::npos) << model.error().message();
  }
  const auto longest =
      Unigram::from_json(*parse_json(R"({"unk_id":0,"vocab":[[")" + std::string(2000, 'a') + R"(",-1]]})"));
  ASSERT_FALSE(longest);
  EXPECT_NE(longest.error().message().find("vocab[0] is longer than 1024 bytes"), std::string::npos);
}

TEST(Precompiled, tables_that_cannot_be_are_refused) {
  const std::pair<const char*, const char*> cases[] = {
      {"abc", "is not base64 at character 3"},
      {"a*cd", "is not base64 at character 1"},
      {"", "does not fit"},
      {"AAAAAA==", "does not fit"},
      {"/////w==", "does not fit"},
      {"BAAAAAAAAAD/", "not UTF-8"},
  };
  for (const auto& [base64, expected] : cases) {
    const auto table = Precompiled::create(base64);
    ASSERT_FALSE(table) << base64;
    EXPECT_NE(table.error().to_string().find(expected), std::string::npos) << table.error().to_string();
  }
  EXPECT_EQ(*Precompiled::create("BAAAAAAAAAAA")->apply("caf\u00e9\r\n"), "caf\u00e9\r\n");
}

Result<Tokenizer> with(const char* normalizer, const char* pre_tokenizer) {
  return Tokenizer::from_json(std::string(R"({"model":{"type":"Unigram","unk_id":0,"vocab":[["<unk>",0],["a",-1]]},)") +
                              R"("decoder":{"type":"Metaspace","replacement":"_"},"normalizer":)" + normalizer +
                              R"(,"pre_tokenizer":)" + pre_tokenizer + "}");
}

// Clusters of six bytes and more are looked up by characters: what a letter and its accent become shows where they end.
TEST(Precompiled, joins_every_character_with_its_neighbours_as_hf_tokenizers_does) {
  const Json file = *parse_json(*read_file(kUnigramGolden / "t5/tokenizer.json"));
  std::string base64;
  for (const Json& step : file["normalizer"]["normalizers"])
    if (step["type"] == "Precompiled") base64 = step["precompiled_charsmap"].get<std::string>();
  const auto table = *Precompiled::create(base64);
  const Json golden = *parse_json(*read_file(kUnigramGolden / "joined-characters.json"));
  std::vector<bool> behind(0x110000, false), before(0x110000, false);
  for (auto& [name, found] : {std::pair("behind", &behind), std::pair("before", &before)})
    for (const Json& range : golden[name])
      std::fill_n(found->begin() + range[0].get<int>(), range[1].get<int>() - range[0].get<int>() + 1, true);
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    if (c >= 0x40000 && (c & 0xffff) >= 0x1000 && c % 256 != 0) continue;  // no characters there
    std::string character;
    append_utf8(c, character);
    const auto apart = [&](const std::string& text) { return table.apply(text)->find("é") == std::string::npos; };
    EXPECT_EQ(apart("e\u0301" + character), behind[c]) << fmt::format("U+{:04X}", static_cast<uint32_t>(c));
    EXPECT_EQ(apart(character + "e\u0301"), before[c]) << fmt::format("U+{:04X}", static_cast<uint32_t>(c));
  }
}

TEST(Tokenizer, metaspace_that_would_not_be_that_of_hf_is_refused) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"null", R"({"type":"Metaspace","replacement":"ab"})", "not one character"},
      {"null", R"({"type":"Metaspace","replacement":"_","prepend_scheme":"odd"})", "prepend_scheme \"odd\""},
      {"null", R"({"type":"Metaspace","replacement":"_","add_prefix_space":false})", "add_prefix_space is false"},
      {"null",
       R"({"type":"Sequence","pretokenizers":[{"type":"Metaspace","replacement":"_"},{"type":"WhitespaceSplit"}]})",
       "WhitespaceSplit after Metaspace"},
      {R"({"type":"Strip","strip_left":true,"strip_right":true})",
       R"({"type":"Metaspace","replacement":"_","prepend_scheme":"first"})", "prepend_scheme first"},
      {R"({"type":"Replace","pattern":{"Regex":"x*"},"content":""})", R"({"type":"Metaspace","replacement":"_"})",
       "matches nothing"},
  };
  for (const auto& [normalizer, pre_tokenizer, expected] : cases) {
    const auto tokenizer = with(normalizer, pre_tokenizer);
    ASSERT_FALSE(tokenizer) << pre_tokenizer;
    EXPECT_NE(tokenizer.error().to_string().find(expected), std::string::npos) << tokenizer.error().to_string();
  }
}

TEST(Tokenizer, with_unigram_says_where_tokens_end) {
  for (const char* family :
       {"t5", "xlm-roberta", "albert", "metaspace-first", "metaspace-never", "llama2", "llama2-unigram"}) {
    const auto tokenizer = *Tokenizer::load(kUnigramGolden / family);
    const std::string text = "the value of a list";
    const Encoded encoded = *tokenizer.encode_with_ends(text);
    EXPECT_EQ(encoded.ids, *tokenizer.encode(text));
    ASSERT_EQ(encoded.ends.size(), encoded.ids.size());
    EXPECT_EQ(encoded.ends.back(), text.size());
    EXPECT_TRUE(std::is_sorted(encoded.ends.begin(), encoded.ends.end())) << family;
  }
}

// What a normalizer puts before the text moved the end of every token by that much for each character before it.
TEST(Tokenizer, ends_behind_a_prepended_mark_are_those_of_the_text) {
  const std::string text = "the  value\n\nof \u00e9 \u6f22\u5b57 \U0001F642x";
  for (const char* family : {"llama2", "llama2-unigram"}) {
    const auto tokenizer = *Tokenizer::load(kUnigramGolden / family);
    const Encoded encoded = *tokenizer.encode_with_ends(text);
    for (size_t i = 0; i < encoded.ids.size(); ++i) {
      const std::string up_to = tokenizer.decode({encoded.ids.data(), i + 1});
      if (up_to.find("\ufffd") != std::string::npos) continue;  // ends within a character
      EXPECT_EQ(up_to, text.substr(0, encoded.ends[i])) << family << " " << i;
    }
    EXPECT_EQ(encoded.ends.back(), text.size()) << family;
  }
}

}  // namespace
}  // namespace tandem::model
