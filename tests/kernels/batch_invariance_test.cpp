// A row of every forward operation has the same bits whatever the batch is: its size, the row's place in it, its
// neighbours, the threads. Shapes are drawn at random, odd ones among them.
#include <functional>
#include <numeric>

#include "base/buffer.h"
#include "kernels/attention.h"
#include "kernels/encoder_ops.h"
#include "kernels/experts.h"
#include "kernels/lm_head.h"
#include "kernels/quantize.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

constexpr int kBatch = 1024;
constexpr int kSizes[] = {1, 2, 3, 16, 17, 33, 64, 128, 257, kBatch};

// What an operation makes of each row.
using Rows = std::vector<std::string>;
template <typename T>
void append(const std::vector<T>& made, Rows& rows) {
  const size_t each = made.size() / rows.size();
  for (size_t row = 0; row < rows.size(); ++row)
    rows[row].append(reinterpret_cast<const char*>(made.data() + row * each), each * sizeof(T));
}

// Inputs of kBatch rows, drawn once, and the operation on `rows` of them from `first` on.
using Operation = std::function<Rows(Stream&, int first, int rows)>;

template <typename T>
std::vector<T> drawn(size_t count, uint64_t seed) {
  if constexpr (sizeof(T) == sizeof(bf16))
    return random_bf16(count, seed);
  else
    return random_floats(count, seed);
}
template <typename T>
std::vector<T> slice(const std::vector<T>& all, size_t width, int first, int rows) {
  return {all.begin() + first * width, all.begin() + (first + rows) * width};
}

enum class Panels : uint8_t { kPlain, kCodes };

template <typename T>
Operation product(Stream& stream, Random& random, Panels panels) {
  const int n = 1 + static_cast<int>(random.below(200)), k = random.below(2) ? 576 : 2 * (1 + random.below(300));
  const auto a = drawn<T>(size_t{kBatch} * k, 1), residual = drawn<T>(size_t{kBatch} * n, 2), bias = drawn<T>(n, 3);
  const auto weight = drawn<T>(static_cast<size_t>(n) * k, 4);
  std::vector<T> packed(packed_size(n, k));
  EXPECT_TRUE(pack(stream, weight.data(), n, k, packed.data()));
  std::vector<std::byte> codes;
  if constexpr (sizeof(T) == sizeof(bf16)) {
    if (panels == Panels::kCodes) {
      std::vector<e4m3> by_row(weight.size());
      std::vector<e8m0> scales(n * scale_blocks(k, kScaleBlock));
      codes.resize(packed_codes_size(n, k));
      EXPECT_TRUE(quantize(stream, {.x = weight.data(),
                                    .stride = static_cast<size_t>(k),
                                    .by_row = by_row.data(),
                                    .row_scales = scales.data(),
                                    .rows = n,
                                    .columns = k}));
      EXPECT_TRUE(
          pack_codes(stream, {.codes = by_row.data(), .scales = scales.data(), .packed = codes.data(), .n = n, .k = k})
              .value());
    }
  }
  return [=](Stream& on, int first, int rows) {
    std::vector<T> out(static_cast<size_t>(rows) * n);
    BasicGemm<T> arguments{.a = a.data() + static_cast<size_t>(first) * k,
                           .a_stride = static_cast<size_t>(k),
                           .b = packed.data(),
                           .bias = bias.data(),
                           .residual = residual.data() + static_cast<size_t>(first) * n,
                           .out = out.data(),
                           .out_stride = static_cast<size_t>(n),
                           .m = rows,
                           .n = n,
                           .k = k};
    if (!codes.empty()) arguments.b = RightSide<T>(codes.data());
    EXPECT_TRUE(gemm(on, arguments));
    Rows made(rows);
    append(out, made);
    return made;
  };
}

