#include "collectives/nccl.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/random.h"
#include "tests/collectives/processes.h"

namespace tandem::collectives {
namespace {

using namespace std::chrono_literals;

// A group over the fakes of this folder, each rank a thread: `use(rank, group)`. The libraries are loaded before the
// first thread begins: what the loader's own lock orders, the thread sanitizer does not see.
template <typename Use>
void in_group_of_threads(int ranks, const Use& use, int stuck_rank = -1) {
  auto nccl = NcclLibrary::load(TANDEM_FAKE_NCCL);
  ASSERT_TRUE(nccl) << nccl.error().to_string();
  auto kernels = kernels::cuda::Library::load(std::filesystem::path(TANDEM_FAKE_CUDA));
  ASSERT_TRUE(kernels) << kernels.error().to_string();
  GroupFolder folder;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto meeting = meet_locally({.folder = folder.path(), .rank = rank, .ranks = ranks, .deadline = kEnough});
      ASSERT_TRUE(meeting) << meeting.error().to_string();
      TandemCudaStream stream = nullptr;
      ASSERT_EQ(kernels->functions().stream_create(rank == stuck_rank, kTandemCudaExact, &stream), 0);
      {
        auto group = meet_by_nccl(**meeting, *nccl, {.kernels = *kernels, .stream = stream, .deadline = kEnough});
        ASSERT_TRUE(group) << group.error().to_string();
        use(rank, **group);
      }
      kernels->functions().stream_destroy(stream);
    });
  }
  for (auto& thread : threads) thread.join();
}

std::vector<float> nccl_floats_of(int rank, size_t count) {
  Random random(100 + rank);
  std::vector<float> values(count);
  for (auto& value : values) value = static_cast<float>(random.normal()) * (random.below(2) != 0 ? 1e6f : 1e-2f);
  return values;
}
std::vector<float> sum_of(int ranks, size_t count) {
  auto sums = nccl_floats_of(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const auto values = nccl_floats_of(rank, count);
    for (size_t i = 0; i < count; ++i) sums[i] += values[i];
  }
  return sums;
}

TEST(NcclGroup, sums_and_copies_are_those_of_one_loop_over_the_ranks) {
  for (const int ranks : {1, 2, 5}) {
    for (const size_t part : {size_t{0}, size_t{1}, size_t{1001}}) {
      const size_t count = part * ranks;
      in_group_of_threads(ranks, [&](int rank, Group& group) {
        EXPECT_EQ(group.rank(), rank);
        EXPECT_EQ(group.ranks(), ranks);
        const auto expected = sum_of(ranks, count);
        auto values = nccl_floats_of(rank, count);
        std::vector<float> mine(part);
        EXPECT_TRUE(group.reduce_scatter(std::span<const float>(values), std::span(mine), kEnough));
        EXPECT_TRUE(std::equal(mine.begin(), mine.end(), expected.begin() + part * rank));
        EXPECT_TRUE(group.all_reduce(std::span(values), kEnough));
        EXPECT_EQ(values, expected);
        std::vector<float> all(count);
        EXPECT_TRUE(group.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)), kEnough));
        EXPECT_EQ(all, expected);
        // From its own place.
        std::fill(all.begin(), all.end(), 0.0f);
        const auto own = std::span(all).subspan(part * rank, part);
        std::copy(mine.begin(), mine.end(), own.begin());
        EXPECT_TRUE(group.all_gather(std::as_bytes(own), std::as_writable_bytes(std::span(all)), kEnough));
        EXPECT_EQ(all, expected);
        std::vector<float> word(7, static_cast<float>(rank));
        EXPECT_TRUE(group.broadcast(std::as_writable_bytes(std::span(word)), ranks - 1, kEnough));
        EXPECT_EQ(word, std::vector<float>(7, static_cast<float>(ranks - 1)));
      });
    }
  }
}

