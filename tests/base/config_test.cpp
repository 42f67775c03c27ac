#include "base/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "base/file.h"

namespace tandem {
namespace {

using testing::HasSubstr;

struct Settings {
  int steps = 10;
  double rate = 0.5;
  std::string name = "a";
  Schema schema() {
    Schema s;
    s.add("run.steps", steps, "Steps", 0, 100);
    s.add("run.rate", rate, "Rate", 0, 1);
    s.add("model.name", name, "Name", {"a", "b"});
    return s;
  }
};

TEST(Config, what_was_resolved_is_read_back) {
  Settings written{.steps = 3, .rate = 0.25, .name = "b"};
  Settings read;
  ASSERT_TRUE(read.schema().apply_resolved(written.schema().resolved()).ok());
  EXPECT_EQ(read.steps, 3);
  EXPECT_EQ(read.rate, 0.25);
  EXPECT_EQ(read.name, "b");
}

TEST(Config, a_number_that_may_be_missing_has_a_value_that_says_so_and_its_limits) {
  std::optional<double> clip;
  Schema s;
  s.add("clip", clip, "Clip; -1: none", 0, 1, -1);
  EXPECT_EQ(s.resolved(), (Json{{"clip", -1.0}}));
  const auto give = [&](std::string override) { return s.read("", std::array{std::move(override)}).message(); };
  EXPECT_EQ(give("clip=0.25"), "");
  EXPECT_EQ(clip, 0.25);
  EXPECT_THAT(give("clip=-0.5"), HasSubstr("-0.5 is outside 0 to 1"));
  EXPECT_EQ(give("clip=-1"), "");
  EXPECT_EQ(clip, std::nullopt);
  ASSERT_TRUE(s.apply_resolved({{"clip", 0.5}}).ok());
  EXPECT_EQ(clip, 0.5);
  ASSERT_TRUE(s.apply_resolved({{"clip", -1}}).ok());
  EXPECT_EQ(clip, std::nullopt);
}

TEST(Config, a_whole_number_may_be_missing_too) {
  std::optional<int> most;
  Schema s;
  s.add("most", most, "Most; -1: the default", 0, 10, -1);
  EXPECT_EQ(dump_json(s.resolved()), R"({"most":-1})");
  const auto give = [&](std::string override) { return s.read("", std::array{std::move(override)}).message(); };
  EXPECT_EQ(give("most=0"), "");
  EXPECT_EQ(most, 0);
  EXPECT_THAT(give("most=-2"), HasSubstr("-2 is outside 0 to 10"));
  EXPECT_THAT(give("most=1.5"), HasSubstr("1.5 is not a whole number"));
  EXPECT_EQ(give("most=-1"), "");
  EXPECT_EQ(most, std::nullopt);
  EXPECT_THAT(dump_json(s.json_schema()), HasSubstr(R"({"const":-1})"));
  ASSERT_TRUE(s.apply_resolved({{"most", 7}}).ok());
  EXPECT_EQ(most, 7);
  ASSERT_TRUE(s.apply_resolved({{"most", -1}}).ok());
  EXPECT_EQ(most, std::nullopt);
}

// A run of an older version can still be looked at and gone on with.
TEST(Config, a_resolved_file_from_before_a_field_was_there_leaves_its_default) {
  Settings read;
  ASSERT_TRUE(read.schema().apply_resolved({{"run", {{"steps", 3}}}, {"gone", {{"since", 1}}}}).ok());
  EXPECT_EQ(read.steps, 3);
  EXPECT_EQ(read.rate, 0.5);
  EXPECT_EQ(read.name, "a");
}

TEST(Config, a_resolved_file_of_another_shape_is_refused) {
  Settings read;
  EXPECT_FALSE(read.schema().apply_resolved(Json::array()).ok());
  EXPECT_THAT(read.schema().apply_resolved({{"run", {{"steps", "three"}}}}).message(), HasSubstr("run.steps"));
  EXPECT_TRUE(read.schema().apply_resolved({{"run", 3}}).ok());
}

TEST(Config, overrides_are_checked_all_at_once) {
  Settings read;
  const std::vector<std::string> overrides = {"run.steps=101", "run.rat=0.1", "model.name=c"};
  const Status status = read.schema().read("", overrides);
  EXPECT_THAT(status.message(), HasSubstr("101"));
  EXPECT_THAT(status.message(), HasSubstr("did you mean"));
  EXPECT_THAT(status.message(), HasSubstr("model.name"));
}

TEST(Config, a_section_that_is_given_one_value_is_told_what_it_has) {
  Settings settings;
  EXPECT_THAT(settings.schema().read("", std::array{std::string("run=5")}).message(),
              HasSubstr("run is a section, and has no value of its own; it has run.rate, run.steps"));
}

TEST(Config, the_environment_of_another_command_is_passed_over_and_of_none_refused) {
  Settings settings;
  ::setenv("TANDEM__OTHER__KEY", "1", 1);
  EXPECT_THAT(settings.schema().read("", {}).message(), HasSubstr("unknown key other.key"));
  EXPECT_TRUE(settings.schema().known_elsewhere({"other.key", "run.steps"}).read("", {}));
  EXPECT_THAT(
      settings.schema().known_elsewhere({"other.key"}).read("", std::array{std::string("other.key=1")}).message(),
      HasSubstr("unknown key other.key"));
  ::unsetenv("TANDEM__OTHER__KEY");
}

TEST(Config, two_variables_of_one_key_are_a_mistake) {
  Settings settings;
  ::setenv("TANDEM__RUN__STEPS", "1", 1);
  ::setenv("TANDEM__run__steps", "2", 1);
  EXPECT_THAT(settings.schema().read("", {}).message(), HasSubstr("run.steps is set by TANDEM__"));
  ::unsetenv("TANDEM__run__steps");
  EXPECT_TRUE(settings.schema().read("", {}));
  ::unsetenv("TANDEM__RUN__STEPS");
}

TEST(Config, text_that_is_no_utf8_is_refused) {
  Settings settings;
  EXPECT_THAT(settings.schema().read("", std::array{std::string("model.name=r\xff")}).message(),
              HasSubstr("not UTF-8"));
}

TEST(Config, what_is_no_file_cannot_be_extended) {
  const fs::path path = fs::temp_directory_path() / ("tandem-extends-" + std::to_string(getpid()) + ".yaml");
  for (const auto& [text, place] :
       {std::pair{"extends:\n- a.yaml:\n- b\n", ":2:3: "}, {"extends:\n- [b]\n", ":2:3: "}}) {
    ASSERT_TRUE(write_file(path, std::string_view(text)));
    Settings read;
    EXPECT_THAT(read.schema().read(path, {}).message(),
                HasSubstr(path.string() + place + "extends: a list of files is expected"));
  }
  fs::remove(path);
}

// What was written, what is expected, an example: for every form that a value may wrongly have.
TEST(Config, a_value_of_another_form_is_told_what_is_expected_with_an_example) {
  std::vector<std::string> weights;
  Settings settings;
  Schema s = settings.schema();
  s.add("reward.weights", weights, "Weights").example("[style=0.5, length=-0.1]");
  const auto file = fs::temp_directory_path() / ("tandem-config-form-" + std::to_string(::getpid()) + ".yaml");
  const auto said_of = [&](const std::string& text) {
    EXPECT_TRUE(write_file(file, text).ok());
    return s.read(file, {}).message();
  };
  const char* const example = "a list of texts, as in weights: [style=0.5, length=-0.1]";
  struct Case {
    const char *text, *place, *found, *expected;
  };
  for (const Case& c :
       {Case{"reward:\n  weights:\n    style: 0.5\n", ":2:3: reward.weights: ", "a map of keys", example},
        Case{"reward:\n  weights: {}\n", ":2:3: reward.weights: ", "a map of keys", example},
        Case{"reward:\n  weights: style\n", ":2:3: reward.weights: ", "one value", example},
        Case{"reward:\n  weights:\n    - style: 0.5\n", ":2:3: reward.weights: ", "a list with a map as item 1",
             example},
        Case{"reward:\n  weights: [a=1, [b]]\n", ":2:3: reward.weights: ", "a list with a list as item 2", example},
        Case{"reward:\n  weights: [a=1, ~]\n", ":2:3: reward.weights: ", "a list with nothing as item 2", example},
        Case{"run:\n  steps: [1, 2]\n", ":2:3: run.steps: ", "a list", "one whole number"},
        Case{"run:\n  steps: {to: 3}\n", ":2:3: run.steps: ", "a map of keys", "one whole number"},
        Case{"model:\n  name: {of: b}\n", ":2:3: model.name: ", "a map of keys", "one text"}}) {
    const std::string said = said_of(c.text);
    EXPECT_THAT(said, HasSubstr(c.place)) << c.text;
    EXPECT_THAT(said, HasSubstr(std::string(c.found) + " was written")) << c.text;
    EXPECT_THAT(said, HasSubstr(c.expected)) << c.text;
  }
  fs::remove(file);
  EXPECT_THAT(s.read("", std::array<std::string, 1>{"reward.weights=[{a: 1}]"}).message(),
              HasSubstr("command line: reward.weights: a list with a map as item 1 was written"));
  EXPECT_EQ(s.json_schema()["properties"]["reward"]["properties"]["weights"]["description"], "Weights");
}

}  // namespace
}  // namespace tandem
