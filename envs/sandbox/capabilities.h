// Optional capabilities of a sandbox, an interface each; Sandbox returns null for those that it lacks.
//
// The functions after each interface call it on a sandbox, or return an error where the sandbox lacks it.
//
// Ownership: an interface is part of its sandbox. Thread safety and errors: those of Sandbox.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "envs/mcp/foreign_tools.h"
#include "envs/sandbox/folder_list.h"
#include "envs/sandbox/layers.h"
#include "envs/sandbox/sandbox.h"
#include "envs/sandbox/sources.h"
#include "envs/tools/session.h"

namespace tandem::envs {

// The state of a sandbox at one moment: workspace, /tmp, the shell's folder and variables, todos; not background
// processes. A value: it outlives its sandbox, and any number of sandboxes can begin from it.
struct Snapshot {
  std::string workspace, temporary;  // trees, see file_tree.h; empty where there are layers
  Session session;
  FileLayers layers = {};
};

class Snapshots {
 public:
  // kExhausted where the state exceeds the limit of a snapshot; the sandbox goes on either way. Files that the model's
  // user may not read are left out.
  virtual Result<Snapshot> snapshot() = 0;
  // Replaces files and session by those of the snapshot. Only for a sandbox that has had no call.
  virtual Status restore(const Snapshot& snapshot) = 0;
  // A snapshot without a copy, for files of any size: the sandbox ends, and all sandboxes that begin with the snapshot
  // (begin_again) share its files. kUnfit, and it goes on, where something runs in it, its spec does not say that it is
  // sealable, it is on kMostLayers already, its files take most of its disk, or we are not root.
  virtual Result<Snapshot> seal() = 0;

 protected:
  ~Snapshots() = default;
};
Result<Snapshot> snapshot_of(Sandbox& sandbox);
Status restore(Sandbox& sandbox, const Snapshot& snapshot);
Result<Snapshot> seal(Sandbox& sandbox);

// Creates a sandbox from a snapshot. A sealed one needs a backend of the same kind.
Result<std::unique_ptr<Sandbox>> begin_again(SandboxBackend& backend, SandboxSpec spec, const Snapshot& snapshot);

// Stops the processes of a sandbox. A sandbox without a freezer runs nothing between calls.
class Freezer {
 public:
  // freeze() stops every running process until thaw(); they use no core, but time limits go on. Processes that start
  // meanwhile run. Both calls are idempotent. A snapshot does both by itself.
  virtual Status freeze() = 0;
  virtual Status thaw() = 0;

 protected:
  ~Freezer() = default;
};
Status freeze(Sandbox& sandbox);
Status thaw(Sandbox& sandbox);

class ToolServers {
 public:
  // Starts servers of tools in the background, in the workspace as it is now; once. Their tools, foreign_tools(), can
  // be called from then on by their names, also while a list of tools names others. kUnavailable, with what the server
  // wrote, where one does not begin within its time. A server that ends later is what its tools tell the model.
  virtual Status start_servers(std::span<const McpServerSpec> servers) = 0;
  virtual std::vector<ForeignTool> foreign_tools() const = 0;

 protected:
  ~ToolServers() = default;
};
// kUnfit where there are servers and the sandbox cannot run them.
Status start_servers(Sandbox& sandbox, std::span<const McpServerSpec> servers);
std::vector<ForeignTool> foreign_tools_of(Sandbox& sandbox);

// For a search in another process (sources.h): only the sandbox opens its files.
class SourceView {
 public:
  // Changes in the workspace since `known`, and lines of its files.
  virtual Result<SourceChanges> source_changes(std::span<const KnownSource> known) = 0;
  virtual Result<std::vector<std::string>> source_lines(std::span<const SourceLines> wanted) = 0;

 protected:
  ~SourceView() = default;
};
// kUnfit where the sandbox has no view of its files.
Result<SourceView*> sources_of(Sandbox& sandbox);

// Changes of a workspace against the folder that it begins on (SandboxSpec::below).
class FolderView {
 public:
  // `begin` and `meanwhile` as difference_from takes them. Everything that runs is ended first. Of more than
  // kMostChanged entries it has the first, by their paths, and says how many follow. kExhausted where looking at them
  // takes too much; the sandbox goes on.
  virtual Result<FolderDifference> folder_difference(std::string_view begin, std::string_view meanwhile) = 0;

 protected:
  ~FolderView() = default;
};
// kUnfit where the sandbox begins on no folder.
Result<FolderDifference> folder_difference(Sandbox& sandbox, std::string_view begin, std::string_view meanwhile);

// A program that an operator runs in a sandbox (`tandem envs exec`).
struct ExecRequest {
  std::vector<std::string> argv;
  double seconds = 10;                      // then it is ended
  size_t output_limit = size_t{256} << 10;  // bytes of its output, and of its errors, that are kept
};
struct ExecOutcome {
  int exit_code = 0;  // 124 after the time limit, 127 where there is no such program, 128 + N after signal N
  bool timed_out = false, truncated = false;
  std::string output, errors;  // as they came, whatever the bytes are
  double seconds = 0;
};

// Current use of a sandbox's processes: private memory and files in memory, without shared memory.
struct SandboxUsage {
  uint64_t memory_bytes = 0;
  uint32_t processes = 0;
};

// For operators; may be called at any time, concurrently with calls.
class Inspector {
 public:
  // Runs a program in the shell's current folder and with its variables; only files that it writes persist, and
  // processes that it leaves are ended. kCancelled after `stop`; kUnavailable also where it was ended before its time
  // limit, for example when files are collected.
  virtual Result<ExecOutcome> exec(const ExecRequest& request, const std::stop_token& stop) = 0;
  virtual SandboxUsage usage() const = 0;

 protected:
  ~Inspector() = default;
};
// kUnfit where the sandbox has no inspector.
Result<ExecOutcome> exec_in(Sandbox& sandbox, const ExecRequest& request, const std::stop_token& stop);
// Zeros without an inspector.
SandboxUsage usage_of(Sandbox& sandbox);

}  // namespace tandem::envs
