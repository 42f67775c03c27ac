#include <cmath>
#include <numeric>

#include "kernels/attention.h"
#include "kernels/cuda/tree_runs.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

constexpr int kHeads = 4, kKvHeads = 2, kSize = 64;
constexpr int kQueryWidth = kHeads * kSize, kKeyWidth = kKvHeads * kSize, kWidth = kQueryWidth + 2 * kKeyWidth;
constexpr int kPageElements = kKvHeads * 64 * kSize;
const AttentionShape kShape{.heads = kHeads, .kv_heads = kKvHeads, .head_size = kSize, .scale = 0.125f};

// Fused [q | k | v] rows on a machine, each with a position, in sequences whose pages come one after the other.
struct Batch {
  Batch(Machine& on, const std::vector<bf16>& values, const std::vector<int32_t>& positions,
        const std::vector<int32_t>& first_pages, const std::vector<int32_t>& table, int pages)
      : machine(on), rows(static_cast<int>(positions.size())), start(on.place(values)) {
    this->pages = {.keys = on.room<uint16_t>(pages * kPageElements),
                   .values = on.room<uint16_t>(pages * kPageElements),
                   .table = on.place(table),
                   .first = on.place(first_pages),
                   .positions = on.place(positions)};
    out = on.room<uint16_t>(rows * kQueryWidth);
    log_sum = on.room<float>(rows * kHeads);
  }
  // Rows [first, first + count) as one chunk.
  void attend(int first, int count) {
    TandemCudaPages here = pages;
    here.first += first;
    here.positions += first;
    EXPECT_EQ(machine.run(TandemCudaWritePages{.keys = start + first * kWidth + kQueryWidth,
                                               .key_stride = kWidth,
                                               .values = start + first * kWidth + kQueryWidth + kKeyWidth,
                                               .value_stride = kWidth,
                                               .pages = here,
                                               .rows = count,
                                               .kv_heads = kKvHeads,
                                               .head_size = kSize}),
              0);
    EXPECT_EQ(machine.run(TandemCudaAttention{.queries = start + first * kWidth,
                                              .query_stride = kWidth,
                                              .pages = here,
                                              .out = out + first * kQueryWidth,
                                              .out_stride = kQueryWidth,
                                              .log_sum = log_sum + first * kHeads,
                                              .rows = count,
                                              .heads = kHeads,
                                              .kv_heads = kKvHeads,
                                              .head_size = kSize,
                                              .scale = kShape.scale}),
              0);
  }
  std::vector<uint16_t> result() { return machine.fetch(out, rows * kQueryWidth); }
  std::vector<float> log_sums() { return machine.fetch(log_sum, rows * kHeads); }

  Machine& machine;
  int rows;
  uint16_t* start;
  TandemCudaPages pages;
  uint16_t* out;
  float* log_sum;
};

std::vector<int32_t> counting(int count, int from = 0) {
  std::vector<int32_t> values(count);
  std::iota(values.begin(), values.end(), from);
  return values;
}

constexpr int kTokens = 150;

// One sequence, its pages out of order.
Batch sequence(Machine& machine) {
  return Batch(machine, random_bf16(kTokens * kWidth, 1), counting(kTokens), std::vector<int32_t>(kTokens, 0),
               {2, 0, 1}, 3);
}

Bytes attention_case(Machine& machine) {
  Batch batch = sequence(machine);
  batch.attend(0, kTokens);
  Bytes bytes;
  append(bytes, batch.result());
  append(bytes, batch.log_sums());
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(attention)

// The forward pass of the CPU over the same rows.
void attend_on_cpu(Stream& cpu, const std::vector<bf16>& rows, int tokens, bf16* out, float* log_sum) {
  const int count = (tokens + kPageTokens - 1) / kPageTokens;
  std::vector<bf16> memory(count * page_elements(kShape));
  std::vector<KeyValuePage> pages;
  for (int i = 0; i < count; ++i) {
    bf16* page = memory.data() + i * page_elements(kShape);
    pages.push_back({page, page + page_keys(kShape)});
  }
  ASSERT_TRUE(kernels::write_pages(cpu, kShape, rows.data() + kQueryWidth, kWidth,
                                   rows.data() + kQueryWidth + kKeyWidth, kWidth, tokens, 0, pages));
  const QueryRun run{.row = 0, .rows = tokens, .position = 0, .pages = pages};
  ASSERT_TRUE(kernels::attention(cpu, kShape, rows.data(), kWidth, {&run, 1}, out, kQueryWidth, log_sum));
}

TEST(CudaHost, attention_gives_the_bits_of_the_avx2_kernel) {
  Stream cpu = std::move(*Stream::cpu(2, Isa::kAvx2));
  std::vector<bf16> out(kTokens * kQueryWidth);
  std::vector<float> log_sum(kTokens * kHeads);
  attend_on_cpu(cpu, random_bf16(kTokens * kWidth, 1), kTokens, out.data(), log_sum.data());
  HostMachine machine;
  Batch batch = sequence(machine);
  batch.attend(0, kTokens);
  EXPECT_EQ(as_bf16(batch.result()), out);
  // Logarithms in double of two libraries, rounded to float: an ulp apart at most.
  const std::vector<float> got = batch.log_sums();
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(std::abs(got[i] - log_sum[i]), std::nextafter(std::abs(log_sum[i]), INFINITY) - std::abs(log_sum[i]));
  }
}