template <typename T>
Operation norm(Random& random) {
  const int width = 1 + static_cast<int>(random.below(700));
  return [=, x = drawn<T>(size_t{kBatch} * width, 1), weight = drawn<T>(width, 2)](Stream& on, int first, int rows) {
    std::vector<T> out(static_cast<size_t>(rows) * width);
    EXPECT_TRUE(
        rms_norm(on, x.data() + static_cast<size_t>(first) * width, weight.data(), 1e-5f, rows, width, out.data()));
    Rows made(rows);
    append(out, made);
    return made;
  };
}

// Queries and keys on their way: each head normed, then rotated by RoPE.
template <typename T>
Operation rotated_heads(Random& random) {
  const int heads = random.below(2) ? 9 : 3, size = 2 * (4 + static_cast<int>(random.below(60)));
  const int rope_dim = random.below(2) ? size : size / 4 * 2;
  std::vector<int32_t> positions(kBatch);
  for (auto& position : positions) position = static_cast<int32_t>(random.below(500));
  return [=, interleaved = random.below(2) == 1, x = drawn<T>(size_t{kBatch} * heads * size, 1),
          weight = drawn<T>(size, 2), table = rope_table(500, rope_dim, 1e4)](Stream& on, int first, int rows) {
    auto out = slice(x, static_cast<size_t>(heads) * size, first, rows);
    const size_t stride = static_cast<size_t>(heads) * size;
    EXPECT_TRUE(head_norm(on, BasicHeadNorm<T>{.x = out.data(),
                                               .stride = stride,
                                               .weight = weight.data(),
                                               .epsilon = 1e-6f,
                                               .rows = rows,
                                               .heads = heads,
                                               .head_size = size}));
    EXPECT_TRUE(rope(on, BasicRope<T>{.x = out.data(),
                                      .stride = stride,
                                      .positions = std::span(positions).subspan(first, rows),
                                      .table = table.data(),
                                      .table_positions = 500,
                                      .rows = rows,
                                      .heads = heads,
                                      .head_size = size,
                                      .rope_dim = rope_dim,
                                      .interleaved = interleaved}));
    Rows made(rows);
    append(out, made);
    return made;
  };
}

template <typename T>
Operation gates(Random& random) {
  const int width = 1 + static_cast<int>(random.below(500));
  return [=, x = drawn<T>(size_t{kBatch} * 2 * width, 1)](Stream& on, int first, int rows) {
    const T* from = x.data() + static_cast<size_t>(first) * 2 * width;
    std::vector<T> silu(static_cast<size_t>(rows) * width), gelu(silu.size());
    EXPECT_TRUE(swiglu(on, from, rows, width, silu.data()));
    EXPECT_TRUE(geglu(on, from, rows, width, gelu.data()));
    EXPECT_TRUE(add(on, silu.data(), silu.size(), gelu.data()));
    Rows made(rows);
    append(silu, made);
    append(gelu, made);
    return made;
  };
}

Operation quantised(Random& random) {
  const int width = 1 + static_cast<int>(random.below(500));
  const int block = random.below(2) ? kScaleBlock : kMicroscaleBlock;
  return [=, x = drawn<bf16>(size_t{kBatch} * width, 1), gate_up = drawn<bf16>(size_t{kBatch} * 2 * width, 2),
          weight = drawn<bf16>(width, 3)](Stream& on, int first, int rows) {
    const size_t at = static_cast<size_t>(first) * width, count = static_cast<size_t>(rows) * width;
    Rows made(rows);
    const auto codes_of = [&](const auto& run) {
      std::vector<e4m3> codes(count);
      std::vector<e8m0> scales(rows * scale_blocks(width, block));
      EXPECT_TRUE(run(codes.data(), scales.data()));
      append(codes, made);
      append(scales, made);
    };
    codes_of([&](e4m3* codes, e8m0* scales) {
      return quantize(on, {.x = x.data() + at,
                           .stride = static_cast<size_t>(width),
                           .by_row = codes,
                           .row_scales = scales,
                           .rows = rows,
                           .columns = width,
                           .block = block});
    });
    std::vector<bf16> rounded(count);
    EXPECT_TRUE(round_to_codes(
        on, {.x = x.data() + at, .out = rounded.data(), .rows = rows, .columns = width, .block = block}));
    append(rounded, made);
    return made;
  };
}

