// The value against nlohmann's ordered_json, whose text it must give back byte by byte.
#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_line.h"
#include "base/random.h"

namespace tandem {
namespace {

using Theirs = nlohmann::ordered_json;

std::string random_text(Random& random) {
  std::string text;
  for (uint64_t i = random.below(9); i > 0; --i)
    text += std::vector<std::string>{"a", "\"", "\\", "\n", "\x01", "\x7f", "ä", "😀", "/", " "}[random.below(10)];
  return text;
}

Theirs random_value(Random& random, int depth) {
  switch (random.below(depth > 3 ? 6 : 8)) {
    case 0:
      return nullptr;
    case 1:
      return random.chance(0.5);
    case 2:
      return static_cast<int64_t>(random.bits());
    case 3:
      return random.bits();
    case 4:
      return random.normal() * std::pow(10, static_cast<double>(random.between(-30, 30)));
    case 5:
      return random_text(random);
    case 6: {
      Theirs made = Theirs::array();
      for (uint64_t i = random.below(5); i > 0; --i) made.push_back(random_value(random, depth + 1));
      return made;
    }
    default: {
      Theirs made = Theirs::object();
      for (uint64_t i = random.below(30); i > 0; --i) made[random_text(random)] = random_value(random, depth + 1);
      return made;
    }
  }
}

TEST(Json, reads_and_writes_the_text_of_nlohmann) {
  Random random(17);
  for (int round = 0; round < 300; ++round) {
    const Theirs theirs = random_value(random, 0);
    const auto ours = parse_json(theirs.dump());
    ASSERT_TRUE(ours.has_value()) << ours.error().message() << theirs;
    EXPECT_EQ(ours->dump(), theirs.dump());
    EXPECT_EQ(ours->dump(2), theirs.dump(2));
    EXPECT_EQ(ours->dump(1, '\t', true), theirs.dump(1, '\t', true));
    EXPECT_EQ(*ours, Json(*ours)) << "a copy differs";
    EXPECT_EQ(ours->sorted().dump(), nlohmann::json(theirs).dump());
  }
}

TEST(Json, writes_numbers_and_broken_text_as_before) {
  EXPECT_EQ(Json({1.0, 0.1, 1e-5, 1e20, -0.0, 5e-324}).dump(), "[1.0,0.1,1e-05,1e+20,-0.0,5e-324]");
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
  EXPECT_EQ(dump_json("a\xff"), "\"a\xef\xbf\xbd\"");
  EXPECT_THROW(Json("a\xff").dump(), Json::exception);
}

TEST(Json, braces_make_objects_of_pairs_and_arrays_of_all_else) {
  EXPECT_EQ((Json{{"a", 1}, {"b", {2, 3}}}).dump(), R"({"a":1,"b":[2,3]})");
  EXPECT_EQ((Json{{"a", 1}, {"b"}}).dump(), R"([["a",1],["b"]])");
  EXPECT_EQ(Json::array({{"a", 1}}).dump(), R"([["a",1]])");
  EXPECT_EQ((Json{{"a", {{"b", nullptr}}}}).dump(), R"({"a":{"b":null}})");
}

TEST(Json, objects_of_many_keys_keep_their_order_and_find_every_key) {
  Json object;
  for (int i = 0; i < 5000; ++i) object["key " + std::to_string(i * 7919 % 5000)] = i;
  EXPECT_EQ(object.size(), 5000u);
  for (int i = 0; i < 5000; i += 3) EXPECT_EQ(object.erase("key " + std::to_string(i)), 1u);
  int before = -1;
  for (const auto& [key, value] : object.items()) {
    EXPECT_LT(before, value.get<int>());
    before = value.get<int>();
    EXPECT_EQ(object.at(key), value);
  }
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(object.contains("key " + std::to_string(i)), i % 3 != 0) << i;
  EXPECT_FALSE(object.emplace("key 1", 0).second);
  EXPECT_TRUE(object.emplace("key 0", 0).second);
}

TEST(Json, keys_live_as_long_as_their_object) {
  const Json object = {{"a key that is longer than any short string", 1},
                       {"another key that is as long as that one", 2}};
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string_view>{object.begin().key(), (++object.begin()).key()}));
}

TEST(Json, numbers_compare_by_value_and_members_by_order) {
  EXPECT_EQ(Json(1), Json(1u));
  EXPECT_EQ(Json(1), Json(1.0));
  EXPECT_NE(Json(-1), Json(~uint64_t{0}));
  EXPECT_NE(Json(1), Json(true));
  EXPECT_NE(Json({{"a", 1}, {"b", 2}}), Json({{"b", 2}, {"a", 1}}));
}

