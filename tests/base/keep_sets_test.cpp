// Sets of tokens that others were drawn from, as bytes and back.
#include "base/keep_sets.h"

#include <gtest/gtest.h>
#include <zstd.h>

namespace tandem {
namespace {

// Sets for the tokens 7, 3, 9, 149999: all; one; a few; many with all widths of gaps.
KeepSets some() {
  KeepSets sets{.vocabulary = 150000, .counts = {}, .ids = {}};
  sets.append({});
  sets.append(std::vector<int32_t>{3});
  sets.append(std::vector<int32_t>{0, 1, 9, 200, 20000});
  std::vector<int32_t> many;
  for (int32_t id = 0; id < 4000; ++id) many.push_back(id * 37);
  many.push_back(149999);
  sets.append(many);
  return sets;
}
const std::vector<int32_t> kTokens = {7, 3, 9, 149999};

TEST(KeepSets, come_back_from_their_bytes) {
  const KeepSets sets = some();
  ASSERT_TRUE(sets.fits(kTokens));
  EXPECT_EQ(sets.sets()[2].size(), 5u);
  const std::string bytes = encode(sets);
  EXPECT_LT(bytes.size(), 300u) << "even gaps are small";
  const auto read = decode_keep_sets(bytes, 150000, kTokens);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(*read, sets);
  EXPECT_EQ(encode(KeepSets()), "");
  KeepSets none{.vocabulary = 10, .counts = {0, 0}, .ids = {}};
  EXPECT_EQ(*decode_keep_sets(encode(none), 10, std::vector<int32_t>{1, 2}), none);
}

TEST(KeepSets, that_do_not_fit_their_tokens_are_damage) {
  const std::string bytes = encode(some());
  const auto refused = [](const auto& read) { return !read && read.error().code() == Code::kCorrupt; };
  EXPECT_TRUE(refused(decode_keep_sets(bytes, 149999, kTokens))) << "outside the vocabulary";
  EXPECT_TRUE(refused(decode_keep_sets(bytes, 0, kTokens)));
  EXPECT_TRUE(refused(decode_keep_sets(bytes, 150000, std::vector<int32_t>{7, 4, 9, 149999}))) << "not in its set";
  EXPECT_TRUE(refused(decode_keep_sets(bytes, 150000, std::vector<int32_t>{7, 3, 9}))) << "a token less";
  EXPECT_TRUE(refused(decode_keep_sets(bytes, 150000, std::vector<int32_t>{7, 3, 9, 149999, 1}))) << "a token more";
  EXPECT_TRUE(refused(decode_keep_sets(bytes + "x", 150000, kTokens)));
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_TRUE(refused(decode_keep_sets(bytes.substr(0, length), 150000, kTokens))) << length;
  KeepSets sets = some();
  std::swap(sets.ids[1], sets.ids[2]);
  EXPECT_FALSE(sets.fits(kTokens)) << "not ascending";
  sets = some();
  sets.ids[2] = sets.ids[1];
  EXPECT_FALSE(sets.fits(kTokens)) << "twice";
  sets = some();
  sets.counts[0] = 1;
  EXPECT_FALSE(sets.fits(kTokens)) << "another number of ids";
  sets = some();
  sets.counts[3] = UINT32_MAX;
  EXPECT_FALSE(sets.fits(kTokens));
}

// A few bytes that stand for gigabytes are refused before they are memory.
TEST(KeepSets, beyond_their_limit_are_refused_while_they_are_read) {
  const std::string zeros(kMostKeepBytes + 1, '\0');
  std::string bomb(ZSTD_compressBound(zeros.size()), '\0');
  bomb.resize(ZSTD_compress(bomb.data(), bomb.size(), zeros.data(), zeros.size(), 1));
  const auto read = decode_keep_sets(bomb, 150000, kTokens);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), Code::kCorrupt);
}

TEST(KeepSets, take_no_more_bytes_than_is_counted_on) {
  KeepSets sets{.vocabulary = 150000, .counts = {}, .ids = {}};
  std::vector<int32_t> far;
  for (int32_t id = 0; id < 4096; ++id) far.push_back(id < 3000 ? id : 3000 + (id - 3000) * 134);
  sets.append(far);
  EXPECT_LE(ZSTD_getFrameContentSize(encode(sets).data(), encode(sets).size()), most_keep_bytes(4096, 150000));
}

}  // namespace
}  // namespace tandem
