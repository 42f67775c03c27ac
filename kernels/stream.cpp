#include "kernels/stream.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "kernels/cpu/operations.h"

namespace tandem::kernels {

std::string_view to_string(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAmxBf16:
      return "amx_bf16";
  }
  return "unknown";
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx2) isas.push_back(Isa::kAvx2);
  if (avx512) isas.push_back(Isa::kAvx512);
  // All processors with bf16 products but the first generation can permute bytes.
  const bool avx512_bf16 = avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
  if (avx512_bf16) isas.push_back(Isa::kAvx512Bf16);
  if (avx512_bf16 && amx_bf16_works()) isas.push_back(Isa::kAmxBf16);
  return isas;
}

namespace {

const CpuOperations& operations_of(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return avx2_operations();
    case Isa::kAvx512:
      return avx512_operations();
    case Isa::kAvx512Bf16:
      return avx512_bf16_operations();
    case Isa::kAmxBf16:
      return amx_bf16_operations();
  }
  return avx2_operations();
}

}  // namespace

Result<Stream> Stream::cpu(int threads, std::optional<Isa> isa) {
  if (threads < 1 || threads > 1024) {
    return fail(Status::invalid(fmt::format("{} threads: expected 1 to 1024", threads)));
  }
  const auto isas = supported_isas();
  if (isas.empty()) {
    return fail(Status::unfit("this processor lacks AVX2 with FMA, the least that the kernels need"));
  }
  const Isa wanted = isa.value_or(isas.back());
  if (std::find(isas.begin(), isas.end(), wanted) == isas.end()) {
    return fail(Status::unfit(
        fmt::format("this processor does not have {}; its best is {}", to_string(wanted), to_string(isas.back()))));
  }
  return over(operations_of(wanted), wanted, threads);
}

Stream Stream::over(const CpuOperations& operations, Isa isa, int threads) {
  Stream stream;
  stream.isa_ = isa;
  stream.threads_ = std::make_unique<ThreadPool>(threads);
  stream.operations_ = &operations;
  return stream;
}

void Stream::tell_slow(const char* reason) {
  if (std::find(told_.begin(), told_.end(), reason) != told_.end()) return;
  told_.push_back(reason);
  spdlog::info("kernels: {}", reason);
}

std::string numerics_id(Isa isa, std::string_view format) { return numerics_id(to_string(isa), format); }

std::string numerics_id(std::string_view arithmetic, std::string_view format) {
  constexpr int kContractVersion = 3;  // raised whenever bits of a kernel or of a training step change
  return fmt::format("v{}-{}-{}", kContractVersion, arithmetic, format);
}

std::string Stream::numerics_id(std::string_view format) const { return kernels::numerics_id(isa_, format); }

}  // namespace tandem::kernels
