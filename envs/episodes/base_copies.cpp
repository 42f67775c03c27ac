#include "envs/episodes/base_copies.h"

#include <fmt/format.h>

#include <utility>

#include "base/text.h"
#include "envs/sandbox/capabilities.h"
#include "envs/tasks/folder_files.h"

namespace tandem::envs {
namespace {

// Tells its files as changes, as one that shares the base does.
class CopiedSandbox final : public Sandbox {
 public:
  CopiedSandbox(std::unique_ptr<Sandbox> inner, BaseTree base) : inner_(std::move(inner)), base_(std::move(base)) {}

  Status put(const Files& files) override { return inner_->put(files); }
  Result<ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) override {
    return inner_->call(name, arguments, stop);
  }
  Result<Collected> collect() override { return changes_against(base_, TRY(inner_->collect())); }
  void set_call_limits(const SandboxSpec& spec) override { inner_->set_call_limits(spec); }
  bool has_ended() const override { return inner_->has_ended(); }
  void end(std::string_view why) override { inner_->end(why); }
  Snapshots* snapshots() override { return inner_->snapshots(); }
  Freezer* freezer() override { return inner_->freezer(); }
  ToolServers* tool_servers() override { return inner_->tool_servers(); }
  SourceView* sources() override { return inner_->sources(); }
  Inspector* inspector() override { return inner_->inspector(); }

 private:
  std::unique_ptr<Sandbox> inner_;
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
