// Texts under a grammar: which are let through, by jsonschema's word (tests/golden/make_constraints.py), and which
// tokens a mask has, by following every token alone.
#include "model/constraint/constraint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "model/constraint/matcher.h"
#include "tests/repetitions.h"

namespace tandem::model::constraint {
namespace {

const fs::path kGolden = fs::path(TANDEM_SOURCE_DIR) / "tests/golden";

std::vector<Json> cases() {
  std::vector<Json> lines;
  const std::string text = *read_file(kGolden / "constraints/cases.jsonl");
  for (const auto line : split(text, '\n'))
    if (!line.empty()) lines.push_back(*parse_json(line));
  return lines;
}

// All bytes, and what tokenizers make of JSON: quotes and brackets joined with what is around them, words, white space.
std::shared_ptr<const Vocabulary> vocabulary() {
  static const auto made = [] {
    std::vector<std::string> tokens = {"", "<|end|>"};
    tokens[1].clear();  // special tokens have no bytes here
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* token : {"{\"",
                              "\":",
                              "\": ",
                              "\":\"",
                              "\": \"",
                              "\",",
                              "\", ",
                              "\",\"",
                              "\", \"",
                              "\"}",
                              "\"}}",
                              "\"]",
                              "],",
                              "},",
                              "}}",
                              "]]",
                              "}]",
                              "[[",
                              "{{",
                              "[{",
                              "{}",
                              "[]",
                              "\"a",
                              "a\"",
                              "\"a\"",
                              "\"a\":",
                              "a\":",
                              "ab",
                              "abc",
                              "b\":",
                              "name",
                              "age",
                              "\"name\"",
                              "  ",
                              "    ",
                              "\n  ",
                              "\n\n",
                              ",\n",
                              ":\n",
                              "12",
                              "123",
                              "100",
                              "00",
                              "-1",
                              "0.",
                              ".5",
                              "e-",
                              "1e",
                              "true",
                              "false",
                              "null",
                              "tr",
                              "ue",
                              "nul",
                              "\\n",
                              "\\\"",
                              "\\u",
                              "\\u00",
                              "\\\\",
                              "é",
                              "中",
                              "文",
                              "\xe4",
                              "\xe4\xb8",
                              "\xad\xe6",
                              "😀",
                              "\xf0\x9f",
                              "1,",
                              "1}",
                              "1]",
                              "1, ",
                              "2\":",
                              "\"x\":1,\"",
                              "x\",\"y\":",
                              "\"a\":1,\"a\"",
                              "\",\"a\":\"",
                              "kind",
                              "\"name",
                              "\"kind\":\"circle",
                              "2024",
                              "-02",
                              "T1",
                              ":00Z",
                              "_1",
                              "xy",
                              " \"",
                              "\" ",
                              "<tool",
                              "_call>",
                              "<tool_call>",
                              "</tool_call>",
                              ">\n{",
                              "}\n</",
                              "\"arguments\": {",
                              "\"name\": \"",
                              "}\n</tool_call>\n<tool_call>"})
      tokens.emplace_back(token);
    Random random(4);
    while (tokens.size() < 900) {
      std::string token;
      const size_t length = 2 + random.below(6);
      static constexpr char kLetters[] = "abcxyz\"\"{}[],,::  \n01259-.\\ntu_eE";
      for (size_t i = 0; i < length; ++i) token += kLetters[random.below(sizeof kLetters - 1)];
      tokens.push_back(token);
    }
    return *Vocabulary::from_bytes(tokens);
  }();
  return made;
}

std::shared_ptr<const Grammar> compiled(const Json& schema) {
  auto grammar = schema_grammar(schema);
  EXPECT_TRUE(grammar) << (grammar ? "" : grammar.error().to_string()) << " " << schema;
  return grammar ? *grammar : nullptr;
}

bool lets_through(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Matcher matcher(grammar, vocabulary());
  return matcher.accept_text(text).ok() && matcher.complete();
}

std::string refused(const Json& schema) {
  const auto grammar = schema_grammar(schema);
  return grammar ? "" : grammar.error().message();
}

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

// JSON Schema by its text, value by value, to have a second word on texts that no golden file has. It is checked
// against jsonschema's own verdicts below.
class ReferenceValidator {
 public:
  explicit ReferenceValidator(const Json& root) : root_(root) {}
  bool valid(const Json& value) const { return valid(root_, value); }

