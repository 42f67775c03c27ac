#include "cli/run/search_progress.h"

#include <fmt/format.h>

#include "base/text.h"
#include "cli/progress_line.h"

namespace tandem::cli {

Status prepare_search(const fs::path& encoder, std::span<const envs::Task> tasks, const fs::path& folder) {
  ProgressLine line;
  return run::prepare_search(encoder, tasks, folder, [&](size_t done, size_t all) {
    const double left = done == 0 ? 0 : line.seconds() / static_cast<double>(done) * static_cast<double>(all - done);
    line.show(fmt::format("embedding the files of the tasks for {}: {} of {} pieces{}", envs::kSearchTool, done, all,
                          done == 0 ? "" : fmt::format(", {} left", format_seconds(left))));
  });
}

}  // namespace tandem::cli
