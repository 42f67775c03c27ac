// A folder of this process alone: mode 0700, below that for temporary files, with a lock that is held while the process
// lives. Folders of processes that were killed are removed by the next one that makes one.
//
// Thread safety: any thread.
#pragma once

#include <string_view>

#include "base/file.h"

namespace tandem::cli {

struct PrivateFolder {
  fs::path path;
  FileDescriptor lock;  // held; who owns it removes the folder

  // "KIND-UID-" and a random number.
  static Result<PrivateFolder> make(std::string_view kind);
};

}  // namespace tandem::cli
