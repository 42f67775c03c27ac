#include "base/yaml.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Yaml, one_document_is_read_with_or_without_its_marks) {
  EXPECT_EQ(load_yaml("a: 1\n")["a"].as<int>(), 1);
  EXPECT_EQ(load_yaml("--- # first\na: 1\n...\n")["a"].as<int>(), 1);
  EXPECT_EQ(load_yaml("a: 1\n---\n")["a"].as<int>(), 1);
  EXPECT_TRUE(load_yaml("").IsNull());
  EXPECT_TRUE(load_yaml("# nothing\n").IsNull());
}

TEST(Yaml, a_second_document_is_an_error_at_its_place) {
  try {
    load_yaml("a: 1\n---\nb: 2\n");
    FAIL() << "the second document was passed over";
  } catch (const YAML::Exception& error) {
    EXPECT_EQ(error.mark.line, 2);
  }
}

// Asked for documents, yaml-cpp finds one after another where such a text begins, and never comes to its end.
TEST(Yaml, a_quote_without_an_end_is_an_error_at_its_place) {
  for (const char* text : {"a: 1\nb: \"x\nc: 2\n", "a: 1\nb: 'it''s\n",
                           "\xef\xbb\xbf"
                           "a: 1\r\nb: \"x\\\"\r\n",
                           "é: 1\nb: [1, \"x\n", "a: 1\nb: !!str \"x\nc: 2\n", "a: 1\nb: &a \"x\n",
                           "a: !x # \"\n  \"x\n", "a: !\n  'x\nc: 2\n", "- &a !!str # it's\n- ! \"x\n"}) {
    try {
      load_yaml(text);
      ADD_FAILURE() << text;
    } catch (const YAML::ParserException& error) {
      EXPECT_EQ(error.mark.line, 1) << text;
      EXPECT_EQ(error.msg, "this quote has no end") << text;
    }
  }
  const auto root = load_yaml(
      "\xef\xbb\xbf"
      "é: \"a\\\"b\\\\\"\r\n'c''d': ''\n\"e\": |\n  \"\nf: &x \"g\"\nh: *x\ni: it's\n");
  EXPECT_EQ(root["é"].as<std::string>(), "a\"b\\");
  EXPECT_EQ(root["c'd"].as<std::string>(), "");
  EXPECT_EQ(root["e"].as<std::string>(), "\"\n");
  EXPECT_EQ(root["h"].as<std::string>(), "g");
  EXPECT_EQ(root["i"].as<std::string>(), "it's");
  const auto tagged = load_yaml("a: !!str\n\"b\": !!str |\n  \"\nc: !x # \"\nd: &y it's\ne: !!str \"f\"\n");
  EXPECT_EQ(tagged["b"].as<std::string>(), "\"\n");
  EXPECT_EQ(tagged["d"].as<std::string>(), "it's");
  EXPECT_EQ(tagged["e"].as<std::string>(), "f");
}

TEST(Yaml, the_place_of_a_quote_without_an_end_is_the_same_behind_a_tag) {
  try {
    load_yaml("run:\n  dir: !!str \"runs/x\n");
    FAIL() << "was passed over";
  } catch (const YAML::ParserException& error) {
    EXPECT_EQ(error.mark.line, 1);
    EXPECT_EQ(error.mark.column, 13);
  }
}

TEST(Yaml, a_quote_without_an_end_is_an_error_in_utf_16) {
  const auto in_utf16 = [](std::u16string_view text, bool big) {
    std::string bytes;
    const auto units = std::u16string(u"\ufeff").append(text);
    for (const char16_t unit : units) {
      const char high = static_cast<char>(unit >> 8), low = static_cast<char>(unit & 0xff);
      bytes += big ? high : low;
      bytes += big ? low : high;
    }
    return bytes;
  };
  for (const bool big : {false, true}) {
    EXPECT_EQ(load_yaml(in_utf16(u"é: \"\U0001F600\"\n", big))["é"].as<std::string>(), "\U0001F600");
    try {
      load_yaml(in_utf16(u"é: 1\nb: \"x\n", big));
      ADD_FAILURE() << big;
    } catch (const YAML::ParserException& error) {
      EXPECT_EQ(error.mark.line, 1);
      EXPECT_EQ(error.msg, "this quote has no end");
    }
  }
}

TEST(Yaml, a_text_that_begins_with_a_comma_is_refused_and_does_not_go_on_for_ever) {
  for (const char* text : {",", ",.\x01", "--- ,", "a: 1\n...\n,"})
    EXPECT_THROW(load_yaml(text), YAML::Exception) << text;
}

}  // namespace
}  // namespace tandem
