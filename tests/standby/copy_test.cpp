#include "standby/copy.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "standby/record.h"
#include "tests/standby/scratch_folder.h"

namespace tandem::standby {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

class CopyTest : public ScratchFolder {
 protected:
  std::string text(const std::string& path) { return read_file(folder() / path).value_or("-"); }
  Put put(const std::string& path, std::string_view part, std::string_view whole, uint64_t offset = 0) {
    return {.path = path, .offset = offset, .bytes = part.size(), .total = whole.size(), .digest = digest_of(whole)};
  }
  Copy copy_{folder()};
};

TEST_F(CopyTest, logs_grow_where_they_end_and_nowhere_else) {
  ASSERT_TRUE(copy_.extend({.path = "ledger/log", .offset = 0, .bytes = 3}, bytes("abc")));
  ASSERT_TRUE(copy_.extend({.path = "ledger/log", .offset = 3, .bytes = 2}, bytes("de")));
  EXPECT_EQ(copy_.extend({.path = "ledger/log", .offset = 3, .bytes = 2}, bytes("de")).code(), Code::kInvalid);
  EXPECT_EQ(copy_.extend({.path = "ledger/log", .offset = 9, .bytes = 2}, bytes("de")).code(), Code::kInvalid);
  ASSERT_TRUE(copy_.sync());
  EXPECT_EQ(text("ledger/log"), "abcde");
  const auto found = copy_.survey({"ledger", "none"});
  ASSERT_TRUE(found) << found.error().to_string();
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().path, "ledger/log");
  EXPECT_EQ(found->front().digest, digest_of(std::string_view("abcde")));
}

TEST_F(CopyTest, a_file_takes_its_place_when_it_is_whole) {
  ASSERT_TRUE(copy_.put(put("c/one", "new", "new whole"), bytes("new")));
  EXPECT_EQ(text("c/one"), "-");
  ASSERT_TRUE(copy_.put(put("c/one", " whole", "new whole", 3), bytes(" whole")));
  EXPECT_EQ(text("c/one"), "new whole");
  EXPECT_EQ(copy_.put(put("c/one", "other", "12345"), bytes("other")).code(), Code::kCorrupt);
  EXPECT_EQ(text("c/one"), "new whole") << "the old one stays";
  EXPECT_EQ(copy_.put(put("c/two", "b", "ab", 1), bytes("b")).code(), Code::kInvalid) << "its beginning never came";
  ASSERT_TRUE(copy_.put(put("c/empty", "", ""), {}));
  EXPECT_EQ(text("c/empty"), "");
  ASSERT_TRUE(copy_.link({"c/latest", "one"}));
  EXPECT_EQ(text("c/latest"), "new whole");
  ASSERT_TRUE(copy_.remove({"c"}));
  EXPECT_FALSE(fs::exists(folder() / "c"));
  ASSERT_TRUE(copy_.sync());
}

TEST_F(CopyTest, nothing_is_written_outside) {
  for (const char* path : {"", "/etc/x", "../x", "a/../../x", "a//b", "standby.json", "identity.json", "lock.json"})
    EXPECT_FALSE(check_path(path)) << path;
  EXPECT_TRUE(check_path("checkpoints/step_1/learner.json"));
  EXPECT_FALSE(check_link({"a/b", "/etc"}));
  EXPECT_FALSE(check_link({"a/b", "../../x"}));
  EXPECT_TRUE(check_link({"a/b", "../x"}));
  // A link that somebody has put there is not followed.
  ASSERT_EQ(::symlink("/tmp", (folder() / "away").c_str()), 0);
  EXPECT_FALSE(copy_.extend({.path = "away/x", .offset = 0, .bytes = 1}, bytes("x")));
  EXPECT_FALSE(copy_.put(put("away/x", "x", "x"), bytes("x")));
}

TEST_F(CopyTest, the_record_says_whose_copy_it_is) {
  EXPECT_EQ(read_record_of(folder()).error().code(), Code::kNotFound);
  const Record record{.run = 0xfeedULL,
                      .name = "r",
                      .epoch = 3,
                      .is_taken = true,
                      .holder = "h",
                      .host = "tcp://h:1",
                      .key = "/k",
                      .behind = {"trainer-0"}};
  {
    const auto lock = RecordLock::take(folder());
    ASSERT_TRUE(lock);
    ASSERT_TRUE(write_record_of(folder(), record));
  }
  const auto read = read_record_of(folder());
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->run, record.run);
  EXPECT_EQ(read->epoch, 3u);
  EXPECT_TRUE(read->is_taken);
  EXPECT_EQ(read->behind, record.behind);
  ASSERT_TRUE(write_file(folder() / "standby.json", R"({"format":1,"run":"xyz"})"));
  EXPECT_EQ(read_record_of(folder()).error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace tandem::standby
