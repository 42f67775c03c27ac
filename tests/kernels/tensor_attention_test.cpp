// Attention on tensor cores, beside a plain loop over its definition.
#include <numeric>
#include <set>

#include "kernels/cuda/attention.cuh"
#include "tests/kernels/cuda_machines.h"

namespace tandem::kernels::cuda {
namespace {

// Rows `from` to `to` of a sequence, which has pages of its own but for those that it shares with sequence 0.
struct TensorRun {
  int sequence, from, to;
};
struct TensorCase {
  const char* name;
  int heads, kv_heads, head_size, value_size, window;
  std::vector<TensorRun> runs;
  int shared_pages = 0;
  int misplaced = 0;  // elements that queries begin behind a multiple of 16 bytes
};
constexpr float kScale = 0.17f;
constexpr int kPagesOfSequence = 20;

const std::vector<TensorCase>& tensor_cases() {
  static const std::vector<TensorCase> cases = {
      {"a prompt over pages", 4, 2, 64, 64, 0, {{0, 0, 150}}},
      {"a window within a page", 8, 1, 16, 16, 10, {{0, 0, 90}, {1, 60, 70}}},
      {"shared pages and rows left out", 6, 2, 48, 64, 100, {{0, 100, 140}, {1, 128, 131}, {2, -1, 0}, {2, 5, 7}}, 2},
      {"wide heads", 4, 2, 128, 128, 0, {{0, 50, 75}, {1, 63, 66}}},
      {"a group of twenty, far in its sequence", 20, 1, 32, 16, 0, {{0, 1100, 1101}, {1, 640, 641}, {2, 575, 580}}},
      {"one row of wide heads with narrower values", 3, 1, 128, 96, 0, {{0, 900, 901}}},
      {"a window over pages, far in its sequence", 2, 2, 64, 32, 600, {{0, 1000, 1040}, {1, 1200, 1201}}},
      {"queries that lie anywhere", 3, 3, 80, 80, 0, {{0, 60, 90}}, 0, 3},
      {"a group that does not go evenly", 35, 1, 16, 16, 0, {{0, 10, 35}, {1, 5, 6}}},
      {"a row left out between others of its sequence", 4, 1, 64, 64, 0, {{0, 3, 9}, {0, -1, 0}, {0, 9, 40}}},
      {"many sequences of one row",
       2,
       1,
       32,
       32,
       0,
       {{0, 7, 8}, {1, 64, 65}, {2, 63, 64}, {3, 0, 1}, {4, 130, 131}, {5, -1, 0}, {6, 70, 71}}},
  };
  return cases;
}

class TensorAttentionData {
 public:
  explicit TensorAttentionData(const TensorCase& c) : c_(c) {
    int sequences = 0;
    for (const TensorRun& run : c.runs) {
      sequences = std::max(sequences, run.sequence + 1);
      for (int position = run.from; position < run.to; ++position) {
        positions_.push_back(position);
        first_.push_back(run.sequence * kPagesOfSequence);
      }
    }
    // Pages in an order that is not that of the positions.
    const int pages = sequences * kPagesOfSequence;
    for (int i = 0; i < pages; ++i) {
      const bool shared = i % kPagesOfSequence < c.shared_pages;
      table_.push_back((shared ? i % kPagesOfSequence : i) * 7 % pages);
    }
    if (pages % 7 == 0) std::iota(table_.begin(), table_.end(), 0);
    keys_.assign(static_cast<size_t>(pages) * 64 * c.kv_heads * c.head_size, bf16{0xffff});
    values_.assign(static_cast<size_t>(pages) * 64 * c.kv_heads * c.value_size, bf16{0xffff});
    query_stride_ = c.heads * c.head_size + c.misplaced;
    queries_ = random_bf16(rows() * query_stride_ + 8, 3, 0.7f);
    Random random(5);
    std::set<int64_t> written;
    for (int row = 0; row < rows(); ++row) {
      for (int position = first_position(row); position <= positions_[row]; ++position) {
        for (int head = 0; head < c.kv_heads; ++head) {
          const int64_t at = place(row, position, head);
          if (!written.insert(at).second) continue;
          for (int i = 0; i < c.head_size; ++i) keys_[at * c.head_size + i] = number(random);
          for (int i = 0; i < c.value_size; ++i) values_[at * c.value_size + i] = number(random);
        }
      }
    }
  }
  int rows() const { return static_cast<int>(positions_.size()); }
  int out_width() const { return c_.heads * c_.value_size; }
  int first_position(int row) const { return first_seen(c_.window, positions_[row]); }

