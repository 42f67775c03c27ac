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
                           "é: 1\nb: [1, \"x\n"}) {
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
}

TEST(Yaml, a_text_that_begins_with_a_comma_is_refused_and_does_not_go_on_for_ever) {
  for (const char* text : {",", ",.\x01", "--- ,", "a: 1\n...\n,"})
    EXPECT_THROW(load_yaml(text), YAML::Exception) << text;
}

}  // namespace
}  // namespace tandem
