// Schemas that are refused, by name and soon, and the bounds of what is let through.
#include <fmt/format.h>

#include "tests/model/constraint_parts.h"

namespace tandem::model::constraint {
namespace {

TEST(Constraint, keywords_that_are_not_implemented_are_refused_by_name_and_place) {
  const struct {
    const char* schema;
    const char* message;
  } items[] = {
      {R"({"properties":{"a":{"not":{}}}})", "the schema at #/properties/a: \"not\" is not implemented"},
      {R"({"items":{"uniqueItems":true}})", "the schema at #/items: \"uniqueItems\" is not implemented"},
      {R"({"patternProperties":{"^x":{}}})", "\"patternProperties\" is not implemented"},
      {R"({"type":["string","object"],"propertyNames":{"minLength":1}})", "\"propertyNames\" is not implemented"},
      {R"({"if":{},"then":{"const":1}})", "\"if\" is not implemented"},
      {R"({"contains":{"const":1}})", "\"contains\" is not implemented"},
      {R"({"minimun":1})", "\"minimun\" is no keyword; did you mean \"minimum\"?"},
      {R"({"type":"strng"})", "\"type\" is \"strng\""},
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

TEST(Constraint, what_says_nothing_about_values_is_passed_over) {
  for (const char* schema :
       {R"({"type":"integer","x-order":1,"example":3,"propertyOrdering":["a"],"enumNames":["one"],"markdown":true})",
        R"({"type":"string","format":"colour"})",
        R"({"type":"string","patternProperties":{"^x":{}},"uniqueItems":true})",
        R"({"type":"integer","contains":{},"not":false,"if":{}})", R"({"patternProperties":{},"propertyNames":true})"})
    EXPECT_EQ(refused(*parse_json(schema)), "") << schema;
}

TEST(Constraint, uniqueItems_that_is_refused_is_not_offered_instead) {
  const auto words = refused(*parse_json(R"({"type":"array","uniqueItems":true})"));
  EXPECT_NE(words.find("\"uniqueItems\" is not implemented"), std::string::npos) << words;
  EXPECT_EQ(words.find("did you mean"), std::string::npos) << words;
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

}  // namespace
}  // namespace tandem::model::constraint
