// GGUF files (versions 2 and 3, little endian), read in place.
//
// The whole directory of a file is checked when it is opened: counts, string lengths, alignment, dimensions and ranges
// against the size of the file, names that stand twice, tensors that overlap. Metadata become JSON values; an array may
// have at most 2^22 elements and arrays do not nest. Tensor data are views into the mapping, which lives as long as the
// Gguf.
//
// Thread safety: const methods from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace tandem::model {

// The numbers are those of ggml.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

std::string_view name_of(GgmlType type);

struct GgufTensor {
  GgmlType type = GgmlType::kF32;
  std::vector<int64_t> shape;  // slowest first, as in safetensors; GGUF writes it the other way round
  std::span<const std::byte> bytes;

  int64_t elements() const;
};

class Gguf {
 public:
  static Result<Gguf> open(const fs::path& path);

  const Json& metadata() const { return metadata_; }  // one object
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }

 private:
  explicit Gguf(MappedFile file) : file_(std::move(file)) {}
  Status read();

  MappedFile file_;
  Json metadata_ = Json::object();
  std::map<std::string, GgufTensor, std::less<>> tensors_;
};

// The numbers that a tensor stands for, in float as ggml computes them. `out` has elements() places.
void dequantise(const GgufTensor& tensor, std::span<float> out);

}  // namespace tandem::model