TEST(CudaHost, any_cut_of_a_prefill_and_decode_give_the_same_bits_over_pages_that_hold_nan_elsewhere) {
  HostMachine machine;
  Batch whole = sequence(machine);
  whole.attend(0, kTokens);
  for (const int chunk : {1, 7, 64, 149}) {
    Batch parts = sequence(machine);
    for (int first = 0; first < kTokens; first += chunk) parts.attend(first, std::min(chunk, kTokens - first));
    EXPECT_EQ(parts.result(), whole.result()) << chunk;
    EXPECT_EQ(parts.log_sums(), whole.log_sums()) << chunk;
  }
}

TEST(CudaHost, rows_of_other_sequences_and_rows_left_out_change_no_bits_of_attention) {
  HostMachine machine;
  Batch alone = sequence(machine);
  alone.attend(0, kTokens);
  // 70 rows of another sequence, three rows without a position, then the same sequence.
  std::vector<bf16> values = random_bf16(73 * kWidth, 2);
  const auto same = random_bf16(kTokens * kWidth, 1);
  values.insert(values.end(), same.begin(), same.end());
  std::vector<int32_t> positions = counting(70), first(73, 0);
  positions.insert(positions.end(), 3, -1);
  const auto more = counting(kTokens);
  positions.insert(positions.end(), more.begin(), more.end());
  first.insert(first.end(), kTokens, 2);
  Batch both(machine, values, positions, first, {4, 1, 3, 0, 2}, 5);
  both.attend(0, 73 + kTokens);
  const auto out = both.result(), expected = alone.result();
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin() + 73 * kQueryWidth));
  EXPECT_EQ(out[70 * kQueryWidth], 0xffff) << "a row without a position was written";
}

// Two trees of one batch: a trunk of 70 tokens with branches of 75 and 5, and a single run of 3.
constexpr int kRows = 155;
struct Trees {
  std::vector<std::vector<int>> paths = {counting(70), counting(145), counting(70), counting(3, 151)};
  std::vector<std::vector<TreeRun>> runs;
  Trees() {
    for (int i = 145; i < 150; ++i) paths[2].push_back(i);
    runs = {{{0, 70, paths[0]}, {70, 75, paths[1]}, {145, 5, paths[2]}}, {{151, 3, paths[3]}}};
  }
};

// Forward results of the same trees by the CPU: outputs and log-sums, row by row.
struct Forward {
  std::vector<bf16> rows = random_bf16(kRows * kWidth, 5, 0.5f), grad_out = random_bf16(kRows * kQueryWidth, 6);
  std::vector<bf16> out = std::vector<bf16>(kRows * kQueryWidth);
  std::vector<float> log_sum = std::vector<float>(kRows * kHeads);
  explicit Forward(const Trees& trees) {
    Stream cpu = std::move(*Stream::cpu(2, Isa::kAvx2));
    for (const auto& tree : trees.runs) {
      for (const TreeRun& run : tree) {
        const int length = static_cast<int>(run.path.size());
        std::vector<bf16> gathered(length * kWidth), part(length * kQueryWidth);
        std::vector<float> sums(length * kHeads);
        for (int i = 0; i < length; ++i) {
          std::copy_n(rows.begin() + run.path[i] * kWidth, kWidth, gathered.begin() + i * kWidth);
        }
        attend_on_cpu(cpu, gathered, length, part.data(), sums.data());
        std::copy(part.end() - run.rows * kQueryWidth, part.end(), out.begin() + run.row * kQueryWidth);
        std::copy(sums.end() - run.rows * kHeads, sums.end(), log_sum.begin() + run.row * kHeads);
      }
    }
  }
};

TandemCudaAttentionBackward backward(Machine& machine) {
  const Trees trees;
  const Forward forward(trees);
  const TreeRuns flat = *tree_runs(trees.runs, kRows);
  const uint16_t* rows = machine.place(forward.rows);
  uint16_t* grads = machine.room<uint16_t>(kRows * kWidth);
  return {.queries = rows,
          .keys = rows + kQueryWidth,
          .values = rows + kQueryWidth + kKeyWidth,
          .stride = kWidth,
          .out = machine.place(forward.out),
          .grad_out = machine.place(forward.grad_out),
          .log_sum = machine.place(forward.log_sum),
          .grad_queries = grads,
          .grad_keys = grads + kQueryWidth,
          .grad_values = grads + kQueryWidth + kKeyWidth,
          .grad_stride = kWidth,
          .runs = machine.place(flat.runs),
          .row_run = machine.place(flat.row_run),
          .paths = machine.place(flat.paths),
          .rows = kRows,
          .heads = kHeads,
          .kv_heads = kKvHeads,
          .head_size = kSize,
          .scale = kShape.scale,
          .workspace = machine.room<float>(kRows * kHeads),
          .workspace_bytes = kRows * kHeads * sizeof(float)};
}

