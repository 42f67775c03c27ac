// The kernels of libtandem_cuda.so on the first GPU: those of tensor cores, and what the bits of AVX2 cost there. What
// another library makes of the same machine stands beside it in the result of scripts/gpu-check.
#include <fmt/format.h>

#include <numeric>

#include "base/random.h"
#include "bench/measure.h"
#include "kernels/cuda/library.h"
#include "kernels/quantize.h"

namespace tandem::bench {

namespace {

using kernels::cuda::Functions;
using kernels::cuda::Library;

// Memory of the GPU with values of the host, for as long as the bench runs.
class Gpu {
 public:
  static Result<std::unique_ptr<Gpu>> find(TandemCudaKernels kernels) {
    auto library = Library::load();
    if (!library) return fail(Status::unfit(library.error().message()).hint(library.error().hint()));
    const auto devices = TRY(library->devices());
    if (devices.empty()) return fail(Status::unfit("there is no GPU here that CUDA lists"));
    if (!devices[0].supported()) {
      return fail(Status::unfit(fmt::format("{} has compute capability {}.{}; there is code for 9.0 and 10.0",
                                            devices[0].name, devices[0].major, devices[0].minor)));
    }
    TandemCudaStream stream = nullptr;
    TRY(library->status("tandem_cuda_stream_create", library->functions().stream_create(0, kernels, &stream)));
    return std::unique_ptr<Gpu>(new Gpu(std::move(*library), stream));
  }
  ~Gpu() {
    for (void* memory : memory_) functions().free(stream_, memory);
    functions().stream_destroy(stream_);
  }
  const Functions& functions() const { return library_.functions(); }

  template <typename T>
  Result<T*> array(size_t count, T value) {
    return array(std::vector<T>(count, value));
  }
  template <typename T>
  Result<T*> array(const std::vector<T>& values) {
    void* memory = nullptr;
    const size_t bytes = values.size() * sizeof(T);
    TRY(library_.status("tandem_cuda_allocate", functions().allocate(stream_, bytes, &memory)));
    memory_.push_back(memory);
    TRY(library_.status("tandem_cuda_copy_to_device",
                        functions().copy_to_device(stream_, memory, values.data(), bytes)));
    TRY(library_.status("tandem_cuda_synchronize", functions().synchronize(stream_)));
    return static_cast<T*>(memory);
  }

  // The median of an operation's seconds, of ten that are put on the stream before one wait.
  template <typename Arguments>
  Result<double> seconds(int (*operation)(TandemCudaStream, const Arguments*), const Arguments& arguments,
                         double about) {
    const double seconds = TRY(median_seconds(about, [&]() -> Status {
      for (int i = 0; i < kAtOnce; ++i) TRY(library_.status("launch", operation(stream_, &arguments)));
      return library_.status("tandem_cuda_synchronize", functions().synchronize(stream_));
    }));
    return seconds / kAtOnce;
  }

 private:
  static constexpr int kAtOnce = 10;
  Gpu(Library library, TandemCudaStream stream) : library_(std::move(library)), stream_(stream) {}

  Library library_;
  TandemCudaStream stream_;
  std::vector<void*> memory_;
};

constexpr uint16_t kHalf = 0x3f00;  // 0.5 as bf16

// Random values between -1 and 1: a GPU multiplies equal ones faster.
std::vector<uint16_t> random_bf16(size_t count, uint64_t seed) {
  std::vector<uint16_t> values(count);
  Random random(seed);
  constexpr size_t kDrawn = 1 << 20;  // then the same again
  for (size_t i = 0; i < count; ++i)
    values[i] = i < kDrawn ? kernels::to_bf16(static_cast<float>(2 * random.uniform() - 1)).bits : values[i - kDrawn];
  return values;
}

struct CudaBench {
  Gpu& gpu;
  double about;
  std::vector<Figure>& figures;

