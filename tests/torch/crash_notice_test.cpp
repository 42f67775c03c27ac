#include "trainer/torch/plugin/crash_notice.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <thread>

namespace tandem::torch_plugin {
namespace {

// The crash itself is the test's own signal, which sanitizers leave alone as they do not leave alone a real fault.
void crash_by(int signal) { ::raise(signal); }

TEST(CrashNoticeDeathTest, a_function_that_crashes_is_named_and_the_process_ends_by_the_signal) {
  const auto within_a_call = [](int signal) {
    const CrashNotice notice("my_losses/mine.so");
    crash_by(signal);
  };
  EXPECT_EXIT(within_a_call(SIGSEGV), testing::KilledBySignal(SIGSEGV), "my_losses/mine.so: the function crashed");
  EXPECT_EXIT(within_a_call(SIGFPE), testing::KilledBySignal(SIGFPE), "my_losses/mine.so: the function crashed");
  EXPECT_EXIT(within_a_call(SIGABRT), testing::KilledBySignal(SIGABRT), "my_losses/mine.so: .*SIGABRT");
}

TEST(CrashNoticeDeathTest, who_crashes_outside_of_a_call_is_not_taken_for_it) {
  const auto after_a_call = [] {
    { const CrashNotice notice("mine.so"); }
    crash_by(SIGSEGV);
  };
  EXPECT_EXIT(after_a_call(), testing::KilledBySignal(SIGSEGV), "^$");
  const auto beside_a_call = [] {
    const CrashNotice notice("mine.so");
    std::thread(crash_by, SIGSEGV).join();
  };
  EXPECT_EXIT(beside_a_call(), testing::KilledBySignal(SIGSEGV), "^$");
}

}  // namespace
}  // namespace tandem::torch_plugin
