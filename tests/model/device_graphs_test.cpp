// Plans as graphs of a device's stream: the same bits as without, whatever comes in between, and that they are used.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>

#include "base/random.h"
#include "model/device/plan_graphs.h"
#include "model/device/plan_packet.h"
#include "model/executor.h"
#include "tests/model/emulated.h"
#include "tests/model/graphs_variable.h"
#include "tests/model/same_answers.h"
#include "tests/model/tiny_weights.h"

namespace tandem::model {
namespace {

constexpr int kPlayers = 12, kPagesOfPlayer = 3, kLongest = 190, kTokens = 200;

std::unique_ptr<Executor> graphs_executor(const kernels::Device& device) {
  const Place place{.device = device, .threads = 1};
  auto made = make_executor(tiny_weights(1), place, {.pages = kPlayers * kPagesOfPlayer, .max_positions = kLongest});
  if (!made) throw std::runtime_error(made.error().to_string());
  return std::move(*made);
}

// Sequences that come and go, two plans under way: what is submitted follows from `seed` alone, never from answers.
class Schedule {
 public:
  Schedule(Executor& executor, uint64_t seed) : executor_(executor), random_(seed), players_(kPlayers) {
    for (int i = 0; i < kPlayers; ++i) {
      for (int page = 0; page < kPagesOfPlayer; ++page) players_[i].pages.push_back(i * kPagesOfPlayer + page);
    }
  }
  std::vector<Answer> play(int steps) {
    for (const Player& player : players_) EXPECT_TRUE(executor_.clear(player.pages));
    for (int i = 0; i < steps && !testing::Test::HasFatalFailure(); ++i) step();
    while (!under_way_.empty() && !testing::Test::HasFatalFailure()) collect();
    return std::move(answers_);
  }

 private:
  struct Player {
    std::vector<int> pages;
    int length = 0;  // tokens with keys and values
    int32_t next = 0;
    std::optional<LaterToken> later;  // where `next` is not known yet
  };

  bool one_in(uint64_t n) { return random_.below(n) == 0; }
  int32_t any_token() { return static_cast<int32_t>(random_.below(kTokens)); }

  void step() {
    if (one_in(20)) {
      ASSERT_NO_FATAL_FAILURE(flip());
    }
    if (one_in(6)) playing_ = 1 + static_cast<int>(random_.below(kPlayers));
    const bool masked = one_in(4), drafts = one_in(4), biased = one_in(12), scored = one_in(10);
    Plan plan{.before_flip = flipped_ && one_in(5)};
    for (int i = 0; i < playing_; ++i) {
      Player& player = players_[i];
      const int row = static_cast<int>(plan.batch.tokens.size());
      std::vector<int32_t> tokens;
      int drawn = 1;  // of the last rows
      if (player.length == 0 || player.length > kLongest - 8) {
        player.length = 0;
        tokens.resize(1 + random_.below(one_in(8) ? 60 : 6));
        for (auto& token : tokens) token = any_token();
      } else {
        tokens = {player.later ? 0 : player.next};
        if (player.later) plan.later.push_back({row, *player.later});
        for (int more = drafts ? static_cast<int>(random_.below(3)) : 0; more > 0; --more) {
          tokens.push_back(any_token());
          ++drawn;
        }
      }
      const int rows = static_cast<int>(tokens.size());
      plan.batch.add(tokens, player.length, player.pages);
      // What follows the first drawn token is written over by the next plan.
      player.length += rows - drawn + 1;
      player.later = {.ticket = ticket_ + 1, .draw = static_cast<int>(plan.draws.size())};
      for (int d = 0; d < drawn; ++d) add_draw(plan, row + rows - drawn + d, player.length + d, masked, biased);
    }
    if (scored) {
      plan.picks = {{0, any_token()}};
      plan.likeliest = {static_cast<int>(plan.batch.tokens.size()) - 1};
      plan.tops = {{.row = 0, .count = 3}};
    }
    const auto ticket = executor_.submit(std::move(plan));
    ASSERT_TRUE(ticket) << ticket.error().to_string();
    ASSERT_EQ(*ticket, ++ticket_);
    under_way_.push_back(*ticket);
    if (under_way_.size() > 1 || one_in(8)) collect();
  }