  template <typename Arguments>
  Status product(std::string name, double flops, int (*operation)(TandemCudaStream, const Arguments*),
                 const Arguments& arguments) {
    const double seconds = TRY(gpu.seconds(operation, arguments, about));
    figures.push_back({std::move(name), flops / seconds / 1e9, "GFLOP/s", 0, ""});
    return {};
  }
  template <typename Arguments>
  Status bytes(std::string name, double bytes, int (*operation)(TandemCudaStream, const Arguments*),
               const Arguments& arguments) {
    const double seconds = TRY(gpu.seconds(operation, arguments, about));
    figures.push_back({std::move(name), bytes / seconds / 1e9, "GB/s", 0, ""});
    return {};
  }
};

// A product of a Linear, of the gradient of its input, and of the gradient of its weight, of tensor cores.
Status tensor_products(CudaBench& bench, int m, int n, int k) {
  const double flops = 2.0 * m * n * k;
  TandemCudaGemm g{};
  g.a = TRY(bench.gpu.array(random_bf16(static_cast<size_t>(m) * k, 1)));
  g.b = TRY(bench.gpu.array(random_bf16(static_cast<size_t>(n) * k, 2)));
  uint16_t* const out = TRY(bench.gpu.array(static_cast<size_t>(m) * n, kHalf));
  float* const sums = TRY(bench.gpu.array(static_cast<size_t>(m) * n, 0.0f));
  const auto run = [&](std::string_view what, bool a_along_k, bool b_along_k) {
    g.a_row_stride = a_along_k ? k : 1;
    g.a_k_stride = a_along_k ? 1 : m;
    g.b_row_stride = b_along_k ? k : 1;
    g.b_k_stride = b_along_k ? 1 : n;
    g.m = m;
    g.n = n;
    g.k = k;
    g.out_stride = n;
    g.out = a_along_k ? out : nullptr;
    g.out_float = a_along_k ? nullptr : sums;
    g.accumulate = a_along_k ? 0 : 1;
    return bench.product(fmt::format("tensor: gemm {}x{}x{}{}", m, n, k, what), flops, bench.gpu.functions().gemm, g);
  };
  TRY(run("", true, true));
  if (m < 128) return {};
  TRY(run(", gradient of an input", true, false));
  return run(", gradient of a weight", false, false);
}

Status products(CudaBench& bench, int m, int n, int k) {
  const size_t of_a = static_cast<size_t>(m) * k, of_b = static_cast<size_t>(n) * k;
  TandemCudaGemm g{};
  g.a = TRY(bench.gpu.array(random_bf16(of_a, 1)));
  g.a_row_stride = g.b_row_stride = k;
  g.a_k_stride = g.b_k_stride = 1;
  g.b = TRY(bench.gpu.array(random_bf16(of_b, 2)));
  g.out = TRY(bench.gpu.array(static_cast<size_t>(m) * n, kHalf));
  g.out_stride = n;
  g.m = m;
  g.n = n;
  g.k = k;
  const double flops = 2.0 * m * n * k;
  TRY(bench.product(fmt::format("gemm {}x{}x{}", m, n, k), flops, bench.gpu.functions().gemm, g));
  const TandemCudaTensorGemm by_tensor_cores{
      .a = g.a, .b = g.b, .out = g.out, .out_float = nullptr, .out_stride = n, .m = m, .n = n, .k = k};
  TRY(bench.product(fmt::format("gemm {}x{}x{}, by tensor cores", m, n, k), flops, bench.gpu.functions().tensor_gemm,
                    by_tensor_cores));
  const size_t blocks = kernels::scale_blocks(n, kernels::kScaleBlock) * kernels::scale_blocks(k, kernels::kScaleBlock);
  g.b = nullptr;
  const auto codes = TRY(bench.gpu.array(of_b, uint8_t{0x38}));
  const auto scales = TRY(bench.gpu.array(blocks, uint8_t{127}));
  g.b_codes = {.codes = codes, .scales = scales, .block = kernels::kScaleBlock, .block_rows = kernels::kScaleBlock};
  TRY(bench.product(fmt::format("gemm {}x{}x{}, weights in fp8", m, n, k), flops, bench.gpu.functions().gemm, g));
  const TandemCudaTensorGemmFp8 fp8{
      .a = TRY(bench.gpu.array(of_a, uint8_t{0x38})),
      .a_scales = TRY(bench.gpu.array(m * kernels::scale_blocks(k, kernels::kScaleBlock), uint8_t{127})),
      .b = g.b_codes.codes,
      .b_scales = g.b_codes.scales,
      .out = g.out,
      .out_float = nullptr,
      .out_stride = n,
      .m = m,
      .n = n,
      .k = k};
  TRY(bench.product(fmt::format("gemm {}x{}x{}, both sides in fp8, by tensor cores", m, n, k), flops,
                    bench.gpu.functions().tensor_gemm_fp8, fp8));
  const size_t across = kernels::scale_blocks(k, kernels::kMicroscaleBlock);
  const TandemCudaMxfp8Gemm mx{.a = TRY(bench.gpu.array(of_a, uint8_t{0x38})),
                               .a_scales = TRY(bench.gpu.array(m * across, uint8_t{127})),
                               .b = g.b_codes.codes,
                               .b_scales = TRY(bench.gpu.array(n * across, uint8_t{127})),
                               .out = g.out,
                               .out_float = nullptr,
                               .out_stride = n,
                               .m = m,
                               .n = n,
                               .k = k};
  return bench.product(fmt::format("gemm {}x{}x{}, both sides in mxfp8", m, n, k), flops,
                       bench.gpu.functions().mxfp8_gemm, mx);
}

// SmolLM2-135M's heads: a prompt of `tokens`.
Status attention(CudaBench& bench, int tokens, std::string_view kernels) {
  constexpr int kHeads = 9, kKvHeads = 3, kSize = 64, kPage = 64;
  const int pages = (tokens + kPage - 1) / kPage;
  std::vector<int32_t> counting(tokens);
  std::iota(counting.begin(), counting.end(), 0);
  TandemCudaAttention a{};
  a.queries = TRY(bench.gpu.array(static_cast<size_t>(tokens) * kHeads * kSize, kHalf));
  a.query_stride = a.out_stride = int64_t{kHeads} * kSize;
  a.out = TRY(bench.gpu.array(static_cast<size_t>(tokens) * kHeads * kSize, kHalf));
  a.pages.keys = TRY(bench.gpu.array(static_cast<size_t>(pages) * kKvHeads * kPage * kSize, kHalf));
  a.pages.values = TRY(bench.gpu.array(static_cast<size_t>(pages) * kKvHeads * kPage * kSize, kHalf));
  a.pages.table = TRY(bench.gpu.array(std::vector<int32_t>(counting.begin(), counting.begin() + pages)));
  a.pages.first = TRY(bench.gpu.array(tokens, int32_t{0}));
  a.pages.positions = TRY(bench.gpu.array(counting));
  a.rows = tokens;
  a.heads = kHeads;
  a.kv_heads = kKvHeads;
  a.head_size = kSize;
  a.scale = 0.125f;
  return bench.product(fmt::format("{}attention, prefill of {}", kernels, tokens),
                       2.0 * tokens * (tokens + 1.0) * kHeads * kSize, bench.gpu.functions().attention, a);
}

// Heads of an 8B model on tensor cores.
constexpr int kHeads8b = 32, kKvHeads8b = 8, kHeadSize8b = 128;

// The last `rows` positions of each of `sequences` sequences of `length`.
Result<TandemCudaAttention> attention_8b(Gpu& gpu, int sequences, int rows, int length) {
  constexpr int kPage = 64;
  const int pages = (length + kPage - 1) / kPage, all = sequences * rows;
  std::vector<int32_t> table(sequences * pages), first(all), positions(all);
  std::iota(table.begin(), table.end(), 0);
  for (int i = 0; i < all; ++i) {
    first[i] = i / rows * pages;
    positions[i] = length - rows + i % rows;
  }
  const size_t elements = static_cast<size_t>(table.size()) * kKvHeads8b * kPage * kHeadSize8b;
  const int64_t width = int64_t{kHeads8b} * kHeadSize8b;
  TandemCudaAttention a{};
  a.queries = TRY(gpu.array(random_bf16(static_cast<size_t>(all * width), 3)));
  a.out = TRY(gpu.array(random_bf16(static_cast<size_t>(all * width), 3)));
  a.query_stride = a.out_stride = width;
  a.pages.keys = TRY(gpu.array(random_bf16(elements, 4)));
  a.pages.values = TRY(gpu.array(random_bf16(elements, 4)));
  a.pages.table = TRY(gpu.array(table));
  a.pages.first = TRY(gpu.array(first));
  a.pages.positions = TRY(gpu.array(positions));
  a.rows = all;
  a.heads = kHeads8b;
  a.kv_heads = kKvHeads8b;
  a.head_size = kHeadSize8b;
  a.scale = 0.0884f;
  return a;
}
Status tensor_attention(CudaBench& bench) {
  const auto attention = bench.gpu.functions().attention;
  for (const int tokens : {2048, 8192}) {
    const double pairs = tokens * (tokens + 1.0) / 2;
    TRY(bench.product(fmt::format("tensor: attention 32/8x128, prefill of {}", tokens),
                      4 * pairs * kHeads8b * kHeadSize8b, attention, TRY(attention_8b(bench.gpu, 1, tokens, tokens))));
  }
  constexpr int kLength = 4096;
  for (const int sequences : {1, 64}) {
    TRY(bench.bytes(fmt::format("tensor: attention 32/8x128, {} rows of {} keys", sequences, kLength),
                    4.0 * sequences * kLength * kKvHeads8b * kHeadSize8b, attention,
                    TRY(attention_8b(bench.gpu, sequences, 1, kLength))));
  }
  return {};
}
Status tensor_attention_backward(CudaBench& bench, int tokens) {
  constexpr int64_t kQueries = int64_t{kHeads8b} * kHeadSize8b, kKeys = int64_t{kKvHeads8b} * kHeadSize8b;
  constexpr int64_t kWidth = kQueries + 2 * kKeys;
  const auto rows = static_cast<size_t>(tokens);
  std::vector<int32_t> path(rows);
  std::iota(path.begin(), path.end(), 0);
  const std::vector<TandemCudaTreeRun> run = {{0, tokens, 0, tokens, 0, 1}};
  TandemCudaAttentionBackward b{};
  uint16_t* const inputs = TRY(bench.gpu.array(random_bf16(rows * kWidth, 5)));
  uint16_t* const grads = TRY(bench.gpu.array(random_bf16(rows * kWidth, 5)));
  b.queries = inputs;
  b.keys = inputs + kQueries;
  b.values = inputs + kQueries + kKeys;
  b.grad_queries = grads;
  b.grad_keys = grads + kQueries;
  b.grad_values = grads + kQueries + kKeys;
  b.stride = b.grad_stride = kWidth;
  b.out = TRY(bench.gpu.array(random_bf16(rows * kQueries, 6)));
  b.grad_out = TRY(bench.gpu.array(random_bf16(rows * kQueries, 6)));
  b.log_sum = TRY(bench.gpu.array(rows * kHeads8b, 8.0f));
  b.runs = TRY(bench.gpu.array(run));
  b.row_run = TRY(bench.gpu.array(rows, int32_t{0}));
  b.paths = TRY(bench.gpu.array(path));
  b.rows = tokens;
  b.heads = kHeads8b;
  b.kv_heads = kKvHeads8b;
  b.head_size = kHeadSize8b;
  b.scale = 0.0884f;
  b.workspace_bytes = bench.gpu.functions().attention_backward_workspace(tokens, kHeads8b);
  b.workspace = TRY(bench.gpu.array(b.workspace_bytes, char{0}));
  return bench.product(fmt::format("tensor: attention 32/8x128, backward of {}", tokens),
                       5.0 * tokens * (tokens + 1.0) * kHeads8b * kHeadSize8b, bench.gpu.functions().attention_backward,
                       b);
}

Status log_probabilities(CudaBench& bench, int rows, std::string_view kernels) {
  constexpr int kWidth = 576, kVocabulary = 49152;
  TandemCudaLmHead h{};
  h.hidden = TRY(bench.gpu.array(random_bf16(static_cast<size_t>(rows) * kWidth, 1)));
  h.head = TRY(bench.gpu.array(random_bf16(static_cast<size_t>(kVocabulary) * kWidth, 2)));
  h.log_sum = TRY(bench.gpu.array(rows, 0.0f));
  h.rows = rows;
  h.width = kWidth;
  h.vocabulary = kVocabulary;
  h.workspace_bytes = bench.gpu.functions().lm_head_workspace(rows, kVocabulary);
  h.workspace = TRY(bench.gpu.array(h.workspace_bytes, char{0}));
  return bench.product(fmt::format("{}log-probabilities {}x{}x{}", kernels, rows, kVocabulary, kWidth),
                       2.0 * rows * kVocabulary * kWidth, bench.gpu.functions().lm_head, h);
}

Status rows(CudaBench& bench) {
  constexpr int kRows = 8192, kWidth = 4096;
  constexpr size_t kElements = size_t{kRows} * kWidth;
  const auto x = TRY(bench.gpu.array(2 * kElements, kHalf)), weight = TRY(bench.gpu.array(kWidth, kHalf));
  const auto out = TRY(bench.gpu.array(kElements, kHalf));
  const auto codes = TRY(bench.gpu.array(kElements, uint8_t{0})),
             scales = TRY(bench.gpu.array(kElements / 32, uint8_t{0}));
  const Functions& f = bench.gpu.functions();
  const double both = 4.0 * kElements;
  TRY(bench.bytes("RMSNorm 8192x4096", both, f.rms_norm,
                  {.x = x, .weight = weight, .out = out, .epsilon = 1e-5f, .rows = kRows, .width = kWidth}));
  TRY(bench.bytes("SwiGLU 8192x4096", 6.0 * kElements, f.swiglu,
                  {.gate_up = x, .out = out, .rows = kRows, .width = kWidth}));
  TandemCudaQuantize q{.x = x,
                       .stride = kWidth,
                       .by_row = codes,
                       .row_scales = scales,
                       .by_column = nullptr,
                       .column_scales = nullptr,
                       .rows = kRows,
                       .columns = kWidth,
                       .block = kernels::kScaleBlock};
  TRY(bench.bytes("quantize by rows 8192x4096 (1x128)", 3.0 * kElements, f.quantize, q));
  q.block = kernels::kMicroscaleBlock;
  return bench.bytes("quantize by rows 8192x4096 (1x32)", 3.0 * kElements, f.quantize, q);
}

Status optimizer(CudaBench& bench) {
  constexpr size_t kCount = size_t{1} << 25;
  TandemCudaAdamw a{};
  a.grad = TRY(bench.gpu.array(kCount, 0.0f));
  a.master = TRY(bench.gpu.array(kCount, 0.5f));
  a.first_moment = TRY(bench.gpu.array(kCount, 0.0f));
  a.second_moment = TRY(bench.gpu.array(kCount, 0.0f));
  a.weight = TRY(bench.gpu.array(kCount, kHalf));
  a.count = kCount;
  a.grad_scale = 1;
  a.beta1 = 0.9f;
  a.beta2 = 0.95f;
  a.epsilon = 1e-8f;
  a.step = 1;
  // A gradient is read, master and moments are read and written, a bf16 is written.
  return bench.bytes("AdamW of 32 Mi weights", 30.0 * kCount, bench.gpu.functions().adamw, a);
}

}  // namespace

Result<std::vector<Figure>> bench_cuda(const Settings& settings) {
  std::vector<Figure> figures;
  {
    const auto gpu = TRY(Gpu::find(kTandemCudaTensor));
    CudaBench bench{*gpu, settings.seconds, figures};
    for (const int rows : {1, 16, 64, 512, 4096}) TRY(tensor_products(bench, rows, 3072, 576));
    for (const int rows : {1, 64, 4096}) TRY(tensor_products(bench, rows, 4096, 4096));
    TRY(attention(bench, 2048, "tensor: "));
    TRY(tensor_attention(bench));
    TRY(tensor_attention_backward(bench, 2048));
    for (const int rows : {1, 64, 1024}) TRY(log_probabilities(bench, rows, "tensor: "));
  }
  const auto gpu = TRY(Gpu::find(kTandemCudaExact));
  CudaBench bench{*gpu, settings.seconds, figures};
  TRY(products(bench, 512, 3072, 576));
  TRY(products(bench, 4096, 4096, 4096));
  TRY(attention(bench, 2048, ""));
  TRY(log_probabilities(bench, 1024, ""));
  TRY(rows(bench));
  TRY(optimizer(bench));
  return figures;
}

}  // namespace tandem::bench
