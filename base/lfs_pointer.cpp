#include "base/lfs_pointer.h"

namespace tandem {

Status check_not_lfs_pointer(std::string_view content) {
  if (!content.starts_with("version https://git-lfs.github.com/spec/")) return {};
  return Status::invalid("is a pointer of Git LFS, not the file itself")
      .hint("fetch the files: git lfs install, then git lfs pull; or download the model again");
}

}  // namespace tandem
