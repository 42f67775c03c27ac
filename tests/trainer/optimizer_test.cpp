#include "trainer/learn/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>

#include "base/random.h"
#include "kernels/muon.h"
#include "kernels/optimizer.h"
#include "model/config.h"

namespace tandem::trainer {
namespace {

using kernels::bf16;

// Two layers, the second with experts; the head is a matrix of its own.
model::ParameterLayout layout_of() {
  model::ModelConfig config;
  config.family = "qwen3_moe";
  config.layers = 2;
  config.width = 64;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_size = 64;
  config.mlp_width = 96;
  config.vocabulary = 40;
  config.max_positions = 64;
  config.dtype = model::DType::kBF16;
  config.experts.first = 1;
  config.experts.count = 4;
  config.experts.top_k = 2;
  config.experts.width = 32;
  auto layout = model::parameter_layout(config);
  if (!layout) throw std::runtime_error(layout.error().message());
  return std::move(*layout);
}

struct State {
  explicit State(size_t count) : grads(count), masters(count), weights(count) {
    Random random(11);
    for (auto& value : grads) value = static_cast<float>(random.normal());
    for (auto& value : masters) value = static_cast<float>(random.normal());
  }
  Status step(Optimizer& optimizer, kernels::Stream& stream, int64_t number) {
    return optimizer.step(stream, {.gradients = model::slice_of("gradients", std::span(grads)),
                                   .masters = model::slice_of("masters", std::span(masters)),
                                   .weights = model::slice_of("weights", std::span(weights)),
                                   .grad_scale = 0.5f,
                                   .learning_rate = 1e-2f,
                                   .number = number});
  }
  std::vector<float> grads, masters;
  std::vector<bf16> weights;
};

bool same(const State& a, const State& b, size_t begin, size_t end) {
  const auto equal = [&](const auto& x, const auto& y) {
    return std::equal(x.begin() + static_cast<ptrdiff_t>(begin), x.begin() + static_cast<ptrdiff_t>(end),
                      y.begin() + static_cast<ptrdiff_t>(begin),
                      [](auto u, auto v) { return std::memcmp(&u, &v, sizeof u) == 0; });
  };
  return equal(a.masters, b.masters) && equal(a.weights, b.weights);
}

TEST(Optimizer, muon_moves_each_matrix_of_the_checkpoint_alone_and_adamw_what_is_left) {
  const auto layout = layout_of();
  auto stream = std::move(*kernels::Stream::cpu(1));
  OptimizerSettings settings{.weight_decay = 0.1};
  State adamw(layout.elements), muon(layout.elements);
  Optimizer first = std::move(*Optimizer::create(layout, settings));
  settings.kind = OptimizerKind::kMuon;
  Optimizer second = std::move(*Optimizer::create(layout, settings));
  const State start(layout.elements);
  std::vector<float> momentum(layout.elements);
  State expected(layout.elements);
  for (int64_t number = 1; number <= 2; ++number) {
    ASSERT_TRUE(adamw.step(first, stream, number));
    ASSERT_TRUE(muon.step(second, stream, number));
  }
  std::set<std::string> by_muon;
  for (const model::Parameter& p : layout.parameters) {
    if (p.split) continue;
    if (same(adamw, muon, p.offset, p.offset + p.elements())) continue;
    for (const auto& part : p.parts) {
      by_muon.insert(part.checkpoint_name);
      const size_t begin = p.offset + static_cast<size_t>(part.first_row) * static_cast<size_t>(p.columns);
      std::vector<std::byte> memory(kernels::muon_workspace(part.rows, p.columns) + 64);
      const auto odd = reinterpret_cast<uintptr_t>(memory.data()) % 64;
      for (int number = 1; number <= 2; ++number) {
        ASSERT_TRUE(kernels::muon(stream, {.grad = expected.grads.data() + begin,
                                           .master = expected.masters.data() + begin,
                                           .momentum = momentum.data() + begin,
                                           .weight = expected.weights.data() + begin,
                                           .rows = part.rows,
                                           .columns = p.columns,
                                           .grad_scale = 0.5f,
                                           .learning_rate = 1e-2f,
                                           .weight_decay = 0.1f,
                                           .workspace = memory.data() + (odd == 0 ? 0 : 64 - odd)}));
      }
      EXPECT_TRUE(same(muon, expected, begin, begin + static_cast<size_t>(part.rows) * static_cast<size_t>(p.columns)))
          << part.checkpoint_name;
    }
  }
  const auto has = [&](const char* name) { return by_muon.contains(name); };
  for (const char* name :
       {"model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
        "model.layers.1.self_attn.o_proj.weight", "model.layers.0.mlp.down_proj.weight",
        "model.layers.1.mlp.experts.3.gate_proj.weight", "model.layers.1.mlp.experts.0.down_proj.weight"}) {
    EXPECT_TRUE(has(name)) << name;
  }
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight",
                           "model.layers.1.mlp.gate.weight", "model.layers.0.input_layernorm.weight"}) {
    EXPECT_FALSE(has(name)) << name;
  }
}

