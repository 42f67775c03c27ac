#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "weights_sync/handout.h"
#include "weights_sync/held.h"

namespace tandem::weights_sync {
namespace {

using Bytes = std::vector<std::byte>;

class HistoryTest : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 40'000;
  void publish(size_t changes = 20) {
    ++version_;
    for (size_t i = 0; i < changes; ++i) {
      auto& byte = bytes_[random_.below(kBytes)];
      byte = static_cast<std::byte>(std::to_integer<int>(byte) + 1);
    }
    past_[version_] = bytes_;
    handout_.offer(history_.add(version_, bytes_, threads_));
  }
  Wanted wanted(uint64_t version) {
    return {.holds = true,
            .version = version,
            .digest = digest_of_parts(history_.blocks().digests(past_.at(version), threads_))};
  }
  // What a receiver fetches from there: the objects, one after another, ending with the newest bytes.
  std::vector<Manifest> fetched_from(Wanted wanted) {
    Held held(history_.blocks(), "fp8");
    if (wanted.holds) held.hold(wanted.version, past_.at(wanted.version), threads_);
    std::vector<Manifest> all;
    for (;;) {
      handout_.wants("r", held.holds());
      const auto manifest = handout_.next_for("r");
      if (!manifest) break;
      auto receiver = held.begin(*manifest);
      EXPECT_TRUE(receiver) << receiver.error().message();
      if (!receiver) break;
      for (const uint32_t i : receiver->requests(1 << 20))
        EXPECT_TRUE(receiver->accept(i, *handout_.chunk(manifest->base, manifest->version, i, {})));
      EXPECT_TRUE(held.complete(*manifest, threads_));
      all.push_back(*manifest);
    }
    EXPECT_TRUE(held.check(threads_));
    EXPECT_EQ(held.holds().version, version_);
    EXPECT_TRUE(std::ranges::equal(held.bytes(), bytes_));
    return all;
  }

  kernels::ThreadPool threads_{2};
  Random random_{9};
  Bytes bytes_ = Bytes(kBytes, std::byte{60});
  History history_{Blocks({{.name = "codes", .begin = 0, .bytes = 30'000, .element_bytes = 1},
                           {.name = "norm", .begin = 30'000, .bytes = 10'000, .element_bytes = 2}},
                          kBytes),
                   "fp8",
                   {}};
  Handout handout_;
  uint64_t version_ = 99;
  std::map<uint64_t, Bytes> past_;
};

TEST_F(HistoryTest, every_version_is_reached_from_every_other_in_few_steps) {
  for (int i = 0; i < 70; ++i) publish(5);
  for (uint64_t from = 100; from < version_; ++from) {
    const auto all = fetched_from(wanted(from));
    EXPECT_LE(all.size(), 12u) << from;
    for (const auto& manifest : all) EXPECT_FALSE(manifest.whole()) << from;
  }
  EXPECT_TRUE(fetched_from(wanted(version_)).empty());
  EXPECT_EQ(fetched_from({}).size(), 1u);
}

TEST_F(HistoryTest, deltas_that_are_more_than_the_weights_are_not_sent) {
  publish();
  publish(200'000);
  publish(2);
  const auto all = fetched_from(wanted(100));
  size_t bytes = 0;
  for (const auto& manifest : all) bytes += manifest.bytes;
  EXPECT_LE(bytes, kBytes);
}

TEST_F(HistoryTest, the_oldest_deltas_make_room_for_the_newest) {
  for (int i = 0; i < 300; ++i) publish(300);
  size_t bytes = 0;
  for (const auto& [key, object] : handout_.offered().deltas()) bytes += object->bytes.size();
  EXPECT_LE(bytes, kBytes);
  EXPECT_GT(bytes, kBytes / 2);
  const auto old = fetched_from(wanted(101));
  ASSERT_EQ(old.size(), 1u);
  EXPECT_TRUE(old.front().whole());
  EXPECT_FALSE(fetched_from(wanted(version_ - 1)).front().whole());
}

TEST_F(HistoryTest, nothing_is_sent_on_bytes_that_only_have_the_same_number) {
  publish();
  publish();
  Wanted other = wanted(100);
  other.digest.low ^= 1;
  handout_.wants("r", other);
  EXPECT_TRUE(handout_.next_for("r")->whole());
  Wanted newest = wanted(version_);
  newest.digest.low ^= 1;
  handout_.wants("r", newest);
  EXPECT_TRUE(handout_.next_for("r")->whole());
}

TEST_F(HistoryTest, what_a_slow_receiver_fetches_whole_stays_until_it_has_it_and_deltas_follow) {
  publish();
  const auto slow = handout_.next_for("slow");
  ASSERT_TRUE(slow->whole());
  Time now{};
  ASSERT_TRUE(handout_.chunk(slow->base, slow->version, 0, now));
  for (int i = 0; i < 5; ++i) publish();
  EXPECT_TRUE(handout_.chunk(slow->base, slow->version, 0, now + std::chrono::seconds(9)));
  EXPECT_EQ(digest_of(*handout_.chunk(slow->base, slow->version, 0, now + std::chrono::seconds(9))), slow->digests[0]);
  EXPECT_FALSE(fetched_from(wanted(slow->version)).empty());
  EXPECT_FALSE(handout_.chunk(slow->base, slow->version, 0, now + std::chrono::seconds(20))) << "it was forgotten";
}

TEST_F(HistoryTest, a_manifest_that_does_not_fit_is_refused_with_what_is_wrong) {
  publish();
  publish();
  Held held(history_.blocks(), "fp8");
  const auto refused = [&](auto change) {
    handout_.wants("r", wanted(100));
    Manifest manifest = *handout_.next_for("r");
    change(manifest);
    const auto receiver = held.begin(manifest);
    return receiver ? std::string("taken") : receiver.error().message();
  };
  using testing::HasSubstr;
  EXPECT_THAT(refused([](Manifest&) {}), HasSubstr("a delta on version 100, which is not held"));
  held.hold(100, past_.at(100), threads_);
  EXPECT_EQ(refused([](Manifest&) {}), "taken");
  EXPECT_THAT(refused([](Manifest& m) { m.base = 7; }), HasSubstr("a delta on version 7"));
  EXPECT_THAT(refused([](Manifest& m) { m.base_digest.low ^= 1; }), HasSubstr("which is not held"));
  EXPECT_THAT(refused([](Manifest& m) { m.parts.pop_back(); }), HasSubstr("1 parts, this model has 2"));
  EXPECT_THAT(refused([](Manifest& m) { m.bytes = uint64_t{1} << 60; }), HasSubstr("all weights have 40000"));
  EXPECT_THAT(refused([](Manifest& m) { m.base = m.version; }), HasSubstr("bytes, this model has 40000"));
  EXPECT_THAT(refused([](Manifest& m) { m.format = "bf16"; }), HasSubstr("format \"bf16\""));
}

}  // namespace
}  // namespace tandem::weights_sync
