#include "base/turns.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace tandem {
namespace {

class TurnsOf : public testing::Test {
 protected:
  ~TurnsOf() override { fs::remove(file_); }
  Turns one() {
    auto turns = Turns::open(file_);
    if (!turns) throw std::runtime_error(turns.error().to_string());
    return std::move(*turns);
  }
  const fs::path file_ = fs::path(testing::TempDir()) / ("turns-" + std::to_string(::getpid()));
};

TEST_F(TurnsOf, two_sides_are_never_had_at_once_and_those_of_one_side_are) {
  Turns trainer = one(), rank = one(), engine = one(), other = one();
  EXPECT_TRUE(engine.wake());
  EXPECT_TRUE(other.wake());
  EXPECT_FALSE(engine.is_wanted());
  std::atomic<int> had = 0;
  std::thread waiting([&] {
    EXPECT_TRUE(trainer.take());
    EXPECT_TRUE(rank.take());
    had = 1;
  });
  while (!engine.is_wanted()) std::this_thread::yield();
  engine.sleep();
  EXPECT_EQ(had, 0) << "the other one is awake";
  EXPECT_FALSE(engine.wake()) << "it is wanted";
  other.sleep();
  waiting.join();
  EXPECT_FALSE(engine.wake());
  trainer.give_back();
  EXPECT_FALSE(engine.wake()) << "a rank has it still";
  rank.give_back();
  EXPECT_TRUE(engine.wake());
  EXPECT_TRUE(other.wake_when_free());
}

TEST_F(TurnsOf, what_a_process_held_is_free_when_it_is_gone) {
  Turns engine = one();
  {
    Turns trainer = one();
    ASSERT_TRUE(trainer.take());
    EXPECT_TRUE(engine.is_wanted());
  }
  EXPECT_TRUE(engine.wake());
}

}  // namespace
}  // namespace tandem
