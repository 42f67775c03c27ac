#include "serve/fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "serve/endpoints.h"
#include "serve/openapi.h"

namespace tandem::serve {
namespace {

using testing::HasSubstr;

constexpr FieldRow kRows[] = {
    {"count", Effect::kTakes, R"({"type":"integer","minimum":0,"maximum":20})", "How many."},
    {"name", Effect::kTakes, R"({"type":["string","array"],"maxLength":3})", ""},
    {"mode", Effect::kTakes, R"({"enum":["a","b"]})", ""},
    {"beam", Effect::kRefused, R"({"enum":[false]})", "There is none."},
    {"user", Effect::kIgnored, R"({"type":"string"})", ""},
};
FieldTable table() { return FieldTable({kRows}); }

TEST(Fields, values_are_checked_and_null_is_missing) {
  Fields fields;
  ASSERT_TRUE(fields.read(table(), R"({"count":3,"name":"x","mode":null,"user":"me","beam":false})"));
  EXPECT_EQ(fields.integer("count", 0), 3);
  EXPECT_EQ(fields.text("name"), "x");
  EXPECT_FALSE(fields.has("mode"));
  EXPECT_EQ(fields.integer("none", 7), 7);
}

TEST(Fields, a_mistake_is_named_with_what_is_accepted) {
  const auto error = [](std::string_view body) {
    Fields fields;
    const Status status = fields.read(table(), body);
    EXPECT_FALSE(status) << body;
    return fields.param() + ": " + status.message();
  };
  EXPECT_THAT(error(R"({"count":21})"), HasSubstr("count: \"count\" must be an integer of 0 to 20, not 21"));
  EXPECT_THAT(error(R"({"count":1.5})"), HasSubstr("must be an integer"));
  EXPECT_THAT(error(R"({"count":true})"), HasSubstr("must be an integer"));
  EXPECT_THAT(error(R"({"count":99999999999999999999})"), HasSubstr("must be an integer"));
  EXPECT_THAT(error(R"({"name":"long"})"), HasSubstr("at most 3 bytes"));
  EXPECT_THAT(error(R"({"mode":"c"})"), HasSubstr(R"(one of "a", "b")"));
  EXPECT_THAT(error(R"({"cuont":1})"), HasSubstr("did you mean \"count\"?"));
  EXPECT_THAT(error(R"({"beam":true})"), HasSubstr("beam: \"beam\" is not supported: leave it out"));
  EXPECT_THAT(error(R"({"count":)"), HasSubstr("no JSON"));
  EXPECT_THAT(error("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(error(std::string(100000, '[')), HasSubstr("no JSON"));
}

TEST(Fields, every_endpoint_names_each_field_once_and_is_described) {
  std::vector<FieldTable> tables;
  const std::vector<Endpoint> endpoints = {chat_endpoint(), completions_endpoint(), generate_endpoint()};
  for (const auto& endpoint : endpoints) tables.emplace_back(endpoint.fields);
  std::vector<DescribedPath> paths;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    std::set<std::string_view> names;
    for (const auto& row : tables[i].rows()) {
      EXPECT_TRUE(names.insert(row.row.name).second) << endpoints[i].path << " " << row.row.name;
      // What is read as an int must fit one.
      if (row.row.effect == Effect::kTakes && row.schema.value("type", Json()) == Json("integer") &&
          row.row.name != "seed") {
        EXPECT_TRUE(row.schema.contains("minimum") && row.schema.contains("maximum")) << row.row.name;
      }
    }
    paths.push_back({endpoints[i].path, "post", endpoints[i].summary, &tables[i], endpoints[i].required});
  }
  const Json document = openapi_document(paths, "1");
  const auto& body = document["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"];
  EXPECT_EQ(body["schema"]["properties"]["top_p"]["maximum"], Json(1));
}

}  // namespace
}  // namespace tandem::serve
