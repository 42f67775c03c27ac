#include "envs/sandbox/served_sandbox.h"

#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <mutex>

#include "base/text.h"
#include "envs/mcp/schema_check.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/exec.h"
#include "envs/sandbox/fields.h"
#include "envs/sandbox/frames.h"
#include "envs/sandbox/layer_holder.h"
#include "envs/sandbox/process_handle.h"
#include "envs/sandbox/usage.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr double kGrace = 15;  // seconds beyond the time limit of a call after which a sandbox counts as lost
constexpr double kCollectTime = 20;
constexpr double kFilesPerSecond = 5000;                    // of a base, looked at on a cold disk
constexpr size_t kLargestExec = 128 << 10;                  // which the socket takes without anybody reading
constexpr size_t kMostRefusals = 4, kLongestRefusal = 400;  // of a call: lines, bytes of one
constexpr double kServerTime = 30;                          // in which a server of tools must have begun

Result<Collected> decode_collected(std::string_view reply) {
  if (reply.empty()) return fail(Status::unavailable("the process that did it was killed"));
  FieldReader fields(reply);
  Collected collected;
  collected.complete = TRY(fields.number()) == 1;
  collected.files = TRY(fields.files());
  for (uint64_t left = TRY(fields.number()); left > 0; --left) collected.programs.insert(TRY(fields.text()));
  for (uint64_t left = TRY(fields.number()); left > 0; --left) collected.removed.insert(TRY(fields.text()));
  auto& details = collected.details;
  for (uint64_t left = TRY(fields.number()); left > 0; --left) {
    auto path = TRY(fields.text());
    details.links[std::move(path)] = TRY(fields.text());
  }
  for (uint64_t left = TRY(fields.number()); left > 0; --left) details.folders.insert(TRY(fields.text()));
  for (uint64_t left = TRY(fields.number()); left > 0; --left) {
    auto path = TRY(fields.text());
    details.modes[std::move(path)] = static_cast<unsigned>(TRY(fields.number()));
  }
  return collected;
}

// What the first process sends by itself before it serves, one byte and these.
Result<std::vector<FileDescriptor>> receive_with_descriptors(int socket) {
  pollfd wait = {socket, POLLIN, 0};
  if (poll(&wait, 1, static_cast<int>(kGrace * 1000)) <= 0)
    return fail(Status::deadline("a sandbox did not finish to say what it is"));
  auto received = receive(socket, 1);
  if (received.text.empty()) return fail(Status::unavailable("a sandbox ended while it was made"));
  return std::move(received.descriptors);
}

Status worked(const std::string& reply, const std::string& what) {
  if (reply == kWorked) return {};
  return Status::unavailable(what + ": " + (reply.empty() ? "the process that did it was killed" : reply));
}

}  // namespace

// What programs were refused by the proxy, for the model to read with the outcome of the call: many show no more than
// that something failed.
class Refusals {
 public:
  void add(const NetworkUse& use) {
    std::lock_guard lock(mutex_);
    if (broken_.empty() && !use.broken.empty()) broken_ = to_string(use);
    if (use.refused.empty()) return;
    if (lines_.size() < kMostRefusals)
      lines_.push_back("[network: " + to_string(use).substr(0, kLongestRefusal) + "]\n");
  }

  std::string take() {
    std::lock_guard lock(mutex_);
    return join(std::exchange(lines_, {}), "");
  }

