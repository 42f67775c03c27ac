// The rules of an emulated device, each in a process of its own, since what TANDEM_EMULATED says holds for one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>

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
