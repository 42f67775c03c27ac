#include "kernels/encoder_ops.h"

#include <cmath>
#include <limits>

#include "kernels/reference/encoder_ops.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

class EncoderOpsTest : public EachIsa {};
FOR_EACH_ISA(EncoderOpsTest);

Stream avx2() { return std::move(*Stream::cpu(1, Isa::kAvx2)); }

struct NormInput {
  int rows = 0, width = 0;
  std::vector<float> x, weight, bias;
  explicit NormInput(int rows_in, int width_in)
      : rows(rows_in),
        width(width_in),
        x(random_floats(static_cast<size_t>(rows) * width, 1, 3)),
        weight(random_floats(width, 2)),
        bias(random_floats(width, 3)) {
    for (float& value : x) value += 5;  // a mean far from zero
  }
  LayerNorm arguments(float* out) const { return {x.data(), weight.data(), bias.data(), out, 1e-12f, rows, width}; }
};

TEST_P(EncoderOpsTest, layer_norm_matches_the_formula_with_the_bits_of_avx2) {
  Stream cpu = stream(), other = avx2();
  for (const int width : {1, 15, 16, 100, 384}) {
    const NormInput in(37, width);
    std::vector<float> out(in.x.size()), same(in.x.size());
    ASSERT_TRUE(layer_norm(cpu, in.arguments(out.data())));
    ASSERT_TRUE(layer_norm(other, in.arguments(same.data())));
    EXPECT_EQ(out, same);
    const auto exact = reference::layer_norm(in.x, in.weight, in.bias, 1e-12);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], exact[i], 2e-5) << "width " << width << " at " << i;
  }
}

TEST_P(EncoderOpsTest, layer_norm_of_a_row_has_the_same_bits_alone_and_in_place) {
  Stream one = stream(1), three = stream(3);
  const NormInput in(50, 100);
  std::vector<float> all(in.x.size()), in_place = in.x, alone(in.width);
  ASSERT_TRUE(layer_norm(three, in.arguments(all.data())));
  LayerNorm arguments = in.arguments(in_place.data());
  arguments.x = in_place.data();
  ASSERT_TRUE(layer_norm(one, arguments));
  EXPECT_EQ(in_place, all);
  for (int row = 0; row < in.rows; ++row) {
    arguments = in.arguments(alone.data());
    arguments.x += row * in.width;
    arguments.rows = 1;
    ASSERT_TRUE(layer_norm(one, arguments));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + row * in.width)) << row;
  }
}

TEST_P(EncoderOpsTest, layer_norm_backward_matches_the_formula_with_the_bits_of_avx2_and_of_any_threads) {
  Stream one = stream(1), three = stream(3), other = avx2();
  for (const int width : {1, 15, 16, 100}) {
    const NormInput in(150, width);
    const auto grad = random_floats(in.x.size(), 4), start = random_floats(2 * width, 5);
    const auto backward = [&](Stream& cpu) {
      std::vector<float> result = grad, sums = start;  // in place
      EXPECT_TRUE(layer_norm_backward(cpu, {.x = in.x.data(),
                                            .weight = in.weight.data(),
                                            .grad_out = result.data(),
                                            .grad_x = result.data(),
                                            .grad_weight = sums.data(),
                                            .grad_bias = sums.data() + width,
                                            .epsilon = 1e-3f,
                                            .rows = in.rows,
                                            .width = width}));
      result.insert(result.end(), sums.begin(), sums.end());
      return result;
    };
    const auto got = backward(one);
    EXPECT_EQ(got, backward(three));
    EXPECT_EQ(got, backward(other));
    const auto exact = reference::layer_norm_backward(in.x, in.weight, grad, 1e-3);
    const size_t count = in.x.size();
    for (size_t i = 0; i < count; ++i) ASSERT_NEAR(got[i], exact.x[i], 2e-5) << "width " << width << " at " << i;
    for (int i = 0; i < width; ++i) {
      ASSERT_NEAR(got[count + i], start[i] + exact.weight[i], 1e-4);
      ASSERT_NEAR(got[count + width + i], start[width + i] + exact.bias[i], 1e-4);
    }
  }
}