  // All rows at once, or `at_once` of them after each other.
  Bytes run(Machine& machine, int at_once) const {
    auto* out = machine.room<uint16_t>(static_cast<size_t>(rows()) * out_width());
    auto* log_sum = machine.room<float>(static_cast<size_t>(rows()) * c_.heads);
    const uint16_t* queries = machine.place(queries_) + c_.misplaced;
    TandemCudaPages pages{.keys = machine.place(keys_),
                          .values = machine.place(values_),
                          .table = machine.place(table_),
                          .first = machine.place(first_),
                          .positions = machine.place(positions_)};
    for (int from = 0; from < rows(); from += at_once) {
      EXPECT_EQ(machine.run(TandemCudaAttention{.queries = queries + from * query_stride_,
                                                .query_stride = query_stride_,
                                                .pages = pages,
                                                .out = out + from * out_width(),
                                                .out_stride = out_width(),
                                                .log_sum = log_sum + from * c_.heads,
                                                .rows = std::min(at_once, rows() - from),
                                                .heads = c_.heads,
                                                .kv_heads = c_.kv_heads,
                                                .head_size = c_.head_size,
                                                .scale = kScale,
                                                .window = c_.window,
                                                .value_size = c_.value_size}),
                0);
      pages.first += at_once;
      pages.positions += at_once;
    }
    Bytes bytes;
    append(bytes, machine.fetch(out, static_cast<size_t>(rows()) * out_width()));
    append(bytes, machine.fetch(log_sum, static_cast<size_t>(rows()) * c_.heads));
    return bytes;
  }

  // What the header of tensor_attention.cuh says, element by element.
  Bytes defined() const {
    std::vector<uint16_t> out(static_cast<size_t>(rows()) * out_width(), 0xffff);
    std::vector<float> log_sums(static_cast<size_t>(rows()) * c_.heads, float_of(0xffffffffu));
    for (int row = 0; row < rows(); ++row) {
      for (int head = 0; head < c_.heads && positions_[row] >= 0; ++head) {
        define(row, head, &out[static_cast<size_t>(row) * out_width() + head * c_.value_size],
               log_sums[row * c_.heads + head]);
      }
    }
    Bytes bytes;
    append(bytes, out);
    append(bytes, log_sums);
    return bytes;
  }

 private:
  static bf16 number(Random& random) { return to_bf16(static_cast<float>(random.normal())); }
  int64_t place(int row, int position, int kv_head) const {
    return (static_cast<int64_t>(table_[first_[row] + position / 64]) * c_.kv_heads + kv_head) * 64 + position % 64;
  }
  void define(int row, int head, uint16_t* out, float& log_sum) const {
    const int kv_head = head / (c_.heads / c_.kv_heads), position = positions_[row], seen = first_position(row);
    const auto* query =
        reinterpret_cast<const uint16_t*>(queries_.data()) + c_.misplaced + row * query_stride_ + head * c_.head_size;
    float maximum = -infinity(), sum = 0;
    std::vector<float> sums(c_.value_size, 0.0f);
    for (int begin = seen / 64 * 64; begin <= position; begin += 64) {
      float scores[64], probabilities[64], largest = maximum;
      for (int i = 0; i < 64; ++i) {
        scores[i] = -infinity();
        if (begin + i < seen || begin + i > position) continue;
        const auto* key =
            reinterpret_cast<const uint16_t*>(keys_.data()) + place(row, begin + i, kv_head) * c_.head_size;
        scores[i] = tensor_chain<TensorBf16>(query, key, c_.head_size) * kScale;
        largest = std::max(largest, scores[i]);
      }
      const float kept = maximum == -infinity() ? 0.0f : exponential(maximum - largest);
      maximum = largest;
      uint16_t weights[64];
      for (int i = 0; i < 64; ++i) {
        probabilities[i] = exponential(scores[i] - maximum);
        weights[i] = to_bf16_bits(probabilities[i]);
      }
      sum = sum * kept + sum_of_block(probabilities);
      for (int column = 0; column < c_.value_size; ++column) {
        uint16_t values[64] = {};
        for (int i = 0; i < 64; ++i) {
          if (begin + i < seen || begin + i > position) continue;
          values[i] = values_[place(row, begin + i, kv_head) * c_.value_size + column].bits;
        }
        sums[column] = sums[column] * kept + tensor_chain<TensorBf16>(weights, values, 64);
      }
    }
    for (int column = 0; column < c_.value_size; ++column) out[column] = to_bf16_bits(sums[column] / sum);
    log_sum = log_of_sum(maximum, sum);
  }