  void add_draw(Plan& plan, int row, int position, bool masked, bool biased) {
    Draw draw{.row = row, .seed = random_.bits(), .position = static_cast<uint64_t>(position)};
    if (one_in(3)) draw.sampling = {.temperature = one_in(2) ? 0.0f : 0.7f, .top_k = 20, .top_p = 0.9f};
    if (masked && one_in(2)) {
      draw.mask = [word = random_.bits()](std::span<uint64_t> allowed) { allowed[1] = word | 1; };
    }
    if (biased && one_in(3)) draw.bias = {{any_token(), 4.0f}};
    plan.draws.push_back(std::move(draw));
  }

  void collect() {
    const Ticket ticket = under_way_.front();
    under_way_.pop_front();
    auto answer = executor_.collect(ticket);
    ASSERT_TRUE(answer) << answer.error().to_string();
    for (Player& player : players_) {
      if (!player.later || player.later->ticket != ticket) continue;
      player.next = answer->draws.at(player.later->draw).token;
      player.later.reset();
    }
    answers_.push_back(std::move(*answer));
  }

  void flip() {
    auto staged = executor_.stage();
    ASSERT_TRUE(staged) << staged.error().to_string();
    ASSERT_TRUE((*staged)->prepare(tiny_weights(1 + random_.below(3))->wire()));
    ASSERT_TRUE(executor_.flip(std::move(*staged)));
    flipped_ = true;
    if (one_in(4)) {
      ASSERT_TRUE(executor_.roll_back());
      flipped_ = false;
    }
  }

  Executor& executor_;
  Random random_;
  std::vector<Player> players_;
  int playing_ = 4;
  bool flipped_ = false;
  Ticket ticket_ = 0;
  std::deque<Ticket> under_way_;
  std::vector<Answer> answers_;
};

const kernels::Device kOnAvx2{.kind = kernels::Device::Kind::kCpu, .isa = kernels::Isa::kAvx2};

void compare_graphs(const kernels::Device& device, uint64_t seed) {
  SCOPED_TRACE(seed);
  const auto with = graphs_executor(device);
  const auto said = Schedule(*with, seed).play(120);
  EXPECT_GT(with->graphs().launched, 30U);
  EXPECT_GT(with->graphs().captured, 2U);
  const GraphsVariable off("0");
  const auto without = graphs_executor(device);
  expect_same(said, Schedule(*without, seed).play(120));
  EXPECT_EQ(without->graphs().launched, 0U);
  expect_same(said, Schedule(*graphs_executor(kOnAvx2), seed).play(120));
}

TEST(DeviceGraphs, any_schedule_has_the_same_bits_with_and_without_them_and_on_a_cpu) {
  for (const int seed : {0, 1, 2, 3}) compare_graphs({.kind = kernels::Device::Kind::kEmulated, .index = seed}, seed);
}

// Where there is one: scripts/gpu-check carries this test to it.
TEST(CudaDeviceGraphs, any_schedule_on_the_first_gpu_has_the_same_bits_with_and_without_them_and_on_a_cpu) {
  const auto gpu = kernels::find_device("cuda:0");
  if (!gpu) GTEST_SKIP() << gpu.error().to_string();
  for (const uint64_t seed : {0, 1, 2, 3}) compare_graphs(*gpu, seed);
}

// A stream of numbers, and work of plans that adds to them.
struct GraphsOfNumbers {
  kernels::DeviceStream stream = std::move(*kernels::DeviceStream::open({.kind = kernels::Device::Kind::kEmulated}));
  kernels::DeviceBuffer<float> numbers = std::move(*stream.allocate<float>(4, "a test"));
  PlanGraphs<int> graphs;
  int puts = 0;  // how often work was put there kernel by kernel, or captured

