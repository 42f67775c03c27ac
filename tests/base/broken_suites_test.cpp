// What tests/broken_suites.cpp does to a suite that cannot be set up, seen from outside.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <filesystem>
#include <string>

namespace tandem {
namespace {

class SuiteThatCannotBeSetUp : public testing::Test {
 protected:
  static void SetUpTestSuite() { FAIL() << "there is no such program"; }
};
TEST_F(SuiteThatCannotBeSetUp, DISABLED_has_a_test) {}

TEST(BrokenSuites, fail_with_their_reason_and_are_not_called_skipped) {
  const std::string command = std::filesystem::read_symlink("/proc/self/exe").string() +
                              " --gtest_also_run_disabled_tests --gtest_filter='SuiteThatCannotBeSetUp.*' 2>&1";
  FILE* output = ::popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  std::string text;
  for (char buffer[4096]; const size_t size = ::fread(buffer, 1, sizeof buffer, output);) text.append(buffer, size);
  const int status = ::pclose(output);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_NE(text.find("there is no such program"), std::string::npos) << text;
  EXPECT_NE(text.find("SuiteThatCannotBeSetUp could not be set up"), std::string::npos) << text;
  EXPECT_EQ(text.find("SKIPPED"), std::string::npos) << text;
}

}  // namespace
}  // namespace tandem
