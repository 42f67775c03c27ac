#include "cli/run/prepare_bases.h"

#include <fmt/format.h>

#include <map>

#include "base/clock.h"
#include "base/text.h"
#include "envs/tasks/task_base.h"

namespace tandem::cli {

Status prepare_bases(std::span<const envs::Task> tasks) {
  std::map<std::string, const envs::Task*> wanted;
  for (const auto& task : tasks) {
    if (task.base) wanted.emplace(task.base->digest, &task);
  }
  size_t number = 0;
  for (const auto& [digest, task] : wanted) {
    ++number;
    if (envs::is_prepared(*task->base)) continue;
    const SystemClock clock;
    const Time start = clock.now();
    const auto source = task->base->source.string();
    fmt::print(stderr, "unpacking base {} of {}: {}\n", number, wanted.size(), source);
    const auto base = envs::prepare_base(*task->base);
    if (!base) return Status(base.error()).at(task->name);
    fmt::print(stderr, "unpacked {}: {} files, {}, in {}\n", source, base->files, format_bytes(base->bytes),
               format_seconds(to_seconds(clock.now() - start)));
  }
  return {};
}

}  // namespace tandem::cli