TEST(EncoderReference, gradients_are_the_limits_of_differences) {
  const NormInput in(2, 7);
  const auto grad = random_floats(in.x.size(), 4);
  const auto value = [&](const std::vector<float>& x) {
    const auto out = reference::layer_norm(x, in.weight, in.bias, 1e-3);
    double total = 0;
    for (size_t i = 0; i < out.size(); ++i) total += out[i] * grad[i];
    return total;
  };
  const auto exact = reference::layer_norm_backward(in.x, in.weight, grad, 1e-3);
  for (size_t i = 0; i < in.x.size(); ++i) {
    auto above = in.x, below = in.x;
    above[i] += 0x1p-8f;
    below[i] -= 0x1p-8f;
    EXPECT_NEAR((value(above) - value(below)) / (static_cast<double>(above[i]) - below[i]), exact.x[i], 1e-4);
  }
  for (double x = -6; x < 6; x += 0.1) {
    EXPECT_NEAR((reference::gelu(x + 1e-4) - reference::gelu(x - 1e-4)) / 2e-4, reference::gelu_derivative(x), 1e-7);
  }
}

TEST_P(EncoderOpsTest, gelu_backward_errs_by_what_the_header_says) {
  Stream cpu = stream(3), other = avx2();
  std::vector<float> x = random_floats(5000, 1, 2);
  for (int i = -3000; i <= 3000; ++i) x.push_back(static_cast<float>(i) / 211);
  for (const float rare : {0.0f, -0.0f, 1e-30f, 1e30f, -1e30f, INFINITY, -INFINITY}) x.push_back(rare);
  const auto grad = random_floats(x.size(), 3);
  auto out = grad, same = grad;
  ASSERT_TRUE(gelu_backward(cpu, x.data(), x.size(), out.data()));
  ASSERT_TRUE(gelu_backward(other, x.data(), x.size(), same.data()));
  EXPECT_EQ(out, same);
  for (size_t i = 0; i < x.size(); ++i) {
    const double gradient = std::isinf(x[i]) ? x[i] > 0 : reference::gelu_derivative(x[i]);
    ASSERT_LE(std::abs(out[i] - grad[i] * gradient), 0x1p-20 * std::abs(grad[i])) << x[i];
  }
  float nan = std::numeric_limits<float>::quiet_NaN(), one = 1;
  ASSERT_TRUE(gelu_backward(cpu, &nan, 1, &one));
  EXPECT_TRUE(std::isnan(one));
}

TEST_P(EncoderOpsTest, gelu_errs_by_what_the_header_says) {
  Stream cpu = stream(), other = avx2();
  std::vector<float> x = random_floats(5000, 1, 2);
  for (int i = -3000; i <= 3000; ++i) x.push_back(static_cast<float>(i) / 211);
  for (const float rare : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e30f, -1e30f}) x.push_back(rare);
  auto out = x, same = x;
  ASSERT_TRUE(gelu(cpu, out.data(), out.size()));
  ASSERT_TRUE(gelu(other, same.data(), same.size()));
  EXPECT_EQ(out, same);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = reference::gelu(x[i]);
    ASSERT_LE(std::abs(out[i] - exact), 0x1p-22 * std::abs(x[i])) << x[i];
    if (x[i] > -4) {
      ASSERT_LE(std::abs(out[i] - exact), 0x1p-20 * std::abs(exact)) << x[i];
    }
  }
  std::vector<float> infinite = {INFINITY, std::numeric_limits<float>::quiet_NaN()};
  ASSERT_TRUE(gelu(cpu, infinite.data(), 2));
  EXPECT_EQ(infinite[0], INFINITY);
  EXPECT_TRUE(std::isnan(infinite[1]));
}

TEST_P(EncoderOpsTest, gelu_of_a_number_has_the_same_bits_wherever_it_stands) {
  Stream one = stream(1), three = stream(3);
  const auto x = random_floats(10001, 1, 2);
  auto all = x;
  ASSERT_TRUE(gelu(three, all.data(), all.size()));
  for (size_t i = 0; i < x.size(); i += 97) {
    float alone = x[i];
    ASSERT_TRUE(gelu(one, &alone, 1));
    EXPECT_EQ(alone, all[i]) << i;
  }
}

