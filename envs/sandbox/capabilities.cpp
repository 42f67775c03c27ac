#include "envs/sandbox/capabilities.h"

namespace tandem::envs {
namespace {

Result<Snapshots*> snapshots_of(Sandbox& sandbox) {
  auto* const snapshots = sandbox.snapshots();
  if (!snapshots) return fail(Status::unfit("sandboxes of this kind share no files"));
  return snapshots;
}

}  // namespace

Result<Snapshot> snapshot_of(Sandbox& sandbox) { return TRY(snapshots_of(sandbox))->snapshot(); }

Status restore(Sandbox& sandbox, const Snapshot& snapshot) { return TRY(snapshots_of(sandbox))->restore(snapshot); }

Result<Snapshot> seal(Sandbox& sandbox) { return TRY(snapshots_of(sandbox))->seal(); }

Result<std::unique_ptr<Sandbox>> begin_again(SandboxBackend& backend, SandboxSpec spec, const Snapshot& snapshot) {
  spec.begins_on = snapshot.layers;
  auto sandbox = TRY(backend.create(spec));
  TRY(restore(*sandbox, snapshot));
  return sandbox;
}

// Where there is no isolation no process outlasts its call.
Status freeze(Sandbox& sandbox) {
  auto* const freezer = sandbox.freezer();
  return freezer ? freezer->freeze() : Status();
}

Status thaw(Sandbox& sandbox) {
  auto* const freezer = sandbox.freezer();
  return freezer ? freezer->thaw() : Status();
}

Status start_servers(Sandbox& sandbox, std::span<const McpServerSpec> servers) {
  if (auto* const able = sandbox.tool_servers()) return able->start_servers(servers);
  if (servers.empty()) return {};
  return Status::unfit("servers of tools need a sandbox; there is none here");
}

std::vector<ForeignTool> foreign_tools_of(Sandbox& sandbox) {
  const auto* const servers = sandbox.tool_servers();
  return servers ? servers->foreign_tools() : std::vector<ForeignTool>();
}

Result<SourceView*> sources_of(Sandbox& sandbox) {
  auto* const sources = sandbox.sources();
  if (!sources) return fail(Status::unfit("the files of this kind of sandbox cannot be searched"));
  return sources;
}

Result<FolderDifference> folder_difference(Sandbox& sandbox, std::string_view begin, std::string_view meanwhile) {
  auto* const view = sandbox.folder_view();
  if (!view) return fail(Status::unfit("the sandbox begins on no folder"));
  return view->folder_difference(begin, meanwhile);
}

Result<ExecOutcome> exec_in(Sandbox& sandbox, const ExecRequest& request, const std::stop_token& stop) {
  auto* const inspector = sandbox.inspector();
  if (!inspector) return fail(Status::unfit("this kind of sandbox cannot be looked into"));
  return inspector->exec(request, stop);
}

SandboxUsage usage_of(Sandbox& sandbox) {
  const auto* const inspector = sandbox.inspector();
  return inspector ? inspector->usage() : SandboxUsage();
}

}  // namespace tandem::envs
