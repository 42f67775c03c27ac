// The group over NVIDIA's NCCL and real GPUs, one rank each; skipped where there is none.
#include <gtest/gtest.h>

#include <thread>

#include "collectives/nccl.h"
#include "tests/collectives/processes.h"

namespace tandem::collectives {
namespace {

// A rank on its GPU: its values are far apart in size, so that another order of additions gives other bits.
void reduce_on(int rank, int ranks, const GroupFolder& folder, const kernels::cuda::Library& kernels,
               const NcclLibrary& nccl) {
  constexpr size_t kCount = 100'003;
  const auto values_of = [&](int of) {
    std::vector<float> values(kCount);
    for (size_t i = 0; i < kCount; ++i) values[i] = (of % 2 == 0 ? 1e6f : 1e-3f) * static_cast<float>(i % 1000 + of);
    return values;
  };
  const auto& f = kernels.functions();
  auto meeting = meet_locally({.folder = folder.path(), .rank = rank, .ranks = ranks, .deadline = kEnough});
  ASSERT_TRUE(meeting) << meeting.error().to_string();
  TandemCudaStream stream = nullptr;
  ASSERT_EQ(f.stream_create(rank, kTandemCudaExact, &stream), 0);
  {
    auto group = meet_by_nccl(**meeting, nccl, {.kernels = kernels, .stream = stream, .deadline = kEnough});
    ASSERT_TRUE(group) << group.error().to_string();
    auto values = values_of(rank);
    void* memory = nullptr;
    ASSERT_EQ(f.allocate(stream, kCount * sizeof(float), &memory), 0);
    ASSERT_EQ(f.copy_to_device(stream, memory, values.data(), kCount * sizeof(float)), 0);
    const Status reduced = (*group)->all_reduce(std::span(static_cast<float*>(memory), kCount), kEnough);
    EXPECT_TRUE(reduced) << reduced.to_string();
    ASSERT_EQ(f.copy_to_host(stream, values.data(), memory, kCount * sizeof(float)), 0);
    ASSERT_EQ(f.synchronize(stream), 0);
    auto expected = values_of(0);
    for (int other = 1; other < ranks; ++other) {
      const auto more = values_of(other);
      for (size_t i = 0; i < kCount; ++i) expected[i] += more[i];
    }
    EXPECT_EQ(values, expected);
    f.free(stream, memory);
  }
  f.stream_destroy(stream);
}

TEST(NcclDevice, sums_of_all_gpus_are_those_of_one_loop_over_the_ranks) {
  const auto kernels = kernels::cuda::Library::load();
  if (!kernels) GTEST_SKIP() << kernels.error().to_string();
  const auto devices = kernels->devices();
  ASSERT_TRUE(devices) << devices.error().to_string();
  const auto nccl = NcclLibrary::load();
  if (devices->empty() || !devices->front().supported() || !nccl) GTEST_SKIP() << "no GPU, or no NCCL";
  const int ranks = std::min(4, static_cast<int>(devices->size()));
  GroupFolder folder;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { reduce_on(rank, ranks, folder, *kernels, *nccl); });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace tandem::collectives
