// Attention over windows, values of another width than keys, heads of sizes that are no whole vectors, and in fp32.
#include <cmath>
#include <numeric>

#include "kernels/attention.h"
#include "kernels/cuda/tree_runs.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

// A window within a block, one over blocks, latents with one head of keys, odd sizes, all at once.
const AttentionShape kShapes[] = {
    {.heads = 4, .kv_heads = 2, .head_size = 64, .scale = 0.125f, .window = 10},
    {.heads = 2, .kv_heads = 1, .head_size = 32, .scale = 0.2f, .window = 100},
    {.heads = 3, .kv_heads = 1, .head_size = 96, .scale = 0.1f, .value_size = 64},
    {.heads = 2, .kv_heads = 2, .head_size = 18, .scale = 0.2f, .value_size = 38},
    {.heads = 2, .kv_heads = 1, .head_size = 576, .scale = 0.05f, .value_size = 512},
    {.heads = 4, .kv_heads = 2, .head_size = 50, .scale = 0.15f, .window = 64, .value_size = 20},
};
int query_width(const AttentionShape& s) { return s.heads * s.head_size; }
int key_width(const AttentionShape& s) { return s.kv_heads * s.head_size; }
int out_width(const AttentionShape& s) { return s.heads * s.values(); }
int width(const AttentionShape& s) { return query_width(s) + key_width(s) + s.kv_heads * s.values(); }

constexpr int kTokens = 150;
constexpr int kPages = 3;

std::vector<int32_t> counting(int count, int from = 0) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), from);
  return values;
}

template <typename T>
auto pages_of(Machine& machine, const AttentionShape& s, const std::vector<int32_t>& positions) {
  return ArgumentsOf<T, TandemCudaPages, TandemCudaPagesFloat>{
      .keys = machine.room<OnMachine<T>>(size_t{kPages} * 64 * key_width(s)),
      .values = machine.room<OnMachine<T>>(size_t{kPages} * 64 * s.kv_heads * s.values()),
      .table = machine.place(std::vector<int32_t>{2, 0, 1}),
      .first = machine.place(std::vector<int32_t>(positions.size(), 0)),
      .positions = machine.place(positions)};
}

// Rows of one sequence, in chunks of `chunk`.
template <typename T>
std::vector<OnMachine<T>> attended(Machine& machine, const AttentionShape& s, int chunk, std::vector<float>* log_sums) {
  const auto* rows = machine.place(random_elements<T>(static_cast<size_t>(kTokens) * width(s), 1));
  auto* out = machine.room<OnMachine<T>>(kTokens * out_width(s));
  auto* sums = machine.room<float>(kTokens * s.heads);
  auto pages = pages_of<T>(machine, s, counting(kTokens));
  for (int first = 0; first < kTokens; first += chunk, pages.first += chunk, pages.positions += chunk) {
    const int count = std::min(chunk, kTokens - first);
    const auto* start = rows + static_cast<size_t>(first) * width(s);
    EXPECT_EQ(machine.run(ArgumentsOf<T, TandemCudaWritePages, TandemCudaWritePagesFloat>{
                  .keys = start + query_width(s),
                  .key_stride = width(s),
                  .values = start + query_width(s) + key_width(s),
                  .value_stride = width(s),
                  .pages = pages,
                  .rows = count,
                  .kv_heads = s.kv_heads,
                  .head_size = s.head_size,
                  .value_size = s.value_size}),
              0);
    EXPECT_EQ(
        machine.run(ArgumentsOf<T, TandemCudaAttention, TandemCudaAttentionFloat>{.queries = start,
                                                                                  .query_stride = width(s),
                                                                                  .pages = pages,
                                                                                  .out = out + first * out_width(s),
                                                                                  .out_stride = out_width(s),
                                                                                  .log_sum = sums + first * s.heads,
                                                                                  .rows = count,
                                                                                  .heads = s.heads,
                                                                                  .kv_heads = s.kv_heads,
                                                                                  .head_size = s.head_size,
                                                                                  .scale = s.scale,
                                                                                  .window = s.window,
                                                                                  .value_size = s.value_size}),
        0);
  }
  if (log_sums) *log_sums = machine.fetch(sums, kTokens * s.heads);
  return machine.fetch(out, kTokens * out_width(s));
}

