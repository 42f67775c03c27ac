#include "kernels/attention.h"

#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/reference/attention.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

constexpr int kHeads = 6, kKvHeads = 2, kSize = 64;
constexpr int kQueryWidth = kHeads * kSize, kKeyWidth = kKvHeads * kSize;
constexpr int kWidth = kQueryWidth + 2 * kKeyWidth;
AttentionShape shape_with(int window) {
  return {.heads = kHeads, .kv_heads = kKvHeads, .head_size = kSize, .scale = 0.125f, .window = window};
}
const AttentionShape kShape = shape_with(0);
// None, the token alone, within a block, a block, across blocks, more than there is.
constexpr int kWindows[] = {0, 1, 29, 64, 100, 1000};

// A sequence of fused [q | k | v] rows and the pages its keys and values lie in.
struct Sequence {
  explicit Sequence(int tokens, uint64_t seed, int window = 0)
      : rows(random_bf16(static_cast<size_t>(tokens) * kWidth, seed)), shape(shape_with(window)) {
    const int count = (tokens + kPageTokens - 1) / kPageTokens;
    memory.assign(count * page_elements(kShape), bf16{});
    for (int i = 0; i < count; ++i) {
      bf16* page = memory.data() + i * page_elements(kShape);
      pages.push_back({page, page + page_keys(kShape)});
    }
  }
  std::vector<bf16> rows, memory;
  std::vector<KeyValuePage> pages;
  AttentionShape shape;

  // Computes rows [first, first + count) as one chunk: writes their keys and values, then attends.
  std::vector<bf16> attend(Stream& stream, int first, int count, float* log_sum = nullptr) {
    const bf16* start = rows.data() + static_cast<size_t>(first) * kWidth;
    EXPECT_TRUE(write_pages(stream, shape, start + kQueryWidth, kWidth, start + kQueryWidth + kKeyWidth, kWidth, count,
                            first, pages));
    std::vector<bf16> out(static_cast<size_t>(count) * kQueryWidth);
    const QueryRun run{.row = 0, .rows = count, .position = first, .pages = pages};
    EXPECT_TRUE(attention(stream, shape, start, kWidth, {&run, 1}, out.data(), kQueryWidth, log_sum));
    return out;
  }
};

reference::Attention in_double(const std::vector<bf16>& rows) {
  return {kShape, rows.data(), rows.data() + kQueryWidth, rows.data() + kQueryWidth + kKeyWidth, kWidth};
}

class AttentionTest : public EachIsa {};
FOR_EACH_ISA(AttentionTest);

// The rows that a row sees, of those in `path` up to itself.
std::span<const int> seen(std::span<const int> path, int window) {
  return window > 0 && path.size() > static_cast<size_t>(window) ? path.last(window) : path;
}

TEST_P(AttentionTest, is_near_the_exact_softmax) {
  Stream cpu = stream();
  std::vector<int> path(150);
  std::iota(path.begin(), path.end(), 0);
  for (const int window : kWindows) {
    Sequence s(150, 1, window);
    const auto out = s.attend(cpu, 0, 150);
    for (const int row : {0, 1, 29, 63, 64, 100, 149}) {
      for (int head = 0; head < kHeads; ++head) {
        const auto keys = seen(std::span(path).first(row + 1), window);
        const auto exact = reference::attention(in_double(s.rows), row, head, keys);
        // Probabilities and the result are rounded to bf16: 2^-8 of values of order one.
        for (int i = 0; i < kSize; ++i) {
          ASSERT_NEAR(to_float(out[static_cast<size_t>(row) * kQueryWidth + head * kSize + i]), exact[i], 0.02)
              << "window " << window << ", row " << row << ", head " << head;
        }
      }
    }
  }
}

TEST_P(AttentionTest, a_window_that_covers_all_gives_the_bits_of_none) {
  Stream cpu = stream();
  const auto all = Sequence(150, 1).attend(cpu, 0, 150), covered = Sequence(150, 1, 150).attend(cpu, 0, 150);
  EXPECT_TRUE(same_bits(all.data(), covered.data(), all.size()));
}

TEST_P(AttentionTest, any_cut_of_a_prefill_and_decode_give_the_same_bits) {
  const int tokens = 200;
  Stream one = stream(1), three = stream(3);
  for (const int window : kWindows) {
    const auto whole = Sequence(tokens, 2, window).attend(three, 0, tokens);
    for (const int chunk : {1, 7, 16, 64, 65, 199}) {
      Sequence s(tokens, 2, window);
      for (int first = 0; first < tokens; first += chunk) {
        const int count = std::min(chunk, tokens - first);
        const auto part = s.attend(chunk % 2 ? one : three, first, count);
        ASSERT_TRUE(same_bits(part.data(), whole.data() + static_cast<size_t>(first) * kQueryWidth, part.size()))
            << "window " << window << ", chunk " << chunk << " at " << first;
      }
    }
  }
}

