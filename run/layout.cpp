#include "run/layout.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/digest.h"

namespace tandem::run {

RunLayout::RunLayout(const fs::path& run_dir) : run_dir_(fs::absolute(run_dir).lexically_normal()) {
  if (!run_dir_.has_filename()) run_dir_ = run_dir_.parent_path();
  run_id_ = digest_of(run_dir_.string()).low;
  socket_folder_ = fmt::format("/tmp/tandem-{}-{:016x}", ::getuid(), run_id_);
}

}  // namespace tandem::run
