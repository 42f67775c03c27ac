// Attention whose values are of another width than its keys, are the keys' first columns where all heads share one
// latent, or fill no whole number of panels.
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/attention.h"
#include "kernels/reference/attention.h"
#include "tests/kernels/support.h"

namespace tandem::kernels {
namespace {

struct Widths {
  AttentionShape shape;
  bool shared = false;  // values are columns of the keys
  int keys() const { return shape.heads * shape.head_size; }
  int values() const { return shared ? keys() : keys() + shape.kv_heads * shape.head_size; }
  int columns() const { return values() + (shared ? shape.head_size : shape.kv_heads * shape.values()); }
  int out() const { return shape.heads * shape.values(); }
};

const Widths kWidths[] = {
    {{.heads = 5, .kv_heads = 1, .head_size = 128, .scale = 0.11f, .value_size = 64}, true},
    {{.heads = 3, .kv_heads = 1, .head_size = 576, .scale = 0.05f, .value_size = 512}, true},
    {{.heads = 4, .kv_heads = 2, .head_size = 64, .scale = 0.125f, .value_size = 192}, false},
    {{.heads = 4, .kv_heads = 2, .head_size = 96, .scale = 0.1f}, false},
    {{.heads = 2, .kv_heads = 1, .head_size = 160, .scale = 0.08f, .value_size = 96}, true},
    {{.heads = 4, .kv_heads = 2, .head_size = 16, .scale = 0.25f}, false},
    {{.heads = 3, .kv_heads = 1, .head_size = 100, .scale = 0.1f, .value_size = 74}, true},
};

// A sequence of fused rows and its pages, in bf16 or fp32.
template <typename T>
struct Sequence {
  Sequence(const Widths& of, std::vector<T> all) : widths(of), rows(std::move(all)) {
    const size_t tokens = rows.size() / widths.columns(), page = page_elements(widths.shape);
    const size_t count = (tokens + kPageTokens - 1) / kPageTokens;
    memory.assign(count * page, T{});
    for (size_t i = 0; i < count; ++i)
      pages.push_back({memory.data() + i * page, memory.data() + i * page + page_keys(widths.shape)});
  }
  std::vector<T> attend(Stream& stream, int first, int count, float* log_sum = nullptr) {
    const size_t stride = widths.columns();
    const T* start = rows.data() + first * stride;
    EXPECT_TRUE(write_pages(stream, widths.shape, start + widths.keys(), stride, start + widths.values(), stride, count,
                            first, pages));
    std::vector<T> out(static_cast<size_t>(count) * widths.out());
    const BasicQueryRun<T> run{.row = 0, .rows = count, .position = first, .pages = pages};
    EXPECT_TRUE(attention(stream, widths.shape, start, stride, std::span(&run, 1), out.data(), widths.out(), log_sum));
    return out;
  }
  const Widths& widths;
  std::vector<T> rows, memory;
  std::vector<BasicKeyValuePage<T>> pages;
};

reference::Attention in_double(const Widths& w, const std::vector<bf16>& rows) {
  return {w.shape, rows.data(), rows.data() + w.keys(), rows.data() + w.values(), static_cast<size_t>(w.columns())};
}

class LatentAttentionTest : public EachIsa {};
FOR_EACH_ISA(LatentAttentionTest);

TEST_P(LatentAttentionTest, is_near_the_exact_softmax_with_the_same_bits_in_every_cut) {
  constexpr int kTokens = 140;
  Stream one = stream(1), three = stream(3);
  std::vector<int> path(kTokens);
  std::iota(path.begin(), path.end(), 0);
  for (const Widths& w : kWidths) {
    SCOPED_TRACE(w.shape.head_size);
    const auto rows = random_bf16(static_cast<size_t>(kTokens) * w.columns(), 7);
    const auto whole = Sequence<bf16>(w, rows).attend(three, 0, kTokens);
    for (const int row : {0, 63, 64, 139}) {
      for (int head = 0; head < w.shape.heads; ++head) {
        const auto exact = reference::attention(in_double(w, rows), row, head, std::span(path).first(row + 1));
        for (int i = 0; i < w.shape.values(); ++i) {
          ASSERT_NEAR(to_float(whole[static_cast<size_t>(row) * w.out() + head * w.shape.values() + i]), exact[i], 0.02)
              << "row " << row << ", head " << head;
        }
      }
    }
    for (const int chunk : {1, 33, 64}) {
      Sequence<bf16> cut(w, rows);
      for (int first = 0; first < kTokens; first += chunk) {
        const auto part = cut.attend(chunk == 33 ? three : one, first, std::min(chunk, kTokens - first));
        ASSERT_TRUE(same_bits(part.data(), whole.data() + static_cast<size_t>(first) * w.out(), part.size()))
            << "chunk " << chunk << " at " << first;
      }
    }
  }
}

TEST_P(LatentAttentionTest, in_float32_is_the_softmax_of_the_same_numbers) {
  constexpr int kTokens = 90;
  Stream cpu = stream(2);
  std::vector<int> path(kTokens);
  std::iota(path.begin(), path.end(), 0);
  for (const Widths& w : kWidths) {
    const auto rows = random_bf16(static_cast<size_t>(kTokens) * w.columns(), 8);
    std::vector<float> floats;
    for (const bf16 x : rows) floats.push_back(to_float(x));
    const auto out = Sequence<float>(w, std::move(floats)).attend(cpu, 0, kTokens);
    for (const int row : {5, 89}) {
      for (int head = 0; head < w.shape.heads; ++head) {
        const auto exact = reference::attention(in_double(w, rows), row, head, std::span(path).first(row + 1));
        for (int i = 0; i < w.shape.values(); ++i)
          ASSERT_NEAR(out[static_cast<size_t>(row) * w.out() + head * w.shape.values() + i], exact[i], 1e-5);
      }
    }
  }
}

TEST_P(LatentAttentionTest, has_the_exact_derivative_over_a_tree_with_any_threads) {
  constexpr int kTrunk = 66, kRows = 77;
  std::vector<std::vector<int>> paths(3);
  for (int i = 0; i < kTrunk; ++i) paths[0].push_back(i);
  paths[1] = paths[2] = paths[0];
  for (int i = kTrunk; i < 73; ++i) paths[1].push_back(i);
  for (int i = 73; i < kRows; ++i) paths[2].push_back(i);
  const std::vector<std::vector<TreeRun>> trees = {{{0, kTrunk, paths[0]}, {kTrunk, 7, paths[1]}, {73, 4, paths[2]}}};
  for (const Widths& w : kWidths) {
    SCOPED_TRACE(w.shape.head_size);
    const size_t columns = w.columns(), out_width = w.out();
    const auto rows = random_bf16(kRows * columns, 9, 0.5f), grad_out = random_bf16(kRows * out_width, 10);
    // Gradients of values have columns of their own.
    const int grad_values = w.keys() + w.shape.kv_heads * w.shape.head_size;
    const size_t grad_stride = grad_values + w.shape.kv_heads * w.shape.values();
    const auto backward = [&](int threads) {
      Stream cpu = stream(threads);
      std::vector<bf16> out(kRows * out_width), grads(kRows * grad_stride);
      std::vector<float> log_sum(kRows * w.shape.heads);
      for (const TreeRun& run : trees[0]) {
        std::vector<bf16> sequence;
        for (const int row : run.path)
          sequence.insert(sequence.end(), rows.begin() + row * columns, rows.begin() + (row + 1) * columns);
        Sequence<bf16> s(w, std::move(sequence));
        const int first = static_cast<int>(run.path.size()) - run.rows;
        if (first > 0) s.attend(cpu, 0, first);
        const auto part = s.attend(cpu, first, run.rows, &log_sum[run.row * w.shape.heads]);
        std::copy(part.begin(), part.end(), out.begin() + run.row * out_width);
      }
      EXPECT_TRUE(attention_backward(cpu, w.shape,
                                     {.queries = rows.data(),
                                      .keys = rows.data() + w.keys(),
                                      .values = rows.data() + w.values(),
                                      .stride = columns,
                                      .out = out.data(),
                                      .grad_out = grad_out.data(),
                                      .log_sum = log_sum.data(),
                                      .grad_queries = grads.data(),
                                      .grad_keys = grads.data() + w.keys(),
                                      .grad_values = grads.data() + grad_values,
                                      .grad_stride = grad_stride,
                                      .rows = kRows},
                                     trees));
      return grads;
    };
    const auto grads = backward(1), again = backward(3);
    EXPECT_TRUE(same_bits(grads.data(), again.data(), grads.size()));

    std::vector<double> queries(kRows * columns), keys(kRows * columns), values(kRows * columns);
    for (const TreeRun& run : trees[0]) {
      const size_t before = run.path.size() - run.rows;
      for (int i = 0; i < run.rows; ++i) {
        for (int head = 0; head < w.shape.heads; ++head) {
          reference::attention_backward(in_double(w, rows), run.row + i, head, run.path.first(before + i + 1),
                                        &grad_out[(run.row + i) * out_width + head * w.shape.values()],
                                        {queries.data(), keys.data(), values.data()});
        }
      }
    }
    const auto near = [&](const std::vector<double>& exact, int first, int count) {
      double error = 0, norm = 0;
      for (size_t row = 0; row < kRows; ++row) {
        for (int i = 0; i < count; ++i) {
          const double right = exact[row * columns + i];
          error += std::pow(to_float(grads[row * grad_stride + first + i]) - right, 2);
          norm += right * right;
        }
      }
      EXPECT_LT(std::sqrt(error / norm), 0.01);
    };
    near(queries, 0, w.keys());
    near(keys, w.keys(), w.shape.kv_heads * w.shape.head_size);
    near(values, grad_values, w.shape.kv_heads * w.shape.values());
  }
}

TEST(LatentAttention, widths_that_do_not_fit_are_refused) {
  Stream cpu = std::move(*Stream::cpu(1));
  const std::vector<bf16> row(1024);
  for (const AttentionShape& shape : {AttentionShape{.heads = 1, .kv_heads = 1, .head_size = 640},
                                      {.heads = 1, .kv_heads = 1, .head_size = 33},
                                      {.heads = 1, .kv_heads = 1, .head_size = 64, .value_size = 1},
                                      {.heads = 1, .kv_heads = 1, .head_size = 64, .value_size = 578}}) {
    const Status status =
        write_pages(cpu, shape, row.data(), 1024, row.data(), 1024, 1, 0, std::span<const KeyValuePage>());
    EXPECT_NE(status.to_string().find("_size must be even, at most 576"), std::string::npos);
  }
}

}  // namespace
}  // namespace tandem::kernels
