// Arguments of kernels: sizes, strides and pointers as bytes choose them, over arrays that are exactly as long as the
// headers say, so that a sanitizer sees each element too many. What is refused names its operation and changes nothing;
// what is done has the same bits with one thread and with three.
#include <climits>
#include <memory>

#include "base/digest.h"
#include "kernels/digest.h"
#include "kernels/encoder_ops.h"
#include "kernels/lm_head.h"
#include "kernels/muon.h"
#include "kernels/optimizer.h"
#include "kernels/transformer_ops.h"
#include "tests/fuzz/targets.h"

namespace tandem::fuzz {
namespace {

using namespace kernels;

// Numbers out of bytes; zeros behind their end. Arrays that are written are remembered for the comparison.
class Call {
 public:
  explicit Call(std::string_view bytes) : bytes_(bytes) {}

  uint8_t byte() { return at_ < bytes_.size() ? static_cast<uint8_t>(bytes_[at_++]) : 0; }
  bool flag() { return byte() % 2 == 1; }
  int size() {
    constexpr int kSizes[] = {4, 0, 1, 2, 3, 15, 16, 17, 32, 33, 64, 65, 130, -1, INT_MIN};
    return kSizes[byte() % std::size(kSizes)];
  }
  float number() { return static_cast<float>(static_cast<int8_t>(byte())) / 16; }

  // `count` elements, none where that is negative; rarely null.
  template <typename T>
  T* array(int64_t count) {
    if (byte() > 250) return nullptr;
    const auto length = static_cast<size_t>(std::max<int64_t>(count, 0));
    auto memory = std::make_shared<std::unique_ptr<T[]>>(new T[length]);
    for (size_t i = 0; i < length; ++i) (*memory)[i] = value<T>(i);
    arrays_.push_back({memory, std::as_bytes(std::span((*memory).get(), length))});
    return (*memory).get();
  }
  template <typename T>
  std::span<T> span(int64_t count) {
    T* start = array<T>(count);
    return {start, start == nullptr ? 0 : static_cast<size_t>(std::max<int64_t>(count, 0))};
  }
  // Token ids, rarely one that there is not.
  std::span<int32_t> ids(int count, int below) {
    const auto all = span<int32_t>(count);
    for (size_t i = 0; i < all.size(); ++i) all[i] = below > 0 ? static_cast<int32_t>(i * 7 % below) : 0;
    if (!all.empty() && byte() > 240) all.back() = below;
    return all;
  }
  Digest contents() const {
    std::string all;
    for (const auto& array : arrays_) all += digest_of(array.bytes).hex();
    return digest_of(all);
  }

 private:
  template <typename T>
  static T value(size_t i) {
    const float number = static_cast<float>(i * 37 % 61) / 16 - 2;
    if constexpr (std::is_same_v<T, float>)
      return number;
    else if constexpr (std::is_same_v<T, bf16>)
      return to_bf16(number);
    else if constexpr (std::is_same_v<T, e4m3> || std::is_same_v<T, e8m0>)
      return T{static_cast<uint8_t>(i * 31 % 120)};
    else
      return static_cast<T>(i % 7);
  }

