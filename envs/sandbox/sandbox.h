// Interfaces of a sandbox, in which a model's calls run, and of the backends that create sandboxes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "envs/network/allow_list.h"
#include "envs/network/package_service.h"
#include "envs/network/use.h"
#include "envs/sandbox/base_tree.h"
#include "envs/sandbox/files.h"
#include "envs/sandbox/layers.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

// The episode that a sandbox serves, for operators (envs/fleet). Empty for a warm sandbox.
struct SandboxHolder {
  uint64_t lease = 0, episode = 0;
  uint32_t attempt = 0;
  std::string task;      // its name
  bool grading = false;  // the fresh sandbox that an episode's tests run in
  std::string run;       // its name, where there are several
  friend bool operator==(const SandboxHolder&, const SandboxHolder&) = default;
};

// A container image, whose programs and files replace those of the machine.
struct SandboxImage {
  std::string name;  // "python:3.12-slim"
  // Whether the workspace begins with the files of the folder that the image works in (WORKDIR).
  bool begins_with_files = true;
  friend bool operator==(const SandboxImage&, const SandboxImage&) = default;
};

// A folder of this machine that a workspace begins with: read-only below what is written.
struct FolderBelow {
  std::filesystem::path folder;
  std::vector<std::string> hidden;  // paths in it that are not seen, of folders with all that is in them
};

struct SandboxSpec {
  size_t output_limit = size_t{1} << 20;      // bytes of a call's output that are kept
  double call_time_limit_s = 120;             // then a command is ended, and the model told
  int processes = 256;                        // 0: bounded by who makes it, not by each process's own limit
  uint64_t memory_bytes = uint64_t{2} << 30;  // per process where there are no cgroups, of all of them where there are
  uint64_t disk_bytes = uint64_t{256} << 20;  // of the workspace, and of /tmp
  uint64_t file_bytes = uint64_t{256} << 20;  // of the largest file
  std::vector<std::string> tools;             // what calls may name; empty: tools() of envs/tools/tool.h
  std::optional<SandboxImage> image;          // none: /usr of this machine
  std::vector<std::string> environment;       // "NAME=value", of every command in place of the usual ones
  std::optional<std::filesystem::path> workspace;  // a folder of the host to work in, read and write; else an empty one
  // Paths of the root, which is read-only, that lead to the workspace or to folders below /tmp. What is in those below
  // kOutside is collected, by its absolute path. By namespaces they are mounts, else symbolic links.
  Links links;
  AllowList network;  // the hosts that its programs may speak to, through a proxy
  // Answers requests of its programs to package registries, through the proxy; null: none.
  std::shared_ptr<PackageService> packages;
  Files home;                      // texts that lie in the home folder from the first, beside those of `packages`
  bool proxy = false;              // whether there is a proxy although nothing above needs one
  OnNetworkUse on_network;         // told of each request; may be empty
  bool sealable = false;           // whether it can be sealed
  bool memory_is_bounded = false;  // of all processes together, by who makes it
  FileLayers begins_on;            // of a sandbox that was: what is in it from the first
  // The workspace begins with these files, shared with all that begin with them. Limits are those of what changes.
  // kUnfit of backends that cannot share files of the machine.
  std::optional<BaseTree> base;
  // A folder of the host that is not written, unlike `workspace`; concurrent changes by its owner may be visible. The
  // sandbox runs as that owner where we are root. kUnfit where an overlay cannot be had, and of other backends than by
  // namespaces.
  std::optional<FolderBelow> below;
  SandboxHolder holder;

  bool has_proxy() const { return proxy || packages || !network.empty(); }
};

// The output of a call that was killed with the process that served it.
inline constexpr std::string_view kCallWasKilled = "the call was killed, perhaps for using too much memory";

struct Collected {
  Files files;                         // regular files with their content; links and the like as "(not a regular file)"
  std::set<std::string> programs;      // those of them that can be run
  std::set<std::string> removed = {};  // paths of the base that are not there any more; of a sandbox with one, which
                                       // collects what is other than there
  bool complete = true;                // false where there were too many or too large ones
  TreeDetails details = {};            // links stand in `files`, too
};

class FolderView;
class Freezer;
class Inspector;
class Snapshots;
class SourceView;
class ToolServers;

// Runs calls on the sandbox's files. Everything that only some sandboxes can do is a capability (capabilities.h).
//
// Thread safety: calls may be made from several threads and run at once; destruction must come last.
// Errors: kUnavailable where the sandbox is lost (every later call fails the same way), kDeadline where it did not
// answer in time and was destroyed. Both are failures of the infrastructure: what the model did badly is in the
// outcome.
class Sandbox {
 public:
  virtual ~Sandbox() = default;
  virtual Status put(const Files& files) = 0;
  // A request on `stop` ends the processes of the call, which returns within seconds with its output so far; sandbox
  // and session go on. A call that has not begun by then is kCancelled.
  virtual Result<ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) = 0;
  Result<ToolOutcome> call(std::string_view name, const Json& arguments) { return call(name, arguments, {}); }
  virtual Result<Collected> collect() = 0;
  // Later calls have the output limit, the time limit and the tools of `spec`, in place of those that the sandbox was
  // made with.
  virtual void set_call_limits(const SandboxSpec& spec) = 0;
  // Whether its first process has ended, without a request to the sandbox. False does not guarantee that it still
  // answers.
  virtual bool has_ended() const = 0;
  // Ends the sandbox without waiting; later calls fail with `why` in the message. No effect without isolation, where no
  // process outlives its call. May be called at any time.
  virtual void end(std::string_view why) = 0;

  // Optional capabilities; null where it lacks one. They belong to the sandbox and end with it. A decorator returns
  // those of the inner sandbox, or wraps them where it must observe their calls.
  virtual Snapshots* snapshots() { return nullptr; }
  virtual Freezer* freezer() { return nullptr; }
  virtual ToolServers* tool_servers() { return nullptr; }
  virtual SourceView* sources() { return nullptr; }
  virtual Inspector* inspector() { return nullptr; }
  virtual FolderView* folder_view() { return nullptr; }
};

// Thread safety: create may be called from several threads.
class SandboxBackend {
 public:
  virtual ~SandboxBackend() = default;
  // kUnfit where this machine has no means to isolate; nothing is ever run without.
  virtual Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) = 0;
  // The kind of isolation, one of kSandboxKinds (envs/backends/backends.h); empty where it creates none itself.
  virtual std::string_view kind() const { return ""; }
  // How often the spawner process was started, for backends that have one.
  virtual uint64_t spawners_started() const { return 0; }
};

// Makes files in the workspace executable. kUnavailable on failure.
Status make_executable(Sandbox& sandbox, const std::set<std::string>& paths);

// Makes links and folders in the workspace, where nothing else lies at their paths, and gives files their modes, where
// programs there may. kUnavailable where that could not be done.
Status add_details(Sandbox& sandbox, const TreeDetails& details);

// Files below a folder, within limits; what a sandbox collects.
// Without what is below folders of `left_out`, absolute paths.
Collected collect_files(const std::filesystem::path& root, const std::set<std::string>& left_out = {});
// Adds type and mode of a path to `details`; false where there are too many.
bool add_detail(TreeDetails& details, const std::filesystem::path& path, const std::string& name, unsigned mode);
// Absolute paths only where `root` is the workspace of a sandbox; kInvalid elsewhere.
Status put_files(const std::filesystem::path& root, const Files& files);

}  // namespace tandem::envs