// Rows of sequences of any length: a few pools of pages, of which each row sees another part.
template <typename T>
Operation attention_rows(Stream& stream, Random& random) {
  constexpr int kSequences = 5, kLongest = 200, kPages = (kLongest + kPageTokens - 1) / kPageTokens;
  const int size = random.below(2) ? 64 : 2 * (4 + static_cast<int>(random.below(60)));
  const AttentionShape shape{.heads = random.below(2) ? 9 : 6,
                             .kv_heads = 3,
                             .head_size = size,
                             .scale = 0.2f,
                             .window = random.below(2) ? 70 : 0};
  const size_t key_width = static_cast<size_t>(shape.kv_heads) * size, page = page_elements(shape);
  auto memory = std::make_shared<std::vector<T>>(kSequences * kPages * page);
  std::vector<BasicKeyValuePage<T>> pages;
  for (int i = 0; i < kSequences * kPages; ++i)
    pages.push_back({memory->data() + i * page, memory->data() + i * page + page_keys(shape)});
  for (int i = 0; i < kSequences; ++i) {
    const auto keys = drawn<T>(kLongest * key_width, 10 + i), values = drawn<T>(kLongest * key_width, 20 + i);
    EXPECT_TRUE(write_pages(stream, shape, keys.data(), key_width, values.data(), key_width, kLongest, 0,
                            std::span<const BasicKeyValuePage<T>>(pages).subspan(i * kPages, kPages)));
  }
  std::vector<int> positions(kBatch);
  for (int& position : positions) position = static_cast<int>(random.below(kLongest));
  const size_t width = static_cast<size_t>(shape.heads) * size;
  return [=, queries = drawn<T>(kBatch * width, 1)](Stream& on, int first, int rows) {
    std::vector<BasicQueryRun<T>> runs;
    for (int row = 0; row < rows; ++row) {
      const auto own =
          std::span<const BasicKeyValuePage<T>>(pages).subspan((first + row) % kSequences * kPages, kPages);
      runs.push_back({row, 1, positions[first + row], own});
    }
    std::vector<T> out(rows * width);
    std::vector<float> log_sum(static_cast<size_t>(rows) * shape.heads);
    (void)memory;  // what pages point to
    EXPECT_TRUE(attention(on, shape, queries.data() + first * width, width, std::span<const BasicQueryRun<T>>(runs),
                          out.data(), width, log_sum.data()));
    Rows made(rows);
    append(out, made);
    append(log_sum, made);
    return made;
  };
}

template <typename T>
Operation head(Stream& stream, Random& random) {
  const int vocabulary = 1 + static_cast<int>(random.below(9000)), width = 2 * (1 + static_cast<int>(random.below(20)));
  const auto weight = drawn<T>(static_cast<size_t>(vocabulary) * width, 2);
  std::vector<T> packed(packed_size(vocabulary, width));
  EXPECT_TRUE(pack(stream, weight.data(), vocabulary, width, packed.data()));
  return [=, hidden = drawn<T>(size_t{kBatch} * width, 1)](Stream& on, int first, int rows) {
    std::vector<float> log_sum(rows), logprobs(rows);
    std::vector<int32_t> argmax(rows);
    std::vector<TokenPick> picks;
    for (int row = 0; row < rows; ++row) picks.push_back({row, (first + row) * 7 % vocabulary});
    EXPECT_TRUE(lm_head(on,
                        BasicLmHead<T>{.hidden = hidden.data() + static_cast<size_t>(first) * width,
                                       .head = packed.data(),
                                       .rows = rows,
                                       .width = width,
                                       .vocabulary = vocabulary,
                                       .log_sum = log_sum.data(),
                                       .argmax = argmax.data()},
                        picks, logprobs));
    Rows made(rows);
    append(log_sum, made);
    append(logprobs, made);
    append(argmax, made);
    return made;
  };
}

