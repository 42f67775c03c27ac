#include "weights_sync/version.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tandem::weights_sync {
namespace {

std::vector<std::byte> random_bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  Random random(1);
  for (size_t i = 0; i < count; i += 7) bytes[i] = static_cast<std::byte>(random.below(256));
  return bytes;
}

TEST(Receiver, puts_chunks_together_in_any_order) {
  const auto weights = random_bytes(3 * kChunkBytes + 5);
  const Manifest manifest = make_manifest(3, weights);
  ASSERT_EQ(manifest.digests.size(), 4u);
  std::vector<std::byte> target(weights.size());
  auto receiver = std::move(*Receiver::begin(manifest, target));
  EXPECT_EQ(receiver.requests(2), (std::vector<uint32_t>{0, 1}));
  EXPECT_TRUE(receiver.requests(2).empty());
  EXPECT_TRUE(receiver.accept(1, chunk_of(manifest, weights, 1)));
  EXPECT_EQ(receiver.requests(3), (std::vector<uint32_t>{2, 3}));
  for (const uint32_t index : {3u, 0u, 2u, 2u}) EXPECT_TRUE(receiver.accept(index, chunk_of(manifest, weights, index)));
  EXPECT_TRUE(receiver.verified());
  EXPECT_EQ(target, weights);
}

TEST(Receiver, refuses_a_flipped_byte_names_the_chunk_and_asks_again) {
  const auto weights = random_bytes(2 * kChunkBytes);
  const Manifest manifest = make_manifest(8, weights);
  std::vector<std::byte> target(weights.size());
  auto receiver = std::move(*Receiver::begin(manifest, target));
  receiver.requests(8);
  auto damaged = std::vector<std::byte>(weights.begin() + kChunkBytes, weights.end());
  damaged[123] ^= std::byte{1};
  const Status status = receiver.accept(1, damaged);
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_NE(status.message().find("weights 8: chunk 1 of 2"), std::string::npos);
  EXPECT_TRUE(receiver.accept(0, chunk_of(manifest, weights, 0)));
  EXPECT_FALSE(receiver.verified());
  EXPECT_EQ(receiver.requests(8), (std::vector<uint32_t>{1}));
  EXPECT_TRUE(receiver.accept(1, chunk_of(manifest, weights, 1)));
  EXPECT_TRUE(receiver.verified());
  EXPECT_EQ(receiver.refused(), 1u);
}

TEST(Receiver, asks_again_for_what_never_came) {
  const auto weights = random_bytes(2 * kChunkBytes);
  std::vector<std::byte> target(weights.size());
  auto receiver = std::move(*Receiver::begin(make_manifest(1, weights), target));
  EXPECT_EQ(receiver.requests(8).size(), 2u);
  receiver.forget_outstanding();
  EXPECT_EQ(receiver.requests(8).size(), 2u);
}

TEST(Receiver, refuses_manifests_that_do_not_fit_by_name) {
  const auto weights = random_bytes(100);
  std::vector<std::byte> target(100);
  Manifest manifest = make_manifest(1, weights);
  manifest.format = "fp8";
  EXPECT_EQ(Receiver::begin(manifest, target).error().message(), "weights 1: format \"fp8\", this model's is bf16");
  EXPECT_TRUE(Receiver::begin(manifest, target, "fp8").has_value());
  manifest = make_manifest(1, weights);
  manifest.base = 0;
  EXPECT_EQ(Receiver::begin(manifest, target).error().code(), Code::kInvalid);
  manifest = make_manifest(1, weights);
  manifest.chunk_bytes = 0;
  EXPECT_EQ(Receiver::begin(manifest, target).error().code(), Code::kInvalid);
  EXPECT_EQ(Receiver::begin(make_manifest(1, weights), std::span(target).first(99)).error().code(), Code::kInvalid);
}

}  // namespace
}  // namespace tandem::weights_sync
