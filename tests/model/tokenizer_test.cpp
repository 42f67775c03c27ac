#include "model/tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/random.h"
#include "base/text.h"
#include "base/utf8.h"
#include "model/bert_characters.h"
#include "model/byte_alphabet.h"
#include "model/pre_tokenizer.h"

namespace tandem::model {
namespace {

// RFC 7396: members of `patch` over those of `json`, all the way down.
void merge(Json& json, const Json& patch) {
  for (auto member = patch.begin(); member != patch.end(); ++member) {
    if (member->is_object() && json.contains(member.key()) && json[member.key()].is_object())
      merge(json[member.key()], *member);
    else
      json[member.key()] = *member;
  }
}

const fs::path kTokenizerGolden = fs::path(TANDEM_SOURCE_DIR) / "tests/golden/tokenizers";

Tokenizer load(const fs::path& path) {
  auto tokenizer = Tokenizer::load(path);
  EXPECT_TRUE(tokenizer) << tokenizer.error().to_string();
  return std::move(*tokenizer);
}

std::vector<Json> tokenizer_read_lines(const fs::path& path) {
  const std::string text = *read_file(path);
  std::vector<Json> lines;
  for (const auto line : split(text, '\n')) {
    if (!line.empty()) lines.push_back(*parse_json(line));
  }
  return lines;
}

class FamilyTest : public testing::TestWithParam<const char*> {};

TEST_P(FamilyTest, gives_the_ids_and_the_text_of_hf_tokenizers) {
  const auto tokenizer = load(kTokenizerGolden / GetParam());
  int cases = 0;
  for (const Json& item : tokenizer_read_lines(kTokenizerGolden / GetParam() / "cases.jsonl")) {
    const auto ids = item["ids"].get<std::vector<TokenId>>();
    if (item.contains("text")) {
      const auto text = item["text"].get<std::string>();
      EXPECT_EQ(*tokenizer.encode(text, AddSpecial::kYes), ids) << text;
      EXPECT_EQ(*tokenizer.encode(text), item["plain"].get<std::vector<TokenId>>()) << text;
    }
    EXPECT_EQ(tokenizer.decode(ids), item["decoded"].get<std::string>()) << item["ids"];
    ++cases;
  }
  EXPECT_GT(cases, 200);
}

TEST_P(FamilyTest, a_stream_gives_the_decoded_text_in_whole_characters) {
  const auto tokenizer = load(kTokenizerGolden / GetParam());
  for (const Json& item : tokenizer_read_lines(kTokenizerGolden / GetParam() / "cases.jsonl")) {
    StreamDecoder stream(tokenizer);
    std::string text;
    for (const TokenId id : item["ids"].get<std::vector<TokenId>>()) {
      const std::string out = stream.push(id);
      EXPECT_TRUE(is_valid_utf8(out));
      text += out;
    }
    text += stream.finish();
    EXPECT_EQ(text, item["decoded"].get<std::string>()) << item["ids"];
  }
}

TEST_P(FamilyTest, tokens_end_one_behind_the_other_and_within_the_text) {
  const auto tokenizer = load(kTokenizerGolden / GetParam());
  for (const Json& item : tokenizer_read_lines(kTokenizerGolden / GetParam() / "cases.jsonl")) {
    if (!item.contains("text")) continue;
    const auto text = item["text"].get<std::string>();
    if (!is_valid_utf8(text)) continue;
    const Encoded encoded = *tokenizer.encode_with_ends(text);
    EXPECT_EQ(encoded.ids, item["plain"].get<std::vector<TokenId>>()) << text;
    ASSERT_EQ(encoded.ends.size(), encoded.ids.size());
    EXPECT_TRUE(std::is_sorted(encoded.ends.begin(), encoded.ends.end())) << text;
    EXPECT_LE(encoded.ends.empty() ? 0 : encoded.ends.back(), text.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyTest,
                         testing::Values("gpt2", "roberta", "smollm", "llama3", "qwen2", "flags", "deepseek", "splits",
                                         "llama2", "bert", "bert-cased", "t5", "xlm-roberta", "llama2-unigram",
                                         "albert", "metaspace-first", "metaspace-never"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// The characters of a class, out of its ranges.
std::vector<bool> characters_of(const Json& ranges) {
  std::vector<bool> found(0x110000, false);
  for (const Json& range : ranges) {
    for (int c = range[0].get<int>(); c <= range[1].get<int>(); ++c) found[c] = true;
  }
  return found;
}

TEST(BertCharacters, are_classed_as_hf_tokenizers_does_every_one_of_them) {
  const Json golden = *parse_json(*read_file(kTokenizerGolden / "bert-characters.json"));
  const auto characters = *BertCharacters::create();
  const auto removed = characters_of(golden["removed"]), spaces = characters_of(golden["space"]),
             ideographs = characters_of(golden["ideograph"]), accents = characters_of(golden["accent"]),
             punctuation = characters_of(golden["punctuation"]), separators = characters_of(golden["separator"]);
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    const auto code = fmt::format("U+{:04X}", static_cast<uint32_t>(c));
    EXPECT_EQ(characters->is_removed(c), removed[c]) << code;
    EXPECT_EQ(!characters->is_removed(c) && is_white_space(c), spaces[c]) << code;
    EXPECT_EQ(BertCharacters::is_ideograph(c), ideographs[c]) << code;
    EXPECT_EQ(characters->is_accent(c), accents[c]) << code;
    EXPECT_EQ(characters->is_punctuation(c), punctuation[c]) << code;
    EXPECT_EQ(is_white_space(c), separators[c]) << code;
  }
}

TEST(PreTokenizer, tells_every_character_apart_as_hf_tokenizers_does) {
  struct Case {
    const char *name, *json;
    char around;
    size_t pieces;  // of a character of the class between two of these
  };
  static constexpr Case kCases[] = {
      {"number", R"({"type": "Digits"})", 'a', 3},
      {"word", R"({"type": "Whitespace"})", 'a', 1},
      {"\\w", R"({"type": "Split", "pattern": {"Regex": "\\w"}, "behavior": "Isolated", "invert": false})", '!', 3},
      {"\\d", R"({"type": "Split", "pattern": {"Regex": "\\d"}, "behavior": "Isolated", "invert": false})", '!', 3},
      {"\\P{L}", R"({"type": "Split", "pattern": {"Regex": "\\P{L}"}, "behavior": "Isolated", "invert": false})", 'a',
       3},
  };
  const Json golden = *parse_json(*read_file(kTokenizerGolden / "cut-characters.json"));
  RegexScratch scratch;
  for (const Case& item : kCases) {
    const auto expected = characters_of(golden[item.name]);
    const auto by = *PreTokenizer::from_json(*parse_json(item.json));
    for (char32_t c = 0; c < 0x110000; ++c) {
      if (c >= 0xd800 && c < 0xe000) continue;
      std::string text(1, item.around);
      append_utf8(c, text);
      text += item.around;
      std::vector<std::string_view> pieces;
      ASSERT_TRUE(by.cut(text, scratch, pieces));
      EXPECT_EQ(pieces.size() == item.pieces, expected[c])
          << item.name << fmt::format(" U+{:04X}", static_cast<uint32_t>(c));
    }
  }
}

TEST(Normalizer, lowers_every_character_as_hf_tokenizers_does) {
  const Json golden = *parse_json(*read_file(kTokenizerGolden / "lower-case.json"));
  const auto normalizer = *Normalizer::from_json(*parse_json(R"({"type": "Lowercase"})"));
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string character;
    append_utf8(c, character);
    EXPECT_EQ(*normalizer.apply(character), golden.value(character, character))
        << fmt::format("U+{:04X}", static_cast<uint32_t>(c));
  }
}

// U+111C9 and U+1CF2 have changed sides since then.
TEST(Normalizer, strips_the_marks_of_unicode_9_as_hf_tokenizers_does) {
  const auto normalizer = *Normalizer::from_json(*parse_json(R"({"type": "StripAccents"})"));
  EXPECT_EQ(*normalizer.apply("a\u0301\u1CF2\U000111C8b"), "a\U000111C8b");
  EXPECT_EQ(*normalizer.apply("a\U000111C9\U0001E2ECb"), "a\U000111C9\U0001E2ECb");
}

TEST(Tokenizer, of_word_pieces_says_where_tokens_end_and_what_stands_around_them) {
  const auto tokenizer = load(kTokenizerGolden / "bert");
  const std::string text = "Caf\u00e9 \u4e2d, valued";
  const Encoded encoded = *tokenizer.encode_with_ends(text);
  EXPECT_EQ(encoded.ids, *tokenizer.encode(text));
  EXPECT_EQ(encoded.ends.back(), text.size());
  EXPECT_TRUE(std::is_sorted(encoded.ends.begin(), encoded.ends.end()));
  EXPECT_EQ(tokenizer.special_count(), 2u);
  EXPECT_EQ(tokenizer.with_special(encoded.ids), *tokenizer.encode(text, AddSpecial::kYes));
}

TEST(Tokenizer, truncation_and_padding_of_the_file_are_left_to_the_caller) {
  Json file = *parse_json(*read_file(kTokenizerGolden / "bert/tokenizer.json"));
  file["truncation"] = {{"direction", "Right"}, {"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
  file["padding"] = {{"strategy", {{"Fixed", 9}}}, {"pad_id", 0}, {"pad_type_id", 0}, {"pad_token", "[PAD]"}};
  const auto tokenizer = Tokenizer::from_json(file.dump());
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  EXPECT_EQ(*tokenizer->encode("the value of a list"), *load(kTokenizerGolden / "bert").encode("the value of a list"));
}

TEST(Tokenizer, word_pieces_that_lack_the_unknown_token_are_refused) {
  const auto tokenizer = Tokenizer::from_json(
      R"({"model":{"type":"WordPiece","unk_token":"[UNK]","vocab":{"a":0}},"decoder":{"type":"WordPiece"}})");
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().message(), "model: unk_token [UNK] is not in vocab");
}

TEST(Tokenizer, smollm2_gives_the_ids_of_hf_tokenizers) {
  const fs::path model = fs::path(TANDEM_SOURCE_DIR) / "models/SmolLM2-135M-Instruct";
  if (!fs::exists(model)) GTEST_SKIP() << "run scripts/fetch-model";
  const auto tokenizer = load(model);
  EXPECT_EQ(tokenizer.find("<|im_end|>"), 2);
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_EQ(tokenizer.size(), 49152);
  for (const Json& item : tokenizer_read_lines(kTokenizerGolden / "smollm2-cases.jsonl")) {
    EXPECT_EQ(*tokenizer.encode(item["text"].get<std::string>()), item["ids"].get<std::vector<TokenId>>())
        << item["text"];
  }
}

TEST(Tokenizer, long_words_are_merged_as_short_ones_are) {
  // Beyond some length a heap takes the place of looking at all pairs: both sides of every length must agree, which a
  // word between spaces shows, since merges do not cross the pieces.
  const auto tokenizer = load(kTokenizerGolden / "gpt2");
  Random random(2);
  for (int round = 0; round < 50; ++round) {
    std::string word;
    for (int i = 0; i < 200; ++i) word += static_cast<char>('a' + random.below(4));
    const auto whole = *tokenizer.encode(word);
    EXPECT_EQ(tokenizer.decode(whole), word);
    const auto again = *tokenizer.encode(word + "\n" + word);
    ASSERT_EQ(again.size(), 2 * whole.size() + 1);
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), again.begin()));
  }
}

TEST(Tokenizer, bytes_that_are_not_utf8_count_as_the_replacement_character) {
  const auto tokenizer = load(kTokenizerGolden / "gpt2");
  EXPECT_EQ(*tokenizer.encode("a\xff\xe2\x82z"), *tokenizer.encode("a\xef\xbf\xbd\xef\xbf\xbdz"));
}

TEST(Tokenizer, unknown_ids_are_left_out_of_a_text) {
  const auto tokenizer = load(kTokenizerGolden / "gpt2");
  const std::vector<TokenId> ids = {-1, 1 << 30, tokenizer.size()};
  EXPECT_EQ(tokenizer.decode(ids), "");
  EXPECT_EQ(tokenizer.find("no such token"), std::nullopt);
}

TEST(Tokenizer, may_be_used_from_many_threads) {
  const auto tokenizer = load(kTokenizerGolden / "qwen2");
  const auto lines = tokenizer_read_lines(kTokenizerGolden / "qwen2/cases.jsonl");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (const Json& item : lines) {
        if (!item.contains("text")) continue;
        wrong += *tokenizer.encode(item["text"].get<std::string>(), AddSpecial::kYes) !=
                 item["ids"].get<std::vector<TokenId>>();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Tokenizer, what_would_change_ids_and_is_not_implemented_is_refused_by_name) {
  const Json good = *parse_json(*read_file(kTokenizerGolden / "gpt2/tokenizer.json"));
  const struct {
    const char* patch;
    const char* expected;
  } cases[] = {
      {R"({"model":{"dropout":0.1}})", "dropout"},
      {R"({"model":{"type":"WordLevel"}})", "WordLevel"},
      {R"({"model":{"continuing_subword_prefix":"##"}})", "continuing_subword_prefix"},
      {R"({"model":{"merges":["Q Z nonsense"]}})", "merges[0]"},
      {R"({"model":{"merges":[["zz","qq"]]}})", "merges[0]"},
      {R"({"model":{"merges":7}})", "merges is not a list"},
      {R"({"model":{"vocab":{"!":-1}}})", "id -1"},
      {R"({"model":{"vocab":{"!":99999999999}}})", "id 99999999999"},
      {R"({"model":{"vocab":{"qqq":5}}})", "have the id 5"},
      {R"({"normalizer":{"type":"Odd"}})", "normalizer: type Odd"},
      {R"({"pre_tokenizer":{"type":"Odd"}})", "pre_tokenizer: type Odd"},
      {R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated","invert":false}})",
       "regular expression"},
      {R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"a"},"behavior":"Odd","invert":false}})", "behavior"},
      {R"({"post_processor":{"type":"Odd"}})", "post_processor: type Odd"},
      {R"({"decoder":{"type":"CTC"}})", "decoder"},
      {R"({"added_tokens":[{"id":900}]})", "content"},
  };
  for (const auto& item : cases) {
    Json json = good;
    merge(json, *parse_json(item.patch));
    const auto tokenizer = Tokenizer::from_json(json.dump());
    ASSERT_FALSE(tokenizer) << item.patch;
    EXPECT_NE(tokenizer.error().message().find(item.expected), std::string::npos) << tokenizer.error().message();
  }
  EXPECT_NE(Tokenizer::load("/nowhere").error().to_string().find("/nowhere: has no tokenizer.json"), std::string::npos);
}

// Bytes, then "th", then what is added; as tokenizers 0.23 numbers and cuts it.
Result<Tokenizer> bytes_with(const Json& patch) {
  Json vocabulary = Json::object();
  const auto characters = byte_characters();
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    append_utf8(characters[byte], name);
    vocabulary[name] = byte;
  }
  vocabulary["th"] = 256;
  Json json = {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array({"t h"})}}},
               {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
               {"decoder", {{"type", "ByteLevel"}}}};
  json.update(patch);
  return Tokenizer::from_json(json.dump());
}

