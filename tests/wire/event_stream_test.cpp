#include "wire/event_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"

namespace tandem::wire {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<StreamEvent> decode(std::string_view bytes, size_t piece = 1'000'000) {
  EventStreamDecoder decoder(1000);
  std::vector<StreamEvent> events;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const auto more = decoder.feed(bytes.substr(at, piece));
    EXPECT_TRUE(more) << more.error().message();
    if (more) events.insert(events.end(), more->begin(), more->end());
  }
  return events;
}

TEST(EventStream, fields_line_ends_and_comments_are_those_of_the_standard) {
  EXPECT_THAT(decode("data: a\n\ndata:b\r\n\r\ndata:  c\r\r"),
              ElementsAre(StreamEvent{"message", "a"}, StreamEvent{"message", "b"}, StreamEvent{"message", " c"}));
  EXPECT_THAT(decode("\xEF\xBB\xBF: hello\nevent: ping\nid: 4\nretry: 10\ndata: one\ndata\ndata: three\n\n"),
              ElementsAre(StreamEvent{"ping", "one\n\nthree"}));
  EXPECT_THAT(decode("event: empty\n\ndata: next\n\n"), ElementsAre(StreamEvent{"message", "next"}));
}

TEST(EventStream, what_the_stream_ends_in_the_middle_of_never_comes_out) {
  EXPECT_THAT(decode("data: whole\n\ndata: half\n"), ElementsAre(StreamEvent{"message", "whole"}));
  EXPECT_THAT(decode("data: half"), IsEmpty());
}

TEST(EventStream, where_the_bytes_are_cut_changes_nothing) {
  const std::string bytes =
      "\xEF\xBB\xBF"
      "data: a\r\ndata: b\r\n\r\nevent: x\rdata: c\r\r\n: comment\ndata: \xC3\xA9\n\n";
  const auto whole = decode(bytes);
  ASSERT_EQ(whole.size(), 3u);
  for (size_t piece = 1; piece < bytes.size(); ++piece) EXPECT_EQ(decode(bytes, piece), whole) << piece;
}

TEST(EventStream, an_event_that_is_too_large_is_refused_in_one_line_or_in_many) {
  EXPECT_EQ(EventStreamDecoder(10).feed("data: 0123456789").error().code(), Code::kExhausted);
  EXPECT_EQ(EventStreamDecoder(16).feed("data: 01234567\ndata: 0123456789").error().code(), Code::kExhausted);
  EXPECT_TRUE(EventStreamDecoder(16).feed("data: 01234567\n\ndata: 01234567\n\n"));
}

TEST(EventStream, any_bytes_are_decoded_without_a_crash_and_the_same_however_they_are_cut) {
  Random random(3);
  const std::string_view parts[] = {"data:", "event:", "\n", "\r", "\r\n", ": ", "x", "\xEF\xBB\xBF", "\0", "\xFF"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (uint64_t count = random.below(60); count > 0; --count) bytes += random.pick(parts);
    EXPECT_EQ(decode(bytes), decode(bytes, 1 + random.below(7)));
  }
}

}  // namespace
}  // namespace tandem::wire
