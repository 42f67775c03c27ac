#include "envs/episodes/base_copies.h"

#include <fmt/format.h>

#include <utility>

#include "base/text.h"
#include "envs/sandbox/forwarding_sandbox.h"
#include "envs/tasks/folder_files.h"

namespace tandem::envs {
namespace {

// Tells its files as changes, as one that shares the base does.
class CopiedSandbox final : public ForwardingSandbox {
 public:
  CopiedSandbox(std::unique_ptr<Sandbox> inner, BaseTree base)
      : ForwardingSandbox(std::move(inner)), base_(std::move(base)) {}

  Result<Collected> collect() override { return changes_against(base_, TRY(inner_->collect())); }

 private:
  BaseTree base_;
};

}  // namespace

Result<std::unique_ptr<Sandbox>> BaseCopies::create(const SandboxSpec& spec) {
  auto shared = backend_.create(spec);
  if (shared || !spec.base || shared.error().code() != Code::kUnfit) return shared;
  const BaseTree& base = *spec.base;
  SandboxSpec alone = spec;
  alone.base.reset();
  if (!spec.begins_on.empty()) return std::make_unique<CopiedSandbox>(TRY(backend_.create(alone)), base);
  const auto too_large = [&](const std::string& why) {
    return fail(
        Status::unfit(fmt::format("the base of the task ({} files, {}) can be neither shared, since {}, nor "
                                  "copied: {}",
                                  base.files, format_bytes(base.bytes), shared.error().message(), why))
            .hint("run as root with sandboxes by namespaces and overlayfs (`tandem doctor`), or make it smaller"));
  };
  if (base.files > kMostTaskFiles || base.bytes > kMostTaskBytes)
    return too_large(fmt::format("at most {} files and {} are", kMostTaskFiles, format_bytes(kMostTaskBytes)));
  Files files;
  std::set<std::string> programs;
  if (const Status added = add_folder_files(base.tree(), "", files, programs); !added)
    return too_large(added.message());
  auto sandbox = TRY(backend_.create(alone));
  TRY(sandbox->put(files));
  TRY(make_executable(*sandbox, programs));
  return std::make_unique<CopiedSandbox>(std::move(sandbox), base);
}

}  // namespace tandem::envs