 private:
  static size_t length(const std::string& text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  }
  static bool same(const Json& a, const Json& b) { return nlohmann::json(a) == nlohmann::json(b); }
  static bool is_type(const std::string& type, const Json& value) {
    if (type == "integer")
      return value.is_number_integer() || (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
    return (type == "null" && value.is_null()) || (type == "boolean" && value.is_boolean()) ||
           (type == "number" && value.is_number()) || (type == "string" && value.is_string()) ||
           (type == "array" && value.is_array()) || (type == "object" && value.is_object());
  }

  bool valid(const Json& schema, const Json& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    for (const auto& [keyword, rule] : schema.items())
      if (!holds(schema, keyword, rule, value)) return false;
    return true;
  }

  bool holds(const Json& schema, const std::string& keyword, const Json& rule, const Json& value) const {
    const auto branch = [&](const Json& s) { return valid(s, value); };
    if (keyword == "type") {
      if (rule.is_string()) return is_type(rule, value);
      return std::any_of(rule.begin(), rule.end(), [&](const Json& t) { return is_type(t, value); });
    }
    if (keyword == "enum") return std::any_of(rule.begin(), rule.end(), [&](const Json& v) { return same(v, value); });
    if (keyword == "const") return same(rule, value);
    if (keyword == "$ref") return valid(root_.at(Json::json_pointer(rule.get<std::string>().substr(1))), value);
    if (keyword == "allOf") return std::all_of(rule.begin(), rule.end(), branch);
    if (keyword == "anyOf") return std::any_of(rule.begin(), rule.end(), branch);
    if (keyword == "oneOf") return std::count_if(rule.begin(), rule.end(), branch) == 1;
    if (value.is_number()) return number_holds(keyword, rule, value.get<double>());
    if (value.is_string()) return string_holds(keyword, rule, value.get<std::string>());
    if (value.is_array()) return array_holds(schema, keyword, rule, value);
    return !value.is_object() || object_holds(schema, keyword, rule, value);
  }

  static bool number_holds(const std::string& keyword, const Json& rule, double number) {
    if (keyword == "minimum") return number >= rule.get<double>();
    if (keyword == "maximum") return number <= rule.get<double>();
    if (keyword == "exclusiveMinimum") return number > rule.get<double>();
    if (keyword == "exclusiveMaximum") return number < rule.get<double>();
    if (keyword == "multipleOf") return std::fmod(number, rule.get<double>()) == 0;
    return true;
  }

  static bool string_holds(const std::string& keyword, const Json& rule, const std::string& text) {
    if (keyword == "minLength") return length(text) >= rule.get<size_t>();
    if (keyword == "maxLength") return length(text) <= rule.get<size_t>();
    if (keyword == "pattern" && std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; }))
      return std::regex_search(text, std::regex(rule.get<std::string>()));
    return true;
  }

  bool array_holds(const Json& schema, const std::string& keyword, const Json& rule, const Json& value) const {
    if (keyword == "minItems") return value.size() >= rule.get<size_t>();
    if (keyword == "maxItems") return value.size() <= rule.get<size_t>();
    const size_t prefix = schema.contains("prefixItems") ? schema["prefixItems"].size() : 0;
    if (keyword == "prefixItems") {
      for (size_t i = 0; i < std::min(prefix, value.size()); ++i)
        if (!valid(rule[i], value[i])) return false;
    }
    if (keyword == "items") {
      for (size_t i = prefix; i < value.size(); ++i)
        if (!valid(rule, value[i])) return false;
    }
    return true;
  }

