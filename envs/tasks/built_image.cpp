#include "envs/tasks/built_image.h"

#include "base/digest.h"
#include "envs/sandbox/fields.h"
#include "envs/tasks/container.h"
#include "envs/tasks/folder_files.h"
#include "envs/tasks/terminal_bench_folder.h"

namespace tandem::envs {
namespace {

constexpr std::string_view kName = "localhost/tandem-task:";

}  // namespace

Recipes recipes_from(std::string_view name) { return name == kRecipeNames[1] ? Recipes::kBuilt : Recipes::kFollowed; }

Result<BuildContext> read_build_context(const fs::path& folder) {
  BuildContext context;
  TRY(add_folder_files(folder, "", context.files, context.programs));
  if (!context.files.contains("Dockerfile"))
    return fail(Status::invalid((folder / "Dockerfile").string() + " is not there"));
  const std::span<const std::string_view> hidden_of_harbor = kHiddenOfHarbor;
  for (const auto name : is_terminal_bench_task(folder) ? hidden_of_terminal_bench() : hidden_of_harbor) {
    std::erase_if(context.files, [&](const auto& file) {
      return file.first == name || file.first.starts_with(std::string(name) + "/");
    });
  }
  std::erase_if(context.programs, [&](const auto& path) { return !context.files.contains(path); });
  std::string bytes;
  put_files(bytes, context.files);
  for (const auto& path : context.programs) put_text(bytes, path);
  context.image = std::string(kName) + digest_of(bytes).hex();
  return context;
}

bool is_built_image(std::string_view name) { return name.starts_with(kName); }

std::string built_image(const fs::path& folder, Mistakes& mistakes) {
  const auto context = read_build_context(folder);
  if (context) return context->image;
  mistakes.add(folder.string(), 0, context.error().message());
  return "";
}

}  // namespace tandem::envs
