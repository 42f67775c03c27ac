// `tandem tasks build`: images of the Dockerfiles of tasks.
#include <fmt/format.h>

#include <cstdio>

#include "base/clock.h"
#include "base/json.h"
#include "base/json_line.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/tasks/tasks_commands.h"
#include "envs/backends/choosing_backend.h"
#include "envs/container/engine.h"
#include "envs/container/tar.h"
#include "envs/tasks/task_set.h"

namespace tandem::cli {
namespace {

Status build(const envs::Engine& engine, const std::string& image, const fs::path& folder) {
  const auto context = TRY(envs::read_build_context(folder));
  if (context.image != image) return Status::invalid(folder.string() + " has changed meanwhile");
  return engine.build(TRY(envs::tar_of(context.files, context.programs)), image);
}

}  // namespace

Result<int> build_images(const BuildOptions& options) {
  const auto set = TRY(envs::TaskSet::read(options.path, {.kinds = {}, .recipes = envs::Recipes::kBuilt}));
  if (set.recipes_of_images().empty()) return fail(Status::invalid(options.path + " has no task with a Dockerfile"));
  const auto place = envs::engine_place("");
  if (place == envs::kNoEngine) return fail(Status::unfit(std::string(envs::kEngineVariable) + " says none"));
  const auto engine = TRY(envs::Engine::find(place));
  const SystemClock clock;
  bool all = true;
  for (const auto& [image, folder] : set.recipes_of_images()) {
    const Time start = clock.now();
    const bool is_there = engine.image(image).has_value();
    const Status status = is_there ? Status() : build(engine, image, folder);
    all = all && status.ok();
    const auto became = is_there ? "there already" : status ? "built" : "failed";
    const double seconds = to_seconds(clock.now() - start);
    if (options.json) {
      fmt::print("{}\n", dump_json_line(Json{{"folder", folder.string()},
                                             {"image", image},
                                             {"outcome", became},
                                             {"seconds", seconds},
                                             {"why", status.message()}}));
    } else {
      fmt::print("{}  {} {}  {}\n", folder.string(), image, became, is_there ? "" : format_seconds(seconds));
      if (!status) fmt::print("    {}\n", status.message());
    }
    std::fflush(stdout);
  }
  return all ? kDone : kFailed;
}

}  // namespace tandem::cli