// Rows of a fused [q | k | v] matrix of several sequences.
struct Sequences {
  int heads, size;
  std::vector<int32_t> ends;
  std::vector<float> rows;
  Sequences(int heads_in, int size_in, std::vector<int> lengths) : heads(heads_in), size(size_in) {
    int end = 0;
    for (const int length : lengths) ends.push_back(end += length);
    rows = random_floats(static_cast<size_t>(end) * 3 * width(), 7);
  }
  int width() const { return heads * size; }
  int begin(size_t sequence) const { return sequence == 0 ? 0 : ends[sequence - 1]; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(size)); }

  // The rows of the sequences from `begin` on that `sequence_ends` counts, as a batch of their own.
  std::vector<float> attend(Stream& stream, int begin, const std::vector<int32_t>& sequence_ends) const {
    const float* start = rows.data() + static_cast<size_t>(begin) * 3 * width();
    std::vector<float> out(static_cast<size_t>(sequence_ends.back()) * width());
    EXPECT_TRUE(bidirectional_attention(stream, {.queries = start,
                                                 .keys = start + width(),
                                                 .values = start + 2 * width(),
                                                 .stride = static_cast<size_t>(3) * width(),
                                                 .out = out.data(),
                                                 .out_stride = static_cast<size_t>(width()),
                                                 .ends = sequence_ends,
                                                 .heads = heads,
                                                 .head_size = size,
                                                 .scale = scale()}));
    return out;
  }
  // Columns of one head of a sequence's rows: 0 queries, 1 keys, 2 values.
  std::vector<float> part(size_t sequence, int which, int head) const {
    std::vector<float> values;
    for (int row = begin(sequence); row < ends[sequence]; ++row) {
      const float* start = rows.data() + (static_cast<size_t>(row) * 3 + which) * width() + head * size;
      values.insert(values.end(), start, start + size);
    }
    return values;
  }
};

TEST_P(EncoderOpsTest, attention_in_both_directions_matches_the_formula_with_the_bits_of_avx2) {
  Stream cpu = stream(), other = avx2();
  for (const auto& [heads, size] : {std::pair(3, 32), std::pair(2, 64), std::pair(1, 9), std::pair(1, 200)}) {
    const Sequences in(heads, size, {1, 63, 64, 0, 150});
    const auto out = in.attend(cpu, 0, in.ends);
    EXPECT_EQ(out, in.attend(other, 0, in.ends));
    for (size_t sequence = 0; sequence < in.ends.size(); ++sequence) {
      for (int head = 0; head < heads; ++head) {
        const auto queries = in.part(sequence, 0, head), keys = in.part(sequence, 1, head),
                   values = in.part(sequence, 2, head);
        for (int row = in.begin(sequence); row < in.ends[sequence]; ++row) {
          const auto query = std::span(queries).subspan(static_cast<size_t>(row - in.begin(sequence)) * size, size);
          const auto exact = reference::bidirectional_attention(query, keys, values, in.scale());
          for (int i = 0; i < size; ++i) {
            ASSERT_NEAR(out[static_cast<size_t>(row) * in.width() + head * size + i], exact[i], 5e-6)
                << "row " << row << ", head " << head << " of size " << size;
          }
        }
      }
    }
  }
}

TEST_P(EncoderOpsTest, attention_of_a_sequence_has_the_same_bits_alone_and_among_others) {
  Stream one = stream(1), three = stream(3);
  const Sequences in(3, 32, {5, 130, 1, 64, 65});
  const auto all = in.attend(three, 0, in.ends);
  for (size_t sequence = 0; sequence < in.ends.size(); ++sequence) {
    const int begin = in.begin(sequence), rows = in.ends[sequence] - begin;
    const auto alone = in.attend(one, begin, {rows});
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + begin * in.width())) << sequence;
  }
}

TEST_P(EncoderOpsTest, wrong_arguments_are_named) {
  Stream cpu = stream();
  std::vector<float> x(64);
  EXPECT_EQ(layer_norm(cpu, {.x = x.data(), .weight = x.data(), .bias = x.data(), .out = x.data()}).message(),
            "layer_norm: width must be positive");
  EXPECT_EQ(gelu(cpu, nullptr, 1).message(), "gelu: x is null");
  const std::vector<int32_t> ends = {3, 2};
  BidirectionalAttention attention{.queries = x.data(),
                                   .keys = x.data(),
                                   .values = x.data(),
                                   .stride = 4,
                                   .out = x.data(),
                                   .out_stride = 4,
                                   .ends = ends,
                                   .heads = 1,
                                   .head_size = 4};
  EXPECT_EQ(bidirectional_attention(cpu, attention).message(),
            "bidirectional_attention: sequence 1 ends at row 2, before row 3");
  attention.head_size = 257;
  EXPECT_EQ(bidirectional_attention(cpu, attention).message(), "bidirectional_attention: head_size must be 1 to 256");
}

}  // namespace
}  // namespace tandem::kernels
