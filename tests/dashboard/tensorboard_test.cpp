#include "dashboard/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

namespace tandem::dashboard {
namespace {

template <typename T>
T take(std::string_view& bytes) {
  T value{};
  EXPECT_GE(bytes.size(), sizeof(T));
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

// A message's fields by number; those of bytes as they are, the rest as their bytes.
std::vector<std::pair<int, std::string>> fields_of(std::string_view message) {
  std::vector<std::pair<int, std::string>> fields;
  while (!message.empty()) {
    const uint64_t key = take_varint(message);
    const int type = key & 7;
    size_t size = type == 1 ? 8 : type == 5 ? 4 : 0;
    if (type == 2) size = take_varint(message);
    if (type == 0) {
      fields.emplace_back(key >> 3, std::to_string(take_varint(message)));
      continue;
    }
    fields.emplace_back(key >> 3, std::string(message.substr(0, size)));
    message.remove_prefix(size);
  }
  return fields;
}

std::vector<std::string> records_of(std::string_view bytes) {
  std::vector<std::string> records;
  while (!bytes.empty()) {
    const std::string_view length_bytes = bytes.substr(0, 8);
    const auto length = take<uint64_t>(bytes);
    EXPECT_EQ(take<uint32_t>(bytes), masked_crc32c(length_bytes));
    records.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
    EXPECT_EQ(take<uint32_t>(bytes), masked_crc32c(records.back()));
  }
  return records;
}

TEST(TensorBoard, checksums_are_those_of_rfc_3720_and_of_tfrecord) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  const uint32_t rotated = 0xe3069283u >> 15 | 0xe3069283u << 17;
  EXPECT_EQ(masked_crc32c("123456789"), rotated + 0xa282ead8u);
}

TEST(TensorBoard, a_file_reads_back_as_version_and_scalars) {
  const fs::path folder = fs::temp_directory_path() / ("tandem-tb-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  ManualClock clock;
  clock.advance(from_seconds(1700000000.5));
  {
    auto file = EventFile::create(folder, clock);
    ASSERT_TRUE(file) << file.error().to_string();
    EXPECT_THAT(file->path().filename().string(), testing::StartsWith("events.out.tfevents.1700000000."));
    ASSERT_TRUE(file->add_line(Json{
        {"step", 300}, {"time", 12.5}, {"success", 0.25}, {"note", "text"}, {"success_by_kind", {{"find", 0.5}}}}));
    auto second = EventFile::create(folder, clock);
    ASSERT_TRUE(second);
    EXPECT_NE(second->path(), file->path());
    const auto bytes = read_file(file->path());
    ASSERT_TRUE(bytes);
    const auto records = records_of(*bytes);
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(fields_of(records[0])[1], (std::pair<int, std::string>{3, "brain.Event:2"}));
    const auto event = fields_of(records[1]);
    double time = 0;
    std::memcpy(&time, event[0].second.data(), 8);
    EXPECT_EQ(time, 12.5);
    EXPECT_EQ(event[1], (std::pair<int, std::string>{2, "300"}));
    ASSERT_EQ(event[2].first, 5);
    const auto values = fields_of(event[2].second);
    ASSERT_EQ(values.size(), 2u);
    const auto value = fields_of(values[1].second);
    EXPECT_EQ(value[0].second, "success_by_kind/find");
    float number = 0;
    std::memcpy(&number, value[1].second.data(), 4);
    EXPECT_EQ(number, 0.5f);
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tandem::dashboard
