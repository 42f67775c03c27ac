// A suite that could not be set up fails. GoogleTest calls its tests skipped, and ctest believes it: nobody would look.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace tandem {
namespace {

class BrokenSuites : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    if (!testing::UnitTest::GetInstance()->current_test_suite()->ad_hoc_test_result().Failed()) return;
    std::printf("%s could not be set up: its tests fail\n", test.test_suite_name());
    std::exit(1);
  }
};

// Of each program of tests, before main: the list takes ownership.
const bool listens = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new BrokenSuites);
  return true;
}();

}  // namespace
}  // namespace tandem
