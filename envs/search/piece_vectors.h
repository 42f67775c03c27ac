// Vectors of pieces of code in a file, by the digests of the pieces: what was embedded once is read the next time.
//
// A run has such a file for its tasks (RUN/vectors), and the machine one for all runs with one encoder
// ($XDG_CACHE_HOME/tandem/vectors). Append-only, checksummed records: a fill that is interrupted goes on where it was.
// Records are read as untrusted bytes. No text of a piece is kept.
//
// Thread safety: find from any thread while nobody adds; else none. Between processes the one that writes holds a lock
// on the file.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/record_log.h"
#include "envs/search/index_file.h"

namespace tandem::envs {

class PieceVectors {
 public:
  static constexpr size_t kMost = 300'000;  // of a file: 460 MB at a width of 384

  // Reads the file into memory. kNotFound where there is none; kInvalid, with the fix, where it is of another model,
  // another version or damaged.
  static Result<PieceVectors> read(const fs::path& path, const IndexModel& model);
  // The same to add to, made where it is not there. kUnavailable while another process writes it. One that read()
  // would refuse is begun anew: all that it says can be computed again.
  static Result<PieceVectors> open(const fs::path& path, const IndexModel& model);

  size_t size() const { return places_.size(); }
  bool is_open() const { return log_.has_value(); }  // to add to
  // [width]; null where it is not there. Valid until the next add.
  const float* find(const Digest& piece) const;
  // Nothing for a piece that is there. kExhausted beyond kMost. On disk after sync().
  Status add(const Digest& piece, const float* vector);
  Status sync();

 private:
  explicit PieceVectors(const IndexModel& model) : model_(model) {}
  struct ByLow {
    size_t operator()(const Digest& digest) const { return digest.low; }
  };
  Status load(const fs::path& path);
  Status take(std::string_view record);
  void keep(const Digest& piece, const float* vector);

  IndexModel model_;
  bool has_header_ = false;
  std::vector<float> vectors_;  // [place][width]
  std::unordered_map<Digest, size_t, ByLow> places_;
  FileDescriptor lock_;
  std::optional<RecordLog> log_;  // of one that was opened
};

}  // namespace tandem::envs