template <typename T>
struct OnCpu {
  std::vector<T> out;
  std::vector<float> log_sum;
};
template <typename T>
OnCpu<T> attended_on_cpu(Stream& cpu, const AttentionShape& s, const std::vector<T>& rows, int tokens) {
  OnCpu<T> result{std::vector<T>(tokens * out_width(s)), std::vector<float>(tokens * s.heads)};
  const int count = (tokens + kPageTokens - 1) / kPageTokens;
  std::vector<T> memory(count * page_elements(s));
  std::vector<BasicKeyValuePage<T>> pages;
  for (int i = 0; i < count; ++i) {
    T* page = memory.data() + i * page_elements(s);
    pages.push_back({page, page + page_keys(s)});
  }
  const size_t stride = width(s);
  const T* keys = rows.data() + query_width(s);
  EXPECT_TRUE(write_pages(cpu, s, keys, stride, keys + key_width(s), stride, tokens, 0,
                          std::span<const BasicKeyValuePage<T>>(pages)));
  const BasicQueryRun<T> run{.row = 0, .rows = tokens, .position = 0, .pages = pages};
  EXPECT_TRUE(attention(cpu, s, rows.data(), stride, std::span(&run, 1), result.out.data(), out_width(s),
                        result.log_sum.data()));
  return result;
}