TEST(Tokenizer, added_tokens_have_the_ids_of_the_vocabulary_or_the_next_ones_whatever_the_file_says) {
  const auto added = [](const char* tokens) { return *bytes_with({{"added_tokens", *parse_json(tokens)}}); };
  EXPECT_EQ(*added(R"([{"id":257,"content":"th","special":false}])").encode("a th b"),
            (std::vector<TokenId>{97, 32, 256, 32, 98}));
  EXPECT_EQ(*added(R"([{"id":500,"content":"<x>","special":true}])").encode("<x>"), std::vector<TokenId>{257});
  EXPECT_EQ(*added(R"([{"id":300,"content":"<a>","special":true},{"id":256,"content":"<b>","special":true}])")
                 .encode("<a><b>"),
            (std::vector<TokenId>{257, 258}));
  EXPECT_EQ(*added(R"([{"id":258,"content":"a","special":true}])").encode("a"), std::vector<TokenId>{97});
}

TEST(Tokenizer, an_added_token_of_white_space_that_takes_in_what_is_beside_it_is_found_once) {
  const auto tokenizer = *bytes_with({{"added_tokens", Json::array({{{"id", 257},
                                                                     {"content", "  "},
                                                                     {"lstrip", true},
                                                                     {"rstrip", true},
                                                                     {"special", false},
                                                                     {"normalized", false}}})}});
  EXPECT_EQ(*tokenizer.encode("a      b"), (std::vector<TokenId>{97, 257, 98}));
  EXPECT_EQ(*tokenizer.encode("  a  b"), (std::vector<TokenId>{257, 97, 257, 98}));
}

