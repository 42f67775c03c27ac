// Optional capabilities of a sandbox, an interface each; Sandbox returns null for those that it lacks.
//
// The functions behind each interface ask a sandbox for it, and give the error where it lacks that.
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

// What a sandbox held at one moment: its workspace, its /tmp, the shell's folder and variables, the todos. A value: it
// outlives its sandbox, and any number of others can begin from it. What ran in the background is not in it.
struct Snapshot {
  std::string workspace, temporary;  // trees, see file_tree.h; empty where there are layers
  Session session;
  FileLayers layers = {};
};

class Snapshots {
 public:
  // kExhausted where there is more than a snapshot takes; the sandbox goes on either way. What the model's own user may
  // not read is left out.
  virtual Result<Snapshot> snapshot() = 0;
  // Puts what a snapshot holds in place of the files and the session that are here. For sandboxes that have had no
  // call.
  virtual Status restore(const Snapshot& snapshot) = 0;
  // A snapshot without a copy, whatever the files take: the sandbox ends, and what it held is shared by all that begin
  // with it (begin_again), from then on. kUnfit, and it goes on, where something runs in it, its spec does not say
  // that it is sealable, it is on kMostLayers already, its files take most of its disk, or we are not root.
  virtual Result<Snapshot> seal() = 0;

 protected:
  ~Snapshots() = default;
};
Result<Snapshot> snapshot_of(Sandbox& sandbox);
Status restore(Sandbox& sandbox, const Snapshot& snapshot);
Result<Snapshot> seal(Sandbox& sandbox);

// A sandbox that begins with what another one held; of a backend of the same kind where that was sealed.
Result<std::unique_ptr<Sandbox>> begin_again(SandboxBackend& backend, SandboxSpec spec, const Snapshot& snapshot);

// Stops what runs in a sandbox. One without a freezer has nothing that runs between calls.
class Freezer {
 public:
  // Every process that runs now stops until thaw(), and takes no core meanwhile; of time limits the clock goes on. What
  // is begun while they are stopped runs. Either may be asked for twice. A snapshot does both by itself.
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

// For a search that runs elsewhere (sources.h): the sandbox looks, nobody else opens its files.
class SourceView {
 public:
  // What is other in the workspace than was known, and lines of its files.
  virtual Result<SourceChanges> source_changes(std::span<const KnownSource> known) = 0;
  virtual Result<std::vector<std::string>> source_lines(std::span<const SourceLines> wanted) = 0;

 protected:
  ~SourceView() = default;
};
// kUnfit where the sandbox has no view of its files.
Result<SourceView*> sources_of(Sandbox& sandbox);

// What is other in a workspace that begins on a folder (SandboxSpec::below).
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

// One program that somebody who looks in runs beside what the sandbox is for.
struct LookRequest {
  std::vector<std::string> argv;
  double seconds = 10;                      // then it is ended
  size_t output_limit = size_t{256} << 10;  // bytes of its output, and of its errors, that are kept
};
struct LookOutcome {
  int exit_code = 0;  // 124 after the time limit, 127 where there is no such program, 128 + N after signal N
  bool timed_out = false, truncated = false;
  std::string output, errors;  // as they came, whatever the bytes are
  double seconds = 0;
};

// What the processes of a sandbox use now: memory of their own and files in memory, not what they share with others.
struct SandboxUsage {
  uint64_t memory_bytes = 0;
  uint32_t processes = 0;
};

// For who looks in from outside; may be used at any time, beside whatever else is going on.
class Inspector {
 public:
  // Runs a program in the shell's folder and with its variables as they are now; nothing of it stays but what it wrote
  // to files, and what it leaves running is ended. kCancelled after `stop`; kUnavailable also where it was ended with
  // its time not up, as it is when the files are collected.
  virtual Result<LookOutcome> look(const LookRequest& request, const std::stop_token& stop) = 0;
  virtual SandboxUsage usage() const = 0;

 protected:
  ~Inspector() = default;
};
// kUnfit where the sandbox cannot be looked into.
Result<LookOutcome> look_into(Sandbox& sandbox, const LookRequest& request, const std::stop_token& stop);
// Zeros where nobody knows.
SandboxUsage usage_of(Sandbox& sandbox);

}  // namespace tandem::envs
