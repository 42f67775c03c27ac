// What other trainers published wrong without a word, done to the bytes of a version: each is named with its tensor.
#include "weights_sync/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/stream.h"
#include "tests/model/small_families.h"

namespace tandem::weights_sync {
namespace {

using model::WeightFormat;
using model::Weights;
using testing::HasSubstr;
using testing::IsEmpty;

// With a router, which must stay as it is.
model::ModelConfig audited_config() {
  for (const auto& family : model::small_families()) {
    if (family.config.family == "qwen3_moe") return family.config;
  }
  return model::small_model("llama");
}

class AuditTest : public testing::TestWithParam<WeightFormat> {
 protected:
  AuditTest() : weights_(std::move(*Weights::create(audited_config(), true, GetParam()))) {
    model::randomise(weights_, 3);
    auto stream = std::move(*kernels::Stream::cpu(1));
    EXPECT_TRUE(weights_.pack(stream));
    published_.assign(weights_.wire().begin(), weights_.wire().end());
  }
  Audit audited() { return *audit(weights_, weights_.wire_parts(), published_, threads_); }
  Weights::WirePart part(const std::string& name) const {
    const auto parts = weights_.wire_parts();
    const auto found = std::ranges::find(parts, name, &Weights::WirePart::name);
    EXPECT_NE(found, parts.end()) << name;
    return *found;
  }
  bool is_quantised() const { return model::is_quantised(GetParam()); }

  Weights weights_;
  kernels::ThreadPool threads_{2};
  std::vector<std::byte> published_;
};

TEST_P(AuditTest, what_was_published_right_is_as_near_as_its_format_allows) {
  const Audit found = audited();
  EXPECT_THAT(found.bad(), IsEmpty());
  EXPECT_EQ(found.tensors.size(), weights_.layout().parameters.size());
  const TensorAudit& worst = found.worst();
  if (is_quantised()) {
    EXPECT_GT(worst.relative_rms, 0.005) << "a comparison that sees no rounding compares nothing";
    EXPECT_LT(worst.relative_rms, 0.035);
  } else {
    EXPECT_EQ(worst.relative_rms, 0);
    EXPECT_EQ(worst.max_error, 0);
  }
}

TEST_P(AuditTest, a_block_of_zeros_is_named_with_its_place) {
  const auto place = part("layers.0.qkv");
  std::fill_n(published_.begin() + static_cast<std::ptrdiff_t>(place.begin), place.bytes, std::byte{0});
  const auto bad = audited().bad();
  ASSERT_EQ(bad.size(), 1U);
  EXPECT_THAT(bad[0], HasSubstr("layers.0.qkv"));
  EXPECT_THAT(bad[0], HasSubstr("blocks of zeros"));
}

TEST_P(AuditTest, a_number_that_is_none_is_named) {
  const auto place = part("layers.1.down");
  for (uint32_t i = 0; i < place.element_bytes; ++i) published_[place.begin + i] = std::byte{0x7f};
  if (!is_quantised()) published_[place.begin] = std::byte{0xff};  // little-endian 0x7fff
  const auto bad = audited().bad();
  ASSERT_EQ(bad.size(), 1U);
  EXPECT_THAT(bad[0], HasSubstr("layers.1.down"));
  EXPECT_THAT(bad[0], HasSubstr("1 numbers that are none"));
}

TEST_P(AuditTest, scales_of_another_block_are_a_large_error) {
  if (!is_quantised()) GTEST_SKIP() << "bf16 has no scales";
  const auto place = part("layers.0.down scales");
  for (size_t i = 0; i < place.bytes; ++i)
    published_[place.begin + i] = static_cast<std::byte>(static_cast<uint8_t>(published_[place.begin + i]) + 1);
  const Audit found = audited();
  ASSERT_EQ(found.bad().size(), 1U);
  EXPECT_EQ(found.worst().name, "layers.0.down");
  EXPECT_NEAR(found.worst().relative_rms, 1, 0.1) << "twice the weights";
}

TEST_P(AuditTest, a_tensor_that_the_model_has_not_and_one_that_is_left_out_are_errors) {
  auto parts = weights_.wire_parts();
  parts[1].name = "layers.0.qkv_proj";
  auto found = audit(weights_, parts, published_, threads_);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message(), HasSubstr("layers.0.qkv_proj is published, and the model has no such tensor"));
  parts = weights_.wire_parts();
  const std::string last = parts.back().name;
  parts.pop_back();
  found = audit(weights_, parts, published_, threads_);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message(), HasSubstr(last + " is not published"));
  EXPECT_FALSE(audit(weights_, weights_.wire_parts(), std::span(published_).first(64), threads_));
}

// A rule by a part of the name quantised routers and left other matrices out: here formats are of the layout's own
// list.
TEST_P(AuditTest, exactly_the_matrices_of_the_layers_are_quantised) {
  if (!is_quantised()) GTEST_SKIP() << "bf16 quantises nothing";
  for (const TensorAudit& tensor : audited().tensors) {
    const auto ends = [&](const char* end) { return tensor.name.ends_with(end); };
    const bool is_matrix_of_layer = ends(".qkv") || ends(".output") || ends(".gate_up") || ends(".down");
    EXPECT_EQ(tensor.format, is_matrix_of_layer ? model::to_string(GetParam()) : "bf16") << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, AuditTest,
                         testing::Values(WeightFormat::kBf16, WeightFormat::kFp8, WeightFormat::kMxfp8),
                         [](const auto& format) { return std::string(model::to_string(format.param)); });

}  // namespace
}  // namespace tandem::weights_sync