// As tokenizers 0.23: what one processor has added is a text of its own to the next.
TEST(Tokenizer, a_sequence_of_processors_takes_what_one_has_added_for_a_text_beside_it) {
  const Json one = *parse_json(
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"A","type_id":0}},{"Sequence":{"id":"A"}}],)"
      R"("pair":[],"special_tokens":{"A":{"id":"A","ids":[65],"tokens":["A"]}}})");
  const Json pair =
      *parse_json(R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}}],"pair":[{"Sequence":{"id":"B"}},)"
                  R"({"SpecialToken":{"id":"C","type_id":0}},{"Sequence":{"id":"A"}}],)"
                  R"("special_tokens":{"C":{"id":"C","ids":[67,68],"tokens":["C","D"]}}})");
  const Json roberta = {{"type", "RobertaProcessing"}, {"cls", {"<", 60}}, {"sep", {">", 62}}};
  const Json bert = {{"type", "BertProcessing"}, {"cls", {"[", 91}}, {"sep", {"]", 93}}};
  const Json byte_level = {{"type", "ByteLevel"}};
  const auto with = [](const Json& processors) {
    return bytes_with({{"post_processor", {{"type", "Sequence"}, {"processors", processors}}}});
  };
  const struct {
    Json processors;
    std::vector<TokenId> ids;
  } cases[] = {
      {Json::array({byte_level, one}), {65, 120}},
      {Json::array({one, pair}), {120, 67, 68, 65}},
      {Json::array({one, roberta}), {60, 65, 62, 62, 120, 62}},
      {Json::array({one, bert}), {91, 65, 93, 120, 93}},
      {Json::array({roberta, bert}), {91, 60, 120, 62, 93}},
      {Json::array({roberta, one, byte_level}), {65, 60, 120, 62}},
      {Json::array({pair, one, Json({{"type", "Sequence"}, {"processors", Json::array({bert})}})}),
       {91, 65, 93, 120, 93}},
  };
  for (const auto& item : cases) {
    const auto tokenizer = with(item.processors);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    EXPECT_EQ(*tokenizer->encode("x", AddSpecial::kYes), item.ids) << item.processors.dump();
    EXPECT_EQ(*tokenizer->encode("x"), std::vector<TokenId>{120});
  }
  EXPECT_NE(with(Json::array({one, one})).error().message().find("the text is left out"), std::string::npos);
  EXPECT_NE(with(Json::array({one, pair, pair})).error().message().find("more than two parts"), std::string::npos);
}