  void run(int rows) {
    const auto said = graphs.run(stream, {.rows = rows}, [&]() -> Result<int> {
      ++puts;
      float* const at = kernels::address(numbers.data());
      TRY(stream.run(TandemCudaAddFloat{.x = at, .y = at, .count = 4}));
      return rows;
    });
    ASSERT_TRUE(said) << said.error().to_string();
    EXPECT_EQ(*said, rows);
  }
  // Whether it was launched without being put.
  bool launches(int rows) {
    const int before = puts;
    run(rows);
    return puts == before;
  }
};

TEST(DeviceGraphs, a_shape_is_captured_when_it_comes_for_the_third_time_and_those_used_last_are_kept) {
  GraphsOfNumbers n;
  for (int rows = 0; rows < 64; ++rows) {
    for (int time = 0; time < 3; ++time) EXPECT_FALSE(n.launches(rows));
    EXPECT_TRUE(n.launches(rows));
  }
  EXPECT_EQ(n.graphs.counters().captured, 64U);
  EXPECT_EQ(n.graphs.counters().launched, 128U);
  EXPECT_TRUE(n.launches(0));
  for (int time = 0; time < 3; ++time) EXPECT_FALSE(n.launches(64));
  EXPECT_TRUE(n.launches(64));
  EXPECT_TRUE(n.launches(0));
  EXPECT_FALSE(n.launches(1)) << "the one that was not used for longest";
  EXPECT_TRUE(n.stream.wait());
}

TEST(DeviceGraphs, none_that_was_captured_before_memory_was_freed_is_launched) {
  GraphsOfNumbers n;
  for (int time = 0; time < 3; ++time) n.run(1);
  EXPECT_TRUE(n.launches(1));
  n.numbers = std::move(*n.stream.allocate<float>(4, "a test"));
  for (int time = 0; time < 3; ++time) EXPECT_FALSE(n.launches(1));
  EXPECT_TRUE(n.launches(1));
  EXPECT_TRUE(n.stream.wait());
}

TEST(DeviceGraphs, plans_have_few_sizes_and_are_filled_up_by_less_than_a_quarter) {
  Plan plan;
  std::set<int> sizes;
  for (int rows = 1; rows <= 512; ++rows) {
    plan.batch.add(std::vector<int32_t>{0}, 0, std::vector<int>{0});
    plan.draws.emplace_back();
    const PlanSize size = size_of(plan, 200);
    ASSERT_TRUE(size.repeats) << rows;
    EXPECT_EQ(size.rows, size.draws);
    EXPECT_GE(size.rows, rows);
    EXPECT_LT(size.rows - rows, std::max(1, rows / 4)) << rows;
    EXPECT_EQ((size.rows + 63) / 64, (rows + 63) / 64) << rows << ": another tile of 64";
    EXPECT_LE(size_of(plan, 3).rows - rows, 3) << "their positions are the model's";
    sizes.insert(size.rows);
  }
  EXPECT_LE(sizes.size(), 32U);
  plan.draws.resize(5);
  EXPECT_EQ(size_of(plan, 200).draws, 5);
  plan.draws.clear();
  EXPECT_EQ(size_of(plan, 200).draws, 0) << "a part of a prompt";
  plan.batch.add(std::vector<int32_t>{0}, 0, std::vector<int>{0});
  EXPECT_FALSE(size_of(plan, 200).repeats);
  EXPECT_EQ(size_of(plan, 200).rows, 513);
}

// In a process of its own, since what TANDEM_EMULATED says holds for one.
void play_with_few_graphs(const char* settings) {
  ::setenv("TANDEM_EMULATED", settings, 1);
  const kernels::Device device{.kind = kernels::Device::Kind::kEmulated};
  const auto executor = graphs_executor(device);
  const auto said = Schedule(*executor, 5).play(60);
  const uint64_t captured = executor->graphs().captured;
  expect_same(said, Schedule(*graphs_executor(kOnAvx2), 5).play(60));
  std::fprintf(stderr, "%d graphs\n", static_cast<int>(captured));
  std::_Exit(testing::Test::HasFailure() ? 1 : 0);
}

TEST(DeviceGraphs, a_device_without_memory_for_them_goes_on_without) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(play_with_few_graphs("graphs=0"), testing::ExitedWithCode(0), "^0 graphs");
  EXPECT_EXIT(play_with_few_graphs("graphs=2,seed=3"), testing::ExitedWithCode(0), "[1-9][0-9]* graphs");
}

}  // namespace
}  // namespace tandem::model
