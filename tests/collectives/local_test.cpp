#include "collectives/local.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "base/random.h"
#include "collectives/mesh.h"
#include "collectives/slices.h"
#include "tests/collectives/processes.h"

namespace tandem::collectives {
namespace {

using namespace std::chrono_literals;

std::vector<float> floats_of(int rank, size_t count) {
  Random random(100 + rank);
  std::vector<float> values(count);
  // Sizes far apart, so that another order of additions gives other bits.
  for (auto& value : values) value = static_cast<float>(random.normal()) * (random.below(2) != 0 ? 1e6f : 1e-2f);
  return values;
}
std::vector<bf16> bf16_of(int rank, size_t count) {
  std::vector<bf16> values;
  for (const float value : floats_of(rank, count)) values.push_back(kernels::to_bf16(value));
  return values;
}

// One loop over the ranks.
std::vector<float> sum_of_floats(int ranks, size_t count) {
  auto sums = floats_of(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const auto values = floats_of(rank, count);
    for (size_t i = 0; i < count; ++i) sums[i] += values[i];
  }
  return sums;
}
std::vector<bf16> sum_of_bf16(int ranks, size_t count) {
  std::vector<float> sums;
  for (const bf16 value : bf16_of(0, count)) sums.push_back(to_float(value));
  for (int rank = 1; rank < ranks; ++rank) {
    const auto values = bf16_of(rank, count);
    for (size_t i = 0; i < count; ++i) sums[i] += to_float(values[i]);
  }
  std::vector<bf16> rounded;
  for (const float sum : sums) rounded.push_back(kernels::to_bf16(sum));
  return rounded;
}
template <typename T>
std::string_view raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Joins the group, and says what `use` says, or the error.
template <typename Use>
RankBody in_group(const GroupFolder& folder, int ranks, const Use& use) {
  return [&folder, ranks, use](int rank) -> std::string {
    auto group = meet_locally({.folder = folder.path(), .rank = rank, .ranks = ranks, .deadline = kEnough});
    if (!group) return group.error().to_string();
    return use(**group);
  };
}

// Every rank comes to each call at a time of its own.
void stagger(const Group& group, int turn) {
  std::this_thread::sleep_for(std::chrono::milliseconds((group.rank() * 7 + turn * 3) % 11));
}

TEST(LocalGroup, sums_are_those_of_one_loop_over_the_ranks_whoever_comes_first) {
  for (const int ranks : {1, 2, 3, 5}) {
    // None, fewer than ranks, no multiple of them, more than sockets hold.
    for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{300'007}}) {
      SCOPED_TRACE(fmt::format("{} ranks, {} elements", ranks, count));
      GroupFolder folder;
      Ranks processes(ranks, in_group(folder, ranks, [&](Group& group) -> std::string {
                        auto floats = floats_of(group.rank(), count);
                        auto halves = bf16_of(group.rank(), count);
                        stagger(group, 0);
                        if (const Status status = group.all_reduce(std::span(floats), kEnough); !status)
                          return status.to_string();
                        stagger(group, 1);
                        if (const Status status = group.all_reduce(std::span(halves), kEnough); !status)
                          return status.to_string();
                        return std::string(raw(floats)) + std::string(raw(halves));
                      }));
      const auto floats = sum_of_floats(ranks, count);
      const auto halves = sum_of_bf16(ranks, count);
      const std::string expected = std::string(raw(floats)) + std::string(raw(halves));
      for (int rank = 0; rank < ranks; ++rank) EXPECT_TRUE(processes.said(rank) == expected) << "rank " << rank;
    }
  }
}

TEST(LocalGroup, parts_of_a_sum_and_copies_come_to_their_ranks) {
  constexpr int kRanks = 4;
  constexpr size_t kPart = 5000;
  GroupFolder folder;
  Ranks processes(
      kRanks, in_group(folder, kRanks, [](Group& group) -> std::string {
        const auto values = floats_of(group.rank(), kPart * kRanks);
        const auto halves = bf16_of(group.rank(), kPart * kRanks);
        std::vector<float> part(kPart), all(kPart * kRanks);
        std::vector<bf16> half(kPart);
        Status status = group.reduce_scatter(std::span(values), std::span(part), kEnough);
        if (status) status = group.reduce_scatter(std::span(halves), std::span(half), kEnough);
        if (status)
          status = group.all_gather(std::as_bytes(std::span(part)), std::as_writable_bytes(std::span(all)), kEnough);
        std::vector<char> word(70'000, static_cast<char>('a' + group.rank()));
        if (status) status = group.broadcast(std::as_writable_bytes(std::span(word)), 2, kEnough);
        if (!status) return status.to_string();
        return std::string(raw(part)) + std::string(raw(half)) + std::string(raw(all)) + std::string(raw(word));
      }));
  const auto sums = sum_of_floats(kRanks, kPart * kRanks);
  const auto halves = sum_of_bf16(kRanks, kPart * kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string expected = std::string(raw(sums).substr(kPart * rank * sizeof(float), kPart * sizeof(float))) +
                                 std::string(raw(halves).substr(kPart * rank * sizeof(bf16), kPart * sizeof(bf16))) +
                                 std::string(raw(sums)) + std::string(70'000, 'c');
    EXPECT_TRUE(processes.said(rank) == expected) << "rank " << rank;
  }
}

TEST(LocalGroup, pieces_are_added_as_a_tree_and_gathered_whatever_their_sizes) {
  constexpr size_t kCount = 100'003;
  for (const int ranks : {1, 2, 4, 8}) {
    // The first rank owns nothing, the last the beginning, some elements nobody.
    std::vector<Piece> pieces(ranks);
    size_t begin = 0;
    for (int rank = ranks - 1; rank > 0; --rank) {
      pieces[rank] = {.begin = begin, .count = static_cast<size_t>(1000 * rank + 7)};
      begin += pieces[rank].count + 5;
    }
    GroupFolder folder;
    Ranks processes(ranks, in_group(folder, ranks, [&](Group& group) -> std::string {
                      auto values = floats_of(group.rank(), kCount);
                      Status status = group.reduce_pieces(std::span(values), pieces, kEnough);
                      std::vector<Piece> bytes;
                      for (const Piece& piece : pieces) bytes.push_back({piece.begin * 4, piece.count * 4});
                      if (status)
                        status = group.gather_pieces(std::as_writable_bytes(std::span(values)), bytes, kEnough);
                      return status ? std::string(raw(values)) : status.to_string();
                    }));
    std::vector<std::vector<float>> sums;
    for (int rank = 0; rank < ranks; ++rank) sums.push_back(floats_of(rank, kCount));
    for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
      for (size_t pair = 0; pair < sums.size() / 2; ++pair) {
        auto left = sums[2 * pair];
        for (size_t i = 0; i < kCount; ++i) left[i] += sums[2 * pair + 1][i];
        sums[pair] = left;
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      auto expected = floats_of(rank, kCount);
      for (const Piece& piece : pieces)
        std::copy_n(sums[0].begin() + static_cast<ptrdiff_t>(piece.begin), piece.count,
                    expected.begin() + static_cast<ptrdiff_t>(piece.begin));
      EXPECT_TRUE(processes.said(rank) == raw(expected)) << "rank " << rank << " of " << ranks;
    }
  }
}

TEST(LocalGroup, pieces_that_cannot_be_are_refused_before_anything_is_sent) {
  GroupFolder folder;
  auto group = meet_locally({.folder = folder.path(), .rank = 0, .ranks = 1});
  ASSERT_TRUE(group);
  std::vector<float> values(10);
  const auto refused = [&](std::vector<Piece> pieces) {
    return (*group)->reduce_pieces(std::span(values), pieces, kEnough).code() == Code::kInvalid;
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({{0, 5}, {5, 5}}));
  EXPECT_TRUE(refused({{5, 6}}));
  EXPECT_TRUE(refused({{SIZE_MAX, 2}}));
  EXPECT_FALSE(refused({{5, 5}}));
  EXPECT_EQ(check_pieces(10, std::vector<Piece>{{0, 5}, {4, 5}}, 2).code(), Code::kInvalid);
  EXPECT_EQ(check_tree(3).code(), Code::kInvalid);
}

// Says the status, and that the next call gives the same.
std::string said_twice(Group& group, const Status& status) {
  float value = 0;
  const Status again = group.all_reduce(std::span(&value, 1), kEnough);
  return fmt::format("{} {}{}", to_string(status.code()), status.message(), again == status ? "" : ", then another");
}

TEST(LocalGroup, a_rank_that_is_killed_is_named_by_all_others_and_closes_the_group) {
  constexpr int kRanks = 3;
  GroupFolder folder;
  Ranks processes(kRanks, in_group(folder, kRanks, [](Group& group) -> std::string {
                    std::vector<float> values(2'000'000, 1);
                    if (group.rank() == 1) {
                      // Comes to the first call and is never seen in the second.
                      (void)group.all_reduce(std::span(values), kEnough);
                      ::kill(::getpid(), SIGKILL);
                    }
                    Status status = group.all_reduce(std::span(values), kEnough);
                    if (!status) return "the first call: " + status.to_string();
                    status = group.all_reduce(std::span(values), kEnough);
                    return said_twice(group, status);
                  }));
  EXPECT_EQ(processes.said(1), "");
  // The other survivor may be the first to hang up: it, too, has left the group.
  for (const int rank : {0, 2}) {
    const std::string said = processes.said(rank);
    EXPECT_TRUE(said == "unavailable all_reduce: rank 1 is gone" ||
                said == fmt::format("unavailable all_reduce: rank {} is gone", 2 - rank))
        << said;
  }
}

TEST(LocalGroup, a_rank_that_does_not_come_to_a_call_is_named_at_the_deadline) {
  GroupFolder folder;
  int wait[2];
  ASSERT_EQ(::pipe(wait), 0);
  FileDescriptor reading(wait[0]), writing(wait[1]);
  Ranks processes(2, in_group(folder, 2, [&](Group& group) -> std::string {
                    float value = 1;
                    if (group.rank() == 1) {
                      writing.reset();
                      char byte;
                      (void)!::read(reading.get(), &byte, 1);  // until the other has said its word
                      return "left";
                    }
                    return said_twice(group, group.all_reduce(std::span(&value, 1), 50ms));
                  }));
  EXPECT_EQ(processes.said(0), "deadline all_reduce: rank 1 has not answered in time");
  writing.reset();
  EXPECT_EQ(processes.said(1), "left");
}

TEST(LocalGroup, ranks_in_different_calls_or_with_other_sizes_are_told_so) {
  GroupFolder folder;
  Ranks processes(2, in_group(folder, 2, [&](Group& group) -> std::string {
                    std::vector<float> values(group.rank() == 0 ? 10 : 20);
                    return said_twice(group, group.all_reduce(std::span(values), kEnough));
                  }));
  const std::string first = processes.said(0), second = processes.said(1);
  EXPECT_TRUE(first.starts_with("invalid all_reduce: rank 1 has other sizes: ") ||
              first == "unavailable all_reduce: rank 1 is gone")
      << first;
  EXPECT_TRUE(second.starts_with("invalid all_reduce: rank 0 has other sizes: ") ||
              second == "unavailable all_reduce: rank 0 is gone")
      << second;
  EXPECT_TRUE(first.starts_with("invalid") || second.starts_with("invalid"));

  GroupFolder other;
  Ranks apart(2, in_group(other, 2, [&](Group& group) -> std::string {
                std::vector<float> values(2);
                return said_twice(group, group.rank() == 0
                                             ? group.all_reduce(std::span(values), kEnough)
                                             : group.broadcast(std::as_writable_bytes(std::span(values)), 1, kEnough));
              }));
  const std::string in_sum = apart.said(0), in_broadcast = apart.said(1);
  EXPECT_TRUE(in_sum == "invalid all_reduce: rank 1 is in broadcast" ||
              in_broadcast == "invalid broadcast: rank 0 is in all_reduce")
      << in_sum << " / " << in_broadcast;
}

TEST(LocalGroup, sizes_and_ranks_that_cannot_be_are_refused_before_anything_is_sent) {
  GroupFolder folder;
  auto group = meet_locally({.folder = folder.path(), .deadline = kEnough});
  ASSERT_TRUE(group) << group.error().to_string();
  std::vector<float> values(3), part(2);
  EXPECT_EQ((*group)->reduce_scatter(std::span<const float>(values), std::span(part), kEnough).message(),
            "reduce_scatter: 3 elements are no 1 parts of 2");
  EXPECT_EQ((*group)->all_gather({}, std::as_writable_bytes(std::span(part)), kEnough).message(),
            "all_gather: 0 bytes of each of 1 ranks do not fill 8");
  EXPECT_EQ((*group)->broadcast({}, 1, kEnough).message(), "broadcast: rank 1 is none of 1");
  EXPECT_TRUE((*group)->all_reduce(std::span(values), kEnough));

  EXPECT_EQ(meet_locally({.folder = folder.path(), .rank = 2, .ranks = 2}).error().message(), "rank 2 of 2 ranks");
  EXPECT_EQ(meet_locally({.folder = folder.path(), .ranks = 257}).error().message(),
            "a group of 257 ranks: 1 to 256 meet");
  EXPECT_EQ(meet_locally({.folder = std::string(100, 'x')}).error().code(), Code::kInvalid);
  EXPECT_EQ(meet_locally({.folder = folder.path() / "nowhere"}).error().code(), Code::kNotFound);
}

TEST(LocalGroup, a_rank_that_never_comes_and_one_that_is_there_already_are_named) {
  GroupFolder folder;
  const auto alone = meet_locally({.folder = folder.path(), .rank = 0, .ranks = 3, .deadline = 30ms});
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().code(), Code::kDeadline);
  EXPECT_EQ(alone.error().message(), "meet: rank 1 has not come");
  const auto above = meet_locally({.folder = folder.path(), .rank = 1, .ranks = 3, .deadline = 30ms});
  ASSERT_FALSE(above);
  EXPECT_EQ(above.error().message(), "meet: rank 0 has not come");

  std::ofstream(folder.path() / "rank-0") << "";
  const auto twice = meet_locally({.folder = folder.path(), .rank = 0, .ranks = 2, .deadline = 30ms});
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code(), Code::kExists);
}

// Any process of the user may call; what is no rank of this group ends the meeting by its name, not by its bytes.
TEST(LocalGroup, a_caller_that_is_no_rank_of_the_group_is_refused) {
  GroupFolder folder;
  Ranks processes(1, [&](int) -> std::string {
    const auto group = meet_locally({.folder = folder.path(), .rank = 0, .ranks = 2, .deadline = kEnough});
    return group ? "met" : group.error().message();
  });
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, (folder.path() / "rank-0").c_str());
  const FileDescriptor caller(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto end = std::chrono::steady_clock::now() + kEnough;
  while (::connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::yield();
  }
  ASSERT_TRUE(write_all(caller.get(), std::string(64, '\xff'), "socket"));
  EXPECT_EQ(processes.said(0), "meet: what called rank 0 is no other rank of a group of 2");
}

// A rank of two by hand: what it says at the meeting, and then a call of its own making.
class RankByHand {
 public:
  explicit RankByHand(const GroupFolder& folder) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (folder.path() / "rank-0").c_str());
    const auto end = std::chrono::steady_clock::now() + kEnough;
    while (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      if (std::chrono::steady_clock::now() > end) return;
      std::this_thread::yield();
    }
  }
  // To who may have hung up already.
  void say(const std::string& bytes) { (void)!::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }

