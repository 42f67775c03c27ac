#include "serve/traces.h"

#include <gtest/gtest.h>

namespace tandem::serve {
namespace {

using namespace std::chrono_literals;

TEST(Traces, the_last_slow_ones_are_kept) {
  const ManualClock clock;
  Traces traces({.most = 2, .slower_than = 1}, clock);
  const auto add = [&](const std::string& id, Duration took) {
    traces.add({.id = id, .path = "/p", .start = Time{10s}, .end = Time{10s} + took});
  };
  add("a", 900ms);
  EXPECT_EQ(traces.size(), 0u);
  for (const auto id : {"b", "c", "d"}) add(id, 2s);
  EXPECT_EQ(traces.size(), 2u);
  const Json events = traces.events(0)["traceEvents"];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["args"]["name"], "/p c");
  EXPECT_EQ(events[1]["dur"], 2e6);
  EXPECT_EQ(traces.events(3)["traceEvents"].size(), 0u);
  Traces none({.most = 0, .slower_than = 0}, clock);
  none.add({.id = "a", .start = Time{1s}, .end = Time{9s}});
  EXPECT_EQ(none.size(), 0u);
}

TEST(Traces, times_are_those_of_the_wall) {
  ManualClock clock;
  clock.advance(5s);
  Traces traces({.slower_than = 0}, clock);
  traces.add(
      {.id = "a",
       .path = "/p",
       .parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
       .start = Time{7s},
       .end = Time{8s},
       .spans = {{"queue", Time{7s}, Time{7s} + 250ms, 0, {}}, {"decode", Time{7s}, Time{8s}, 1, {{"tokens", 3}}}}});
  const Json events = traces.events(0)["traceEvents"];
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[1]["ts"], 7e6);
  EXPECT_EQ(events[1]["args"]["trace_id"], "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(events[2]["dur"], 250e3);
  EXPECT_EQ(events[3]["tid"], 1);
  EXPECT_EQ(events[3]["args"]["tokens"], 3);
}

TEST(Traces, what_is_no_traceparent_names_no_trace) {
  for (const auto wrong : {"", "00", "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-011",
                           "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
                           "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}) {
    EXPECT_EQ(trace_id_of(wrong), "") << wrong;
  }
}

}  // namespace
}  // namespace tandem::serve
