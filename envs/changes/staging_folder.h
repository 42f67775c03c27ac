// A folder of our own in the user's, for files that are whole and on disk before they take the places of others.
//
// Its name is .tandem-write-back-PROCESS-NUMBER, and who made it holds a lock on it: what a process that was killed has
// left is known by that nobody holds it. It is gone when this is destroyed.
//
// Thread safety: none.
#pragma once

#include <string>

#include "base/file.h"

namespace tandem::envs {

class StagingFolder {
 public:
  // `root` is an open folder, and stays open while this lives. An error where nothing can be made there.
  static Result<StagingFolder> make(int root);
  StagingFolder(StagingFolder&& other) noexcept = default;
  ~StagingFolder();

  int get() const { return folder_.get(); }
  // The name of what is made next in it.
  std::string next() { return std::to_string(count_++); }

 private:
  StagingFolder(int root, std::string name, FileDescriptor folder)
      : root_(root), name_(std::move(name)), folder_(std::move(folder)) {}

  int root_;
  std::string name_;
  FileDescriptor folder_;
  size_t count_ = 0;
};

// Removes what processes have left that were killed. Of folders with such a name that hold something else nothing.
void remove_left_staging(int root);

}  // namespace tandem::envs
