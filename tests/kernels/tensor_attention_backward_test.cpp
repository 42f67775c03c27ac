// The gradient of attention on tensor cores, beside a plain loop over its definition.
#include <cmath>
#include <numeric>

#include "kernels/cuda/attention_backward.cuh"
#include "kernels/cuda/tree_runs.h"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

struct GradientCase {
  const char* name;
  int heads, kv_heads, head_size, value_size, window, padding;
};
const GradientCase kGradientCases[] = {
    {"groups of two", 4, 2, 64, 64, 0, 0},
    {"a window within a block", 2, 1, 16, 48, 10, 0},
    {"wide heads with narrower values and a window over blocks", 3, 1, 128, 96, 100, 8},
    {"rows that lie anywhere", 2, 2, 32, 32, 0, 3},
};
constexpr float kGradientScale = 0.21f;
// Rows of no run, a trunk of 150, a branch of 75 behind it, one of 5 behind its first 70, and a tree of 3.
constexpr int kTrunk = 5, kBranch = 155, kEarly = 231, kOther = 236, kGradientRows = 239;

class GradientData {
 public:
  explicit GradientData(const GradientCase& c) : c_(c) {
    paths_ = {numbers(kTrunk, 150), numbers(kTrunk, 225), numbers(kTrunk, 70), numbers(kOther, 3)};
    const auto early = numbers(kEarly, 5);
    paths_[2].insert(paths_[2].end(), early.begin(), early.end());
    const std::vector<std::vector<TreeRun>> trees = {
        {{kTrunk, 150, paths_[0]}, {kBranch, 75, paths_[1]}, {kEarly, 5, paths_[2]}}, {{kOther, 3, paths_[3]}}};
    flat_ = *tree_runs(trees, kGradientRows);
    key_at_ = c.heads * c.head_size;
    value_at_ = key_at_ + c.kv_heads * c.head_size;
    stride_ = value_at_ + c.kv_heads * c.value_size + c.padding;
    inputs_ = bits(random_bf16(static_cast<size_t>(kGradientRows) * stride_, 11, 0.6f));
    out_ = bits(random_bf16(static_cast<size_t>(kGradientRows) * out_width(), 12));
    grad_out_ = bits(random_bf16(static_cast<size_t>(kGradientRows) * out_width(), 13));
    log_sum_.assign(kGradientRows * c.heads, 0);
    for (int row = 0; row < kGradientRows; ++row) {
      for (int i = 0; i < stride_ && flat_.row_run[row] < 0; ++i) inputs_[row * stride_ + i] = 0xffff;
      for (int head = 0; head < c.heads && flat_.row_run[row] >= 0; ++head) {
        double sum = 0;
        for (int key = seen_first(position(row)); key <= position(row); ++key)
          sum += std::exp(score(row, head, path(row)[key]));
        log_sum_[row * c.heads + head] = static_cast<float>(std::log(sum));
      }
    }
  }

  Bytes run(Machine& machine) const {
    const uint16_t* rows = machine.place(inputs_);
    auto* grads = machine.room<uint16_t>(inputs_.size());
    const size_t workspace = attention_backward_workspace(kGradientRows, c_.heads);
    EXPECT_EQ(machine.run(TandemCudaAttentionBackward{.queries = rows,
                                                      .keys = rows + key_at_,
                                                      .values = rows + value_at_,
                                                      .stride = stride_,
                                                      .out = machine.place(out_),
                                                      .grad_out = machine.place(grad_out_),
                                                      .log_sum = machine.place(log_sum_),
                                                      .grad_queries = grads,
                                                      .grad_keys = grads + key_at_,
                                                      .grad_values = grads + value_at_,
                                                      .grad_stride = stride_,
                                                      .runs = machine.place(flat_.runs),
                                                      .row_run = machine.place(flat_.row_run),
                                                      .paths = machine.place(flat_.paths),
                                                      .rows = kGradientRows,
                                                      .heads = c_.heads,
                                                      .kv_heads = c_.kv_heads,
                                                      .head_size = c_.head_size,
                                                      .scale = kGradientScale,
                                                      .window = c_.window,
                                                      .value_size = c_.value_size,
                                                      .workspace = machine.room<char>(workspace),
                                                      .workspace_bytes = workspace}),
              0);
    Bytes bytes;
    append(bytes, machine.fetch(grads, inputs_.size()));
    return bytes;
  }

