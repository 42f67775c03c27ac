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

}  // namespace
}  // namespace tandem::model