TEST(Tokenizer, scripts_are_cut_as_by_hf_tokenizers_which_leaves_out_what_stands_before_the_first) {
  const Json scripts = {{"type", "UnicodeScripts"}}, bytes = *parse_json(R"({"type":"ByteLevel","use_regex":false,)"
                                                                         R"("add_prefix_space":false})");
  const auto tokenizer =
      *bytes_with({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Json::array({scripts, bytes})}}}});
  EXPECT_EQ(tokenizer.decode(*tokenizer.encode("  ab")), "ab");
  EXPECT_EQ(tokenizer.encode("   ")->size(), 0U);
  std::vector<std::string_view> pieces;
  RegexScratch scratch;
  const auto cut = [&](std::string_view text) {
    pieces.clear();
    EXPECT_TRUE(PreTokenizer::from_json(scripts)->cut(text, scratch, pieces).ok());
    return pieces;
  };
  EXPECT_EQ(cut("どこで生れ。Yes"), (std::vector<std::string_view>{"どこで生れ", "。", "Yes"}));
  EXPECT_EQ(cut("Apples are りんご 林檎"), (std::vector<std::string_view>{"Apples are ", "りんご 林檎"}));
  EXPECT_EQ(cut("テスト1ー a\u0301д"), (std::vector<std::string_view>{"テスト", "1", "ー ", "a", "\u0301", "д"}));
}

