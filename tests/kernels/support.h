// Random inputs and the instruction sets of this machine, for kernel tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "kernels/gemm.h"
#include "kernels/stream.h"
#include "kernels/transformer_ops.h"

namespace tandem::kernels {

inline std::vector<bf16> random_bf16(size_t count, uint64_t seed, float scale = 1) {
  Random random(seed);
  std::vector<bf16> values(count);
  for (auto& value : values) value = to_bf16(static_cast<float>(random.normal()) * scale);
  return values;
}

inline std::vector<float> random_floats(size_t count, uint64_t seed, float scale = 1) {
  Random random(seed);
  std::vector<float> values(count);
  for (auto& value : values) value = static_cast<float>(random.normal()) * scale;
  return values;
}

// The table of heads that turn by base^(-2 i / rope_dim).
inline std::vector<float> rope_table(int positions, int rope_dim, double base) {
  std::vector<float> frequencies;
  for (int i = 0; i < rope_dim; i += 2) {
    frequencies.push_back(static_cast<float>(1.0 / std::pow(base, static_cast<double>(i) / rope_dim)));
  }
  return rope_table(positions, frequencies);
}

const CpuOperations& amx_model_operations();

// An instruction set that this machine has, or the model of one that it may lack.
struct TestedIsa {
  Isa isa;
  bool model = false;
  Stream stream(int threads) const {
    return model ? Stream::over(amx_model_operations(), isa, threads) : std::move(*Stream::cpu(threads, isa));
  }
};
inline std::vector<TestedIsa> tested_isas() {
  std::vector<TestedIsa> isas;
  for (const Isa isa : supported_isas()) isas.push_back({isa});
  isas.push_back({Isa::kAmxBf16, true});
  return isas;
}

class EachIsa : public testing::TestWithParam<TestedIsa> {
 protected:
  Stream stream(int threads = 2) { return GetParam().stream(threads); }
};
inline std::string isa_name(const testing::TestParamInfo<TestedIsa>& info) {
  return std::string(to_string(info.param.isa)) + (info.param.model ? "_model" : "");
}
#define FOR_EACH_ISA(Suite) INSTANTIATE_TEST_SUITE_P(Isas, Suite, testing::ValuesIn(tested_isas()), isa_name)

inline bool same_bits(const bf16* a, const bf16* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(bf16)) == 0;
}

inline double as_double(bf16 value) { return to_float(value); }
inline double as_double(float value) { return value; }

// |got - exact| / |exact|, as vectors.
template <typename T>
double relative_error(const std::vector<T>& got, const std::vector<double>& exact) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error += std::pow(as_double(got[i]) - exact[i], 2);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(error / norm);
}

}  // namespace tandem::kernels