TEST(NcclGroup, pieces_are_added_as_a_tree_and_gathered) {
  for (const int ranks : {1, 2, 4}) {
    constexpr size_t kCount = 1001;
    std::vector<Piece> pieces(ranks);
    for (int rank = 1; rank < ranks; ++rank) pieces[rank] = {.begin = 300u * (rank - 1), .count = 250u + rank};
    in_group_of_threads(ranks, [&](int rank, Group& group) {
      std::vector<std::vector<float>> sums;
      for (int other = 0; other < ranks; ++other) sums.push_back(nccl_floats_of(other, kCount));
      for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
        for (size_t pair = 0; pair < sums.size() / 2; ++pair) {
          auto left = sums[2 * pair];
          for (size_t i = 0; i < kCount; ++i) left[i] += sums[2 * pair + 1][i];
          sums[pair] = left;
        }
      }
      auto expected = nccl_floats_of(rank, kCount);
      std::vector<Piece> bytes;
      for (const Piece& piece : pieces) {
        std::copy_n(sums[0].begin() + piece.begin, piece.count, expected.begin() + piece.begin);
        bytes.push_back({piece.begin * 4, piece.count * 4});
      }
      auto values = nccl_floats_of(rank, kCount);
      EXPECT_TRUE(group.reduce_pieces(std::span(values), pieces, kEnough));
      EXPECT_TRUE(group.gather_pieces(std::as_writable_bytes(std::span(values)), bytes, kEnough));
      EXPECT_EQ(values, expected);
    });
  }
}

TEST(NcclGroup, bf16_is_added_in_fp32_and_rounded_once) {
  in_group_of_threads(3, [&](int rank, Group& group) {
    std::vector<bf16> values(5, kernels::to_bf16(rank == 0 ? 256.0f : 1.0f));
    EXPECT_TRUE(group.all_reduce(std::span(values), kEnough));
    for (const bf16 value : values) EXPECT_EQ(to_float(value), 258);
  });
}

TEST(NcclGroup, a_rank_that_breaks_off_is_an_error_of_the_others_and_closes_the_group) {
  in_group_of_threads(3, [&](int rank, Group& group) {
    std::vector<float> values(10);
    if (rank == 1) {  // is in another call, of another size, and its communicator is aborted
      EXPECT_EQ(group.broadcast(std::as_writable_bytes(std::span(values).first(7)), 0, kEnough).message(),
                "broadcast: invalid argument");
      return;
    }
    const Status status = group.all_reduce(std::span(values), kEnough);
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_EQ(status.message(), "all_reduce: remote process exited or there was a network error");
    EXPECT_EQ(group.broadcast({}, 0, kEnough), status);
  });
}

TEST(NcclGroup, a_stream_that_does_not_get_past_a_call_ends_at_the_deadline) {
  in_group_of_threads(
      1,
      [&](int, Group& group) {
        std::vector<float> values(10);
        const Status status = group.all_reduce(std::span(values), 20ms);
        EXPECT_EQ(status.code(), Code::kDeadline);
        EXPECT_EQ(status.message(), "all_reduce: the other ranks have not answered in time");
        EXPECT_EQ(group.all_reduce(std::span(values), kEnough), status);
      },
      0);
}

TEST(NcclGroup, sizes_that_cannot_be_are_refused) {
  in_group_of_threads(1, [&](int, Group& group) {
    std::vector<float> values(3), part(2);
    EXPECT_EQ(group.reduce_scatter(std::span<const float>(values), std::span(part), kEnough).message(),
              "reduce_scatter: 3 elements are no 1 parts of 2");
    EXPECT_EQ(group.all_gather({}, std::as_writable_bytes(std::span(part)), kEnough).message(),
              "all_gather: 0 bytes of each of 1 ranks do not fill 8");
    EXPECT_EQ(group.broadcast({}, 1, kEnough).message(), "broadcast: rank 1 is none of 1");
  });
}

TEST(NcclLibrary, one_that_is_not_there_and_one_that_is_none_are_told) {
  const auto absent = NcclLibrary::load("libnccl-of-nobody.so");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code(), Code::kNotFound);
  EXPECT_NE(absent.error().message().find("libnccl-of-nobody.so"), std::string::npos);
  const auto other = NcclLibrary::load("libm.so.6");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), Code::kUnfit);
  EXPECT_EQ(other.error().message(), "libm.so.6: has no function ncclGetVersion");
}

// NVIDIA's own, where it is: it has the functions, and takes no GPU to say which version it is.
TEST(NcclLibrary, the_one_of_this_machine_is_taken) {
  auto nccl = NcclLibrary::load();
  if (!nccl) nccl = NcclLibrary::load("/usr/local/cuda/lib64/libnccl.so.2");
  if (!nccl) GTEST_SKIP() << nccl.error().to_string();
  EXPECT_GE(nccl->version(), 21400);
}

}  // namespace
}  // namespace tandem::collectives
