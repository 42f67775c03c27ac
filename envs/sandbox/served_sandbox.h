// A sandbox whose first process serves requests (init.h), of any backend.
#pragma once

#include <memory>
#include <vector>

#include "envs/mcp/mcp_client.h"
#include "envs/network/proxy.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/requests.h"
#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class Refusals;

class ServedSandbox : public Sandbox,
                      private Snapshots,
                      private Freezer,
                      private ToolServers,
                      private SourceView,
                      private Inspector,
                      private FolderView {
 public:
  // Ends the sandbox when it is destroyed.
  ServedSandbox(SpawnedSandbox spawned, const SandboxSpec& spec);
  ~ServedSandbox() override;

  // Before anything else, in this order: waits until the first process has confined itself and has sent what it writes
  // where the spec asks for that, and takes the socket that it sends for the proxy where the spec opens hosts. kUnfit
  // with its words where it could not; kUnavailable where it was killed.
  Status wait_until_ready();
  Status open_network(std::shared_ptr<NetworkProxy> proxy);

  // Where what it holds goes when it is sealed, and what it writes where it begins on layers; else it cannot be.
  void let_hold(std::shared_ptr<LayerHolder> holder, std::shared_ptr<FileLayer> written) {
    holder_ = std::move(holder);
    written_ = std::move(written);
  }

  // The workspace begins with a tree that is in a file of the sandbox's root, packed as file_tree.h has it.
  Status begin_with(const std::string& packed_tree);

  Status put(const Files& files) override;
  Result<ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) override;
  Result<Collected> collect() override;
  void set_call_limits(const SandboxSpec& spec) override;
  bool has_ended() const override;
  void end(std::string_view why) override { requests_.end(why); }

  Snapshots* snapshots() override { return this; }
  Freezer* freezer() override { return this; }
  ToolServers* tool_servers() override { return this; }
  SourceView* sources() override { return this; }
  Inspector* inspector() override { return this; }
  FolderView* folder_view() override { return spec_.below ? this : nullptr; }

 private:
  Result<Snapshot> snapshot() override;
  Status restore(const Snapshot& snapshot) override;
  Result<Snapshot> seal() override;
  Status freeze() override { return ask_to(RequestKind::kFreeze); }
  Status thaw() override { return ask_to(RequestKind::kThaw); }
  Status start_servers(std::span<const McpServerSpec> servers) override;
  std::vector<ForeignTool> foreign_tools() const override;
  Result<SourceChanges> source_changes(std::span<const KnownSource> known) override;
  Result<std::vector<std::string>> source_lines(std::span<const SourceLines> wanted) override;
  Result<ExecOutcome> exec(const ExecRequest& wanted, const std::stop_token& stop) override;
  SandboxUsage usage() const override;
  Result<FolderDifference> folder_difference(std::string_view begin, std::string_view meanwhile) override;

  Result<std::unique_ptr<McpClient>> start_server(const McpServerSpec& server);
  Result<ToolOutcome> call_foreign(McpClient& server, const ForeignTool& tool, const Json& arguments,
                                   const std::stop_token& stop);
  Status ask_to(RequestKind kind);
  Status take_own_trees();
  Status can_be_sealed() const;
  Result<std::string> ask_about_sources(RequestKind kind, std::string_view question);
  Result<FolderDifference> part_of_difference(std::string_view begin, std::string_view meanwhile,
                                              const FolderPage& page);

  FileDescriptor errors_;  // until it is ready
  Requests requests_;
  SandboxSpec spec_;
  // Where it can be sealed: what it writes, and the layer that it is or becomes, where it began on others.
  FileTrees own_;
  std::shared_ptr<FileLayer> written_;
  std::shared_ptr<LayerHolder> holder_;
  const std::shared_ptr<Refusals> refusals_;
  std::shared_ptr<NetworkProxy> proxy_;
  std::unique_ptr<NetworkProxy::Listener> proxy_listener_;
  std::vector<std::unique_ptr<McpClient>> servers_;
};

}  // namespace tandem::envs
