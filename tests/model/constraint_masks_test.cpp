// Masks over a vocabulary as large and as full of words as those of models, where tokens are looked at many together:
// each must be what following every token alone says.
#include <set>

#include "tests/model/constraint_parts.h"
#include "tests/repetitions.h"

namespace tandem::model::constraint {
namespace {

constexpr size_t kTokens = 24'000;

std::shared_ptr<const Vocabulary> words() {
  static const auto made = [] {
    static constexpr std::array kSyllables = {"a",  "an", "e",  "er", "st", "re", "on", "par", "am",   "et",    "x",
                                              "de", "ad", "fa", "ce", "中", "é",  "ｗ", "A",   "BC",   "0",     "1",
                                              "20", "-",  "_",  ".",  "@",  ":",  "t",  "\\n", "\\\"", "\\u00", "ж"};
    static constexpr std::array kEnds = {"\":", "\",", "\"", "\"}", "\": \"", "\"]", ",",  ":",        "{\"", "\n", "<",
                                         "</",  ">",   "<|", "<｜", "\n</",   "}",   "]}", "\xe4\xb8", "\\",  "\\u"};
    Random random(11);
    std::vector<std::string> tokens;
    std::set<std::string> seen;
    const auto add = [&](std::string token) {
      if (seen.insert(token).second) tokens.push_back(std::move(token));
    };
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    for (size_t spaces = 2; spaces <= 80; ++spaces) add(std::string(spaces, ' '));
    for (int number = 0; number < 1000; ++number) add(std::to_string(number));
    while (tokens.size() < kTokens) {
      std::string token = random.below(3) == 0 ? " " : "";
      if (random.below(16) == 0) token = random.pick(kEnds);
      if (random.below(24) == 0) token = "\"";
      const size_t syllables = 1 + random.below(4);
      for (size_t i = 0; i < syllables; ++i) token += random.pick(kSyllables);
      if (random.below(10) == 0) token += random.pick(kEnds);
      add(std::move(token));
    }
    return *Vocabulary::from_bytes(std::move(tokens));
  }();
  return made;
}

// Texts under the grammar, and at some places of each a share of all tokens.
void compare(const std::shared_ptr<const Grammar>& grammar, uint64_t seed, const std::string& name,
             std::string_view begin = "") {
  const auto vocabulary = words();
  prepare(grammar, vocabulary);
  Random random(seed);
  std::vector<uint64_t> mask(vocabulary->mask_words());
  for (int text = 0; text < repetitions(2, 20); ++text) {
    Matcher matcher(grammar, vocabulary);
    std::string written(begin);
    if (!begin.empty()) {
      ASSERT_TRUE(matcher.accept_text(begin).ok()) << name;
    }
    for (int step = 0; step < 40; ++step) {
      matcher.mask(mask);
      if (random.below(5) == 0) {
        const auto stride = static_cast<TokenId>(repetitions(47, 1));
        for (auto token = static_cast<TokenId>(random.below(stride)); token < static_cast<TokenId>(kTokens);
             token += stride) {
          Matcher alone = matcher;
          ASSERT_EQ((mask[token / 64] >> (token % 64) & 1) != 0, alone.accept(token).ok())
              << name << ": token \"" << vocabulary->bytes_of(token) << "\" behind " << written;
        }
      }
      std::vector<TokenId> allowed, syntax;
      for (TokenId token = 0; token < static_cast<TokenId>(kTokens); ++token) {
        if ((mask[token / 64] >> (token % 64) & 1) == 0) continue;
        allowed.push_back(token);
        if (vocabulary->bytes_of(token).find_first_of("\"<:,{") != std::string_view::npos) syntax.push_back(token);
      }
      if (allowed.empty()) break;
      const TokenId token = !syntax.empty() && random.below(2) == 0 ? random.pick(syntax) : random.pick(allowed);
      written += vocabulary->bytes_of(token);
      ASSERT_TRUE(matcher.accept(token).ok()) << name << ": " << written;
    }
  }
}

TEST(ConstraintMasks, over_many_words_are_what_following_each_token_alone_says) {
  static constexpr std::pair<const char*, const char*> kStrings[] = {
      {"any", R"({"type":"string"})"},
      {"letters alike", R"({"type":"string","pattern":"^[a-z0-9]+(-[a-z0-9]+)*$"})"},
      {"letters apart", R"({"type":"string","pattern":"^(an|par|[st]+e)?[^ax]*$"})"},
      {"hexadecimal", R"({"type":"string","pattern":"^[0-9a-f]*$"})"},
      {"characters behind ASCII apart", R"({"type":"string","pattern":"^[中ж a-z]*$"})"},
      {"lengths", R"({"type":"string","minLength":3,"maxLength":11})"},
      {"pattern with lengths", R"({"type":"string","pattern":"^[a-zé]","maxLength":9})"},
      {"email", R"({"type":"string","format":"email"})"},
      {"date-time", R"({"type":"string","format":"date-time"})"},
      {"number", R"({"type":"number"})"},
      {"bounds", R"({"type":"number","minimum":-3,"maximum":120.5})"},
  };
  for (const auto& [name, schema] : kStrings) {
    const Json list = {{"type", "array"}, {"items", *parse_json(schema)}, {"minItems", 3}};
    compare(compiled(list), 1, name);
    compare(compiled(list), 2, name, name[0] == 'n' || name[0] == 'b' ? "[" : "[\"");
  }
  compare(compiled({{"type", "object"}}), 3, "free JSON");
}

TEST(ConstraintMasks, of_calls_over_many_words_are_what_following_each_token_alone_says) {
  const Json tools = *parse_json(
      R"([{"type":"function","function":{"name":"read","parameters":{"type":"object","properties":{"path":{"type":)"
      R"("string"},"slug":{"type":"string","pattern":"^[a-z-]+$"},"lines":{"type":"integer"},"rest":{"type":"object"}},)"
      R"("required":["path","rest"]}}}])");
  const Json arguments = {{"path", "a<"}, {"slug", "par-et"}, {"lines", 20}, {"rest", {{"x", "<"}}}};
  for (const auto dialect : kToolDialects) {
    const auto grammar = tool_grammar(dialect, tools, "auto");
    ASSERT_TRUE(grammar) << name_of(dialect) << ": " << grammar.error().to_string();
    const std::string call = format_tool_call(dialect, "read", arguments);
    Random random(7);
    for (int i = 0; i < repetitions(4, 40); ++i)
      compare(*grammar, 10 + i, std::string(name_of(dialect)),
              std::string_view(call).substr(0, random.below(call.size())));
  }
}

}  // namespace
}  // namespace tandem::model::constraint