  // What the header of tensor_attention_backward.cuh says, element by element.
  Bytes defined() const {
    std::vector<uint16_t> grads(inputs_.size(), 0xffff);
    for (int row = 0; row < kGradientRows; ++row) {
      if (flat_.row_run[row] < 0) continue;
      uint16_t* of_row = &grads[static_cast<size_t>(row) * stride_];
      for (int head = 0; head < c_.heads; ++head) define_query(row, head, of_row + head * c_.head_size);
      for (int kv_head = 0; kv_head < c_.kv_heads; ++kv_head) {
        define_key(row, kv_head, of_row + key_at_ + kv_head * c_.head_size, false);
        define_key(row, kv_head, of_row + value_at_ + kv_head * c_.value_size, true);
      }
    }
    Bytes bytes;
    append(bytes, grads);
    return bytes;
  }

 private:
  static std::vector<int> numbers(int from, int count) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), from);
    return values;
  }
  static std::vector<uint16_t> bits(const std::vector<bf16>& values) {
    std::vector<uint16_t> result;
    for (const bf16 value : values) result.push_back(value.bits);
    return result;
  }
  int out_width() const { return c_.heads * c_.value_size; }
  int group() const { return c_.heads / c_.kv_heads; }
  const TandemCudaTreeRun& run_of(int row) const { return flat_.runs[flat_.row_run[row]]; }
  const int32_t* path(int row) const { return &flat_.paths[run_of(row).path_begin]; }
  int position(int row) const { return run_of(row).path_length - run_of(row).rows + row - run_of(row).row; }
  int seen_first(int at) const { return c_.window > 0 ? std::max(0, at - c_.window + 1) : 0; }
  bool sees(int query, int at) const { return position(query) >= at && seen_first(position(query)) <= at; }
  const uint16_t* query(int row, int head) const { return &inputs_[row * stride_ + head * c_.head_size]; }
  const uint16_t* grad_out(int row, int head) const { return &grad_out_[row * out_width() + head * c_.value_size]; }

  float score(int row, int head, int key) const {
    return tensor_chain<TensorBf16>(query(row, head), &inputs_[key * stride_ + key_at_ + head / group() * c_.head_size],
                                    c_.head_size) *
           kGradientScale;
  }
  // What a query and a key have to do with each other: the probability, or its gradient.
  uint16_t pair(int row, int head, int key, bool probability) const {
    const float p = exponential(score(row, head, key) - log_sum_[row * c_.heads + head]);
    if (probability) return to_bf16_bits(p);
    const float grad = tensor_chain<TensorBf16>(
        grad_out(row, head), &inputs_[key * stride_ + value_at_ + head / group() * c_.value_size], c_.value_size);
    float lanes[16] = {};
    for (int i = 0; i < c_.value_size; ++i) {
      const float out = from_bf16(out_[row * out_width() + head * c_.value_size + i]);
      lanes[i % 16] = std::fmaf(from_bf16(grad_out(row, head)[i]), out, lanes[i % 16]);
    }
    return to_bf16_bits(p * (grad - sum_of_lanes(lanes)) * kGradientScale);
  }

  void define_query(int row, int head, uint16_t* grad) const {
    const int at = position(row);
    std::vector<float> sums(c_.head_size, 0.0f);
    for (int begin = seen_first(at) / 64 * 64; begin <= at; begin += 64) {
      uint16_t weights[64] = {};
      for (int i = 0; i < 64; ++i) {
        if (begin + i >= seen_first(at) && begin + i <= at) weights[i] = pair(row, head, path(row)[begin + i], false);
      }
      for (int column = 0; column < c_.head_size; ++column) {
        uint16_t keys[64] = {};
        for (int i = 0; i < 64 && begin + i <= at; ++i) {
          if (begin + i < seen_first(at)) continue;
          keys[i] = inputs_[path(row)[begin + i] * stride_ + key_at_ + head / group() * c_.head_size + column];
        }
        sums[column] = sums[column] + tensor_chain<TensorBf16>(weights, keys, 64);
      }
    }
    for (int column = 0; column < c_.head_size; ++column) grad[column] = to_bf16_bits(sums[column]);
  }

  void define_key(int row, int kv_head, uint16_t* grad, bool of_values) const {
    const int at = position(row), size = of_values ? c_.value_size : c_.head_size;
    std::vector<float> sums(size, 0.0f);
    for (int head = kv_head * group(); head < (kv_head + 1) * group(); ++head) {
      std::vector<float> of_head(size, 0.0f);
      for (int r = run_of(row).tree_begin; r < run_of(row).tree_end; ++r) {
        const TandemCudaTreeRun& run = flat_.runs[r];
        if (run.path_length <= at || flat_.paths[run.path_begin + at] != row) continue;
        const int start = run.path_length - run.rows;
        for (int q = std::max(0, at / 64 * 64 - start) / 2 * 2; q < run.rows && seen_first(start + q) <= at; q += 64)
          add_queries(run.row + q, std::min(64, run.rows - q), head, row, of_values, of_head);
      }
      for (int column = 0; column < size; ++column) sums[column] = sums[column] + of_head[column];
    }
    for (int column = 0; column < size; ++column) grad[column] = to_bf16_bits(sums[column]);
  }
  void add_queries(int first, int queries, int head, int key, bool of_values, std::vector<float>& sums) const {
    uint16_t weights[64] = {};
    for (int i = 0; i < queries; ++i) {
      if (sees(first + i, position(key))) weights[i] = pair(first + i, head, key, of_values);
    }
    for (size_t column = 0; column < sums.size(); ++column) {
      uint16_t others[64] = {};
      for (int i = 0; i < queries; ++i)
        others[i] = of_values ? grad_out(first + i, head)[column] : query(first + i, head)[column];
      sums[column] = sums[column] + tensor_chain<TensorBf16>(weights, others, 64);
    }
  }

  GradientCase c_;
  int key_at_, value_at_, stride_;
  std::vector<std::vector<int>> paths_;
  TreeRuns flat_;
  std::vector<uint16_t> inputs_, out_, grad_out_;
  std::vector<float> log_sum_;
};