TEST(Tokenizer, patterns_have_the_meaning_that_oniguruma_gives_them) {
  const struct {
    const char *pattern, *text;
    std::vector<TokenId> ids;  // "th" is one token where no cut is between its letters
  } cases[] = {
      {R"(\h+)", "th", {256}},
      {R"(t|h)", "th", {116, 104}},
      {R"([a-z&&[^h]]+)", "th", {116, 104}},
      {R"([a-z&&[a-t]]+)", "uth", {117, 256}},
      {R"([s[t]h]+)", "th", {256}},
      {R"([^a[t]]+)", "th", {116, 104}},
      {R"(t{,2})", "th", {116, 104}},
      {R"((?m:.)t)", "\nth", {10, 116, 104}},
      {R"(t{1,2}+h)", "th", {256}},
      {R"(a(?i)T|h)", "th", {256}},
      {R"(\v)", "t\nh", {116, 10, 104}},
      {R"([\v\n]t)", "t\nth", {116, 10, 116, 104}},
      {R"([\u0074])", "th", {116, 104}},
      {R"((?<first>t))", "th", {116, 104}},
      {R"((?x) t # letter
        )",
       "th",
       {116, 104}},
      {R"([^\W\d])", "th", {116, 104}},
      {R"([[:^punct:]])", "th", {116, 104}},
      {R"(t{1}?)", "th", {116, 104}},
  };
  for (const auto& item : cases) {
    const Json split = {
        {"type", "Split"}, {"pattern", {{"Regex", item.pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const auto tokenizer =
        bytes_with({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}}}});
    ASSERT_TRUE(tokenizer) << item.pattern << tokenizer.error().message();
    EXPECT_EQ(*tokenizer->encode(item.text), item.ids) << item.pattern;
  }
}

