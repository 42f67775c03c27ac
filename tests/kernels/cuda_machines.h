// Where a CUDA operation runs in a test: a plain loop on the host over the very source of the kernels, or a GPU. A case
// is written once against Machine; comparing its results on both is comparing their arithmetic bit by bit.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <list>
#include <memory>
#include <vector>

#include "kernels/cuda/library.h"
#include "kernels/cuda/warps.cuh"
#include "kernels/formats/bf16.h"
#include "tests/kernels/support.h"

namespace tandem::kernels::cuda {

class Machine {
 public:
  virtual ~Machine() = default;
#define TANDEM_CUDA_RUN(operation, Arguments) virtual int run(const TandemCuda##Arguments& arguments) = 0;
  TANDEM_CUDA_OPERATIONS(TANDEM_CUDA_RUN)
#undef TANDEM_CUDA_RUN

  // A copy of `values` where the machine's kernels can reach it, as long as the machine lives. bf16 becomes uint16_t.
  template <typename T>
  auto place(const std::vector<T>& values) {
    using Element = std::conditional_t<std::is_same_v<T, bf16>, uint16_t, T>;
    return static_cast<Element*>(put_bytes(values.data(), values.size() * sizeof(T)));
  }
  // `count` elements whose bytes are all 0xff: NaN, or a number out of range, where nothing is written.
  template <typename T>
  T* room(size_t count) {
    return place(std::vector<T>(count, filled<T>()));
  }
  template <typename T>
  std::vector<T> fetch(const T* from, size_t count) {
    std::vector<T> values(count);
    get_bytes(from, values.data(), count * sizeof(T));
    return values;
  }

 protected:
  virtual void* put_bytes(const void* values, size_t bytes) = 0;
  virtual void get_bytes(const void* from, void* to, size_t bytes) = 0;

 private:
  template <typename T>
  static T filled() {
    T value;
    std::memset(&value, 0xff, sizeof value);
    return value;
  }
};

// Threads of a block run one after the other, in ascending or descending order: where bits depend on which, a phase
// reads what another thread writes in it. What is not written yet is garbage.
class HostExecution {
 public:
  explicit HostExecution(bool descending, bool tensor = false) : descending_(descending), tensor_(tensor) {}
  bool tensor() const { return tensor_; }

  template <typename Kernel>
  int run(const Kernel& kernel, int64_t blocks) {
    const auto shared = std::make_unique<typename Kernel::Shared>();
    constexpr int kWorkers = workers_of<Kernel>();
    std::vector<typename Kernel::Private> own(kWorkers);
    for (int64_t block = 0; block < blocks; ++block) {
      std::memset(static_cast<void*>(shared.get()), 0xff, sizeof *shared);
      std::memset(static_cast<void*>(own.data()), 0xff, own.size() * sizeof own[0]);
      bool more = true;
      for (int phase = 0; more; ++phase) {
        int going_on = 0;
        for (int i = 0; i < kWorkers; ++i) {
          const int worker = descending_ ? kWorkers - 1 - i : i;
          going_on += kernel.run(block, phase, worker, *shared, own[worker]);
        }
        EXPECT_TRUE(going_on == 0 || going_on == kWorkers) << "threads part at phase " << phase;
        more = going_on == kWorkers;
      }
    }
    return 0;
  }

 private:
  bool descending_, tensor_;
};

class HostMachine : public Machine {
 public:
  explicit HostMachine(bool descending = false, bool tensor = false) : execution_(descending, tensor) {}
#define TANDEM_CUDA_RUN(operation, Arguments) int run(const TandemCuda##Arguments& arguments) override;
  TANDEM_CUDA_OPERATIONS(TANDEM_CUDA_RUN)
#undef TANDEM_CUDA_RUN

 protected:
  void* put_bytes(const void* values, size_t bytes) override;
  void get_bytes(const void* from, void* to, size_t bytes) override;

 private:
  HostExecution execution_;
  std::list<std::vector<char>> memory_;
};

// The first GPU, where there is one and the library for it.
class DeviceMachine : public Machine {
 public:
  static Result<std::unique_ptr<DeviceMachine>> find(bool tensor = false);
  ~DeviceMachine() override;
#define TANDEM_CUDA_RUN(operation, Arguments) int run(const TandemCuda##Arguments& arguments) override;
  TANDEM_CUDA_OPERATIONS(TANDEM_CUDA_RUN)
#undef TANDEM_CUDA_RUN

 protected:
  void* put_bytes(const void* values, size_t bytes) override;
  void get_bytes(const void* from, void* to, size_t bytes) override;