  struct Array {
    std::shared_ptr<void> memory;
    std::span<const std::byte> bytes;
  };
  std::string_view bytes_;
  size_t at_ = 0;
  std::vector<Array> arrays_;
};

int64_t area(int64_t rows, int64_t columns) { return rows < 0 || columns < 0 ? 0 : rows * columns; }
size_t stride_of(Call& in, int width) { return static_cast<size_t>(std::max(0, width)) + in.byte() % 3; }
// Elements of rows that begin `stride` apart, the last one as long as it is.
int64_t strided(int rows, size_t stride, int width) {
  return rows <= 0 || width < 0 ? 0 : (rows - 1) * static_cast<int64_t>(stride) + width;
}

template <typename T>
Status call_gemm(Call& in, Stream& stream) {
  BasicGemm<T> g{.m = in.size(), .n = in.size(), .k = in.size()};
  g.a_stride = stride_of(in, g.k);
  g.out_stride = stride_of(in, g.n);
  g.a = in.array<T>(strided(g.m, g.a_stride, g.k));
  const T* weight = in.array<T>(area(g.n, g.k));
  T* packed = in.array<T>(g.n < 0 || g.k < 0 ? 0 : static_cast<int64_t>(packed_size(g.n, g.k)));
  TRY(pack(stream, weight, g.n, g.k, packed));
  g.b = RightSide<T>(static_cast<const T*>(packed));
  const int64_t outputs = strided(g.m, g.out_stride, g.n);
  if (in.flag()) g.out = in.array<T>(outputs);
  if (in.flag()) g.out_float = in.array<float>(outputs);
  if (in.flag()) g.bias = in.array<T>(g.n);
  if (in.flag()) g.residual = in.array<T>(outputs);
  g.accumulate = in.flag();
  return gemm(stream, g);
}

Status call_norm(Call& in, Stream& stream) {
  const int rows = in.size(), width = in.size();
  const bf16* x = in.array<bf16>(area(rows, width));
  const bf16* weight = in.array<bf16>(width);
  if (in.flag()) return rms_norm(stream, x, weight, 1e-5f, rows, width, in.array<bf16>(area(rows, width)));
  RmsNormBackward g{.x = x, .weight = weight, .epsilon = 1e-5f, .rows = rows, .width = width};
  g.grad_out = in.array<bf16>(area(rows, width));
  g.grad_x = in.array<bf16>(area(rows, width));
  g.grad_weight = in.array<float>(width);
  g.accumulate = in.flag();
  return rms_norm_backward(stream, g);
}

Status call_heads(Call& in, Stream& stream) {
  const int rows = in.size(), heads = in.size(), size = in.size();
  const int width = static_cast<int>(std::min<int64_t>(area(heads, size), 20000));
  const size_t stride = stride_of(in, width);
  bf16* x = in.array<bf16>(strided(rows, stride, width));
  if (in.flag()) {
    const bf16* weight = in.array<bf16>(size);
    return head_norm(stream, HeadNorm{.x = x,
                                      .stride = stride,
                                      .weight = weight,
                                      .epsilon = 1e-5f,
                                      .rows = rows,
                                      .heads = heads,
                                      .head_size = size});
  }
  Rope r{.x = x, .stride = stride, .rows = rows, .heads = heads, .head_size = size, .rope_dim = in.size()};
  const std::vector<float> frequencies(r.rope_dim > 0 ? r.rope_dim / 2 : 0, 0.1f);
  const auto table = rope_table(10, frequencies);
  r.table = table.data();
  r.table_positions = 10;
  r.positions = in.ids(rows, 10);
  r.interleaved = in.flag();
  r.inverse = in.flag();
  return rope(stream, r);
}

Status call_gate(Call& in, Stream& stream) {
  const int rows = in.size(), width = in.size();
  const int64_t count = area(rows, width);
  const bf16* gate_up = in.array<bf16>(2 * count);
  const bool gelu = in.flag();
  switch (in.byte() % 2) {
    case 0: {
      bf16* out = in.array<bf16>(count);
      return gelu ? geglu(stream, gate_up, rows, width, out) : swiglu(stream, gate_up, rows, width, out);
    }
    default: {
      const bf16* grad = in.array<bf16>(count);
      bf16* out = in.array<bf16>(2 * count);
      return gelu ? geglu_backward(stream, gate_up, grad, rows, width, out)
                  : swiglu_backward(stream, gate_up, grad, rows, width, out);
    }
  }
}

Status call_quantize(Call& in, Stream& stream) {
  const int rows = in.size(), columns = in.size(), block = in.flag() ? kScaleBlock : in.flag() ? 32 : in.size();
  const auto blocks = [&](int count) { return block > 0 && count > 0 ? scale_blocks(count, block) : 0; };
  switch (in.byte() % 3) {
    case 0: {
      Quantize q{.stride = stride_of(in, columns), .rows = rows, .columns = columns, .block = block};
      q.x = in.array<bf16>(strided(rows, q.stride, columns));
      if (in.flag()) q.by_row = in.array<e4m3>(area(rows, columns));
      if (q.by_row) q.row_scales = in.array<e8m0>(area(rows, blocks(columns)));
      if (in.flag()) q.by_column = in.array<e4m3>(area(rows, columns));
      if (q.by_column) q.column_scales = in.array<e8m0>(area(columns, blocks(rows)));
      return quantize(stream, q);
    }
    case 1: {
      const bf16* x = in.array<bf16>(area(rows, columns));
      return round_to_codes(
          stream,
          {.x = x, .out = in.array<bf16>(area(rows, columns)), .rows = rows, .columns = columns, .block = block});
    }
    default: {
      const e4m3* codes = in.array<e4m3>(area(rows, columns));
      const e8m0* scales = in.array<e8m0>(area(rows, blocks(columns)));
      return expand(stream, {.codes = codes,
                             .scales = scales,
                             .out = in.array<bf16>(area(rows, columns)),
                             .rows = rows,
                             .columns = columns,
                             .block = block});
    }
  }
}

template <typename Moment>
Status call_adamw(Call& in, Stream& stream) {
  const int rows = in.size(), columns = in.size();
  const int64_t count = area(rows, columns);
  BasicAdamW<Moment> a{.count = static_cast<size_t>(count), .learning_rate = 0.01f, .step = in.size()};
  a.grad = in.array<float>(count);
  a.master = in.array<float>(count);
  a.first_moment = in.array<Moment>(count);
  a.second_moment = in.array<Moment>(count);
  a.weight = in.array<bf16>(count);
  if (in.flag()) {
    a.columns = columns;
    a.codes = in.array<e4m3>(count);
    const auto blocks = [](int side) { return side > 0 ? scale_blocks(side, kScaleBlock) : 0; };
    a.scales = in.array<e8m0>(static_cast<int64_t>(blocks(rows) * blocks(columns)));
  }
  return adamw(stream, a);
}

Status call_muon(Call& in, Stream& stream) {
  Muon a{.rows = in.size(), .columns = in.size(), .learning_rate = 0.01f, .iterations = in.byte() % 8};
  const int64_t count = area(a.rows, a.columns);
  a.grad = in.array<float>(count);
  a.master = in.array<float>(count);
  a.momentum = in.array<float>(count);
  a.weight = in.array<bf16>(count);
  a.nesterov = in.flag();
  const size_t bytes = count > 0 ? muon_workspace(a.rows, a.columns) : 64;
  const std::unique_ptr<void, void (*)(void*)> workspace(std::aligned_alloc(64, bytes), std::free);
  a.workspace = static_cast<std::byte*>(workspace.get()) + (in.byte() > 240 ? 8 : 0);
  return muon(stream, a);
}

Status call_layer_norm(Call& in, Stream& stream) {
  const int rows = in.size(), width = in.size();
  const float* x = in.array<float>(area(rows, width));
  const float* weight = in.array<float>(width);
  if (in.flag()) {
    const float* bias = in.array<float>(width);
    return layer_norm(stream, {x, weight, bias, in.array<float>(area(rows, width)), 1e-5f, rows, width});
  }
  const float* grad = in.array<float>(area(rows, width));
  float* grad_x = in.array<float>(area(rows, width));
  float* grad_weight = in.array<float>(width);
  return layer_norm_backward(stream,
                             {x, weight, grad, grad_x, grad_weight, in.array<float>(width), 1e-5f, rows, width});
}

Status call_head(Call& in, Stream& stream) {
  LmHead h{.rows = in.size(), .width = in.size(), .vocabulary = in.size()};
  h.hidden = in.array<bf16>(area(h.rows, h.width));
  const bf16* weight = in.array<bf16>(area(h.vocabulary, h.width));
  bf16* packed =
      in.array<bf16>(h.vocabulary < 0 || h.width < 0 ? 0 : static_cast<int64_t>(packed_size(h.vocabulary, h.width)));
  TRY(pack(stream, weight, h.vocabulary, h.width, packed));
  h.head = packed;
  h.log_sum = in.array<float>(h.rows);
  std::vector<TokenPick> picks;
  for (int row = 0; row < h.rows; ++row) picks.push_back({row, in.byte() % 128});
  return lm_head(stream, h, picks, in.span<float>(static_cast<int64_t>(picks.size())));
}

Status call_embed(Call& in, Stream& stream) {
  const int vocabulary = in.size(), width = in.size(), rows = in.size();
  const bf16* table = in.array<bf16>(area(vocabulary, width));
  const auto ids = in.ids(rows, vocabulary);
  return embed(stream, table, vocabulary, width, ids, in.array<bf16>(area(rows, width)));
}

Status call_both_ways(Call& in, Stream& stream) {
  BidirectionalAttention g{.heads = in.size(), .head_size = in.size(), .scale = in.number()};
  const int width = static_cast<int>(std::min<int64_t>(area(g.heads, g.head_size), 20000));
  const int rows = in.byte() % 80, first = in.byte() % 90;
  g.stride = 3 * static_cast<size_t>(width) + in.byte() % 2;
  g.out_stride = stride_of(in, width);
  const float* all = in.array<float>(strided(rows, g.stride, 3 * width));
  if (all == nullptr) return Status::invalid("bidirectional_attention: queries is null");
  g.queries = all;
  g.keys = all + width;
  g.values = all + 2 * static_cast<size_t>(width);
  g.out = in.array<float>(strided(rows, g.out_stride, width));
  const int32_t ends[] = {first, rows};
  g.ends = ends;
  return bidirectional_attention(stream, g);
}

using Operation = Status (*)(Call&, Stream&);
constexpr Operation kOperations[] = {call_gemm<bf16>, call_gemm<float>,  call_norm,        call_heads, call_gate,
                                     call_quantize,   call_adamw<float>, call_adamw<bf16>, call_muon,  call_layer_norm,
                                     call_head,       call_embed,        call_both_ways};

void kernel_arguments(std::string_view bytes) {
  static Stream one = std::move(*Stream::cpu(1)), three = std::move(*Stream::cpu(3));
  Call first(bytes), second(bytes);
  const Operation operation = kOperations[first.byte() % std::size(kOperations)];
  second.byte();
  const Status alone = operation(first, one), together = operation(second, three);
  if (alone.ok() != together.ok() || first.contents() != second.contents()) __builtin_trap();
  // "gemm: k must be even"
  if (!alone.ok() && alone.to_string().find(": ") == std::string::npos) __builtin_trap();
}

std::vector<std::string> kernel_seeds() {
  std::vector<std::string> seeds;
  for (size_t operation = 0; operation < std::size(kOperations); ++operation) {
    for (const char size : {'\x00', '\x05', '\x0a', '\x0c'}) {
      std::string seed(1, static_cast<char>(operation));
      seed += std::string(3, size) + std::string(12, '\x01') + std::string(8, '\x02');
      seeds.push_back(seed);
    }
  }
  return seeds;
}

constexpr Target kKernelsTargets[] = {{"kernel_arguments", kernel_arguments, kernel_seeds}};

}  // namespace

std::span<const Target> kernels_targets() { return kKernelsTargets; }

}  // namespace tandem::fuzz