// PCRE2 makes something else of these, or nobody has compared.
TEST(Tokenizer, patterns_whose_meaning_is_not_known_to_be_the_same_are_refused_by_name) {
  for (const auto& [pattern, named] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"(\X)", "\\X"},
           {R"(\G.)", "\\G"},
           {R"(a\Kb)", "\\K"},
           {R"(\pL+)", "\\p without braces"},
           {R"(\p{Greek_Extended})", "\\p{Greek_Extended}"},
           {R"([[:alpha:]])", "[:alpha:]"},
           {R"([a&&])", "an empty part of a class"},
           {R"((?~ab))", "(?~"},
           {R"((?W:\w))", "(?W"},
           {R"((?i:stop))", "\"st\" where case does not count"},
           {R"((?i:é))", "beyond ASCII where case does not count"},
           {R"((?i:\p{Lu}))", "\\p{Lu} where case does not count"},
           {R"(\xe9)", "\\x of this kind"},
           {R"(\k<a>)", "\\k"},
           {R"((?(1)a|b))", "(?"},
           {R"(a{3,2})", "{3,2}"},
           {R"((?P<n>a))", "(?P"}}) {
    const Json split = {
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    const auto tokenizer = bytes_with({{"pre_tokenizer", split}});
    ASSERT_FALSE(tokenizer) << pattern;
    EXPECT_NE(tokenizer.error().message().find(named), std::string::npos) << tokenizer.error().message();
  }
}

TEST(Tokenizer, an_expression_that_backtracks_without_end_is_an_error_and_not_a_hang) {
  Json json = *parse_json(*read_file(kTokenizerGolden / "gpt2/tokenizer.json"));
  json["pre_tokenizer"] =
      *parse_json(R"({"type":"Split","pattern":{"Regex":"(a+)+(b+)+(a+)+$|x"},"behavior":"Isolated","invert":false})");
  json["decoder"] = {{"type", "ByteLevel"}};
  const auto tokenizer = Tokenizer::from_json(json.dump());
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  const auto ids = tokenizer->encode(std::string(60, 'a') + std::string(60, 'b') + std::string(60, 'a') + "c");
  EXPECT_TRUE(ids || ids.error().code() == Code::kExhausted);
}

TEST(Tokenizer, damaged_files_give_an_error_or_a_tokenizer_and_never_a_crash) {
  for (const char* family : {"flags", "llama2", "deepseek", "t5", "llama2-unigram"}) {
    const std::string whole = *read_file(kTokenizerGolden / family / "tokenizer.json");
    Random random(derive_seed(11, family));
    for (int round = 0; round < 150; ++round) {
      std::string text = whole;
      if (random.chance(0.2)) text.resize(random.below(text.size()));
      for (uint64_t changes = 1 + random.below(6); changes > 0 && !text.empty(); --changes) {
        text[random.below(text.size())] =
            static_cast<char>(random.pick(std::string_view("0123456789{}[]\",:abcnull truefalse\\")));
      }
      if (const auto tokenizer = Tokenizer::from_json(text)) {
        const auto ids = tokenizer->encode("Hello <mask> Word  café 123\n", AddSpecial::kYes);
        EXPECT_TRUE(!ids || tokenizer->decode(*ids).size() < 100000);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::model
