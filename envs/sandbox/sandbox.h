// A place where a model's calls run, and what makes such places.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "envs/mcp/foreign_tools.h"
#include "envs/network/allow_list.h"
#include "envs/network/use.h"
#include "envs/sandbox/layers.h"
#include "envs/search/sources.h"
#include "envs/task.h"
#include "envs/tools/tool.h"

namespace tandem::envs {

// Whom a sandbox serves, for those who look at all of them (envs/fleet). Of one that is kept ready all is empty.
struct SandboxHolder {
  uint64_t lease = 0, episode = 0;
  uint32_t attempt = 0;
  std::string task;      // its name
  bool grading = false;  // the fresh sandbox that an episode's tests run in
  std::string run;       // its name, where there are several
  friend bool operator==(const SandboxHolder&, const SandboxHolder&) = default;
};

// An image of a container engine, whose programs and files a sandbox has in place of the machine's own.
struct SandboxImage {
  std::string name;  // "python:3.12-slim"
  // Whether the workspace begins with the files of the folder that the image works in (WORKDIR).
  bool begins_with_files = true;
  friend bool operator==(const SandboxImage&, const SandboxImage&) = default;
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
  Links links;                                     // made in the root, which is read-only; to where nothing is yet
  AllowList network;                               // the hosts that its programs may speak to, through a proxy
  OnNetworkUse on_network;                         // told of each request; may be empty
  bool sealable = false;                           // whether it can be sealed
  FileLayers begins_on;                            // of a sandbox that was: what is in it from the first
  SandboxHolder holder;
};

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

// What a call has as its output that was killed with the process that served it.
inline constexpr std::string_view kCallWasKilled = "the call was killed, perhaps for using too much memory";

struct Collected {
  Files files;                     // regular files with their content; links and the like as "(not a regular file)"
  std::set<std::string> programs;  // those of them that can be run
  bool complete = true;            // false where there were too many or too large ones
};

// What a sandbox held at one moment: its workspace, its /tmp, the shell's folder and variables, the todos. A value: it
// outlives its sandbox, and any number of others can begin from it. What ran in the background is not in it.
struct Snapshot {
  std::string workspace, temporary;  // trees, see snapshot.h; empty where there are layers
  Session session;
  FileLayers layers = {};
};

// Thread safety: calls may be made from several threads and run at once; destruction must come last.
// Errors: kUnavailable where the sandbox is lost (every later call fails the same way), kDeadline where it did not
// answer in time and was destroyed. Both are failures of the infrastructure: what the model did badly is in the
// outcome.
class Sandbox {
 public:
  virtual ~Sandbox() = default;
  virtual Status put(const Files& files) = 0;
  // When `stop` is asked for, what the call has started is ended, and it returns within seconds with whatever came of
  // it; the sandbox and its session go on. A call that has not begun by then is kCancelled.
  virtual Result<ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) = 0;
  Result<ToolOutcome> call(std::string_view name, const Json& arguments) { return call(name, arguments, {}); }
  virtual Result<Collected> collect() = 0;
  // kExhausted where there is more than a snapshot takes; the sandbox goes on either way. What the model's own user may
  // not read is left out.
  virtual Result<Snapshot> snapshot() = 0;
  // Puts what a snapshot holds in place of the files and the session that are here. For sandboxes that have had no
  // call.
  virtual Status restore(const Snapshot& snapshot) = 0;
  // The same without a copy, whatever the files take: the sandbox ends, and what it held is shared by all that begin
  // with it (begin_again), from then on. kUnfit, and it goes on, where something runs in it, its spec does not say
  // that it is sealable, it is on kMostLayers already, its files take most of its disk, or we are not root.
  virtual Result<Snapshot> seal();
  // Every process that runs now stops until thaw(), and takes no core meanwhile; of time limits the clock goes on. What
  // is begun while they are stopped runs. Either may be asked for twice. A snapshot does both by itself.
  virtual Status freeze();
  virtual Status thaw();
  // What is other in the workspace than was known, and lines of its files, for a search that runs elsewhere
  // (envs/search/sources.h): the sandbox looks, nobody else opens its files.
  virtual Result<SourceChanges> source_changes(std::span<const KnownSource> known) = 0;
  virtual Result<std::vector<std::string>> source_lines(std::span<const SourceLines> wanted) = 0;
  // Starts servers of tools in the background, in the workspace as it is now; once. Their tools, foreign_tools(), can
  // be called from then on by their names, also while a list of tools names others. kUnavailable, with what the server
  // wrote, where one does not begin within its time; kUnfit where there is no isolation. A server that ends later is
  // what its tools tell the model.
  virtual Status start_servers(std::span<const McpServerSpec> servers);
  virtual std::vector<ForeignTool> foreign_tools() const { return {}; }
  // Later calls have the output limit, the time limit and the tools of `spec`, in place of those that the sandbox was
  // made with.
  virtual void set_call_limits(const SandboxSpec& spec) = 0;
  // Whether it is known to be lost, without asking it: its first process has ended. One that is not may be lost all the
  // same.
  virtual bool has_ended() const = 0;

  // The rest is for who looks in from outside; it may be used at any time, beside whatever else is going on.
  //
  // Runs a program in the shell's folder and with its variables as they are now; nothing of it stays but what it wrote
  // to files, and what it leaves running is ended. kCancelled after `stop`; kUnavailable also where it was ended with
  // its time not up, as it is when the files are collected.
  virtual Result<LookOutcome> look(const LookRequest& request, const std::stop_token& stop);
  // Ends it at once and waits for nothing; every call fails from then on, with `why` in its words.
  virtual void end(std::string_view why);
  virtual SandboxUsage usage() const;
};

// Thread safety: create may be called from several threads.
class SandboxBackend {
 public:
  virtual ~SandboxBackend() = default;
  // kUnfit where this machine has no means to isolate; nothing is ever run without.
  virtual Result<std::unique_ptr<Sandbox>> create(const SandboxSpec& spec) = 0;
  // What keeps its sandboxes apart, of kSandboxKinds (backends.h); empty where it makes none itself.
  virtual std::string_view kind() const { return ""; }
  // How often what makes them was started, where that is a process.
  virtual uint64_t spawners_started() const { return 0; }
};

// A sandbox that begins with what another one held; of a backend of the same kind where that was sealed.
Result<std::unique_ptr<Sandbox>> begin_again(SandboxBackend& backend, SandboxSpec spec, const Snapshot& snapshot);

// Lets files in the workspace be run. kUnavailable where that could not be done.
Status make_executable(Sandbox& sandbox, const std::set<std::string>& paths);

// Files below a folder, within limits; what a sandbox collects.
Collected collect_files(const std::filesystem::path& root);
Status put_files(const std::filesystem::path& root, const Files& files);

}  // namespace tandem::envs