Bytes attention_shapes_case(Machine& machine) {
  Bytes bytes;
  for (const AttentionShape& s : kShapes) {
    append(bytes, attended<bf16>(machine, s, kTokens, nullptr));
    append(bytes, attended<float>(machine, s, kTokens, nullptr));
  }
  return bytes;
}
Bytes attention_shapes_on_cpu(Stream& cpu) {
  Bytes bytes;
  for (const AttentionShape& s : kShapes) {
    const size_t elements = static_cast<size_t>(kTokens) * width(s);
    append(bytes, attended_on_cpu<bf16>(cpu, s, random_bf16(elements, 1), kTokens).out);
    append(bytes, attended_on_cpu<float>(cpu, s, random_floats(elements, 1), kTokens).out);
  }
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(attention_shapes)

TEST(CudaHost, any_cut_of_a_prefill_with_a_window_gives_the_same_bits) {
  HostMachine machine;
  for (const AttentionShape& s : {kShapes[0], kShapes[5]}) {
    std::vector<float> sums, expected_sums;
    const auto expected = attended<bf16>(machine, s, kTokens, &expected_sums);
    for (const int chunk : {1, 7, 64, 149}) {
      EXPECT_EQ(attended<bf16>(machine, s, chunk, &sums), expected) << chunk;
      EXPECT_EQ(sums, expected_sums) << chunk;
    }
  }
}

// A trunk of 70 tokens with branches of 75 and 5.
constexpr int kRows = 150;
struct Tree {
  std::vector<std::vector<int>> paths = {counting(70), counting(145), counting(70)};
  std::vector<std::vector<TreeRun>> runs;
  Tree() {
    for (int i = 145; i < kRows; ++i) paths[2].push_back(i);
    runs = {{{0, 70, paths[0]}, {70, 75, paths[1]}, {145, 5, paths[2]}}};
  }
};
// What the gradient of attention starts from: the forward pass of each path on the CPU.
struct Forward {
  std::vector<bf16> rows, grad_out, out;
  std::vector<float> log_sum;
  Forward(Stream& cpu, const AttentionShape& s, const Tree& tree)
      : rows(random_bf16(static_cast<size_t>(kRows) * width(s), 5, 0.5f)),
        grad_out(random_bf16(kRows * out_width(s), 6)),
        out(kRows * out_width(s)),
        log_sum(kRows * s.heads) {
    for (const TreeRun& run : tree.runs[0]) {
      const int length = static_cast<int>(run.path.size());
      std::vector<bf16> gathered;
      for (const int row : run.path) {
        gathered.insert(gathered.end(), rows.begin() + row * width(s), rows.begin() + (row + 1) * width(s));
      }
      const auto part = attended_on_cpu<bf16>(cpu, s, gathered, length);
      std::copy(part.out.end() - run.rows * out_width(s), part.out.end(), out.begin() + run.row * out_width(s));
      std::copy(part.log_sum.end() - run.rows * s.heads, part.log_sum.end(), log_sum.begin() + run.row * s.heads);
    }
  }
};

Bytes attention_shapes_backward_case(Machine& machine) {
  Stream cpu = std::move(*Stream::cpu(2, Isa::kAvx2));
  Bytes bytes;
  const Tree tree;
  const TreeRuns flat = *tree_runs(tree.runs, kRows);
  for (const AttentionShape& s : kShapes) {
    const Forward forward(cpu, s, tree);
    const uint16_t* rows = machine.place(forward.rows);
    uint16_t* grads = machine.room<uint16_t>(kRows * width(s));
    EXPECT_EQ(machine.run(TandemCudaAttentionBackward{.queries = rows,
                                                      .keys = rows + query_width(s),
                                                      .values = rows + query_width(s) + key_width(s),
                                                      .stride = width(s),
                                                      .out = machine.place(forward.out),
                                                      .grad_out = machine.place(forward.grad_out),
                                                      .log_sum = machine.place(forward.log_sum),
                                                      .grad_queries = grads,
                                                      .grad_keys = grads + query_width(s),
                                                      .grad_values = grads + query_width(s) + key_width(s),
                                                      .grad_stride = width(s),
                                                      .runs = machine.place(flat.runs),
                                                      .row_run = machine.place(flat.row_run),
                                                      .paths = machine.place(flat.paths),
                                                      .rows = kRows,
                                                      .heads = s.heads,
                                                      .kv_heads = s.kv_heads,
                                                      .head_size = s.head_size,
                                                      .scale = s.scale,
                                                      .window = s.window,
                                                      .value_size = s.value_size,
                                                      .workspace = machine.room<float>(kRows * s.heads),
                                                      .workspace_bytes = kRows * s.heads * sizeof(float)}),
              0);
    append(bytes, machine.fetch(grads, kRows * width(s)));
  }
  return bytes;
}
Bytes attention_shapes_backward_on_cpu(Stream& cpu) {
  Bytes bytes;
  const Tree tree;
  for (const AttentionShape& s : kShapes) {
    const Forward forward(cpu, s, tree);
    std::vector<bf16> grads(kRows * width(s));
    const bf16* keys = forward.rows.data() + query_width(s);
    bf16* grad_keys = grads.data() + query_width(s);
    EXPECT_TRUE(attention_backward(cpu, s,
                                   {.queries = forward.rows.data(),
                                    .keys = keys,
                                    .values = keys + key_width(s),
                                    .stride = static_cast<size_t>(width(s)),
                                    .out = forward.out.data(),
                                    .grad_out = forward.grad_out.data(),
                                    .log_sum = forward.log_sum.data(),
                                    .grad_queries = grads.data(),
                                    .grad_keys = grad_keys,
                                    .grad_values = grad_keys + key_width(s),
                                    .grad_stride = static_cast<size_t>(width(s)),
                                    .rows = kRows},
                                   tree.runs));
    append(bytes, grads);
  }
  return bytes;
}
TANDEM_CUDA_AGAINST_AVX2_TESTS(attention_shapes_backward)

}  // namespace
}  // namespace tandem::kernels::cuda
