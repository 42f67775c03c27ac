#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/byte_size.h"

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

TEST(ByteSizeTest, bytes_are_read_with_their_units_and_all_else_is_refused) {
  for (const auto& [text, bytes] : {std::pair("4096", uint64_t{4096}), std::pair("20GB", uint64_t{20'000'000'000}),
                                    std::pair("512 MiB", uint64_t{512} << 20), std::pair("1.5k", uint64_t{1500}),
                                    std::pair("2tib", uint64_t{2} << 40), std::pair("0", uint64_t{0})}) {
    const auto read = bytes_from(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(*read, bytes) << text;
  }
  for (const char* text : {"", "GB", "20 XB", "-1GB", "nan", "inf", "1e30", "20GBs", "20mi i", "5 iB"})
    EXPECT_FALSE(bytes_from(text)) << text;
}

}  // namespace
}  // namespace tandem
