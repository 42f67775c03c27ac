#include "envs/tasks/references.h"

#include <gtest/gtest.h>

#include <map>

namespace tandem::envs {
namespace {

std::string replaced_in(std::string_view text, const ReferenceRules& rules) {
  static const std::map<std::string, std::string, std::less<>> values = {{"A", "1"}, {"B", "x$y"}, {"E", ""}};
  const auto replaced = without_references(text, rules, [&](std::string_view name) {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  });
  return replaced ? *replaced : "error: " + replaced.error().message();
}

TEST(References, are_replaced_as_docker_and_compose_replace_them) {
  const std::pair<const char*, const char*> cases[] = {
      {"$A/${A}x$A", "1/1x1"},
      {"${N:-c}${N-c}${E:-c}${E-c}", "ccc"},
      {"[${A:+set}${N:+set}${E:+set}${E+set}]", "[setset]"},
      {"${N:-${N:-$A}}}", "1}"},
      {"${A:?why}${N-}", "1"},
      {"$N|${N}", "|"},
      {"${N:?why $A}", "error: N is not set: why 1"},
      {"${E:?}", "error: E is not set"},
      {"a${A", "error: ${A has no end"},
      {"${A%x}", "error: ${A%x} is not supported"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_EQ(replaced_in(text, {.escape = '\\', .unset = Unset::kEmpty}), expected) << text;
    EXPECT_EQ(replaced_in(text, {.escape = '$', .unset = Unset::kEmpty}), expected) << text;
  }
  EXPECT_EQ(replaced_in("\\$A $$A $12b $ $", {.escape = '\\', .unset = Unset::kEmpty}), "$A A b $ $");
  EXPECT_EQ(replaced_in("${}", {.escape = '\\', .unset = Unset::kEmpty}), "error: ${} is not supported");
  EXPECT_EQ(replaced_in("\\\\$A\\$A", {.escape = '\\', .unset = Unset::kEmpty, .escapes_itself = true}), "\\1$A");
  EXPECT_EQ(replaced_in("\\$A $$A ${N:-$${}", {.escape = '$', .unset = Unset::kEmpty}), "\\1 $A ${");
  EXPECT_EQ(replaced_in("x$N", {.escape = '$', .unset = Unset::kRefused}), "error: N is not set");
  EXPECT_EQ(replaced_in("x${N:-y}", {.escape = '$', .unset = Unset::kRefused}), "xy");
}

TEST(References, a_dollar_that_begins_none_is_an_error_of_compose) {
  for (const char* text : {"$", "$ a", "$1", "${1x:-ok}", "${}", "a$-"}) {
    EXPECT_EQ(replaced_in(std::string("x") + text, {.escape = '$', .unset = Unset::kEmpty}),
              std::string("error: invalid interpolation format: ") +
                  std::string(text).substr(std::string(text).find('$')) + "; a dollar is written $$")
        << text;
  }
}

TEST(References, those_that_are_not_set_are_left_to_a_shell) {
  const ReferenceRules rules = {.escape = '\\', .unset = Unset::kKept};
  EXPECT_EQ(replaced_in("$A:$PATH:${PATH}:${PATH:-$A}:${X%$A}:\\$A:$B", rules),
            "1:$PATH:${PATH}:${PATH:-1}:${X%$A}:\\$A:x\\$y");
}

TEST(References, within_each_other_without_end_are_an_error) {
  std::string text = "x";
  for (int i = 0; i < 1000; ++i) text = "${N:-" + text + "}";
  EXPECT_EQ(replaced_in(text, {.escape = '$', .unset = Unset::kEmpty}),
            "error: its references are too deep in each other");
}

}  // namespace
}  // namespace tandem::envs
