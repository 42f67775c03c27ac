#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

template <typename Text>
concept CanBeSplit = requires(Text text) {
  split(std::forward<Text>(text), ' ');
};

TEST(Text, parts_are_between_separators_and_may_be_empty) {
  EXPECT_THAT(split("a,b,,c,", ','), testing::ElementsAre("a", "b", "", "c", ""));
  EXPECT_THAT(split("", ','), testing::ElementsAre(""));
}

TEST(Text, parts_cannot_be_of_a_string_that_they_outlive) {
  EXPECT_FALSE(CanBeSplit<std::string>);
  EXPECT_TRUE(CanBeSplit<std::string&>);
  EXPECT_TRUE(CanBeSplit<const std::string&>);
  EXPECT_TRUE(CanBeSplit<std::string_view>);
  EXPECT_TRUE(CanBeSplit<const char*>);
}

TEST(Text, trimming_leaves_what_is_inside) {
  EXPECT_EQ(trim(" \t a b\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

}  // namespace
}  // namespace tandem
