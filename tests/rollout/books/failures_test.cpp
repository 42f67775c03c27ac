#include "rollout/books/failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace tandem::rollout {
namespace {

using testing::HasSubstr;

TEST(Failures, are_counted_by_kind_of_reason_the_most_frequent_first) {
  Failures failures;
  failures.failed("the server died", 1);
  failures.failed("did not answer within 20 s", 2);
  failures.failed("did not answer within 7 s", 5);
  const Json report = failures.report();
  ASSERT_EQ(report.size(), 2U) << report.dump();
  EXPECT_EQ(report[0], (Json{{"reason", "did not answer within 20 s"}, {"count", 2}, {"episode", 5}}));
  EXPECT_EQ(report[1]["reason"], "the server died");
  EXPECT_EQ(failures.count(), 3U);
  EXPECT_EQ(Failures::of(report).report(), report);
  EXPECT_EQ(Failures::of(Json::object()).count(), 0U);
  EXPECT_EQ(Failures::of({{{"reason", 3}}, Json(), {{"reason", "x"}, {"count", -1}, {"episode", 1}}}).count(), 0U);
}

TEST(Failures, a_reason_that_is_new_each_time_takes_no_more_room) {
  Failures failures;
  std::string reason;
  for (int i = 0; i < 1000; ++i) {
    reason = std::string(static_cast<size_t>(i % 600) + 1, 'a');
    failures.failed(reason, 1);
  }
  EXPECT_EQ(failures.report().size(), Failures::kMostKinds + 1);
  EXPECT_EQ(failures.report()[0]["reason"], "other reasons");
  EXPECT_EQ(failures.count(), 1000U);
}

TEST(Failures, a_run_goes_on_while_some_episode_is_scored_and_not_without_end) {
  Failures failures;
  for (int i = 0; i < 10; ++i) {
    failures.failed("exit code 1: no such module", 7);
    failures.failed_again(1);
    if (i == 4) failures.scored();
  }
  EXPECT_EQ(failures.verdict(5), std::nullopt);
  EXPECT_EQ(failures.verdict(0), std::nullopt) << "never";
  failures.failed_again(1);
  const auto verdict = failures.verdict(5);
  ASSERT_TRUE(verdict);
  EXPECT_THAT(*verdict, HasSubstr("6 attempts in a row at episodes that had failed before"));
  EXPECT_THAT(*verdict, HasSubstr("no such module (10 times)"));
  failures.scored();
  EXPECT_EQ(failures.verdict(5), std::nullopt);
}

TEST(Failures, a_file_is_read_back_and_so_is_one_of_the_format_before) {
  const fs::path path = fs::temp_directory_path() / ("tandem-failures-" + std::to_string(::getpid()));
  Failures failures;
  failures.failed("the server died", 1);
  EXPECT_EQ(failures.to_file()["format"], 2);
  for (const Json& file : {failures.to_file(), failures.report()}) {
    ASSERT_TRUE(write_file(path, dump_json(file)));
    EXPECT_EQ(Failures::read(path)->report(), failures.report()) << file;
  }
  ASSERT_TRUE(write_file(path, R"({"format":3,"failures":[]})"));
  EXPECT_THAT(Failures::read(path).error().to_string(),
              HasSubstr(path.string() + ": is of format 3; this program reads formats 1 to 2"));
  for (const char* damaged : {"", "{", "{}", "5"}) {
    ASSERT_TRUE(write_file(path, damaged));
    EXPECT_EQ(Failures::read(path)->count(), 0U) << damaged;
  }
  fs::remove(path);
  EXPECT_EQ(Failures::read(path)->count(), 0U);
}

}  // namespace
}  // namespace tandem::rollout
