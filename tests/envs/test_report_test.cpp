#include "envs/tasks/test_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::envs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(TestReport, the_summary_of_pytest_names_all_tests) {
  const auto report = read_test_report(
      "collected 5 items\n\ntests/test_a.py .F.sx   [100%]\n\n==== PASSES ====\nfoo (bar.Baz) ... ERROR\n"
      "=========================== short test summary info ============================\n"
      "PASSED tests/test_a.py::test_one\nPASSED tests/test_a.py::TestA::test_two[a b]\n"
      "SKIPPED [1] tests/test_a.py:9: no reason\nXFAIL tests/test_a.py::test_later - known\n"
      "FAILED tests/test_a.py::test_three - AssertionError: a - b\nERROR tests/test_b.py\n"
      "========= 1 failed, 2 passed, 1 skipped, 1 xfailed, 1 error in 0.12s =========\nPASSED after::the_end\n");
  EXPECT_THAT(report, testing::UnorderedElementsAre(Pair("tests/test_a.py::test_one", TestEnd::kPassed),
                                                    Pair("tests/test_a.py::TestA::test_two[a b]", TestEnd::kPassed),
                                                    Pair("tests/test_a.py::TestA::test_two[a", TestEnd::kPassed),
                                                    Pair("[1] tests/test_a.py:9: no reason", TestEnd::kSkipped),
                                                    Pair("tests/test_a.py::test_later - known", TestEnd::kPassed),
                                                    Pair("tests/test_a.py::test_later", TestEnd::kPassed),
                                                    Pair("tests/test_a.py::test_three", TestEnd::kFailed),
                                                    Pair("tests/test_b.py", TestEnd::kFailed)));
}

TEST(TestReport, summaries_of_several_runs_add_up_to_the_worst) {
  const auto report = read_test_report(
      "=== short test summary info ===\nPASSED a::a\nFAILED a::b - x\n=== 1 failed, 1 passed in 0.1s ===\n"
      "PASSED between::them\n=== short test summary info ===\nPASSED a::b\n=== 1 passed in 0.2s ===\n");
  EXPECT_THAT(report, ElementsAre(Pair("a::a", TestEnd::kPassed), Pair("a::b", TestEnd::kFailed)));
}

TEST(TestReport, verbose_lines_of_pytest_count_where_the_summary_names_failures_alone) {
  const auto report = read_test_report(
      "t.py::test_a PASSED      [ 25%]\nt.py::test_b[x y] FAILED [ 50%]\nt.py::test_c SKIPPED (why) [ 75%]\n"
      "t.py::test_d PASSED [100%]\n"
      "=== short test summary info ===\nFAILED t.py::test_b[x y] - assert 1\nERROR t.py::test_d - teardown\n");
  EXPECT_EQ(report.at("t.py::test_a"), TestEnd::kPassed);
  EXPECT_EQ(report.at("t.py::test_b[x y]"), TestEnd::kFailed);
  EXPECT_EQ(report.at("t.py::test_c"), TestEnd::kSkipped);
  EXPECT_EQ(report.at("t.py::test_d"), TestEnd::kFailed) << "the worst end counts";
}

TEST(TestReport, verbose_lines_of_unittest_are_read_in_the_forms_of_all_versions) {
  const auto report = read_test_report(
      "test_a (tests.test_x.A) ... ok\ntest_b (tests.test_x.A.test_b) ... FAIL\n"
      "test_c (tests.test_x.A.test_c)\nIt holds. ... ok\ntest_d (m.A.test_d) ... printed by the test\nok\n"
      "test_e (m.A.test_e) ... skipped 'why'\ntest_f (m.A.test_f) ... expected failure\n"
      "test_g (m.A.test_g) ... hello\ntest_h (m.A.test_h) ... ok\n\nRan 8 tests in 0.001s\n\nOK\n");
  EXPECT_THAT(report,
              testing::UnorderedElementsAre(
                  Pair("test_a (tests.test_x.A)", TestEnd::kPassed), Pair("test_b (tests.test_x.A)", TestEnd::kFailed),
                  Pair("test_c (tests.test_x.A)", TestEnd::kPassed), Pair("It holds.", TestEnd::kPassed),
                  Pair("test_d (m.A)", TestEnd::kPassed), Pair("test_e (m.A)", TestEnd::kSkipped),
                  Pair("test_f (m.A)", TestEnd::kPassed), Pair("test_h (m.A)", TestEnd::kPassed)));
}

TEST(TestReport, why_says_which_tests_have_not_passed) {
  const TestReport report = {{"a", TestEnd::kPassed}, {"b", TestEnd::kFailed}, {"test_c (m.A)", TestEnd::kPassed}};
  const auto why = [&](std::vector<std::string> wanted) { return why_not_passed(report, wanted); };
  EXPECT_EQ(why({"a", "test_c (m.A.test_c)"}), "");
  EXPECT_EQ(why({"b", "d"}), "b failed; d was not reported");
  EXPECT_EQ(why({}), "b failed");
  EXPECT_THAT(why_not_passed({}, {}), HasSubstr("no tests were reported"));
  EXPECT_THAT(why({"1", "2", "3", "4", "5", "6", "7"}), HasSubstr("5 was not reported; and 2 more"));
}

TEST(TestReport, the_share_that_passed_is_of_those_that_were_named) {
  const TestReport report = {{"a", TestEnd::kPassed}, {"b", TestEnd::kFailed}, {"c", TestEnd::kSkipped}};
  const std::vector<std::string> named = {"a", "b", "missing", "c"}, one = {"a"};
  EXPECT_DOUBLE_EQ(share_that_passed(report, named), 0.25);
  EXPECT_DOUBLE_EQ(share_that_passed(report, one), 1);
  EXPECT_DOUBLE_EQ(share_that_passed(report, {}), 1.0 / 3);
  EXPECT_DOUBLE_EQ(share_that_passed({}, {}), 0);
}

}  // namespace
}  // namespace tandem::envs