 private:
  DeviceMachine(Library library, TandemCudaStream stream) : library_(std::move(library)), stream_(stream) {}

  Library library_;
  TandemCudaStream stream_;
  std::vector<void*> memory_;
};

// A case gives the bytes of its results. On the host the order of threads must not matter; on a GPU, where there is
// one, the bits are those of the host.
using Bytes = std::vector<uint8_t>;
using Case = Bytes (*)(Machine& machine);

// A NaN is promised, its sign and payload are not (docs/numerics.md): a GPU makes others than a CPU.
inline float one_nan(float value) { return value != value ? std::numeric_limits<float>::quiet_NaN() : value; }
inline uint16_t one_nan(uint16_t bf16_bits) { return (bf16_bits & 0x7fff) > 0x7f80 ? 0x7fc0 : bf16_bits; }
inline bf16 one_nan(bf16 value) { return {one_nan(value.bits)}; }
template <typename T>
T one_nan(T value) {
  return value;
}
template <typename T>
void append(Bytes& bytes, std::vector<T> values) {
  for (T& value : values) value = one_nan(value);
  const auto* start = reinterpret_cast<const uint8_t*>(values.data());
  bytes.insert(bytes.end(), start, start + values.size() * sizeof(T));
}

inline void expect_no_order_of_threads(Case result_of, bool tensor = false) {
  HostMachine ascending(false, tensor), descending(true, tensor);
  EXPECT_TRUE(result_of(ascending) == result_of(descending)) << "threads of a phase see each other's writes";
}

inline void expect_bits_of_the_host(Case result_of, bool tensor = false) {
  auto device = DeviceMachine::find(tensor);
  if (!device) GTEST_SKIP() << device.error().to_string();
  HostMachine host(false, tensor);
  const Bytes expected = result_of(host), got = result_of(**device);
  ASSERT_EQ(got.size(), expected.size());
  const auto first = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
  EXPECT_TRUE(got == expected) << "host and device differ from byte " << first << " of " << got.size() << " on";
}

#define TANDEM_CUDA_CASE_TESTS(name)                                                                          \
  TEST(CudaHost, name##_does_not_depend_on_the_order_of_threads) { expect_no_order_of_threads(name##_case); } \
  TEST(CudaDevice, name##_gives_the_bits_of_the_host) { expect_bits_of_the_host(name##_case); }

// The same of a stream whose kernels are `tensor`.
#define TANDEM_CUDA_TENSOR_TESTS(name)                                                                            \
  TEST(CudaHost, name##_does_not_depend_on_the_order_of_warps) { expect_no_order_of_threads(name##_case, true); } \
  TEST(CudaDevice, name##_gives_the_bits_of_the_host) { expect_bits_of_the_host(name##_case, true); }

// The same as the first, and the bits of the AVX2 kernel: what name##_on_cpu(stream) gives.
#define TANDEM_CUDA_AGAINST_AVX2_TESTS(name)                                                                        \
  TANDEM_CUDA_CASE_TESTS(name)                                                                                      \
  TEST(CudaHost, name##_gives_the_bits_of_the_avx2_kernel) {                                                        \
    Stream cpu = std::move(*Stream::cpu(2, Isa::kAvx2));                                                            \
    HostMachine machine;                                                                                            \
    const Bytes got = name##_case(machine), expected = name##_on_cpu(cpu);                                          \
    ASSERT_EQ(got.size(), expected.size());                                                                         \
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected[i]) << "byte " << i << " of " << got.size(); \
  }

// Random elements as the CPU has them, by which a test is written once for bf16 and fp32.
template <typename T>
std::vector<T> random_elements(size_t count, uint64_t seed, float scale = 1) {
  if constexpr (std::is_same_v<T, float>) {
    return random_floats(count, seed, scale);
  } else {
    return random_bf16(count, seed, scale);
  }
}
// The arguments of an operation for these elements.
template <typename T, typename OfBf16, typename OfFloat>
using ArgumentsOf = std::conditional_t<std::is_same_v<T, float>, OfFloat, OfBf16>;
template <typename T>
using OnMachine = std::conditional_t<std::is_same_v<T, float>, float, uint16_t>;

// bf16 as the interface has it, and back.
inline std::vector<bf16> as_bf16(const std::vector<uint16_t>& values) {
  std::vector<bf16> result(values.size());
  for (size_t i = 0; i < values.size(); ++i) result[i] = {values[i]};
  return result;
}

}  // namespace tandem::kernels::cuda
