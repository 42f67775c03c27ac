// Values by schemas: verdicts of Python's jsonschema, and what is said of what is wrong.
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/text.h"
#include "model/constraint/validator.h"

namespace tandem::model::constraint {
namespace {

TEST(SchemaValidator, verdicts_are_those_of_jsonschema) {
  size_t count = 0;
  const std::string all = *read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/golden/constraints/cases.jsonl");
  for (const auto line : split(all, '\n')) {
    if (line.empty()) continue;
    const Json item = *parse_json(line);
    for (const bool valid : {true, false}) {
      for (const Json& text : item[valid ? "valid" : "invalid"]) {
        const auto value = parse_json(text.get<std::string>());
        if (!value) continue;
        const auto errors = schema_errors(item["schema"], *value);
        ASSERT_TRUE(errors) << item["schema"] << errors.error().message();
        EXPECT_EQ(errors->empty(), valid) << item["schema"] << " of " << *value;
        ++count;
      }
    }
  }
  EXPECT_GT(count, 1000u);
}

TEST(SchemaValidator, what_is_wrong_is_told_with_its_place) {
  const struct {
    const char *schema, *value, *error;
  } cases[] = {
      {R"({"type":"object","properties":{"a":{"type":"integer"}}})", R"({"a":1.5})",
       "/a: 1.5 is not of the type integer"},
      {R"({"required":["b"]})", R"({"a":1})", "the value: \"b\" is missing"},
      {R"({"additionalProperties":false,"patternProperties":{"^x":{"minimum":2}}})", R"({"x1":1,"y":2})",
       "\"y\" is not allowed"},
      {R"({"patternProperties":{"^x":{"minimum":2}}})", R"({"x1":1})", "/x1: 1 is not within \"minimum\" 2"},
      {R"({"items":{"enum":["a",1]}})", R"(["a",1.0,"b"])", "/2: \"b\" is not one of"},
      {R"({"const":12345678901234567890123})", "12345678901234567890124", "it is not 12345678901234567890123"},
      {R"({"uniqueItems":true})", "[1,1.0]", "1.0 stands twice"},
      {R"({"contains":{"type":"string"},"minContains":2})", R"(["a",1])", "1 items are what \"contains\" says"},
      {R"({"not":{"type":"null"}})", "null", "what \"not\" excludes"},
      {R"({"if":{"minimum":5},"then":{"multipleOf":5}})", "7", "7 is no multiple of 5"},
      {R"({"oneOf":[{"type":"integer"},{"minimum":3}]})", "4", "2 of the 2 branches of \"oneOf\""},
      {R"({"dependentRequired":{"a":["b"]}})", R"({"a":1})", "\"b\" is missing beside \"a\""},
      {R"({"type":"string","format":"date"})", "\"2026-02-30\"", "not of the format date"},
      {R"({"maxLength":2})", "\"\u00e9\u00e9\u00e9\"", "3 characters are not within"},
      {R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/n"}}}})", "[[],[1]]",
       "/1/0: 1 is not"},
  };
  for (const auto& item : cases) {
    const auto errors = schema_errors(*parse_json(item.schema), *parse_json(item.value));
    ASSERT_TRUE(errors) << item.schema << errors.error().message();
    const std::string all = join(*errors, "; ");
    EXPECT_NE(all.find(item.error), std::string::npos) << item.schema << ": " << all;
  }
  for (const auto& [schema, value] : {std::pair(R"({"type":"integer"})", "1.0"),
                                      std::pair(R"({"const":12345678901234567890123})", "12345678901234567890123"),
                                      std::pair(R"({"type":"string","format":"colour","x-y":1})", "\"red\""),
                                      std::pair(R"({"type":"string","nullable":true})", "null")})
    EXPECT_TRUE(schema_errors(*parse_json(schema), *parse_json(value))->empty()) << schema;
}

TEST(SchemaValidator, a_schema_that_cannot_be_followed_is_refused) {
  for (const char* schema : {R"({"$ref":"https://x"})", R"({"$ref":"#/a"})", R"({"$ref":"#"})", "3", R"({"allOf":3})",
                             R"({"unevaluatedProperties":false})", R"({"pattern":"(a)\\1"})"})
    EXPECT_FALSE(schema_errors(*parse_json(schema), *parse_json("\"x\""))) << schema;
}

TEST(SchemaValidator, multiples_of_whole_numbers_are_exact) {
  const auto valid = [](const char* schema, const char* value) {
    return schema_errors(*parse_json(schema), *parse_json(value))->empty();
  };
  EXPECT_TRUE(valid(R"({"multipleOf":3})", "12345678901234567890123"));
  EXPECT_FALSE(valid(R"({"multipleOf":3})", "12345678901234567890124"));
  EXPECT_FALSE(valid(R"({"multipleOf":10})", "9007199254740993"));
  EXPECT_FALSE(valid(R"({"multipleOf":12345678901234567890123})", "12345678901234567890124"));
  EXPECT_TRUE(valid(R"({"multipleOf":12345678901234567890123})", "-24691357802469135780246"));
  EXPECT_TRUE(valid(R"({"multipleOf":7})", "18446744073709551614"));
  EXPECT_TRUE(valid(R"({"multipleOf":0.5})", "1.5"));
  EXPECT_FALSE(valid(R"({"multipleOf":2})", "1.5"));
}

TEST(SchemaValidator, a_constraint_of_the_wrong_form_is_refused_by_name_wherever_it_stands) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"minimum":"3"})", "#: \"minimum\" is a number"},
      {R"({"exclusiveMaximum":true})", "\"exclusiveMaximum\" is a number"},
      {R"({"multipleOf":0})", "\"multipleOf\" is a number above 0"},
      {R"({"properties":{"a":{"maxLength":-1}}})", "#/properties/a: \"maxLength\" is a whole number"},
      {R"({"items":{"minItems":1.5}})", "#/items: \"minItems\""},
      {R"({"anyOf":[{},{"required":"a"}]})", "#/anyOf/1: \"required\" is a list of names"},
      {R"({"$ref":"#/$defs/n","$defs":{"n":{"pattern":3}}})", "#/$defs/n: \"pattern\" is a text"},
      {R"({"type":"text"})", "\"type\" is one of"},
      {R"({"uniqueItems":"yes"})", "\"uniqueItems\" is true or false"},
      {R"({"properties":[]})", "\"properties\" is an object"},
      {R"({"additionalProperties":"no"})", "#/additionalProperties: a schema is"},
      {R"({"enum":"a"})", "\"enum\" is a list"},
  };
  for (const auto& [schema, message] : cases) {
    const auto errors = schema_errors(*parse_json(schema), *parse_json("null"));
    ASSERT_FALSE(errors) << schema;
    EXPECT_NE(errors.error().message().find(message), std::string::npos) << errors.error().message();
  }
  // What nothing is judged by may hold anything.
  const char* const unused = R"({"default":{"minimum":"3"},"enum":[null,{"minimum":"3"}],"x-own":{"type":3}})";
  EXPECT_TRUE(schema_errors(*parse_json(unused), *parse_json("null"))->empty());
}

}  // namespace
}  // namespace tandem::model::constraint
