#include "eval/suite.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>

namespace tandem::eval {
namespace {

using testing::HasSubstr;

class SuiteTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(root()); }
  void TearDown() override { fs::remove_all(root()); }
  static fs::path root() { return fs::temp_directory_path() / ("tandem-suite-test-" + std::to_string(::getpid())); }
  static Result<Suite> read(const std::string& text, const std::vector<std::string>& overrides = {}) {
    std::ofstream(root() / "nightly.yaml") << text;
    return read_suite(root() / "nightly.yaml", overrides);
  }
  static std::string refusal(const std::string& text) {
    const auto suite = read(text);
    EXPECT_FALSE(suite) << text;
    return suite ? "" : suite.error().to_string();
  }
};

TEST_F(SuiteTest, paths_are_relative_to_its_file_and_its_name_is_the_files) {
  const auto suite = read("model: ../models/m\ntasks:\n  path: tasks\n  limit: 3\ngates:\n  min_pass_rate: 0.5\n");
  ASSERT_TRUE(suite) << suite.error().to_string();
  EXPECT_EQ(suite->name, "nightly");
  EXPECT_EQ(suite->model, (root().parent_path() / "models/m").string());
  EXPECT_EQ(suite->tasks.path, (root() / "tasks").string());
  EXPECT_EQ(suite->gates.min_pass_rate, 0.5);
  const auto other = read("model: ../models/m\ntasks: {path: /srv/tasks}\n", {"model=here/m"});
  ASSERT_TRUE(other);
  EXPECT_EQ(other->model, (fs::current_path() / "here/m").string()) << "of the command line";
  EXPECT_EQ(other->tasks.path, "/srv/tasks");
  EXPECT_FALSE(suite->gates.max_cost);
}

TEST_F(SuiteTest, mistakes_are_named_with_their_place_and_what_is_near) {
  EXPECT_THAT(refusal("model: m\nsample: 3\n"),
              HasSubstr("nightly.yaml:2:1: unknown key sample; did you mean samples?"));
  EXPECT_THAT(refusal("model: m\ngates:\n  min_passrate: 1\n"), HasSubstr("did you mean gates.min_pass_rate?"));
  EXPECT_THAT(refusal("model: m\ngates: {max_regression_points: 5}\n"), HasSubstr("5 is outside 0 to 1"));
  EXPECT_THAT(refusal("model: m\ngates: {max_grwth: 0.5}\n"), HasSubstr("did you mean gates.max_growth?"));
  EXPECT_THAT(refusal("model: m\ngates: {max_growth: much}\n"), HasSubstr("gates.max_growth"));
  EXPECT_THAT(refusal("model: m\ngates: {max_tests_touched_increase: 5}\n"), HasSubstr("5 is outside 0 to 1"));
  EXPECT_THAT(refusal("samples: 2\n"), HasSubstr("give either model"));
  EXPECT_THAT(refusal("model: m\nendpoint: {url: http://x}\n"), HasSubstr("give either model"));
  EXPECT_THAT(refusal("model: m\ntasks: {path: t, split: heldout_formats}\n"), HasSubstr("of the workspace family"));
}

TEST_F(SuiteTest, a_model_is_run_under_the_profile_that_it_carries_unless_the_suite_says_otherwise) {
  fs::create_directories(root() / "m");
  std::ofstream(root() / "m/config.json") << "{}";
  EXPECT_EQ(read("model: m\n")->profile, envs::small_profile());
  envs::Profile own = envs::small_profile();
  own.tools = {"read_file", "write"};
  own.system = "Do it.";
  std::ofstream(root() / "m/profile.yaml") << envs::to_yaml(own);
  EXPECT_EQ(read("model: m\n")->profile, own);
  const auto changed = read("model: m\nenv: {tools: [grep], output_bytes: 500}\n");
  ASSERT_TRUE(changed) << changed.error().to_string();
  EXPECT_EQ(changed->profile.tools, std::vector<std::string>{"grep"});
  EXPECT_EQ(changed->profile.output_bytes, 500);
  EXPECT_EQ(changed->profile.system, "Do it.");
  std::ofstream(root() / "other.yaml") << envs::to_yaml(envs::default_profile());
  EXPECT_EQ(read("model: m\nenv: {profile: other.yaml}\n")->profile, envs::default_profile());
  EXPECT_THAT(refusal("model: m\nenv: {profile: missing.yaml}\n"), HasSubstr("missing.yaml"));
}

TEST_F(SuiteTest, gates_and_prices_are_kept_and_read_again) {
  const auto suite = read("model: m\nprices: {sample_hour: 2}\ngates: {max_slowdown: 0.5, confidence: 0.9}\n");
  ASSERT_TRUE(suite);
  const auto terms = terms_from_json(to_json(Terms{suite->gates, suite->prices}));
  ASSERT_TRUE(terms);
  EXPECT_EQ(terms->gates.max_slowdown, 0.5);
  EXPECT_EQ(terms->gates.confidence, 0.9);
  EXPECT_EQ(terms->prices.sample_hour, 2);
  EXPECT_FALSE(terms->gates.min_pass_rate);
  EXPECT_FALSE(terms->gates.max_growth);
  const auto work = read(
      "model: m\ngates: {max_growth: 0.3, max_new_lints_increase: 2, max_tests_touched_increase: 0, confidence: "
      "0.9}\n");
  ASSERT_TRUE(work) << work.error().to_string();
  const auto again = terms_from_json(to_json(Terms{work->gates, work->prices}));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->gates.max_growth, 0.3);
  EXPECT_EQ(again->gates.max_new_lints_increase, 2);
  EXPECT_EQ(again->gates.max_tests_touched_increase, 0);
  Json older = to_json(Terms{});
  older["gates"].erase("max_growth");
  EXPECT_TRUE(terms_from_json(older)) << "of a version that did not know the gate";
}

}  // namespace
}  // namespace tandem::eval