  TensorCase c_;
  int64_t query_stride_;
  std::vector<int32_t> positions_, first_, table_;
  std::vector<bf16> keys_, values_, queries_;
};

void expect_same_bytes(const Bytes& got, const Bytes& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  const auto first = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
  EXPECT_TRUE(got == expected) << what << ": byte " << first << " of " << got.size();
}

TEST(TensorAttention, has_the_bits_of_its_definition_in_any_order_of_warps) {
  for (const TensorCase& c : tensor_cases()) {
    const TensorAttentionData data(c);
    const Bytes expected = data.defined();
    for (const bool descending : {false, true}) {
      HostMachine machine(descending, true);
      expect_same_bytes(data.run(machine, data.rows()), expected, c.name);
    }
  }
}

TEST(TensorAttention, many_rows_are_dealt_to_few_blocks_of_warps) {
  TensorCase c{"rows left out but for the last ones", 264, 264, 16, 16, 0, {}};
  c.runs.assign(290, {0, -1, 0});
  c.runs.insert(c.runs.end(), {{0, 5, 6}, {0, 3, 4}, {0, 64, 66}});
  const TensorAttentionData data(c);
  HostMachine machine(false, true);
  expect_same_bytes(data.run(machine, data.rows()), data.defined(), c.name);
}

TEST(TensorAttention, rows_alone_and_few_at_once_have_the_bits_of_all_at_once) {
  for (const TensorCase& c : tensor_cases()) {
    const TensorAttentionData data(c);
    HostMachine machine(false, true);
    const Bytes expected = data.run(machine, data.rows());
    expect_same_bytes(data.run(machine, 1), expected, c.name);
    expect_same_bytes(data.run(machine, 13), expected, c.name);
  }
}

TEST(TensorAttention, differs_from_the_exact_kernel_only_in_how_sums_of_products_are_rounded) {
  const TensorAttentionData data(tensor_cases()[0]);
  HostMachine tensor(false, true), exact(false, false);
  const Bytes by_tensor_cores = data.run(tensor, data.rows()), exactly = data.run(exact, data.rows());
  EXPECT_FALSE(by_tensor_cores == exactly);
  const size_t elements = static_cast<size_t>(data.rows()) * data.out_width();
  for (size_t i = 0; i < elements; ++i) {
    uint16_t a, b;
    std::memcpy(&a, &by_tensor_cores[2 * i], 2);
    std::memcpy(&b, &exactly[2 * i], 2);
    ASSERT_NEAR(from_bf16(a), from_bf16(b), 0.02f) << "element " << i;
  }
}

TEST(TensorAttention, heads_that_tensor_cores_do_not_take_keep_the_exact_bits) {
  for (const auto& [head_size, value_size] : {std::pair(24, 32), std::pair(144, 64), std::pair(64, 40)}) {
    const TensorAttentionData data({"", 2, 1, head_size, value_size, 0, {{0, 60, 70}}});
    HostMachine tensor(false, true), exact(false, false);
    expect_same_bytes(data.run(tensor, data.rows()), data.run(exact, data.rows()), std::to_string(head_size));
  }
}

TEST(CudaDevice, tensor_attention_gives_the_bits_of_the_host) {
  auto device = DeviceMachine::find(true);
  if (!device) GTEST_SKIP() << device.error().to_string();
  for (const TensorCase& c : tensor_cases()) {
    const TensorAttentionData data(c);
    HostMachine host(false, true);
    const Bytes expected = data.run(host, data.rows());
    expect_same_bytes(data.run(**device, data.rows()), expected, c.name);
    expect_same_bytes(data.run(**device, 1), expected, std::string(c.name) + ", row by row");
  }
}

}  // namespace
}  // namespace tandem::kernels::cuda