Operation routed(Random& random) {
  const int experts = 8 + static_cast<int>(random.below(60)), top_k = 1 + static_cast<int>(random.below(8));
  const Score score = random.below(2) ? Score::kSoftmax : Score::kSigmoid;
  return [=, logits = drawn<float>(size_t{kBatch} * experts, 1)](Stream& on, int first, int rows) {
    std::vector<int32_t> ids(static_cast<size_t>(rows) * top_k);
    std::vector<float> weights(ids.size());
    EXPECT_TRUE(route(on, {.logits = logits.data() + static_cast<size_t>(first) * experts,
                           .ids = ids.data(),
                           .weights = weights.data(),
                           .score = score,
                           .normalise = true,
                           .rows = rows,
                           .experts = experts,
                           .top_k = top_k}));
    Rows made(rows);
    append(ids, made);
    append(weights, made);
    return made;
  };
}

Operation encoded(Random& random) {
  const int width = 1 + static_cast<int>(random.below(400));
  return [=, x = drawn<float>(size_t{kBatch} * width, 1), weight = drawn<float>(width, 2),
          bias = drawn<float>(width, 3)](Stream& on, int first, int rows) {
    std::vector<float> out(static_cast<size_t>(rows) * width);
    EXPECT_TRUE(layer_norm(on, {.x = x.data() + static_cast<size_t>(first) * width,
                                .weight = weight.data(),
                                .bias = bias.data(),
                                .out = out.data(),
                                .epsilon = 1e-12f,
                                .rows = rows,
                                .width = width}));
    EXPECT_TRUE(gelu(on, out.data(), out.size()));
    Rows made(rows);
    append(out, made);
    return made;
  };
}

class BatchInvarianceTest : public EachIsa {
 protected:
  void holds(const char* name, const Operation& operation, Random& random) {
    SCOPED_TRACE(name);
    Stream one = stream(1), three = stream(3);
    const Rows whole = operation(three, 0, kBatch);
    for (const int rows : kSizes) {
      const int first = static_cast<int>(random.below(kBatch - rows + 1));
      const Rows part = operation(random.below(2) ? one : three, first, rows);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first))
          << rows << " rows from row " << first << " on";
    }
  }
};
FOR_EACH_ISA(BatchInvarianceTest);

TEST_P(BatchInvarianceTest, of_products) {
  Stream cpu = stream();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    holds("bf16", product<bf16>(cpu, random, Panels::kPlain), random);
    holds("fp8", product<bf16>(cpu, random, Panels::kCodes), random);
    holds("fp32", product<float>(cpu, random, Panels::kPlain), random);
  }
}

TEST_P(BatchInvarianceTest, of_norms_heads_and_gates) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    holds("norm in bf16", norm<bf16>(random), random);
    holds("norm in fp32", norm<float>(random), random);
    holds("heads in bf16", rotated_heads<bf16>(random), random);
    holds("heads in fp32", rotated_heads<float>(random), random);
    holds("gates in bf16", gates<bf16>(random), random);
    holds("gates in fp32", gates<float>(random), random);
    holds("layer norm and gelu", encoded(random), random);
  }
}

TEST_P(BatchInvarianceTest, of_what_quantises_rows) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    holds("rows", quantised(random), random);
  }
}

TEST_P(BatchInvarianceTest, of_attention) {
  Stream cpu = stream();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    holds("bf16", attention_rows<bf16>(cpu, random), random);
    holds("fp32", attention_rows<float>(cpu, random), random);
  }
}

