// `tandem cache`: what is kept on this machine, and what goes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>

#include "base/text.h"
#include "tests/cli/run_fixture.h"
#include "tests/envs/cache_of.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class Cache : public RunTest {
 protected:
  // As if it had been read and written that long ago.
  static void put(const std::string& name, std::chrono::hours age) {
    const fs::path path = root() / "cache-of-test" / "tandem" / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "12345";
    const auto then = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now() - age);
    const timespec times[2] = {{then, 0}, {then, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  static bool there(const std::string& name) { return fs::exists(root() / "cache-of-test" / "tandem" / name); }
};

TEST_F(Cache, what_was_not_used_for_long_goes_and_nothing_of_others) {
  const envs::CacheOf cache(root() / "cache-of-test");
  EXPECT_EQ(tandem({"cache"}), 0) << text(output());
  using namespace std::chrono_literals;
  put("vectors/old.vectors", 1000h);
  put("vectors/new.vectors", 1h);
  put("index/old.index", 1000h);
  put("packages/files/old", 1000h);
  put("other/kept", 10000h);
  EXPECT_EQ(tandem({"cache", "--json"}), 0) << text(output());
  const std::string listed = text(output());
  EXPECT_EQ(split_lines(listed).size(), 5u) << listed;
  EXPECT_EQ(tandem({"cache", "prune", "--dry-run"}), 0) << text(output());
  EXPECT_THAT(text(output()), HasSubstr("15 B would go"));
  EXPECT_TRUE(there("vectors/old.vectors"));
  EXPECT_EQ(tandem({"cache", "prune"}), 0) << text(output());
  EXPECT_FALSE(there("vectors/old.vectors") || there("index/old.index") || there("packages/files/old"));
  EXPECT_TRUE(there("vectors/new.vectors") && there("other/kept"));
  EXPECT_EQ(tandem({"cache", "prune", "--older-than", "1m"}), 2);
  EXPECT_THAT(text(output()), HasSubstr("must be an hour at least"));
}

}  // namespace
}  // namespace tandem
