#include "serve/usage_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

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

}  // namespace
}  // namespace tandem::serve
