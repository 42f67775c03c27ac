// Decisions on disk, a line of JSON each below one that says what they are of, so that what was interrupted goes on.
//
// Thread safety: none.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace tandem::cli {

class DecisionLog {
 public:
  // The log of this name in `folder`, which is made where it is missing. What a crash cut short is forgotten. kInvalid
  // where the folder holds something else, where the log is of something other than `of` (said by `mismatch`), or where
  // a line is no JSON.
  static Result<DecisionLog> open(const fs::path& folder, const std::string& name, const Json& of,
                                  const std::string& mismatch);

  const std::vector<Json>& known() const { return known_; }  // at the time of opening
  const std::string& path() const { return path_; }
  Status add(const Json& decision);

 private:
  FileDescriptor file_;
  std::string path_;
  std::vector<Json> known_;
};

}  // namespace tandem::cli