TEST_P(BatchInvarianceTest, of_the_head_and_of_routers) {
  Stream cpu = stream();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    holds("head in bf16", head<bf16>(cpu, random), random);
    holds("head in fp32", head<float>(cpu, random), random);
    holds("router", routed(random), random);
  }
}

// As large as vocabularies are: slabs and panels in number, the last ones not whole.
TEST_P(BatchInvarianceTest, of_heads_of_published_vocabularies) {
  constexpr int kWidth = 16, kRows = 17;
  Stream one = stream(1), three = stream(3);
  for (const int vocabulary : {49152, 151936}) {
    const auto hidden = random_bf16(size_t{kRows} * kWidth, 1);
    const auto weight = random_bf16(static_cast<size_t>(vocabulary) * kWidth, 2);
    std::vector<bf16> packed(packed_size(vocabulary, kWidth));
    ASSERT_TRUE(pack(three, weight.data(), vocabulary, kWidth, packed.data()));
    const auto log_sums = [&](Stream& on, int first, int rows) {
      std::vector<float> log_sum(rows);
      EXPECT_TRUE(lm_head(on,
                          LmHead{.hidden = hidden.data() + first * kWidth,
                                 .head = packed.data(),
                                 .rows = rows,
                                 .width = kWidth,
                                 .vocabulary = vocabulary,
                                 .log_sum = log_sum.data()},
                          {}, {}));
      return log_sum;
    };
    const auto whole = log_sums(three, 0, kRows);
    for (const int rows : {1, 2, 3, 16}) {
      const auto part = log_sums(rows % 2 ? one : three, kRows - rows, rows);
      EXPECT_EQ(0, std::memcmp(part.data(), whole.data() + kRows - rows, rows * sizeof(float))) << rows;
    }
  }
}

// From 32 MiB on results are written past the caches, where they lie at whole vectors.
TEST_P(BatchInvarianceTest, of_results_larger_than_the_caches) {
  constexpr int kRows = 4096, kWidth = 8192, kPart = 128;
  Stream three = stream(3);
  std::vector<bf16> x(size_t{kRows} * kWidth);
  for (size_t i = 0; i < x.size(); ++i) x[i] = to_bf16(static_cast<float>(i * 7919 % 1021) / 100 - 5);
  const auto same = [](const auto& part, const auto& whole) {
    return std::memcmp(part.data(), whole.data(), part.size() * sizeof(*part.data())) == 0;
  };
  const auto normed = [&](int rows) {
    Buffer<bf16> out(static_cast<size_t>(rows) * kWidth);
    EXPECT_TRUE(rms_norm(three, x.data(), x.data(), 1e-5f, rows, kWidth, out.data()));
    return out;
  };
  EXPECT_TRUE(same(normed(kPart), normed(kRows)));
  const auto gated = [&](int rows) {
    Buffer<bf16> out(static_cast<size_t>(rows) * kWidth / 2);
    EXPECT_TRUE(swiglu(three, x.data(), rows, kWidth / 2, out.data()));
    return out;
  };
  EXPECT_TRUE(same(gated(kPart), gated(kRows)));
  const auto by_column = [&](int rows) {
    Buffer<e4m3> codes(static_cast<size_t>(rows) * kWidth);
    std::vector<e8m0> scales(kWidth * scale_blocks(rows, kScaleBlock));
    EXPECT_TRUE(quantize(three, {.x = x.data(),
                                 .stride = kWidth,
                                 .by_column = codes.data(),
                                 .column_scales = scales.data(),
                                 .rows = rows,
                                 .columns = kWidth}));
    return codes;
  };
  const auto part = by_column(kPart), whole = by_column(kRows);
  for (int column = 0; column < kWidth; ++column)
    ASSERT_EQ(
        0, std::memcmp(&part[static_cast<size_t>(column) * kPart], &whole[static_cast<size_t>(column) * kRows], kPart))
        << column;
}

}  // namespace
}  // namespace tandem::kernels
