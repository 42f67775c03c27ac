// Images that are built of the Dockerfiles of tasks, by a container engine.
//
// The name of such an image is a digest of all that it is built from: what has not changed is not built again, and a
// task whose recipe has changed has no image until it is.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/file.h"
#include "envs/tasks/mistakes.h"
#include "envs/tasks/task.h"

namespace tandem::envs {

// How a task's Dockerfile is used.
enum class Recipes : uint8_t {
  kFollowed,  // the part of it that a sandbox of this machine can follow
  kBuilt,     // an image, all of it
};

inline constexpr std::array kRecipeNames = {"followed", "built"};
Recipes recipes_from(std::string_view name);  // one of these

struct BuildContext {
  Files files;
  std::set<std::string> programs;
  std::string image;  // "localhost/tandem-task:DIGEST"
};

// The folder with a Dockerfile, but for what a model must not find in its image (the tests and the solution of the
// task). kInvalid where it has none, holds links, or more than a task may have.
Result<BuildContext> read_build_context(const fs::path& folder);

bool is_built_image(std::string_view name);  // whether it is one of these names

// The name of that image; empty, with a mistake, where there can be none.
std::string built_image(const fs::path& folder, Mistakes& mistakes);

}  // namespace tandem::envs
