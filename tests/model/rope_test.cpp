// What the goldens of make_models.py do not show of RoPE: bounds and the notations.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem::model {
namespace {

RopeConfig read(const char* config) {
  const auto rope = read_rope(*parse_json(config), 4096, std::nullopt);
  EXPECT_TRUE(rope) << config << ": " << rope.error().to_string();
  return rope.value_or(RopeConfig{});
}

TEST(Rope, dynamic_scaling_is_none_as_far_as_positions_go) {
  const RopeConfig plain, dynamic = read(R"({"rope_scaling":{"type":"dynamic","factor":4}})");
  EXPECT_EQ(rope_frequencies(dynamic, 64), rope_frequencies(plain, 64));
  EXPECT_EQ(rope_magnitude(dynamic), 1);
}

// As LlamaConfig of transformers 5.24 has it.
TEST(Rope, the_older_key_goes_before_the_newer_one_where_it_says_anything) {
  const RopeConfig both = read(R"({"rope_parameters":{"rope_type":"default","rope_theta":500000.0},
    "rope_scaling":{"rope_type":"linear","factor":2.0}})");
  EXPECT_EQ(both.kind, RopeKind::kLinear);
  EXPECT_EQ(both.factor, 2);
  EXPECT_EQ(both.theta, 10000);
  EXPECT_EQ(read(R"({"rope_parameters":{"rope_theta":500000.0},"rope_scaling":{}})").theta, 500000);
  EXPECT_EQ(read(R"({"rope_parameters":{"rope_theta":500000.0},"rope_scaling":null,"rope_theta":3})").theta, 500000);
}

TEST(Rope, llama3_keeps_fast_pairs_and_divides_slow_ones) {
  const RopeConfig rope = read(R"({"rope_theta":500000,"rope_scaling":{"rope_type":"llama3","factor":8,
    "low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}})");
  const auto plain = rope_frequencies({.theta = 500000}, 128), scaled = rope_frequencies(rope, 128);
  EXPECT_EQ(scaled.front(), plain.front());
  EXPECT_FLOAT_EQ(scaled.back(), plain.back() / 8);
  size_t between = 0;
  for (size_t i = 0; i < plain.size(); ++i) between += scaled[i] < plain[i] && scaled[i] > plain[i] / 7.999f;
  EXPECT_GT(between, 3u);
}

TEST(Rope, the_attention_factor_of_yarn_is_the_one_given_or_follows_from_what_is) {
  EXPECT_DOUBLE_EQ(rope_magnitude(read(R"({"rope_scaling":{"type":"yarn","factor":4}})")), 0.1 * std::log(4) + 1);
  EXPECT_DOUBLE_EQ(rope_magnitude(read(R"({"rope_scaling":{"type":"yarn","factor":4,"attention_factor":1.5}})")), 1.5);
  EXPECT_DOUBLE_EQ(rope_magnitude(read(R"({"rope_scaling":{"type":"yarn","factor":4,"mscale":2}})")),
                   0.1 * std::log(4) + 1);
  EXPECT_DOUBLE_EQ(rope_magnitude(read(R"({"rope_scaling":{"type":"yarn","factor":4,"mscale":2,"mscale_all_dim":1}})")),
                   (0.2 * std::log(4) + 1) / (0.1 * std::log(4) + 1));
  EXPECT_EQ(rope_magnitude(read(R"({"rope_scaling":{"type":"yarn","factor":1}})")), 1);
}

TEST(Rope, the_original_context_is_the_number_beside_the_scaling_or_inside_or_all_there_is) {
  EXPECT_EQ(read(R"({"rope_scaling":{"type":"yarn","factor":4}})").original_max_positions, 4096);
  EXPECT_EQ(read(R"({"rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":512}})")
                .original_max_positions,
            512);
  EXPECT_EQ(read(R"({"original_max_position_embeddings":256,
                     "rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":512}})")
                .original_max_positions,
            256);
}

}  // namespace
}  // namespace tandem::model
