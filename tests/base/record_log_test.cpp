#include "base/record_log.h"

#include <gtest/gtest.h>

#include <fstream>

namespace tandem {
namespace {

class RecordLogTest : public testing::Test {
 protected:
  void SetUp() override { fs::remove(path); }
  void TearDown() override { fs::remove(path); }
  std::vector<std::string> records() {
    std::vector<std::string> found;
    EXPECT_TRUE(read_log(path, [&](std::string_view record, uint64_t) {
      found.emplace_back(record);
      return Status();
    }));
    return found;
  }
  const fs::path path = fs::temp_directory_path() / ("tandem-log-" + std::to_string(::getpid()));
};

TEST_F(RecordLogTest, gives_back_what_was_appended_and_goes_on_after_a_restart) {
  uint64_t second = 0;
  {
    auto log = std::move(*RecordLog::open(path));
    ASSERT_TRUE(log.append("one"));
    second = *log.append("");
    ASSERT_TRUE(log.sync());
  }
  auto log = std::move(*RecordLog::open(path));
  ASSERT_TRUE(log.append("three"));
  EXPECT_EQ(records(), (std::vector<std::string>{"one", "", "three"}));
  EXPECT_EQ(*read_record(path, second), "");
  EXPECT_EQ(read_record(path, second + 1).error().code(), Code::kCorrupt);
}

TEST_F(RecordLogTest, a_file_cut_anywhere_keeps_the_records_before_the_cut) {
  {
    auto log = std::move(*RecordLog::open(path));
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(log.append("record " + std::to_string(i)));
  }
  const std::string whole = *read_file(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    uint64_t cut = 0;
    ASSERT_TRUE(RecordLog::open(path, &cut)) << size;
    const size_t expected = size < 8 ? 0 : (size - 8) / 20;
    EXPECT_EQ(records().size(), expected) << size;
    EXPECT_EQ(cut, size < 8 ? size : (size - 8) % 20) << size;
  }
}

TEST_F(RecordLogTest, damage_in_the_middle_is_refused_with_its_place) {
  {
    auto log = std::move(*RecordLog::open(path));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(log.append("record " + std::to_string(i)));
  }
  std::string bytes = *read_file(path);
  bytes[8 + 20 + 12] ^= 1;  // the first byte of the second record
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  const auto log = RecordLog::open(path);
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code(), Code::kCorrupt);
  EXPECT_NE(log.error().message().find("record 1 at byte 28"), std::string::npos) << log.error().message();
}

TEST_F(RecordLogTest, damage_in_the_middle_is_skipped_where_a_record_less_is_no_harm) {
  {
    auto log = std::move(*RecordLog::open(path));
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(log.append("record " + std::to_string(i)));
  }
  std::string bytes = *read_file(path);
  bytes[8 + 20 + 12] ^= 1;  // the first byte of the second record
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes << "torn";
  uint64_t cut = 0;
  auto log = std::move(*RecordLog::open(path, &cut, Damage::kSkip));
  EXPECT_EQ(cut, 4u);
  ASSERT_TRUE(log.append("record 4"));
  std::vector<std::string> found;
  const auto content = read_log(
      path,
      [&](std::string_view record, uint64_t) {
        found.emplace_back(record);
        return Status();
      },
      Damage::kSkip);
  ASSERT_TRUE(content.has_value());
  EXPECT_EQ(content->damaged, std::vector<uint64_t>{28});
  EXPECT_EQ(found, (std::vector<std::string>{"record 0", "record 2", "record 3", "record 4"}));
}

TEST_F(RecordLogTest, is_read_and_gone_on_with_from_the_end_of_any_record) {
  uint64_t second = 0;
  {
    auto log = std::move(*RecordLog::open(path));
    ASSERT_TRUE(log.append("record 0"));
    second = *log.append("record 1");
    EXPECT_EQ(log.size(), fs::file_size(path));
  }
  std::vector<std::string> found;
  const auto visit = [&](std::string_view record, uint64_t) {
    found.emplace_back(record);
    return Status();
  };
  ASSERT_TRUE(read_log(path, visit, Damage::kRefuse, second));
  EXPECT_EQ(found, std::vector<std::string>{"record 1"});
  const uint64_t end = fs::file_size(path);
  EXPECT_FALSE(read_log(path, visit, Damage::kRefuse, end + 1)) << "a file that has lost its end";
  auto log = std::move(*RecordLog::open(path, nullptr, Damage::kRefuse, end));
  EXPECT_EQ(*log.append("record 2"), end);
  ASSERT_TRUE(read_log(path, visit));
  EXPECT_EQ(found, (std::vector<std::string>{"record 1", "record 0", "record 1", "record 2"}));
}

}  // namespace
}  // namespace tandem