 private:
  FileDescriptor socket_;
};
std::string header_of(const Header& header) { return {reinterpret_cast<const char*>(&header), sizeof header}; }

TEST(LocalGroup, a_message_with_any_byte_of_its_header_changed_is_refused_before_what_is_behind_it) {
  const std::string sum = header_of({.operation = Operation::kAllReduce, .number = 2, .bytes = 8, .total = 16});
  for (size_t changed = 0; changed <= sum.size(); ++changed) {
    SCOPED_TRACE(changed);
    GroupFolder folder;
    Ranks processes(1, in_group(folder, 2, [](Group& group) {
                      std::vector<float> values(4, 1);
                      const Status status = group.all_reduce(std::span(values), kEnough);
                      return status ? fmt::format("ok {}", values[0]) : said_twice(group, status);
                    }));
    RankByHand other(folder);
    other.say(header_of({.operation = Operation::kMeet, .number = 1, .total = 2}));
    other.say(header_of({.operation = Operation::kAllGather, .number = 1}));
    std::string call = sum;
    if (changed < call.size()) call[changed] = static_cast<char>(call[changed] ^ 0x41);
    const float ones[] = {1, 1};
    const std::string payload(reinterpret_cast<const char*>(ones), sizeof ones);
    other.say(call + payload);
    other.say(header_of({.operation = Operation::kAllReduce, .number = 3, .bytes = 8, .total = 16}) + payload);
    const std::string said = processes.said(0);
    if (changed == sum.size()) {
      EXPECT_EQ(said, "ok 2");
    } else {
      EXPECT_TRUE(said.starts_with(changed < 4 ? "corrupt all_reduce: rank 1 " : "invalid all_reduce: rank 1 "))
          << said;
      EXPECT_EQ(said.find(", then another"), std::string::npos) << said;
    }
  }
}

TEST(Slices, share_all_elements_out_evenly) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1'000'003}}) {
    for (const int ranks : {1, 2, 3, 256}) {
      const Slices slices{count, ranks};
      EXPECT_EQ(slices.begin(0), 0u);
      EXPECT_EQ(slices.begin(ranks), count);
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_GE(slices.size(rank), count / ranks);
        EXPECT_LE(slices.size(rank), count / ranks + 1);
      }
    }
  }
}

}  // namespace
}  // namespace tandem::collectives