TEST_P(AttentionTest, neighbours_in_the_batch_change_nothing) {
  Stream cpu = stream();
  Sequence a(90, 3), b(130, 4);
  const auto alone = a.attend(cpu, 0, 90);
  b.attend(cpu, 0, 130);
  std::vector<bf16> queries(b.rows), out((130 + 90) * kQueryWidth);
  queries.insert(queries.end(), a.rows.begin(), a.rows.end());
  const QueryRun runs[] = {{.row = 0, .rows = 130, .position = 0, .pages = b.pages},
                           {.row = 130, .rows = 90, .position = 0, .pages = a.pages}};
  ASSERT_TRUE(attention(cpu, kShape, queries.data(), kWidth, runs, out.data(), kQueryWidth));
  EXPECT_TRUE(same_bits(out.data() + 130 * kQueryWidth, alone.data(), alone.size()));
}

// A tree: a trunk of 70 tokens, then branches of 10 and 5 tokens. Gradients against the exact derivative in double.
class TreeBackwardTest : public EachIsa {
 protected:
  void compare(int window);
};
FOR_EACH_ISA(TreeBackwardTest);

TEST_P(TreeBackwardTest, matches_the_exact_derivative_and_repeats_bit_by_bit) {
  for (const int window : kWindows) {
    SCOPED_TRACE(window);
    compare(window);
  }
}

void TreeBackwardTest::compare(int window) {
  constexpr int kTrunk = 70, kRows = 85;
  const auto rows = random_bf16(kRows * kWidth, 5, 0.5f), grad_out = random_bf16(kRows * kQueryWidth, 6);
  std::vector<std::vector<int>> paths(3);
  for (int i = 0; i < kTrunk; ++i) paths[0].push_back(i);
  paths[1] = paths[2] = paths[0];
  for (int i = 70; i < 80; ++i) paths[1].push_back(i);
  for (int i = 80; i < 85; ++i) paths[2].push_back(i);
  const std::vector<std::vector<TreeRun>> trees = {{{0, kTrunk, paths[0]}, {70, 10, paths[1]}, {80, 5, paths[2]}}};

  const auto backward = [&](int threads, std::vector<bf16>& grads) {
    Stream cpu = stream(threads);
    std::vector<bf16> out(kRows * kQueryWidth);
    std::vector<float> log_sum(kRows * kHeads);
    for (const TreeRun& run : trees[0]) {
      Sequence s(static_cast<int>(run.path.size()), 0, window);
      for (size_t i = 0; i < run.path.size(); ++i) {
        std::memcpy(&s.rows[i * kWidth], &rows[static_cast<size_t>(run.path[i]) * kWidth], kWidth * sizeof(bf16));
      }
      const int first = static_cast<int>(run.path.size()) - run.rows;
      if (first > 0) s.attend(cpu, 0, first);
      const auto part = s.attend(cpu, first, run.rows, &log_sum[run.row * kHeads]);
      std::copy(part.begin(), part.end(), out.begin() + run.row * kQueryWidth);
    }
    grads.assign(kRows * kWidth, bf16{});
    const AttentionBackward arguments{.queries = rows.data(),
                                      .keys = rows.data() + kQueryWidth,
                                      .values = rows.data() + kQueryWidth + kKeyWidth,
                                      .stride = kWidth,
                                      .out = out.data(),
                                      .grad_out = grad_out.data(),
                                      .log_sum = log_sum.data(),
                                      .grad_queries = grads.data(),
                                      .grad_keys = grads.data() + kQueryWidth,
                                      .grad_values = grads.data() + kQueryWidth + kKeyWidth,
                                      .grad_stride = kWidth,
                                      .rows = kRows};
    ASSERT_TRUE(attention_backward(cpu, shape_with(window), arguments, trees));
  };
  std::vector<bf16> grads, again;
  backward(1, grads);
  backward(3, again);
  EXPECT_TRUE(same_bits(grads.data(), again.data(), grads.size()));

  std::vector<double> exact(kRows * kWidth, 0);
  double* const start = exact.data();
  const reference::AttentionGradients gradients{start, start + kQueryWidth, start + kQueryWidth + kKeyWidth};
  for (const TreeRun& run : trees[0]) {
    const size_t before = run.path.size() - run.rows;
    for (int i = 0; i < run.rows; ++i) {
      for (int head = 0; head < kHeads; ++head) {
        reference::attention_backward(in_double(rows), run.row + i, head, seen(run.path.first(before + i + 1), window),
                                      &grad_out[(run.row + i) * kQueryWidth + head * kSize], gradients);
      }
    }
  }
  double error = 0, norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(to_float(grads[i]) - exact[i], 2);
    norm += exact[i] * exact[i];
  }
  // Five products of bf16 inputs, each rounded to 2^-9 relative: errors add in squares.
  EXPECT_LT(std::sqrt(error / norm), 0.01);
}

}  // namespace
}  // namespace tandem::kernels