void expect_same_gradients(const Bytes& got, const Bytes& expected, const char* what) {
  ASSERT_EQ(got.size(), expected.size());
  const auto first = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
  EXPECT_TRUE(got == expected) << what << ": byte " << first << " of " << got.size();
}

TEST(TensorAttention, its_gradient_has_the_bits_of_its_definition_in_any_order_of_warps) {
  for (const GradientCase& c : kGradientCases) {
    const GradientData data(c);
    const Bytes expected = data.defined();
    for (const bool descending : {false, true}) {
      HostMachine machine(descending, true);
      expect_same_gradients(data.run(machine), expected, c.name);
    }
  }
}

TEST(TensorAttention, the_gradient_of_heads_that_tensor_cores_do_not_take_keeps_the_exact_bits) {
  const GradientData data({"", 2, 1, 24, 32, 0, 0});
  HostMachine tensor(false, true), exact(false, false);
  expect_same_gradients(data.run(tensor), data.run(exact), "heads of 24");
}

TEST(CudaDevice, the_gradient_of_tensor_attention_gives_the_bits_of_the_host) {
  auto device = DeviceMachine::find(true);
  if (!device) GTEST_SKIP() << device.error().to_string();
  for (const GradientCase& c : kGradientCases) {
    const GradientData data(c);
    HostMachine host(false, true);
    expect_same_gradients(data.run(**device), data.run(host), c.name);
  }
}

}  // namespace
}  // namespace tandem::kernels::cuda
