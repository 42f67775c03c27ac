#include "envs/sandbox/host_backend.h"

#include <cstdlib>
#include <mutex>

#include "base/file.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/file_tree.h"

namespace tandem::envs {
namespace {

// Freezes nothing, starts no servers and cannot be looked into: what a call begins ends with it.
class HostSandbox final : public Sandbox, private Snapshots, private SourceView {
 public:
  HostSandbox(fs::path root, bool owned, const SandboxSpec& spec) : owned_(owned) {
    context_.root = std::move(root);
    context_.allow_background = false;
    set_call_limits(spec);
  }
  ~HostSandbox() override {
    std::error_code ignored;
    if (owned_) fs::remove_all(context_.root, ignored);
  }
  Status put(const Files& files) override { return put_files(context_.root, files); }
  // Runs to its end once it has begun: there is no process between us and the tool that could be ended in its place.
  Result<ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) override {
    if (stop.stop_requested()) return fail(Status::cancelled("the call was cancelled"));
    Session before;
    {
      std::lock_guard lock(mutex_);
      before = session_;
    }
    Session after = before;
    ToolContext context = context_;
    context.session = &after;
    auto outcome = run_tool(context, name, arguments);
    if (after != before) {
      std::lock_guard lock(mutex_);
      session_ = std::move(after);
    }
    return outcome;
  }
  Result<Collected> collect() override { return collect_files(context_.root); }
  void set_call_limits(const SandboxSpec& spec) override {
    context_.output_limit = spec.output_limit;
    context_.time_limit_s = spec.call_time_limit_s;
    context_.tools = spec.tools;
  }
  bool has_ended() const override { return false; }
  void end(std::string_view) override {}
  Snapshots* snapshots() override { return this; }
  SourceView* sources() override { return this; }

 private:
  // The temporary folder is the host's, and no part of it.
  Result<Snapshot> snapshot() override {
    Snapshot snapshot;
    snapshot.workspace = TRY(pack_tree(context_.root));
    std::lock_guard lock(mutex_);
    snapshot.session = session_;
    return snapshot;
  }
  Status restore(const Snapshot& snapshot) override {
    TRY(unpack_tree(context_.root, snapshot.workspace));
    std::lock_guard lock(mutex_);
    session_ = snapshot.session;
    return {};
  }
  Result<Snapshot> seal() override { return fail(Status::unfit("sandboxes of this kind share no files")); }
  Result<SourceChanges> source_changes(std::span<const KnownSource> known) override {
    return changes_of_sources(context_.root, known);
  }
  Result<std::vector<std::string>> source_lines(std::span<const SourceLines> wanted) override {
    return read_lines(context_.root, wanted);
  }

  ToolContext context_;
  std::mutex mutex_;
  Session session_;
  bool owned_;
};

}  // namespace

Result<std::unique_ptr<Sandbox>> HostBackend::create(const SandboxSpec& spec) {
  if (!spec.links.empty()) return fail(Status::unfit("links in the root need a sandbox; there is none here"));
  if (!spec.network.empty()) return fail(Status::unfit("open hosts need a sandbox; there is none here"));
  if (spec.image) return fail(Status::unfit("an image needs a container engine, and no --no-sandbox"));
  if (spec.base || spec.below)
    return fail(Status::unfit("files can be shared with sandboxes only; there is none here"));
  if (spec.workspace) return std::make_unique<HostSandbox>(*spec.workspace, false, spec);
  std::string folder = (fs::temp_directory_path() / "tandem-scratch-XXXXXX").string();
  if (!mkdtemp(folder.data())) return fail(Status::from_errno(folder, errno));
  return std::make_unique<HostSandbox>(folder, true, spec);
}

}  // namespace tandem::envs