TEST(Optimizer, gives_the_same_bits_with_any_number_of_threads_and_from_what_a_checkpoint_keeps) {
  const auto layout = layout_of();
  for (const auto kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    for (const auto moments : {Moments::kFp32, Moments::kBf16}) {
      const OptimizerSettings settings{.kind = kind, .moments = moments};
      Optimizer one = std::move(*Optimizer::create(layout, settings)),
                three = std::move(*Optimizer::create(layout, settings)),
                later = std::move(*Optimizer::create(layout, settings));
      SCOPED_TRACE(one.description());
      auto single = std::move(*kernels::Stream::cpu(1)), many = std::move(*kernels::Stream::cpu(3));
      State a(layout.elements), b(layout.elements);
      ASSERT_TRUE(a.step(one, single, 1));
      ASSERT_TRUE(b.step(three, many, 1));
      EXPECT_TRUE(same(a, b, 0, layout.elements));

      const auto from = one.state(), to = later.state();
      ASSERT_EQ(from.size(), to.size());
      for (size_t i = 0; i < from.size(); ++i) {
        ASSERT_EQ(from[i].name, to[i].name);
        ASSERT_EQ(from[i].shape, to[i].shape);
        std::ranges::copy(from[i].bytes, to[i].bytes.begin());
      }
      ASSERT_TRUE(a.step(one, single, 2));
      ASSERT_TRUE(b.step(later, many, 2));
      EXPECT_TRUE(same(a, b, 0, layout.elements));
    }
  }
}

TEST(Optimizer, bf16_moments_take_half_the_memory_and_move_nearly_as_fp32_ones) {
  const auto layout = layout_of();
  auto stream = std::move(*kernels::Stream::cpu(1));
  Optimizer wide = std::move(*Optimizer::create(layout, {})),
            narrow = std::move(*Optimizer::create(layout, {.moments = Moments::kBf16}));
  const auto a = wide.state(), b = narrow.state();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].bytes.size(), 2 * b[i].bytes.size()) << a[i].name;
  State x(layout.elements), y(layout.elements);
  const State start(layout.elements);
  for (int64_t number = 1; number <= 3; ++number) {
    ASSERT_TRUE(x.step(wide, stream, number));
    ASSERT_TRUE(y.step(narrow, stream, number));
  }
  // A rounded moment is off by at most 2^-9 of itself a step, so the quotient of two by a few times that.
  for (size_t i = 0; i < layout.elements; ++i) {
    const float moved = std::abs(x.masters[i] - start.masters[i]);
    ASSERT_NEAR(x.masters[i], y.masters[i], 0.02f * moved + 1e-7f) << i;
  }
}

TEST(Optimizer, settings_that_cannot_be_are_refused_by_name) {
  const auto layout = layout_of();
  const auto refused = Optimizer::create(layout, {.moments = Moments::kBf16, .beta2 = 0.999});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("beta2 is 0.999"), std::string::npos);
  EXPECT_TRUE(Optimizer::create(layout, {.beta2 = 0.999}));
  EXPECT_NE(optimizer_named("sgd").error().message().find("adamw, muon"), std::string::npos);
  EXPECT_NE(moments_named("fp16").error().message().find("fp32, bf16"), std::string::npos);
}

}  // namespace
}  // namespace tandem::trainer
