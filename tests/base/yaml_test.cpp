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
TEST(Yaml, a_text_that_begins_with_a_comma_is_refused_and_does_not_go_on_for_ever) {
  for (const char* text : {",", ",.\x01", "--- ,", "a: 1\n...\n,"})
    EXPECT_THROW(load_yaml(text), YAML::Exception) << text;
}

}  // namespace
}  // namespace tandem
