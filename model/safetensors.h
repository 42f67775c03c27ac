// Checkpoints in the safetensors format: read in place, written whole.
//
// A Safetensors is one file, or a directory with `model.safetensors` or `model.safetensors.index.json` and its shards.
// Files are mapped; a TensorView points into the mapping and lives as long as the Safetensors (moving it keeps views
// valid). Everything a header says is checked against the file before a view is handed out: a header is at most 100 MB
// and lies within the file, dtype times shape is the length, ranges lie within the data, neither overlap nor leave
// holes, and no name stands twice, also not in two shards. Nothing is allocated by a size that a file merely claims.
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
#include "model/dtype.h"

namespace tandem::model {

struct TensorView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;

  int64_t elements() const;
};

class Safetensors {
 public:
  // A file or a directory. A directory that holds only pickles (`pytorch_model.bin`) is refused with how to convert it.
  static Result<Safetensors> open(const fs::path& file_or_directory);

  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }

  // kNotFound names the tensor and the nearest name.
  Result<TensorView> get(std::string_view name) const;

  // Ok where all are there; else one kNotFound that names all that are missing.
  Status require(std::span<const std::string> names) const;

 private:
  Status add_file(const fs::path& path);
  Status add_index(const fs::path& path);

  std::string source_;
  std::vector<MappedFile> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

struct NamedTensor {
  std::string name;
  TensorView tensor;
};

// One file, replaced whole or not at all. Tensor data starts at multiples of 64 bytes from the start of the file where
// the element sizes allow it. `metadata` goes into the header; transformers wants {"format": "pt"}.
Status write_safetensors(const fs::path& path, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// `model.safetensors`, or where the tensors are more than `shard_bytes` together, `model-0000i-of-0000n.safetensors`
// and an index, in the order given. The index is written last, and files of an earlier checkpoint in `directory` that
// would be read instead of it are removed.
Status write_checkpoint(const fs::path& directory, std::span<const NamedTensor> tensors,
                        uint64_t shard_bytes = uint64_t{5} << 30);

}  // namespace tandem::model
