// The rules of an emulated device, each in a process of its own, since what TANDEM_EMULATED says holds for one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>

#include "kernels/device_stream.h"

namespace tandem::kernels {
namespace {

class EmulatedDevice : public testing::Test {
 protected:
  EmulatedDevice() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  static DeviceStream open(const char* settings) {
    ::setenv("TANDEM_EMULATED", settings, 1);
    auto stream = DeviceStream::open({.kind = Device::Kind::kEmulated});
    if (!stream) {
      std::fprintf(stderr, "%s\n", stream.error().to_string().c_str());
      std::exit(9);
    }
    return std::move(*stream);
  }
  // Ends the process well where `holds`.
  static void conclude(bool holds, const std::string& words = "") {
    std::fprintf(stderr, "%s\n", words.c_str());
    std::_Exit(holds ? 0 : 1);
  }
};

// Adds y to x, of floats.
Status add(DeviceStream& stream, const DeviceBuffer<float>& x, const DeviceBuffer<float>& y) {
  return stream.run(
      TandemCudaAddFloat{.x = address(x.data()), .y = address(y.data()), .count = static_cast<int64_t>(x.size())});
}

TEST_F(EmulatedDevice, a_host_that_reads_its_memory_dies_and_is_told_where) {
  EXPECT_DEATH(
      {
        auto stream = open("memory=1m");
        const auto buffer = std::move(*stream.allocate<float>(4, "a test"));
        volatile const float* const pointer = reinterpret_cast<const float*>(buffer.data()) + 1;
        std::fprintf(stderr, "%f", *pointer);
      },
      "the host touches memory of the device emulated:0, at byte 4 of it");
}

TEST_F(EmulatedDevice, copies_read_the_host_when_they_are_done_and_not_when_they_are_called) {
  EXPECT_EXIT(
      {
        auto stream = open("memory=1m");
        const auto buffer = std::move(*stream.allocate<float>(1, "a test"));
        std::vector<float> host(1, 1.0f);
        std::vector<float> back(1);
        bool ok = stream.upload(buffer.data(), std::span<const float>(host)).ok();
        host[0] = 2;
        ok = ok && stream.download(std::span(back), buffer.data()).ok() && back[0] == 0 && stream.wait().ok();
        conclude(ok && back[0] == 2);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(EmulatedDevice, memory_that_was_freed_or_never_written_is_not_a_number) {
  EXPECT_EXIT(
      {
        auto stream = open("memory=1m,seed=3");
        bool ok = true;
        for (int round = 0; round < 2; ++round) {
          const auto buffer = std::move(*stream.allocate<float>(1, "a test"));
          std::vector<float> back = {0};
          ok = ok && stream.download(std::span(back), buffer.data()).ok() && stream.wait().ok() && std::isnan(back[0]);
          const std::vector<float> one = {1};
          ok = ok && stream.upload(buffer.data(), std::span<const float>(one)).ok() && stream.wait().ok();
        }
        conclude(ok);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(EmulatedDevice, an_event_waits_for_the_work_before_it_alone) {
  EXPECT_EXIT(
      {
        auto stream = open("memory=1m");
        const auto buffer = std::move(*stream.allocate<float>(1, "a test"));
        std::vector<float> early(1);
        std::vector<float> late(1);
        const std::vector<float> host = {5};
        bool ok = stream.upload(buffer.data(), std::span<const float>(host)).ok() &&
                  stream.download(std::span(early), buffer.data()).ok();
        const auto event = std::move(*stream.mark());
        ok = ok && stream.download(std::span(late), buffer.data()).ok() && event.wait().ok();
        conclude(ok && early[0] == 5 && late[0] == 0 && stream.wait().ok() && late[0] == 5);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(EmulatedDevice, memory_that_cannot_be_had_is_told_with_who_has_the_rest) {
  EXPECT_EXIT(
      {
        auto stream = open("memory=1m");
        const auto held = std::move(*stream.allocate<std::byte>(600 << 10, "keys and values"));
        const auto more = stream.allocate<std::byte>(600 << 10, "weights");
        conclude(!more && more.error().code() == Code::kExhausted, more.error().to_string());
      },
      testing::ExitedWithCode(0), "for weights cannot be had: .* are free; held here: .* by keys and values");
}

TEST_F(EmulatedDevice, a_device_that_is_lost_or_refuses_a_launch_is_an_error_and_no_wait) {
  for (const char* settings : {"lose_at=3", "refuse_at=3", "lose_at=3,seed=5"}) {
    EXPECT_EXIT(
        {
          auto stream = open(settings);
          const auto x = std::move(*stream.allocate<float>(8, "a test"));
          const auto y = std::move(*stream.allocate<float>(8, "a test"));
          Status status;
          for (int i = 0; i < 4 && status.ok(); ++i) status = add(stream, x, y);
          if (status.ok()) status = stream.wait();
          conclude(status.code() == Code::kUnavailable, status.to_string());
        },
        testing::ExitedWithCode(0), "emulated:0: add_float: the (emulated device is lost|launch failed)");
  }
}

// A stream with two numbers, and a graph that adds the second to the first.
struct Sum {
  DeviceStream stream;
  DeviceBuffer<float> x, y;
  std::optional<DeviceGraph> graph;

  explicit Sum(DeviceStream opened)
      : stream(std::move(opened)),
        x(std::move(*stream.allocate<float>(1, "a test"))),
        y(std::move(*stream.allocate<float>(1, "a test"))) {}
  Status capture() {
    graph = TRY(stream.capture([&] { return add(stream, x, y); }));
    return {};
  }
  Status set(float to_x, float to_y) {
    TRY(stream.upload(x.data(), std::span<const float>(&to_x, 1)));
    TRY(stream.upload(y.data(), std::span<const float>(&to_y, 1)));
    return stream.wait();
  }
  float get() {
    float value = 0;
    const bool ok = stream.download(std::span(&value, 1), x.data()).ok() && stream.wait().ok();
    return ok ? value : -1;
  }
};

TEST_F(EmulatedDevice, a_graph_does_what_was_captured_each_time_that_it_is_launched_and_not_before) {
  for (const char* settings : {"memory=1m", "memory=1m,seed=3", "memory=1m,seed=4"}) {
    EXPECT_EXIT(
        {
          Sum sum(open(settings));
          bool ok = sum.set(1, 2).ok() && sum.capture().ok() && sum.get() == 1;
          for (int i = 0; i < 2; ++i) ok = ok && sum.stream.launch(*sum.graph).ok();
          ok = ok && sum.get() == 5 && sum.set(10, 4).ok() && sum.stream.launch(*sum.graph).ok();
          sum.graph.reset();  // what was launched goes on
          conclude(ok && sum.get() == 14);
        },
        testing::ExitedWithCode(0), "");
  }
}

// What is not as it should be with calls that a capture does not allow; empty: nothing.
std::string trouble_with_refused_calls(DeviceStream opened) {
  Sum sum(std::move(opened));
  const auto event = std::move(*sum.stream.mark());
  std::optional<DeviceBuffer<float>> buffer = std::move(*sum.stream.allocate<float>(1, "a test"));
  const std::vector<std::function<Status()>> refused = {
      [&] { return sum.stream.wait(); },
      [&]() -> Status { return TRY(event.done()), Status{}; },
      [&]() -> Status { return TRY(sum.stream.allocate<float>(1, "a test")), Status{}; },
      [&]() -> Status { return TRY(sum.stream.stage<float>(1, "a test")), Status{}; },
      [&]() -> Status { return TRY(sum.stream.mark()), Status{}; },
      [&]() -> Status { return buffer.reset(), Status{}; }};  // which says nothing: the end does
  if (!sum.set(1, 2).ok()) return "the numbers are not set";
  for (size_t i = 0; i < refused.size(); ++i) {
    const auto graph = sum.stream.capture([&]() -> Status {
      TRY(add(sum.stream, sum.x, sum.y));
      return refused[i]();
    });
    if (graph) return "call " + std::to_string(i) + " is allowed";
    const std::string words = graph.error().to_string();
    if (words.find("a capture does not allow") == std::string::npos) return words;
  }
  const auto failed = sum.stream.capture([] { return Status::invalid("as it may be"); });
  if (failed || failed.error().message() != "as it may be") return "an error is not handed on";
  if (!sum.capture().ok() || !sum.stream.launch(*sum.graph).ok()) return "no graph afterwards";
  return sum.get() == 3 ? "" : "the stream does not go on";
}

TEST_F(EmulatedDevice, what_a_gpu_refuses_while_it_captures_is_an_error_and_the_stream_goes_on) {
  EXPECT_EXIT(
      {
        const std::string trouble = trouble_with_refused_calls(open("memory=1m,seed=5"));
        conclude(trouble.empty(), trouble);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(EmulatedDevice, a_graph_is_not_launched_where_memory_was_freed_since_and_there_may_be_no_room_for_one) {
  EXPECT_EXIT(
      {
        Sum sum(open("memory=1m,graphs=1"));
        bool ok = sum.set(1, 2).ok() && sum.capture().ok();
        auto other = std::move(*sum.stream.another());
        ok = ok && other.launch(*sum.graph).code() == Code::kInvalid;
        const auto second = sum.stream.capture([&] { return add(sum.stream, sum.x, sum.y); });
        ok = ok && !second && second.error().code() == Code::kExhausted;
        sum.y = std::move(*sum.stream.allocate<float>(1, "a test"));
        ok = ok && !sum.graph->valid() && sum.stream.launch(*sum.graph).code() == Code::kInvalid;
        sum.graph.reset();
        ok = ok && sum.set(1, 3).ok() && sum.capture().ok() && sum.stream.launch(*sum.graph).ok();
        conclude(ok && sum.get() == 4);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(EmulatedDevice, the_kernels_of_a_graph_are_counted_when_it_is_launched) {
  for (const char* settings : {"lose_at=3", "refuse_at=3", "lose_at=3,seed=5"}) {
    EXPECT_EXIT(
        {
          Sum sum(open(settings));
          Status status = sum.capture();
          for (int i = 0; i < 2 && status.ok(); ++i) status = sum.stream.launch(*sum.graph);
          if (status.ok()) status = sum.stream.wait();
          if (!status.ok()) conclude(false, status.to_string());
          status = sum.stream.launch(*sum.graph);
          conclude(status.code() == Code::kUnavailable, status.to_string());
        },
        testing::ExitedWithCode(0), "emulated:0: graph_launch: the (emulated device is lost|launch failed)");
  }
}

TEST_F(EmulatedDevice, graphs_are_used_but_where_they_are_turned_off_or_operations_are_timed) {
  EXPECT_EXIT(
      {
        ::unsetenv("TANDEM_DEVICE_GRAPHS");
        ::unsetenv("TANDEM_DEVICE_TIMES");
        bool ok = open("memory=1m").uses_graphs();
        ::setenv("TANDEM_DEVICE_GRAPHS", "1", 1);
        ok = ok && open("memory=1m").uses_graphs();
        ::setenv("TANDEM_DEVICE_GRAPHS", "0", 1);
        ok = ok && !open("memory=1m").uses_graphs();
        ::unsetenv("TANDEM_DEVICE_GRAPHS");
        ::setenv("TANDEM_DEVICE_TIMES", "1", 1);
        conclude(ok && !open("memory=1m").uses_graphs());
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(EmulatedDevice, settings_that_are_none_are_refused) {
  EXPECT_EXIT(open("seed=x"), testing::ExitedWithCode(9), "TANDEM_EMULATED is not of the form seed=7");
  EXPECT_EXIT(open("memory=1"), testing::ExitedWithCode(9), "TANDEM_EMULATED is not of the form");
}

TEST(DeviceNames, are_read_and_written_alike) {
  for (const char* name : {"auto", "cpu", "cpu:avx2", "cpu:avx512_bf16", "cuda:0", "cuda:3", "emulated:1"}) {
    const auto device = device_named(name);
    ASSERT_TRUE(device) << name;
    EXPECT_EQ(to_string(*device), name);
  }
}

TEST(DeviceNames, a_word_that_is_no_device_is_told_from_a_device_that_is_not_there) {
  EXPECT_EQ(find_device("cpu:avx3").error().code(), Code::kInvalid);
  EXPECT_NE(find_device("cud:0").error().to_string().find("cuda:0"), std::string::npos);
  EXPECT_EQ(find_device("cuda").error().code(), Code::kInvalid);
  EXPECT_EQ(find_device("cuda:-1").error().code(), Code::kInvalid);
  EXPECT_EQ(find_device("cuda:900").error().code(), Code::kUnfit);
  EXPECT_EQ(find_device("emulated:99").error().code(), Code::kUnfit);
  EXPECT_TRUE(find_device("auto"));
}

}  // namespace
}  // namespace tandem::kernels
