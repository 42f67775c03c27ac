// The folder of an evaluation: what it is of, and every sample that has ended, so that the same command goes on.
//
//   evaluation.json   the identity (eval/identity.h), gates and prices
//   episodes.jsonl    a line a sample; of a sample that was tried again on another day only the last line counts
//   transcripts/      TASK/SAMPLE.json, what was said and done, as ATIF
//
// One process at a time has a folder, by a lock that ends with it (base/folder_lock.h).
// Thread safety: none; one owner.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/folder_lock.h"
#include "eval/identity.h"
#include "eval/sample.h"

namespace tandem::eval {

using SampleKey = std::pair<std::string, int>;  // task, sample

class EvaluationFolder {
 public:
  // Opens `path` for an evaluation of this identity, made where it is missing. kInvalid where it holds something else
  // or another evaluation, naming the first difference, and where another process has it, with its host and
  // number; kUnfit where its file system
  // has no locks.
  static Result<EvaluationFolder> open(const fs::path& path, const Identity& identity, const Terms& terms);

  const fs::path& path() const { return path_; }
  const std::map<SampleKey, SampleResult>& samples() const { return samples_; }

  // Once this returns, the sample survives the process and the machine. An empty `transcript` writes none.
  Status add(SampleResult sample, const Json& transcript);

 private:
  EvaluationFolder() = default;
  fs::path path_;
  std::optional<FolderLock> lock_;
  FileDescriptor log_;
  std::map<SampleKey, SampleResult> samples_;
};

// The lines of DIR/episodes.jsonl, the last one of each sample. What was cut short at the end is left out; `whole` gets
// the bytes before it. kCorrupt, with the line, for anything else that is no sample.
Result<std::map<SampleKey, SampleResult>> read_samples(const fs::path& path, uint64_t* whole = nullptr);

// DIR/evaluation.json. kInvalid where DIR is no folder of an evaluation.
struct FolderHead {
  Identity identity;
  Terms terms;
};
Result<FolderHead> read_head(const fs::path& directory);

}  // namespace tandem::eval
