#include "envs/tools/glob.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/random.h"

namespace tandem::envs {
namespace {

bool matches(std::string_view pattern, std::string_view path) {
  const auto glob = Glob::parse(pattern);
  EXPECT_TRUE(glob.has_value()) << pattern;
  return glob && glob->matches(path);
}

TEST(Glob, a_star_and_a_question_mark_stay_within_a_name) {
  EXPECT_TRUE(matches("*.py", "a.py"));
  EXPECT_TRUE(matches("*", ".hidden"));
  EXPECT_FALSE(matches("*.py", "src/a.py"));
  EXPECT_TRUE(matches("a?c", "abc"));
  EXPECT_FALSE(matches("a?c", "a/c"));
  EXPECT_TRUE(matches("a*b*c", "aXXbYYc"));
  EXPECT_FALSE(matches("a*b*c", "aXXbYY"));
  EXPECT_TRUE(matches("a**c", "abbc"));
  EXPECT_FALSE(matches("a**c", "a/c"));
}

TEST(Glob, two_stars_stand_for_any_number_of_folders) {
  EXPECT_TRUE(matches("**/a", "a"));
  EXPECT_TRUE(matches("**/a", "b/c/a"));
  EXPECT_FALSE(matches("**/a", "ba"));
  EXPECT_FALSE(matches("**/a", "b/ca"));
  EXPECT_TRUE(matches("src/**/t", "src/t"));
  EXPECT_TRUE(matches("src/**/t", "src/a/b/t"));
  EXPECT_TRUE(matches("src/**", "src/a/b"));
  EXPECT_FALSE(matches("src/**", "lib/a"));
}

TEST(Glob, sets_ranges_alternatives_and_escapes) {
  EXPECT_TRUE(matches("[a-cx]1", "b1"));
  EXPECT_FALSE(matches("[a-cx]1", "d1"));
  EXPECT_TRUE(matches("[!a-c]1", "d1"));
  EXPECT_FALSE(matches("[!a]b", "/b"));
  EXPECT_TRUE(matches("[]]", "]"));
  EXPECT_TRUE(matches("*.{c,h{,pp}}", "a.hpp"));
  EXPECT_TRUE(matches("*.{c,h{,pp}}", "a.h"));
  EXPECT_FALSE(matches("*.{c,h{,pp}}", "a.cpp"));
  EXPECT_TRUE(matches("a\\*", "a*"));
  EXPECT_FALSE(matches("a\\*", "ab"));
}

TEST(Glob, a_pattern_of_stars_does_not_take_for_ever) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  const SystemClock clock;
  const Time start = clock.now();
  EXPECT_FALSE(matches(pattern + "b", std::string(4000, 'a')));
  EXPECT_LT(to_seconds(clock.now() - start), 60) << "a search of all ways takes for ever";
}

TEST(Glob, any_text_is_a_pattern_or_an_error_and_never_a_crash) {
  Random random(8);
  for (int round = 0; round < 20'000; ++round) {
    std::string pattern, path;
    for (uint64_t i = random.below(12); i > 0; --i) pattern += random.pick(std::string_view("ab/*?[]!-{},\\^.\xff"));
    for (uint64_t i = random.below(12); i > 0; --i) path += random.pick(std::string_view("ab/.-\xff"));
    const auto glob = Glob::parse(pattern);
    if (glob) glob->matches(path);
    EXPECT_TRUE(glob || !glob.error().message().empty());
  }
}

TEST(Glob, a_path_without_special_characters_matches_itself_alone) {
  Random random(9);
  for (int round = 0; round < 2'000; ++round) {
    std::string path, other;
    for (uint64_t i = 1 + random.below(8); i > 0; --i) path += random.pick(std::string_view("ab/."));
    for (uint64_t i = 1 + random.below(8); i > 0; --i) other += random.pick(std::string_view("ab/."));
    EXPECT_TRUE(matches(path, path)) << path;
    EXPECT_EQ(matches(path, other), path == other) << path << " " << other;
  }
}

}  // namespace
}  // namespace tandem::envs
