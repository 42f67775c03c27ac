#include "serve/usage_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "tests/envs/scratch.h"

namespace tandem::serve {
namespace {

TEST(UsageLog, a_pipe_is_written_to_while_somebody_reads_and_holds_nobody_up) {
  const envs::Scratch folder;
  const fs::path path = folder.path / "usage";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const auto without = UsageLog::open(path);
  ASSERT_FALSE(without);
  EXPECT_THAT(without.error().to_string(), testing::HasSubstr("is a pipe that nobody reads"));

  const FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  auto log = UsageLog::open(path);
  ASSERT_TRUE(log) << log.error().to_string();
  log->write({.key = "a", .prompt_tokens = 1});
  std::string line(4096, 0);
  EXPECT_GT(::read(reader.get(), line.data(), line.size()), 0);
  EXPECT_THAT(line, testing::HasSubstr("\"key\":\"a\""));
  EXPECT_EQ(log->lost(), 0U);
  for (int i = 0; i < 10000; ++i) log->write({.key = "a"});  // more than it holds
  EXPECT_GT(log->lost(), 0U);
}

TEST(UsageLog, a_line_that_a_full_disk_has_torn_costs_no_other) {
  const envs::Scratch folder;
  const fs::path path = folder.path / "usage";
  auto log = UsageLog::open(path);
  ASSERT_TRUE(log);
  log->write({.time = 1, .key = "a", .answer_tokens = 1});
  // The limit of this process for files stands for the end of the disk.
  const auto size = static_cast<rlim_t>(fs::file_size(path));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto signal_before = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit less{.rlim_cur = size + 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &less), 0);
  log->write({.time = 1, .key = "b", .answer_tokens = 2});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, signal_before);
  EXPECT_EQ(log->lost(), 1U);
  log->write({.time = 1, .key = "c", .answer_tokens = 4});
  std::string keys;
  double tokens = 0;
  EXPECT_TRUE(log->visit_since(0, [&](const std::string& key, double of_line, double) {
    keys += key;
    tokens += of_line;
  }));
  EXPECT_EQ(keys, "ac");
  EXPECT_EQ(tokens, 5);
}

}  // namespace
}  // namespace tandem::serve
