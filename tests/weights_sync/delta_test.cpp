#include "weights_sync/delta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"

namespace tandem::weights_sync {
namespace {

using Bytes = std::vector<std::byte>;

Bytes drawn_bytes(Random& random, size_t count) {
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random.below(256));
  return bytes;
}

// Changes `count` elements by one code up or down, or with `any` to any code.
Bytes changed(Random& random, Bytes bytes, uint32_t element_bytes, size_t count, bool any = false) {
  const size_t elements = bytes.size() / element_bytes;
  for (size_t i = 0; i < count; ++i) {
    std::byte* const at = bytes.data() + random.below(elements) * element_bytes;
    uint32_t code = 0;
    std::memcpy(&code, at, element_bytes);
    code = any ? static_cast<uint32_t>(random.bits()) : random.below(2) == 0 ? code + 1 : code - 1;
    std::memcpy(at, &code, element_bytes);
  }
  return bytes;
}

class OfElements : public testing::TestWithParam<uint32_t> {
 protected:
  Random random_{GetParam()};
  Block block(uint32_t elements) const {
    return {.part = 0, .begin = 0, .elements = elements, .element_bytes = GetParam()};
  }
  Bytes bytes_of(const Block& block) { return drawn_bytes(random_, block.bytes()); }
};

TEST_P(OfElements, a_delta_makes_the_new_bytes_of_the_old_however_much_changed) {
  for (const uint32_t elements : {1u, 7u, 64u, 70'001u, kBlockElements}) {
    for (const size_t changes :
         {size_t{0}, size_t{1}, size_t{elements / 1000 + 1}, size_t{elements / 9}, size_t{elements} * 2}) {
      for (const bool any : {false, true}) {
        const Block of = block(elements);
        Bytes bytes = bytes_of(of);
        const Bytes after = changed(random_, bytes, of.element_bytes, changes, any);
        const BlockDelta delta = difference(of, bytes, after);
        if (!delta.changes()) {
          EXPECT_EQ(bytes, after);
          continue;
        }
        const auto decoded = decode(of, encode(of, delta));
        ASSERT_TRUE(decoded) << decoded.error().message();
        apply(of, *decoded, bytes);
        ASSERT_EQ(bytes, after) << elements << " elements, " << changes << " changes";
      }
    }
  }
}

TEST_P(OfElements, two_deltas_add_up_to_one_and_what_was_changed_back_is_not_in_it) {
  for (const size_t changes : {size_t{3}, size_t{200}, size_t{4000}}) {
    const Block of = block(5000);
    const Bytes first = bytes_of(of), second = changed(random_, first, of.element_bytes, changes);
    const Bytes third = changed(random_, second, of.element_bytes, changes);
    const auto one = decode(of, encode(of, difference(of, first, second)));
    const auto two = decode(of, encode(of, difference(of, second, third)));
    const BlockDelta both = fold(of, *one, *two);
    EXPECT_EQ(both, difference(of, first, third));
    EXPECT_FALSE(fold(of, *one, difference(of, second, first)).changes());
  }
}

TEST_P(OfElements, steps_of_one_code_at_one_element_in_a_hundred_take_less_than_two_bytes) {
  const Block of = block(kBlockElements);
  const Bytes before = bytes_of(of);
  const auto delta = difference(of, before, changed(random_, before, of.element_bytes, of.elements / 100));
  EXPECT_LT(encode(of, delta).size(), delta.positions.size() * 2);
}

INSTANTIATE_TEST_SUITE_P(Widths, OfElements, testing::Values(1, 2, 4));

TEST(BlockDelta, bytes_that_are_none_are_refused_with_what_is_wrong) {
  const Block of{.part = 0, .begin = 0, .elements = 3000, .element_bytes = 2};
  Random random(5);
  const Bytes before = drawn_bytes(random, of.bytes());
  const Bytes good = encode(of, difference(of, before, changed(random, before, 2, 40)));
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_EQ(decode(of, std::span(good).first(size)).error().code(), Code::kCorrupt) << size;
  Bytes longer = good;
  longer.push_back({});
  EXPECT_EQ(decode(of, longer).error().code(), Code::kCorrupt);
  // A smaller block than it is of: its positions leave it.
  const Block small{.part = 0, .begin = 0, .elements = 1000, .element_bytes = 2};
  EXPECT_EQ(decode(small, good).error().code(), Code::kCorrupt);
  // Whatever byte changes, the outcome is an error or a delta within the block.
  for (int i = 0; i < 2000; ++i) {
    Bytes damaged = good;
    damaged[random.below(damaged.size())] ^= static_cast<std::byte>(1 + random.below(255));
    const auto delta = decode(of, damaged);
    if (!delta) continue;
    Bytes bytes = before;
    apply(of, *delta, bytes);
  }
}

class WholeDelta : public testing::Test {
 protected:
  // Three parts with a gap between two of them, as alignment leaves one.
  const Blocks blocks_{{{.name = "embedding", .begin = 0, .bytes = 2 * (kBlockElements + 500), .element_bytes = 2},
                        {.name = "qkv", .begin = 2 * (kBlockElements + 500), .bytes = 3001, .element_bytes = 1},
                        {.name = "norm", .begin = 2 * (kBlockElements + 500) + 3008, .bytes = 64, .element_bytes = 4}},
                       2 * (kBlockElements + 500) + 3008 + 64};
  kernels::ThreadPool threads_{2};
  Random random_{3};
  Delta between(uint64_t base, const Bytes& before, const Bytes& after) const {
    Delta delta(base, base + 1);
    for (size_t i = 0; i < blocks_.all().size(); ++i) {
      const Block& block = blocks_.all()[i];
      const auto changed = difference(block, std::span(before).subspan(block.begin, block.bytes()),
                                      std::span(after).subspan(block.begin, block.bytes()));
      if (changed.changes()) delta.add(static_cast<uint32_t>(i), encode(block, changed));
    }
    return delta;
  }
  Bytes next(Bytes bytes) {
    for (int i = 0; i < 50; ++i) {
      const Block& block = blocks_.all()[random_.below(blocks_.all().size())];
      bytes[block.begin + random_.below(block.bytes())] = static_cast<std::byte>(random_.below(256));
    }
    return bytes;
  }
};

TEST_F(WholeDelta, a_file_is_read_back_and_folds_with_the_next_one) {
  const Bytes first = drawn_bytes(random_, blocks_.bytes()), second = next(first), third = next(second);
  const auto one = Delta::read(blocks_, between(4, first, second).write(blocks_));
  const auto two = Delta::read(blocks_, between(5, second, third).write(blocks_));
  ASSERT_TRUE(one && two);
  const auto both = one->folded_with(*two, blocks_, threads_);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->base(), 4u);
  EXPECT_EQ(both->version(), 6u);
  EXPECT_EQ(both->bytes(), both->write(blocks_).size());
  Bytes bytes = first;
  ASSERT_TRUE(both->apply(blocks_, bytes, threads_));
  // The bytes of the gap belong to no element.
  for (const Block& block : blocks_.all())
    EXPECT_EQ(std::memcmp(bytes.data() + block.begin, third.data() + block.begin, block.bytes()), 0);
  EXPECT_EQ(blocks_.digests(bytes, threads_), blocks_.digests(third, threads_));
  EXPECT_FALSE(two->folded_with(*one, blocks_, threads_));
}

TEST_F(WholeDelta, of_other_weights_or_cut_off_or_longer_is_refused) {
  const Bytes first = drawn_bytes(random_, blocks_.bytes());
  const Bytes good = between(1, first, next(first)).write(blocks_);
  for (size_t size = 0; size < good.size(); size += 1 + size / 16)
    EXPECT_EQ(Delta::read(blocks_, std::span(good).first(size)).error().code(), Code::kCorrupt);
  Bytes longer = good;
  longer.push_back({});
  EXPECT_THAT(Delta::read(blocks_, longer).error().message(), testing::HasSubstr("1 bytes follow"));
  const Blocks other({{.name = "a", .begin = 0, .bytes = 64, .element_bytes = 2}}, 64);
  EXPECT_THAT(Delta::read(other, good).error().message(), testing::HasSubstr("here are 64"));
}

TEST_F(WholeDelta, digests_name_the_part_that_differs_and_do_not_depend_on_threads) {
  Bytes bytes = drawn_bytes(random_, blocks_.bytes());
  kernels::ThreadPool one(1);
  const auto digests = blocks_.digests(bytes, threads_);
  EXPECT_EQ(digests, blocks_.digests(bytes, one));
  EXPECT_TRUE(blocks_.check(digests, digests));
  bytes[blocks_.parts()[1].begin + 7] ^= std::byte{4};
  const Status status = blocks_.check(digests, blocks_.digests(bytes, threads_));
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), testing::HasSubstr("qkv"));
}

}  // namespace
}  // namespace tandem::weights_sync