  // What failed since it was asked last, though it was allowed; empty where nothing did.
  std::string take_broken() {
    std::lock_guard lock(mutex_);
    return std::exchange(broken_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::string broken_;
};

ServedSandbox::ServedSandbox(SpawnedSandbox spawned, const SandboxSpec& spec)
    : errors_(std::move(spawned.errors)),
      requests_(std::move(spawned)),
      spec_(spec),
      refusals_(std::make_shared<Refusals>()) {}

// First of all, so that what waits for something inside sees its end.
ServedSandbox::~ServedSandbox() { requests_.end("the sandbox was let go"); }

Status ServedSandbox::wait_until_ready() {
  const auto first = receive_frame(requests_.spawned().socket.get(), SystemClock().now() + from_seconds(kGrace));
  const auto errors = std::move(errors_);
  if (first && *first == "ready") return spec_.sealable ? take_own_trees() : Status();
  const auto why = first ? *first : written_to(errors);
  if (why.empty()) return first.error();
  return Status::unfit("no sandbox can be made here: " + why).hint("`tandem doctor` says what is missing");
}

Status ServedSandbox::take_own_trees() {
  auto received = TRY(receive_with_descriptors(requests_.spawned().socket.get()));
  if (received.size() == 2) own_ = {std::move(received[0]), std::move(received[1])};
  return {};
}

// The first process has sent the socket that its proxy is to listen at.
Status ServedSandbox::open_network(std::shared_ptr<NetworkProxy> proxy) {
  auto received = TRY(receive_with_descriptors(requests_.spawned().socket.get()));
  if (received.size() != 1) return Status::unavailable("a sandbox sent no socket for its proxy");
  const auto on_use = [refusals = refusals_, on_network = spec_.on_network](const NetworkUse& use) {
    refusals->add(use);
    if (on_network) on_network(use);
  };
  proxy_ = std::move(proxy);
  proxy_listener_ = proxy_->open(std::move(received[0]), spec_.network, on_use, spec_.packages);
  return {};
}

Status ServedSandbox::begin_with(const std::string& packed_tree) {
  std::string fields;
  put_text(fields, packed_tree);
  return worked(TRY(requests_.request(RequestKind::kBegin, fields, kCollectTime)),
                "the files of the image could not be put into the workspace");
}

Status ServedSandbox::put(const Files& files) {
  std::string fields;
  put_files(fields, files);
  const auto reply = requests_.request(RequestKind::kPut, fields, kCollectTime);
  if (!reply) return reply.error();
  return worked(*reply, "files could not be put into the sandbox");
}

Result<ToolOutcome> ServedSandbox::call(std::string_view name, const Json& arguments, const std::stop_token& stop) {
  if (stop.stop_requested()) return fail(Status::cancelled("the call was cancelled"));
  for (const auto& server : servers_) {
    for (const auto& tool : server->tools()) {
      if (tool.name == name) return call_foreign(*server, tool, arguments, stop);
    }
  }
  // The sandbox knows its own tools alone; those of servers are named here.
  if (!servers_.empty() && find_tool(name) == nullptr) {
    auto offered = spec_.tools.empty() ? tool_names() : spec_.tools;
    for (const auto& server : servers_) {
      for (const auto& tool : server->tools()) offered.push_back(tool.name);
    }
    const auto near = nearest(name, std::vector<std::string_view>(offered.begin(), offered.end()));
    return ToolOutcome::refused(
        "there is no tool \"" + make_printable(name) + "\"" +
        (near.empty() ? "; the tools are " + join(offered, ", ") : "; did you mean \"" + near + "\"?"));
  }
  std::string fields;
  put_text(fields, name);
  put_text(fields, dump_json(arguments));
  put_number(fields, spec_.output_limit);
  put_seconds(fields, spec_.call_time_limit_s);
  put_text(fields, join(spec_.tools, ","));
  if (fields.size() > kLargestFrame / 2) return ToolOutcome::refused("the arguments are too large");
  const auto reply = TRY(requests_.request(RequestKind::kCall, fields, spec_.call_time_limit_s + kGrace, stop));
  if (reply.empty()) {
    // The process that served the call was killed, by memory limits or by the command itself.
    return ToolOutcome::refused(std::string(kCallWasKilled));
  }
  // Whatever the model made of it: the episode is not to be judged by a registry that was away.
  if (auto broken = refusals_->take_broken(); !broken.empty()) return fail(Status::unavailable(std::move(broken)));
  auto outcome = outcome_from_json(TRY(parse_json(reply)));
  outcome.output += refusals_->take();
  return outcome;
}

Result<Collected> ServedSandbox::collect() {
  FileDescriptor manifest;
  if (spec_.base) {
    manifest = FileDescriptor(open(spec_.base->manifest().c_str(), O_RDONLY | O_CLOEXEC));
    if (!manifest) return fail(Status::from_errno(spec_.base->manifest().string(), errno));
  }
  const auto kind = spec_.base ? RequestKind::kCollectChanges : RequestKind::kCollect;
  const double seconds = kCollectTime + (spec_.base ? static_cast<double>(spec_.base->files) / kFilesPerSecond : 0);
  const auto reply = TRY(requests_.request(kind, "", seconds, {}, manifest.get()));
  auto collected = decode_collected(reply);
  if (collected) return collected;
  // What did it was killed before it had sent everything.
  return fail(Status::unavailable("the files of a sandbox could not be collected: " + collected.error().message()));
}

Result<Snapshot> ServedSandbox::snapshot() {
  const auto reply = requests_.request(RequestKind::kSnapshot, "", kCollectTime);
  if (!reply) return fail(reply.error());
  if (reply->empty()) return fail(Status::exhausted("a snapshot was killed, perhaps for using too much memory"));
  FieldReader fields(*reply);
  if (const auto why = TRY(fields.text()); !why.empty()) return fail(Status::exhausted(why));
  Snapshot snapshot;
  snapshot.workspace = TRY(fields.text());
  snapshot.temporary = TRY(fields.text());
  snapshot.session = TRY(fields.session());
  return snapshot;
}

Status ServedSandbox::restore(const Snapshot& snapshot) {
  std::string fields;
  put_text(fields, snapshot.workspace);
  put_text(fields, snapshot.temporary);
  put_session(fields, snapshot.session);
  const auto reply = requests_.request(RequestKind::kRestore, fields, kCollectTime);
  if (!reply) return reply.error();
  return worked(*reply, "a snapshot could not be restored");
}

Status ServedSandbox::can_be_sealed() const {
  if (!holder_ || !own_.workspace) return Status::unfit("the files of the sandbox cannot be shared");
  if (!servers_.empty()) return Status::unfit("the sandbox has servers of tools, which would be lost");
  if (spec_.begins_on.all.size() >= kMostLayers)
    return Status::unfit("the files of the sandbox are on too many layers");
  // What begins on them has the rest of the disk.
  if (bytes_in(own_) + spec_.begins_on.bytes() > spec_.disk_bytes / 2)
    return Status::unfit("the files of the sandbox take most of its disk");
  return {};
}

Result<Snapshot> ServedSandbox::seal() {
  TRY(can_be_sealed());
  const auto reply = TRY(requests_.request(RequestKind::kSeal, "", kCollectTime));
  FieldReader fields(reply);
  if (const auto why = TRY(fields.text()); !why.empty()) return fail(Status::unfit(why));
  Snapshot snapshot;
  snapshot.session = TRY(fields.session());
  requests_.end("the sandbox was sealed");
  if (written_) written_->is_in(std::move(own_));
  snapshot.layers.all = {written_ ? std::move(written_) : TRY(holder_->keep(std::move(own_)))};
  snapshot.layers.all.insert(snapshot.layers.all.end(), spec_.begins_on.all.begin(), spec_.begins_on.all.end());
  return snapshot;
}

Status ServedSandbox::ask_to(RequestKind kind) {
  return worked(TRY(requests_.request(kind, "", kCollectTime)), "a sandbox could not be stopped or go on");
}

Result<SourceChanges> ServedSandbox::source_changes(std::span<const KnownSource> known) {
  const auto reply = TRY(ask_about_sources(RequestKind::kSourceChanges, encode(known)));
  return decode_source_changes(reply);
}

Result<std::vector<std::string>> ServedSandbox::source_lines(std::span<const SourceLines> wanted) {
  const auto reply = TRY(ask_about_sources(RequestKind::kSourceLines, encode(wanted)));
  FieldReader fields(reply);
  std::vector<std::string> texts;
  for (size_t i = 0; i < wanted.size(); ++i) texts.push_back(TRY(fields.text()));
  return texts;
}

Status ServedSandbox::start_servers(std::span<const McpServerSpec> servers) {
  TRY(check_mcp_servers(servers));
  servers_.clear();
  for (const auto& server : servers) {
    auto begun = start_server(server);
    if (begun) {
      servers_.push_back(std::move(*begun));
      continue;
    }
    const ExecRequest tail{.argv = {"tail", "-c", "1000", server_log(server.name)}};
    const auto wrote = exec(tail, {});
    const auto words = wrote ? make_printable(wrote->output) : "";
    return Status(begun.error().code(), begun.error().message() + (trim(words).empty() ? "" : "; it wrote:\n" + words));
  }
  return {};
}

std::vector<ForeignTool> ServedSandbox::foreign_tools() const {
  std::vector<ForeignTool> tools;
  for (const auto& server : servers_) tools.insert(tools.end(), server->tools().begin(), server->tools().end());
  return tools;
}

void ServedSandbox::set_call_limits(const SandboxSpec& spec) {
  spec_.output_limit = spec.output_limit;
  spec_.call_time_limit_s = spec.call_time_limit_s;
  spec_.tools = spec.tools;
}

bool ServedSandbox::has_ended() const { return envs::has_ended(requests_.spawned().process); }

Result<ExecOutcome> ServedSandbox::exec(const ExecRequest& wanted, const std::stop_token& stop) {
  if (stop.stop_requested()) return fail(Status::cancelled("the exec was cancelled"));
  const auto fields = encode(wanted);
  if (fields.size() > kLargestExec) return fail(Status::invalid("the command is too long"));
  return decode_exec_answer(TRY(requests_.request(RequestKind::kExec, fields, wanted.seconds + kGrace, stop)));
}

Result<std::unique_ptr<McpClient>> ServedSandbox::start_server(const McpServerSpec& server) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail(Status::from_errno("socketpair", errno));
  FileDescriptor ours(ends[0]);
  FileDescriptor theirs(ends[1]);
  std::string fields;
  put_text(fields, server.name);
  put_text(fields, server.command);
  const auto reply = TRY(requests_.request(RequestKind::kStartServer, fields, kCollectTime, {}, theirs.get()));
  theirs.reset();  // so that the server's end is the end
  TRY(worked(reply, "the server " + server.name + " could not be started"));
  auto client = TRY(McpClient::begin(server.name, std::move(ours), SystemClock().now() + from_seconds(kServerTime)));
  for (const auto& tool : client->left_out())
    spdlog::warn("the server {}: its tool {}; it is left out", server.name, tool);
  return client;
}

// What a server does wrong is for the model to read; only a sandbox that is lost is an error.
Result<ToolOutcome> ServedSandbox::call_foreign(McpClient& server, const ForeignTool& tool, const Json& arguments,
                                                const std::stop_token& stop) {
  if (!arguments.is_object()) return ToolOutcome::refused("the arguments must be a JSON object");
  if (const auto wrong = check_by_schema(tool.parameters, arguments); !wrong.empty())
    return ToolOutcome::refused(make_printable(wrong));
  const SystemClock clock;
  const Time start = clock.now();
  const auto before = TRY(requests_.request(RequestKind::kFingerprint, "", kCollectTime));
  auto answer = server.call(tool, arguments, start + from_seconds(spec_.call_time_limit_s), stop);
  const auto after = TRY(requests_.request(RequestKind::kFingerprint, "", kCollectTime));
  if (!answer && answer.error().code() == Code::kCancelled) return fail(answer.error());
  auto outcome = answer ? std::move(*answer) : ToolOutcome::refused(answer.error().message());
  outcome.changed_files = before != after;
  outcome.output = bound_output(outcome.output, spec_.output_limit, outcome.truncated) + refusals_->take();
  outcome.seconds = to_seconds(clock.now() - start);
  return outcome;
}

Result<std::string> ServedSandbox::ask_about_sources(RequestKind kind, std::string_view question) {
  if (question.size() > kLargestFrame / 2) return fail(Status::exhausted("there are too many files to search"));
  const auto reply = TRY(requests_.request(kind, question, kCollectTime));
  if (reply.empty())
    return fail(Status::exhausted("looking at the files was killed, perhaps for using too much memory"));
  FieldReader fields(reply);
  if (const auto why = TRY(fields.text()); !why.empty()) return fail(Status::unavailable(why));
  return fields.text();
}

Result<FolderDifference> ServedSandbox::folder_difference(std::string_view begin, std::string_view meanwhile) {
  FolderDifference all;
  FolderPage page;
  uint64_t count = 0;
  for (;;) {
    page.entries = std::min<uint64_t>(kMostTreeEntries, kMostChanged - count);
    auto part = TRY(part_of_difference(begin, meanwhile, page));
    const size_t entries = part.other.size() + part.gone.size() + part.large.size();
    uint64_t bytes = 0;
    for (const auto& entry : part.other) bytes += entry.content.size();
    // Nothing that a sandbox says is trusted: it must come to an end.
    const bool goes_on = part.next.empty() || (entries > 0 && part.next > page.from);
    if (!goes_on || entries > page.entries)
      return fail(Status::corrupt("the sandbox does not tell its files in order"));
    count += entries;
    page.left -= std::min(page.left, bytes);
    std::ranges::move(part.other, std::back_inserter(all.other));
    std::ranges::move(part.gone, std::back_inserter(all.gone));
    std::ranges::move(part.large, std::back_inserter(all.large));
    if (part.next.empty()) return all;
    if (count >= kMostChanged) {
      all.next = std::move(part.next);
      all.rest = part.rest;
      return all;
    }
    page.from = std::move(part.next);
  }
}

Result<FolderDifference> ServedSandbox::part_of_difference(std::string_view begin, std::string_view meanwhile,
                                                           const FolderPage& page) {
  const FileDescriptor list(memfd_create("tandem-list", MFD_CLOEXEC));
  if (!list) return fail(Status::from_errno("memfd", errno));
  std::string head, question;
  put_number(head, begin.size());
  for (const auto part : {std::string_view(head), begin, meanwhile}) TRY(write_all(list.get(), part, "list of files"));
  if (lseek(list.get(), 0, SEEK_SET) != 0) return fail(Status::from_errno("list of files", errno));
  put_text(question, page.from);
  for (const uint64_t number : {page.entries, page.bytes, page.left}) put_number(question, number);
  constexpr double kBytesOfFile = 60;  // of the list, at least for one whose path is not short
  const double seconds = kCollectTime + static_cast<double>(begin.size()) / kBytesOfFile / kFilesPerSecond +
                         static_cast<double>(kMostChanged) / kFilesPerSecond;
  const auto reply = TRY(requests_.request(RequestKind::kFolderChanges, question, seconds, {}, list.get()));
  if (reply.empty())
    return fail(Status::exhausted("looking at the files was killed, perhaps for using too much memory"));
  FieldReader fields(reply);
  if (const auto why = TRY(fields.text()); !why.empty()) return fail(Status::exhausted(why));
  return decode_folder_difference(TRY(fields.text()));
}

SandboxUsage ServedSandbox::usage() const { return usage_of(requests_.spawned().process); }

}  // namespace tandem::envs
