// The execution context of kernels.
//
// A Stream is handed to every operation, as a CUDA stream would be. On a CPU it is an instruction set and a pool of
// threads; work is done when the call returns. The caller owns it and keeps it alive during calls; one call at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/threads.h"

namespace tandem::kernels {

enum class Isa { kAvx2, kAvx512, kAvx512Bf16, kAmxBf16 };
std::string_view to_string(Isa isa);

// Instruction sets of this machine, slowest first; empty where even AVX2 with FMA is missing.
std::vector<Isa> supported_isas();

// Two results are comparable bit by bit only where this is equal: contract version, instruction set, number format of
// the products.
std::string numerics_id(Isa isa, std::string_view format);
std::string numerics_id(std::string_view arithmetic, std::string_view format);

struct CpuOperations;

class Stream {
 public:
  // The fastest instruction set of the machine, or the one asked for. kUnfit where the machine does not have it.
  static Result<Stream> cpu(int threads, std::optional<Isa> isa = {});

  // Over operations of the caller's, which outlive it: how an instruction set is tested that the machine lacks.
  static Stream over(const CpuOperations& operations, Isa isa, int threads);

  Isa isa() const { return isa_; }
  ThreadPool& threads() { return *threads_; }
  const CpuOperations& operations() const { return *operations_; }
  std::string numerics_id(std::string_view format = "bf16") const;

  // Logs once per stream that a kernel took a slow path. `reason` is a literal.
  void tell_slow(const char* reason);

 private:
  Stream() = default;
  std::vector<const char*> told_;
  Isa isa_ = Isa::kAvx2;
  std::unique_ptr<ThreadPool> threads_;
  const CpuOperations* operations_ = nullptr;
};

}  // namespace tandem::kernels