Bytes attention_backward_case(Machine& machine) {
  const TandemCudaAttentionBackward b = backward(machine);
  EXPECT_EQ(machine.run(b), 0);
  Bytes bytes;
  append(bytes, machine.fetch(b.grad_queries, kRows * kWidth));
  return bytes;
}
TANDEM_CUDA_CASE_TESTS(attention_backward)

TEST(CudaHost, the_gradient_of_attention_over_trees_gives_the_bits_of_the_avx2_kernel) {
  const Trees trees;
  const Forward forward(trees);
  Stream cpu = std::move(*Stream::cpu(2, Isa::kAvx2));
  std::vector<bf16> expected(kRows * kWidth, bf16{0xffff});
  ASSERT_TRUE(kernels::attention_backward(cpu, kShape,
                                          {.queries = forward.rows.data(),
                                           .keys = forward.rows.data() + kQueryWidth,
                                           .values = forward.rows.data() + kQueryWidth + kKeyWidth,
                                           .stride = kWidth,
                                           .out = forward.out.data(),
                                           .grad_out = forward.grad_out.data(),
                                           .log_sum = forward.log_sum.data(),
                                           .grad_queries = expected.data(),
                                           .grad_keys = expected.data() + kQueryWidth,
                                           .grad_values = expected.data() + kQueryWidth + kKeyWidth,
                                           .grad_stride = kWidth,
                                           .rows = kRows},
                                          trees.runs));
  HostMachine machine;
  const TandemCudaAttentionBackward b = backward(machine);
  ASSERT_EQ(machine.run(b), 0);
  EXPECT_EQ(as_bf16(machine.fetch(b.grad_queries, kRows * kWidth)), expected);
}

TEST(CudaHost, attention_refuses_shapes_strides_and_workspaces_that_do_not_fit) {
  HostMachine machine;
  TandemCudaAttentionBackward b = backward(machine);
  const auto code = [&](auto change) {
    TandemCudaAttentionBackward changed = b;
    change(changed);
    return machine.run(changed);
  };
  EXPECT_EQ(code([](auto& a) { a.head_size = 65; }), kTandemCudaShape);
  EXPECT_EQ(code([](auto& a) { a.value_size = 578; }), kTandemCudaShape);
  EXPECT_EQ(code([](auto& a) { a.window = -1; }), kTandemCudaShape);
  EXPECT_EQ(code([](auto& a) { a.kv_heads = 3; }), kTandemCudaShape);
  EXPECT_EQ(code([](auto& a) { a.stride = kQueryWidth - 1; }), kTandemCudaStride);
  EXPECT_EQ(code([](auto& a) { --a.workspace_bytes; }), kTandemCudaWorkspace);
  EXPECT_EQ(code([](auto& a) { a.paths = nullptr; }), kTandemCudaNull);
  EXPECT_EQ(machine.run(TandemCudaAttention{}), kTandemCudaNull);
  EXPECT_EQ(machine.run(TandemCudaWritePages{}), kTandemCudaNull);
}

TEST(CudaTreeRuns, a_run_that_the_kernels_could_not_trust_is_named) {
  const std::vector<int> path = {0, 1, 2}, other = {0, 2, 1};
  const auto message = [](std::vector<TreeRun> runs, int rows) {
    const auto flat = tree_runs(std::vector<std::vector<TreeRun>>{std::move(runs)}, rows);
    return flat ? "" : flat.error().message();
  };
  EXPECT_EQ(message({{0, 3, path}}, 3), "");
  EXPECT_EQ(message({{0, 3, path}}, 2), "attention_backward: run 0 of tree 0 lies outside the rows");
  EXPECT_EQ(message({{0, 4, path}}, 4), "attention_backward: run 0 of tree 0 has a path that is shorter than itself");
  EXPECT_EQ(message({{0, 2, path}}, 2), "attention_backward: run 0 of tree 0 has a path that leaves the rows");
  EXPECT_EQ(message({{1, 2, other}}, 3),
            "attention_backward: run 0 of tree 0 has a path that does not end with its rows");
  EXPECT_EQ(message({{0, 3, path}, {2, 1, path}}, 3), "attention_backward: run 1 of tree 0 shares a row with another");
}

}  // namespace
}  // namespace tandem::kernels::cuda
