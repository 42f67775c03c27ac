// An index on disk: an append-only log of checksummed records, one a file, so that an update writes what has changed
// and an interrupted one goes on where it was.
//
// The first record says which model and which rules of cutting the others were made with; an index of others is
// refused, never mixed. Records are read as untrusted bytes. Nothing of the files' text is kept: paths, lines, hashes
// of words, vectors.
//
// Thread safety: none; one owner. Between processes the one that writes holds a lock beside the file.
#pragma once

#include "base/record_log.h"
#include "envs/search/code_index.h"

namespace tandem::envs {

struct IndexModel {
  Digest id;  // of the encoder's files
  int width = 0;
};

// $XDG_CACHE_HOME/tandem/index (~/.cache), by folder and model.
Result<fs::path> default_index_path(const fs::path& folder, const IndexModel& model);

// The first record of a file of vectors: what they were made with.
std::string search_header(std::string_view format, uint64_t version, const IndexModel& model);

// $XDG_CACHE_HOME/tandem/vectors, by model: the machine's file of PieceVectors (piece_vectors.h).
Result<fs::path> vectors_path(const IndexModel& model);

// Only reads. kNotFound where there is none; kInvalid, with a hint, where it is of another model, another version, or
// damaged.
Result<CodeIndex> read_index(const fs::path& path, const IndexModel& model);

class IndexFile {
 public:
  // Made where it is not there, with the folder it lies in, and what it holds put into `index`. An end that was torn by
  // a crash is cut off. kUnavailable while another process writes it.
  static Result<IndexFile> open(const fs::path& path, const IndexModel& model, CodeIndex& index);

  // The state of one file of the index: its pieces, or that it is not there any more. Files whose pieces wait are
  // passed over.
  Status save(const CodeIndex& index, const std::string& path);
  // Its stamp alone.
  Status save_stamp(const CodeIndex& index, const std::string& path);
  // Everything is on disk when it returns. An index that is mostly about what is not there any more is written anew.
  Status finish(const CodeIndex& index);

 private:
  IndexFile(fs::path path, const IndexModel& model, FileDescriptor lock, RecordLog log, uint64_t bytes)
      : path_(std::move(path)), model_(model), lock_(std::move(lock)), log_(std::move(log)), bytes_(bytes) {}
  Status append(const std::string& record);

  fs::path path_;
  IndexModel model_;
  FileDescriptor lock_;
  RecordLog log_;
  uint64_t bytes_ = 0;  // of all records
};

}  // namespace tandem::envs