TEST(Json, whole_numbers_beyond_64_bits_keep_their_digits) {
  const std::string digits = "12345678901234567890123", text = "[" + digits + ",-" + digits + "]";
  Json read = *parse_json(text);
  EXPECT_EQ(dump_json(read), text);
  EXPECT_EQ(Json::parse(text).dump(), text);
  const Json copy = read;
  read = Json();
  EXPECT_TRUE(copy[0].is_number() && copy[0].is_number_digits() && !copy[0].is_number_integer());
  EXPECT_EQ(copy[0].digits(), digits);
  EXPECT_EQ(copy[0].get<double>(), 12345678901234567890123.0);
  EXPECT_EQ(copy[0].get<int64_t>(), INT64_MAX) << "the nearest that there is";
  EXPECT_EQ(copy[1].get<int64_t>(), INT64_MIN);
  EXPECT_EQ(copy[1].get<uint64_t>(), 0u);
  EXPECT_EQ(copy[0], Json::whole_number(digits));
  EXPECT_NE(copy[0], Json::whole_number("12345678901234567890124")) << "which is the same as a double";
  EXPECT_NE(copy[0], copy[1]);
  EXPECT_EQ(copy.sorted(), copy);
  EXPECT_EQ(Json::whole_number("18446744073709551615"), Json(UINT64_MAX));
  EXPECT_NE(Json::whole_number("18446744073709551616"), Json(UINT64_MAX));
  EXPECT_TRUE(Json::whole_number("-7").is_number_integer());
  EXPECT_FALSE(parse_json("1e22")->is_number_digits());
  for (const char* wrong : {"", "-", "01", "1.0", "x"}) EXPECT_THROW((void)Json::whole_number(wrong), Json::exception);
}

TEST(Json, what_is_asked_for_as_something_else_throws_and_says_what_it_is) {
  const Json value = {{"list", {1, 2}}, {"text", "x"}};
  const auto said = [](const auto& ask) -> std::string {
    try {
      (void)ask();
    } catch (const Json::exception& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_EQ(said([&] { return value["text"].get<int>(); }), "type must be number, but is string");
  EXPECT_EQ(said([&] { return value["list"].get<std::string>(); }), "type must be string, but is array");
  EXPECT_EQ(said([&] { return value.at("none"); }), "key 'none' not found");
  EXPECT_EQ(said([&] { return value["list"][2]; }), "array index 2 is out of range");
  EXPECT_EQ(said([&] { return value["text"].at("x"); }), "type must be object, but is string");
}

TEST(Json, numbers_that_python_writes_and_json_has_not_are_named) {
  for (const char* number : {"NaN", "Infinity", "-Infinity"}) {
    const auto read = parse_json(std::string("{\"reward\": ") + number + "}");
    ASSERT_FALSE(read.has_value());
    EXPECT_NE(read.error().message().find(number[0] == 'N' ? "JSON has no NaN" : "JSON has no Infinity"),
              std::string::npos)
        << read.error().to_string();
  }
  EXPECT_EQ(parse_json("Name").error().message().find("NaN"), std::string::npos);
}

TEST(Json, pointers_follow_rfc_6901) {
  const Json value = {{"a/b", {{"m~n", {10, 20}}}}, {"", 3}};
  EXPECT_EQ(value.at(JsonPointer("/a~1b/m~0n/1")), 20);
  EXPECT_EQ(value.at(JsonPointer("/")), 3);
  EXPECT_EQ(value.at(JsonPointer("")), value);
  EXPECT_EQ(JsonPointer("/a~1b/m~0n/1").to_string(), "/a~1b/m~0n/1");
  for (const char* nowhere : {"/a~1b/m~0n/2", "/a~1b/m~0n/01", "/a~1b/m~0n/-", "/x"})
    EXPECT_FALSE(value.contains(JsonPointer(nowhere))) << nowhere;
  for (const char* broken : {"a", "/~", "/~2"}) EXPECT_THROW(JsonPointer{broken}, Json::exception) << broken;
}

TEST(JsonLine, no_reader_takes_what_is_in_it_for_the_end_of_a_line) {
  const Json value = {{"a\u2028b", "c\u2029d\u0085e\nf \u00e9"}};
  const auto line = dump_json_line(value);
  EXPECT_EQ(line, R"({"a\u2028b":"c\u2029d\u0085e\nf )"
                  "\u00e9\"}");
  EXPECT_EQ(*parse_json(line), value);
  EXPECT_EQ(dump_json_line(Json("\\\u2028")), R"("\\\u2028")") << "a backslash before it";
}

}  // namespace
}  // namespace tandem