  bool object_holds(const Json& schema, const std::string& keyword, const Json& rule, const Json& value) const {
    if (keyword == "minProperties") return value.size() >= rule.get<size_t>();
    if (keyword == "maxProperties") return value.size() <= rule.get<size_t>();
    if (keyword == "required")
      return std::all_of(rule.begin(), rule.end(), [&](const Json& k) { return value.contains(k.get<std::string>()); });
    for (const auto& [name, member] : value.items()) {
      const bool named = schema.contains("properties") && schema["properties"].contains(name);
      if (keyword == "properties" && named && !valid(rule[name], member)) return false;
      if (keyword == "additionalProperties" && !named && !valid(rule, member)) return false;
    }
    return true;
  }

  const Json& root_;
};

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

TEST(Constraint, keywords_that_are_not_implemented_are_refused_by_name_and_place) {
  const struct {
    const char* schema;
    const char* message;
  } items[] = {
      {R"({"properties":{"a":{"not":{}}}})", "the schema at #/properties/a: \"not\" is not implemented"},
      {R"({"items":{"uniqueItems":true}})", "the schema at #/items: \"uniqueItems\" is not implemented"},
      {R"({"patternProperties":{}})", "\"patternProperties\" is not implemented"},
      {R"({"propertyNames":{}})", "\"propertyNames\" is not implemented"},
      {R"({"if":{}})", "\"if\" is not implemented"},
      {R"({"minimun":1})", "\"minimun\" is not implemented; did you mean \"minimum\"?"},
      {R"({"type":"strng"})", "\"type\" is \"strng\""},
      {R"({"type":"string","format":"colour"})", "no format \"colour\""},
      {R"({"type":"string","pattern":"(a)\\1"})", "a back reference at character"},
      {R"-({"type":"string","pattern":"a(?=b)"})-", "look-around"},
      {R"({"type":"string","pattern":"(a"})", "a ( without its )"},
      {R"({"type":"string","pattern":"[b-a]"})", "out of order"},
      {R"({"$ref":"#/$defs/x"})", "which is not there"},
      {R"({"$ref":"https://example.com/x"})", "only places of the same schema"},
      {R"({"$ref":"#"})", "leads back to itself"},
      {R"({"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"}]},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})",
       "leads back to itself"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "branches 0 and 1 of \"oneOf\" may both hold"},
      {R"({"multipleOf":0.1})", "\"multipleOf\" is 0.1"},
      {R"({"minLength":-1})", "\"minLength\" is a whole number from 0 on"},
      {R"({"items":[{}]})", "\"items\" is a list"},
      {R"({"type":"string","minLength":3,"maxLength":2})", "no value satisfies it"},
      {R"({"type":"object","required":["a"],"additionalProperties":false})", "no value satisfies it"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "no value satisfies it"},
      {R"(3)", "a schema is an object, true or false"},
  };
  for (const auto& item : items)
    EXPECT_NE(refused(*parse_json(item.schema)).find(item.message), std::string::npos)
        << item.schema << ": " << refused(*parse_json(item.schema));
}

TEST(Constraint, schemas_that_would_grow_without_end_are_refused_soon) {
  Json alternatives = Json::array();
  for (int i = 0; i < 40; ++i) alternatives.push_back({{"required", Json::array({fmt::format("p{}", i)})}});
  Json product = {{"allOf", Json::array()}};
  for (int i = 0; i < 8; ++i) product["allOf"].push_back({{"anyOf", alternatives}});
  EXPECT_NE(refused(product).find("alternatives"), std::string::npos) << refused(product);

  Json doubling = {{"$defs", Json::object()}, {"$ref", "#/$defs/d0"}};
  for (int i = 0; i < 40; ++i) {
    const Json next = {{"$ref", fmt::format("#/$defs/d{}", i + 1)}};
    doubling["$defs"][fmt::format("d{}", i)] = {{"allOf", Json::array({next, next})}};
  }
  doubling["$defs"]["d40"] = {{"type", "string"}};
  EXPECT_NE(refused(doubling).find("times over"), std::string::npos) << refused(doubling);

  EXPECT_NE(refused({{"type", "string"}, {"pattern", "((((a{100}){100}){100}){100})"}}).find("too large"),
            std::string::npos);
  EXPECT_NE(refused({{"type", "string"}, {"pattern", "((((){10000}){10000}){10000})"}}).find("too large"),
            std::string::npos);
  EXPECT_NE(refused({{"type", "string"}, {"pattern", "(a|b)*a(a|b){30}"}}).find("too large"), std::string::npos);
  EXPECT_NE(refused({{"type", "string"}, {"pattern", std::string(20'000, 'a')}}).find("at most"), std::string::npos);
  EXPECT_NE(refused({{"type", "string"}, {"format", "date"}, {"maxLength", 4'000'000}}).find("too large"),
            std::string::npos);
  EXPECT_TRUE(compiled({{"type", "string"}, {"minLength", 1'000'000}, {"maxLength", 4'000'000'000}}));
  EXPECT_TRUE(compiled({{"type", "array"}, {"minItems", 1'000'000}}));
}

TEST(Constraint, sizes_of_integers_bind_and_other_formats_of_numbers_do_not) {
  const auto small = compiled({{"type", "integer"}, {"format", "int32"}});
  EXPECT_TRUE(lets_through(small, "-2147483648"));
  EXPECT_FALSE(lets_through(small, "2147483648"));
  const auto large = compiled({{"type", "integer"}, {"format", "int64"}});
  EXPECT_TRUE(lets_through(large, "9223372036854775807"));
  EXPECT_FALSE(lets_through(large, "9223372036854775808"));
  EXPECT_TRUE(lets_through(compiled({{"type", "number"}, {"format", "float"}}), "1e99"));
}

TEST(Constraint, nesting_ends_where_parse_json_ends_reading) {
  const auto grammar = compiled(true);
  const std::string open(64, '['), close(64, ']');
  EXPECT_TRUE(lets_through(grammar, open + close));
  EXPECT_TRUE(parse_json(open + close));
  EXPECT_FALSE(lets_through(grammar, "[" + open + close + "]"));
  // A value that needs two levels is not begun on the last one.
  const auto pairs = compiled(*parse_json(
      R"({"$defs":{"l":{"type":"object","properties":{"n":{"$ref":"#/$defs/l"},"a":{"type":"array","minItems":1,)"
      R"("items":{"type":"array"}}},"additionalProperties":false}},"$ref":"#/$defs/l"})"));
  Matcher matcher(pairs, vocabulary());
  for (int i = 0; i < 62; ++i) ASSERT_TRUE(matcher.accept_text("{\"n\":").ok()) << i;
  ASSERT_TRUE(matcher.accept_text("{\"").ok());
  EXPECT_FALSE(matcher.accept_text("a").ok());
  EXPECT_TRUE(matcher.accept_text("n\":{}").ok());
}

TEST(Constraint, white_space_is_any_up_to_a_bound) {
  const auto grammar = compiled(*parse_json(R"({"type":"array"})"));
  EXPECT_TRUE(
      lets_through(grammar, std::string(64, ' ') + "[" + std::string(64, '\n') + "1" + std::string(64, '\t') + "]"));
  for (const char* text : {"%[1]", "[%1]", "[1%]"}) {
    std::string long_text = text;
    long_text.replace(long_text.find('%'), 1, std::string(65, ' '));
    EXPECT_FALSE(lets_through(grammar, long_text)) << text;
  }
  EXPECT_FALSE(lets_through(grammar, "[] "));
}

TEST(Constraint, a_vocabulary_without_some_byte_is_refused) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte)
    if (byte != '{') tokens.emplace_back(1, static_cast<char>(byte));
  const auto made = Vocabulary::from_bytes(tokens);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message().find("byte 0x7B"), std::string::npos) << made.error().message();
}

const char* const kTools =
    R"([{"type":"function","function":{"name":"read","parameters":{"type":"object","properties":{"path":{"type":"string"},)"
    R"("lines":{"$ref":"#/$defs/n"}},"required":["path"],"additionalProperties":false,"$defs":{"n":{"type":"integer"}}}}},)"
    R"({"type":"function","function":{"name":"stop"}}])";

std::shared_ptr<const Grammar> calls(ToolDialect dialect, const Json& choice) {
  auto grammar = tool_grammar(dialect, *parse_json(kTools), choice);
  EXPECT_TRUE(grammar) << (grammar ? "" : grammar.error().to_string());
  return grammar ? *grammar : nullptr;
}

TEST(Constraint, hermes_calls_are_of_the_tools_that_are_offered) {
  const std::string read =
      "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\", \"lines\": 3}}\n</tool_call>";
  const std::string stop = "<tool_call>{\"name\":\"stop\",\"arguments\":{}}</tool_call>";
  const std::string list = "<tool_call>[{\"name\": \"stop\", \"arguments\": {}}]</tool_call>";
  const std::string wrong = "<tool_call>{\"name\":\"read\",\"arguments\":{\"path\":1}}</tool_call>";
  const std::string stranger = "<tool_call>{\"name\":\"write\",\"arguments\":{}}</tool_call>";
  const auto automatic = calls(ToolDialect::kHermes, "auto");
  for (const auto& text : {std::string(), std::string("I <tool_cannot> \xff say."), read, "Let me look. " + read,
                           read + "\n" + stop, stop + list})
    EXPECT_TRUE(lets_through(automatic, text)) << text;
  for (const auto& text :
       {wrong, "x" + wrong, stranger, read + " and then", read + "<tool_call>", std::string("<tool_call>")})
    EXPECT_FALSE(lets_through(automatic, text)) << text;

  const auto required = calls(ToolDialect::kHermes, "required");
  EXPECT_TRUE(lets_through(required, " " + read + "\n" + stop));
  for (const auto& text : {std::string(), std::string("Text."), "Text. " + read, read + "\n"})
    EXPECT_FALSE(lets_through(required, text)) << text;

  const auto named = calls(ToolDialect::kHermes, {{"type", "function"}, {"function", {{"name", "stop"}}}});
  EXPECT_TRUE(lets_through(named, stop));
  EXPECT_TRUE(lets_through(named, list));
  EXPECT_FALSE(lets_through(named, read));
  EXPECT_FALSE(lets_through(named, stop + stop));

  const auto none = calls(ToolDialect::kHermes, "none");
  EXPECT_TRUE(lets_through(none, "Text <tool_call without end"));
  EXPECT_FALSE(lets_through(none, stop));
}

TEST(Constraint, llama_calls_are_the_whole_message) {
  const std::string stop = "{\"name\": \"stop\", \"parameters\": {}}";
  const auto automatic = calls(ToolDialect::kLlama3, "auto");
  for (const auto& text : {std::string(), std::string("Text {."), stop, " " + stop + "; " + stop})
    EXPECT_TRUE(lets_through(automatic, text)) << text;
  for (const auto& text : {std::string("{}"), stop + "x", stop + ";", "Text <|python_tag|>" + stop})
    EXPECT_FALSE(lets_through(automatic, text)) << text;
  EXPECT_FALSE(lets_through(calls(ToolDialect::kLlama3, "required"), "Text"));
  EXPECT_FALSE(lets_through(calls(ToolDialect::kLlama3, "none"), stop));
  EXPECT_TRUE(lets_through(calls(ToolDialect::kLlama3, "none"), "Text " + stop));
}

TEST(Constraint, what_is_let_through_as_calls_is_parsed_as_calls) {
  Random random(3);
  const auto tokens = vocabulary();
  std::vector<uint64_t> mask(tokens->mask_words());
  const auto tools = *parse_json(kTools);
  int called = 0;
  for (const auto dialect : {ToolDialect::kHermes, ToolDialect::kLlama3}) {
    for (const char* choice : {"auto", "required", "none"}) {
      const auto grammar = calls(dialect, choice);
      for (int walk = 0; walk < repetitions(15, 300); ++walk) {
        Matcher matcher(grammar, tokens);
        std::string text;
        for (int step = 0; step < 300; ++step) {
          if (matcher.complete() && random.below(10) == 0) break;
          matcher.mask(mask);
          std::vector<TokenId> allowed, telling;
          for (TokenId t = 0; t < 900; ++t) {
            if ((mask[t / 64] >> (t % 64) & 1) == 0) continue;
            allowed.push_back(t);
            const auto bytes = tokens->bytes_of(t);
            if (bytes == "<tool" || bytes == "_call>" || bytes == "{" || bytes.back() == '}' || bytes.back() == '"')
              telling.push_back(t);
          }
          ASSERT_TRUE(!allowed.empty() || matcher.complete()) << text;
          if (allowed.empty()) break;
          const TokenId token = !telling.empty() && random.below(3) != 0 ? random.pick(telling) : random.pick(allowed);
          text += tokens->bytes_of(token);
          ASSERT_TRUE(matcher.accept(token).ok());
        }
        if (!matcher.complete()) continue;
        const auto parsed = parse_tool_calls(dialect, text);
        EXPECT_TRUE(parsed.errors.empty()) << text << ": " << parsed.errors[0].message;
        EXPECT_TRUE(choice != std::string_view("none") || parsed.calls.empty()) << text;
        EXPECT_TRUE(choice != std::string_view("required") || !parsed.calls.empty()) << text;
        for (const auto& call : parsed.calls) {
          ++called;
          EXPECT_TRUE(call.name == "read" || call.name == "stop") << text;
          EXPECT_TRUE(call.name == "stop" || call.arguments.value("path", Json()).is_string()) << text;
        }
      }
    }
  }
  EXPECT_GT(called, 20);
}

TEST(Constraint, wrong_requests_are_named) {
  const auto message = [](const auto& result) { return result ? std::string() : result.error().message(); };
  const Json tools = *parse_json(kTools);
  EXPECT_NE(message(tool_grammar(ToolDialect::kGlm4, tools, "auto")).find("dialect glm4"), std::string::npos);
  EXPECT_NE(message(tool_grammar(ToolDialect::kHermes, {}, "auto")).find("needs \"tools\""), std::string::npos);
  EXPECT_NE(message(tool_grammar(ToolDialect::kHermes, tools, "maybe")).find("none, auto, required"),
            std::string::npos);
  EXPECT_NE(message(tool_grammar(ToolDialect::kHermes, tools, {{"type", "function"}, {"function", {{"name", "raed"}}}}))
                .find("did you mean \"read\""),
            std::string::npos);
  const auto wrong = *parse_json(R"([{"function":{"name":"f","parameters":{"properties":{"a":{"not":{}}}}}}])");
  EXPECT_NE(message(tool_grammar(ToolDialect::kHermes, wrong, "auto"))
                .find("the parameters of the tool \"f\" at #/properties/a: \"not\" is not implemented"),
            std::string::npos)
      << message(tool_grammar(ToolDialect::kHermes, wrong, "auto"));
  EXPECT_NE(message(response_grammar({{"type", "yaml"}})).find("json_object or text"), std::string::npos);
  EXPECT_NE(message(response_grammar({{"type", "json_schema"}})).find("has no \"schema\""), std::string::npos);
  EXPECT_EQ(*response_grammar({{"type", "text"}}), nullptr);
  EXPECT_FALSE(lets_through(*response_grammar({{"type", "json_object"}}), "[]"));
  EXPECT_TRUE(lets_through(*response_grammar({{"type", "json_object"}}), "{\"a\": [1]}"));
}

}  // namespace
}  // namespace tandem::model::constraint
