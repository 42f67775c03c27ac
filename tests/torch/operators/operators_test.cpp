// The operators of libtandem_ops.so without Python: loaded into a process with LibTorch, called through its dispatcher.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

namespace {

using at::Tensor;
using In = const Tensor&;
using OptionalTensor = std::optional<Tensor>;

template <typename Signature>
auto op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}
Tensor our_linear(In x, In weight) {
  return op<Tensor(In, In, const OptionalTensor&)>("tandem::linear").call(x, weight, std::nullopt);
}
Tensor our_rms_norm(In x, In weight) { return op<Tensor(In, In, double)>("tandem::rms_norm").call(x, weight, 1e-6); }
Tensor our_attention(In query, In key, In value) {
  return op<Tensor(In, In, In, std::optional<double>, int64_t)>("tandem::attention")
      .call(query, key, value, std::nullopt, 0);
}
Tensor our_logprob(In hidden, In weight, In tokens) {
  return op<Tensor(In, In, In)>("tandem::lm_head_logprob").call(hidden, weight, tokens);
}

class TorchOperators : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Never closed: operators stay registered.
    ASSERT_NE(::dlopen(TANDEM_OPS, RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
  }
  void SetUp() override { at::manual_seed(5); }

  static Tensor draw(at::IntArrayRef shape) { return at::randn(shape).to(at::kBFloat16); }
  // The norm of the difference, as a share of what is right.
  static double error(In found, In expected) {
    EXPECT_EQ(found.sizes(), expected.sizes());
    return ((found.to(at::kDouble) - expected.to(at::kDouble)).norm() / expected.to(at::kDouble).norm()).item<double>();
  }
  // Values and gradients by all leaves, of ours and of the same in float32.
  template <typename Ours, typename Reference>
  static void expect_near(const Ours& ours, const Reference& reference, std::vector<Tensor> leaves, double bound) {
    for (Tensor& leaf : leaves) leaf.requires_grad_(true);
    const Tensor result = ours(leaves), expected = reference(leaves);
    EXPECT_LT(error(result.detach(), expected.detach()), bound);
    const Tensor grad = draw(result.sizes());
    const auto found = torch::autograd::grad({result}, leaves, {grad.to(result.scalar_type())});
    const auto right = torch::autograd::grad({expected}, leaves, {grad.to(expected.scalar_type())});
    for (size_t i = 0; i < leaves.size(); ++i) EXPECT_LT(error(found[i], right[i]), bound) << "gradient " << i;
  }
};

TEST_F(TorchOperators, values_and_gradients_are_those_of_float32) {
  using Leaves = const std::vector<Tensor>&;
  expect_near([](Leaves t) { return our_linear(t[0], t[1]); },
              [](Leaves t) { return at::linear(t[0].to(at::kFloat), t[1].to(at::kFloat)); },
              {draw({2, 9, 64}), draw({33, 64})}, 0.01);
  expect_near([](Leaves t) { return our_rms_norm(t[0], t[1]); },
              [](Leaves t) { return at::rms_norm(t[0].to(at::kFloat), {48}, t[1].to(at::kFloat), 1e-6); },
              {draw({7, 48}), draw({48})}, 0.01);
  expect_near([](Leaves t) { return our_attention(t[0], t[1], t[2]); },
              [](Leaves t) {
                return at::scaled_dot_product_attention(t[0].to(at::kFloat), t[1].to(at::kFloat), t[2].to(at::kFloat),
                                                        {}, 0.0, true, {}, true);
              },
              {draw({2, 4, 70, 32}), draw({2, 2, 70, 32}), draw({2, 2, 70, 32})}, 0.02);
  const Tensor tokens = at::randint(0, 101, {12}, at::kLong);
  expect_near([&](Leaves t) { return our_logprob(t[0], t[1], tokens); },
              [&](Leaves t) {
                const Tensor logits = at::linear(t[0].to(at::kFloat), t[1].to(at::kFloat));
                return at::log_softmax(logits, -1).gather(1, tokens.unsqueeze(1)).squeeze(1);
              },
              {draw({12, 64}), draw({101, 64}) * 0.2}, 0.01);
}

TEST_F(TorchOperators, a_row_has_the_same_bits_alone_and_among_others) {
  const Tensor x = draw({100, 64}), weight = draw({80, 64}), norm = draw({64});
  const Tensor tokens = at::arange(80).repeat(2).narrow(0, 0, 100);
  const Tensor products = our_linear(x, weight), norms = our_rms_norm(x, norm),
               logprobs = our_logprob(x, weight, tokens);
  for (const int64_t row : {0, 41, 99}) {
    const Tensor alone = x.narrow(0, row, 1);
    EXPECT_TRUE(at::equal(our_linear(alone, weight), products.narrow(0, row, 1)));
    EXPECT_TRUE(at::equal(our_rms_norm(alone, norm), norms.narrow(0, row, 1)));
    EXPECT_TRUE(at::equal(our_logprob(alone, weight, tokens.narrow(0, row, 1)), logprobs.narrow(0, row, 1)));
  }
  const Tensor query = draw({2, 4, 90, 32}), key = draw({2, 2, 90, 32}), value = draw({2, 2, 90, 32});
  const Tensor whole = our_attention(query, key, value);
  for (const int64_t at : {0, 63, 64, 89}) {
    const Tensor one = our_attention(query.narrow(2, at, 1), key.narrow(2, 0, at + 1), value.narrow(2, 0, at + 1));
    EXPECT_TRUE(at::equal(one, whole.narrow(2, at, 1))) << "position " << at;
  }
}

TEST_F(TorchOperators, shapes_are_known_without_computing) {
  const auto meta = [](at::IntArrayRef shape) {
    return at::empty(shape, at::TensorOptions().dtype(at::kBFloat16).device(at::kMeta));
  };
  EXPECT_EQ(our_linear(meta({3, 5, 8}), meta({7, 8})).sizes(), (std::vector<int64_t>{3, 5, 7}));
  const Tensor attended = our_attention(meta({2, 4, 5, 16}), meta({2, 2, 5, 16}), meta({2, 2, 5, 24}));
  EXPECT_EQ(attended.sizes(), (std::vector<int64_t>{2, 4, 5, 24}));
  EXPECT_EQ(attended.strides(), our_attention(draw({2, 4, 5, 16}), draw({2, 2, 5, 16}), draw({2, 2, 5, 24})).strides());
}

TEST_F(TorchOperators, mistakes_are_named) {
  const auto words = [](const auto& call) -> std::string {
    try {
      (void)call();
    } catch (const std::exception& thrown) {
      return thrown.what();
    }
    return "nothing was refused";
  };
  EXPECT_THAT(words([] {
                return our_linear(at::randn({2, 8}), draw({3, 8}));
              }),
              testing::HasSubstr("tandem::linear: x is Float, expected BFloat16"));
  EXPECT_THAT(words([] { return our_linear(draw({2, 7}), draw({3, 7})); }), testing::HasSubstr("an odd number"));
  EXPECT_THAT(words([] {
                return our_logprob(draw({1, 8}), draw({5, 8}), at::full({1}, 5, at::kLong));
              }),
              testing::HasSubstr("token 5 of row 0 is not one of the 5"));
}

}  // namespace
