#include "envs/sandbox/namespace_backend.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "base/text.h"
#include "envs/mcp/mcp_client.h"
#include "envs/mcp/schema_check.h"
#include "envs/network/proxy.h"
#include "envs/sandbox/descriptors.h"
#include "envs/sandbox/frames.h"
#include "envs/sandbox/init.h"
#include "envs/sandbox/look.h"
#include "envs/sandbox/process_handle.h"
#include "envs/sandbox/spawner.h"
#include "envs/sandbox/usage.h"
#include "envs/tools/output.h"

namespace tandem::envs {
namespace {

constexpr double kGrace = 15;  // seconds beyond the time limit of a call after which a sandbox counts as lost
constexpr double kCollectTime = 20;
constexpr int kMostAttempts = 3;                            // at making one, where what makes it is killed meanwhile
constexpr size_t kLargestLook = 128 << 10;                  // which the socket takes without anybody reading
constexpr size_t kMostRefusals = 4, kLongestRefusal = 400;  // of a call: lines, bytes of one
constexpr double kServerTime = 30;                          // in which a server of tools must have begun
constexpr double kCancelTime = 1;  // in which a cancellation can be sent, or the sandbox is not looking

// What programs were refused by the proxy, for the model to read with the outcome of the call: many show no more than
// that something failed.
class Refusals {
 public:
  void add(const NetworkUse& use) {
    if (use.refused.empty()) return;
    std::lock_guard lock(mutex_);
    if (lines_.size() < kMostRefusals)
      lines_.push_back("[network: " + to_string(use).substr(0, kLongestRefusal) + "]\n");
  }

  std::string take() {
    std::lock_guard lock(mutex_);
    return join(std::exchange(lines_, {}), "");
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

class NamespaceSandbox final : public Sandbox {
 public:
  NamespaceSandbox(SpawnedSandbox spawned, const SandboxSpec& spec) : spawned_(std::move(spawned)), spec_(spec) {}

  ~NamespaceSandbox() override { kill_all(); }

  Status wait_until_ready() {
    const auto first = TRY(receive_frame(spawned_.socket.get(), SystemClock().now() + from_seconds(kGrace)));
    if (first == "ready") return {};
    return Status::unfit("no sandbox can be made here: " + first).hint("`tandem doctor` says what is missing");
  }

  // The first process has sent the socket that its proxy is to listen at.
  Status open_network(std::shared_ptr<NetworkProxy> proxy) {
    pollfd wait = {spawned_.socket.get(), POLLIN, 0};
    if (poll(&wait, 1, static_cast<int>(kGrace * 1000)) <= 0)
      return Status::deadline("a sandbox did not say where its proxy is to listen");
    auto received = receive(spawned_.socket.get(), 1);
    if (received.descriptors.size() != 1) return Status::unavailable("a sandbox ended before its network was opened");
    const auto on_use = [refusals = refusals_, on_network = spec_.on_network](const NetworkUse& use) {
      refusals->add(use);
      if (on_network) on_network(use);
    };
    proxy_ = std::move(proxy);
    door_ = proxy_->open(std::move(received.descriptors[0]), spec_.network, on_use);
    return {};
  }

  Status put(const Files& files) override {
    std::string fields;
    put_files(fields, files);
    const auto reply = request(RequestKind::kPut, fields, kCollectTime);
    if (!reply) return reply.error();
    return worked(*reply, "files could not be put into the sandbox");
  }

  Result<ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) override {
    if (stop.stop_requested()) return fail(Status::cancelled("the call was cancelled"));
    for (const auto& server : servers_) {
      for (const auto& tool : server->tools()) {
        if (tool.name == name) return call_foreign(*server, tool, arguments, stop);
      }
    }
    std::string fields;
    put_text(fields, name);
    put_text(fields, dump_json(arguments));
    put_number(fields, spec_.output_limit);
    put_seconds(fields, spec_.call_time_limit_s);
    put_text(fields, join(spec_.tools, ","));
    if (fields.size() > kLargestFrame / 2) return ToolOutcome::refused("the arguments are too large");
    const auto reply = TRY(request(RequestKind::kCall, fields, spec_.call_time_limit_s + kGrace, stop));
    if (reply.empty()) {
      // The process that served the call was killed, by memory limits or by the command itself.
      return ToolOutcome::refused(std::string(kCallWasKilled));
    }
    auto outcome = outcome_from_json(TRY(parse_json(reply)));
    outcome.output += refusals_->take();
    return outcome;
  }

  Result<Collected> collect() override {
    const auto reply = TRY(request(RequestKind::kCollect, "", kCollectTime));
    auto collected = decode_collected(reply);
    if (collected) return collected;
    // What did it was killed before it had sent everything.
    return fail(Status::unavailable("the files of a sandbox could not be collected: " + collected.error().message()));
  }

  Result<Snapshot> snapshot() override {
    const auto reply = request(RequestKind::kSnapshot, "", kCollectTime);
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

  Status restore(const Snapshot& snapshot) override {
    std::string fields;
    put_text(fields, snapshot.workspace);
    put_text(fields, snapshot.temporary);
    put_session(fields, snapshot.session);
    const auto reply = request(RequestKind::kRestore, fields, kCollectTime);
    if (!reply) return reply.error();
    return worked(*reply, "a snapshot could not be restored");
  }

  Result<SourceChanges> source_changes(std::span<const KnownSource> known) override {
    const auto reply = TRY(ask_about_sources(RequestKind::kSourceChanges, encode(known)));
    return decode_source_changes(reply);
  }

  Result<std::vector<std::string>> source_lines(std::span<const SourceLines> wanted) override {
    const auto reply = TRY(ask_about_sources(RequestKind::kSourceLines, encode(wanted)));
    FieldReader fields(reply);
    std::vector<std::string> texts;
    for (size_t i = 0; i < wanted.size(); ++i) texts.push_back(TRY(fields.text()));
    return texts;
  }

  Status start_servers(std::span<const McpServerSpec> servers) override {
    TRY(check_mcp_servers(servers));
    servers_.clear();
    for (const auto& server : servers) {
      auto begun = start_server(server);
      if (begun) {
        servers_.push_back(std::move(*begun));
        continue;
      }
      const LookRequest tail{.argv = {"tail", "-c", "1000", server_log(server.name)}};
      const auto wrote = look(tail, {});
      const auto words = wrote ? make_printable(wrote->output) : "";
      return Status(begun.error().code(),
                    begun.error().message() + (trim(words).empty() ? "" : "; it wrote:\n" + words));
    }
    return {};
  }

  std::vector<ForeignTool> foreign_tools() const override {
    std::vector<ForeignTool> tools;
    for (const auto& server : servers_) tools.insert(tools.end(), server->tools().begin(), server->tools().end());
    return tools;
  }

  void set_call_limits(const SandboxSpec& spec) override {
    spec_.output_limit = spec.output_limit;
    spec_.call_time_limit_s = spec.call_time_limit_s;
    spec_.tools = spec.tools;
  }

  bool has_ended() const override { return envs::has_ended(spawned_.process); }

  Result<LookOutcome> look(const LookRequest& wanted, const std::stop_token& stop) override {
    if (stop.stop_requested()) return fail(Status::cancelled("the look was cancelled"));
    const auto fields = encode(wanted);
    if (fields.size() > kLargestLook) return fail(Status::invalid("the command is too long"));
    return decode_looked(TRY(request(RequestKind::kLook, fields, wanted.seconds + kGrace, stop)));
  }

  // Without the lock: whoever holds it may be waiting for this sandbox.
  void end(std::string_view why) override {
    {
      std::lock_guard lock(why_mutex_);
      if (why_ended_.empty()) why_ended_ = why;
    }
    kill_all();
  }

  SandboxUsage usage() const override { return usage_of(spawned_.process); }

 private:
  Result<std::unique_ptr<McpClient>> start_server(const McpServerSpec& server) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      return fail(Status::from_errno("socketpair", errno));
    FileDescriptor ours(ends[0]);
    FileDescriptor theirs(ends[1]);
    std::string fields;
    put_text(fields, server.name);
    put_text(fields, server.command);
    const auto reply = TRY(request(RequestKind::kStartServer, fields, kCollectTime, {}, theirs.get()));
    theirs.reset();  // so that the server's end is the end
    TRY(worked(reply, "the server " + server.name + " could not be started"));
    return McpClient::begin(server.name, std::move(ours), SystemClock().now() + from_seconds(kServerTime));
  }

  // What a server does wrong is for the model to read; only a sandbox that is lost is an error.
  Result<ToolOutcome> call_foreign(McpClient& server, const ForeignTool& tool, const Json& arguments,
                                   const std::stop_token& stop) {
    if (!arguments.is_object()) return ToolOutcome::refused("the arguments must be a JSON object");
    if (const auto wrong = check_by_schema(tool.parameters, arguments); !wrong.empty())
      return ToolOutcome::refused(make_printable(wrong));
    const SystemClock clock;
    const Time start = clock.now();
    const auto before = TRY(request(RequestKind::kFingerprint, "", kCollectTime));
    auto answer = server.call(tool, arguments, start + from_seconds(spec_.call_time_limit_s), stop);
    const auto after = TRY(request(RequestKind::kFingerprint, "", kCollectTime));
    if (!answer && answer.error().code() == Code::kCancelled) return fail(answer.error());
    auto outcome = answer ? std::move(*answer) : ToolOutcome::refused(answer.error().message());
    outcome.changed_files = before != after;
    outcome.output = bound_output(outcome.output, spec_.output_limit, outcome.truncated) + refusals_->take();
    outcome.seconds = to_seconds(clock.now() - start);
    return outcome;
  }

  Result<std::string> ask_about_sources(RequestKind kind, std::string_view question) {
    if (question.size() > kLargestFrame / 2) return fail(Status::exhausted("there are too many files to search"));
    const auto reply = TRY(request(kind, question, kCollectTime));
    if (reply.empty())
      return fail(Status::exhausted("looking at the files was killed, perhaps for using too much memory"));
    FieldReader fields(reply);
    if (const auto why = TRY(fields.text()); !why.empty()) return fail(Status::unavailable(why));
    return fields.text();
  }

  static Result<Collected> decode_collected(std::string_view reply) {
    if (reply.empty()) return fail(Status::unavailable("the process that did it was killed"));
    FieldReader fields(reply);
    Collected collected;
    collected.complete = TRY(fields.number()) == 1;
    collected.files = TRY(fields.files());
    for (uint64_t left = TRY(fields.number()); left > 0; --left) collected.programs.insert(TRY(fields.text()));
    return collected;
  }

  static Status worked(const std::string& reply, const std::string& what) {
    if (reply == kWorked) return {};
    return Status::unavailable(what + ": " + (reply.empty() ? "the process that did it was killed" : reply));
  }

  // Sends one request and waits for its reply. Of all threads that wait, one reads and hands out what comes.
  // `descriptor`, where there is one, goes right behind the request.
  Result<std::string> request(RequestKind kind, std::string_view fields, double seconds,
                              const std::stop_token& stop = {}, int descriptor = -1) {
    const Time deadline = SystemClock().now() + from_seconds(seconds);
    uint64_t id = 0;
    const auto cancel = [&] {
      std::lock_guard lock(mutex_);
      if (lost_) send(id, RequestKind::kCancel, "", SystemClock().now() + from_seconds(kCancelTime));
    };
    // Set up and taken down without the lock, which its own thread or another may need to run it.
    std::optional<std::stop_callback<decltype(cancel)>> on_stop;
    std::unique_lock lock(mutex_);
    if (!lost_) return fail(lost_);
    id = next_id_++;
    send(id, kind, fields, deadline);
    if (descriptor >= 0 && lost_) {
      if (auto status = send_descriptors(spawned_.socket.get(), "d", {descriptor}); !status) (void)lose(status).ok();
    }
    lock.unlock();
    on_stop.emplace(stop, cancel);
    lock.lock();
    for (;;) {
      if (auto reply = replies_.extract(id)) return std::move(reply.mapped());
      if (!lost_) return fail(lost_);
      if (reading_) {
        changed_.wait_until(lock, deadline);
        if (SystemClock().now() < deadline) continue;
        return fail(lose(Status::deadline("the sandbox did not answer in time")));
      }
      reading_ = true;
      lock.unlock();
      auto received = receive_frame(spawned_.socket.get(), deadline);
      lock.lock();
      reading_ = false;
      changed_.notify_all();
      if (!received) return fail(lose(std::move(received).error()));
      FieldReader reader(*received);
      const uint64_t of = TRY(reader.number());
      replies_[of] = received->substr(sizeof of);
    }
  }

  // With the lock held. The sandbox is lost where that cannot be done.
  void send(uint64_t id, RequestKind kind, std::string_view fields, Time deadline) {
    std::string frame;
    put_number(frame, id);
    put_number(frame, static_cast<uint64_t>(kind));
    frame.append(fields);
    if (auto status = send_frame(spawned_.socket.get(), frame, deadline); !status) (void)lose(std::move(status)).ok();
  }

  // Every later call fails in the same way.
  Status lose(Status why) {
    if (lost_) {
      std::lock_guard lock(why_mutex_);
      lost_ = why_ended_.empty() ? std::move(why) : Status::unavailable(why_ended_);
    }
    kill_all();
    changed_.notify_all();
    return lost_;
  }

  void kill_all() {
    if (spawned_.process) syscall(SYS_pidfd_send_signal, spawned_.process.get(), SIGKILL, nullptr, 0);
  }

  SpawnedSandbox spawned_;
  SandboxSpec spec_;
  const std::shared_ptr<Refusals> refusals_ = std::make_shared<Refusals>();
  std::shared_ptr<NetworkProxy> proxy_;
  std::unique_ptr<NetworkProxy::Door> door_;
  std::vector<std::unique_ptr<McpClient>> servers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Status lost_;
  uint64_t next_id_ = 1;
  bool reading_ = false;
  std::map<uint64_t, std::string> replies_;
  std::mutex why_mutex_;   // held for nothing that waits
  std::string why_ended_;  // what end() was told
};

}  // namespace

NamespaceBackend::NamespaceBackend(std::shared_ptr<Spawner> spawner, std::string label)
    : label_(std::move(label)), spawner_(std::move(spawner)) {}
NamespaceBackend::~NamespaceBackend() = default;

Result<std::unique_ptr<NamespaceBackend>> NamespaceBackend::start(std::string label) {
  std::shared_ptr<Spawner> spawner = TRY(Spawner::start(label));
  return std::unique_ptr<NamespaceBackend>(new NamespaceBackend(std::move(spawner), std::move(label)));
}

Result<std::shared_ptr<Spawner>> NamespaceBackend::live_spawner() {
  std::lock_guard lock(mutex_);
  if (!spawner_->lost()) return spawner_;
  if (!restarts_.take(SystemClock().now())) {
    return fail(Status::unavailable("the sandbox spawner was killed again and again; it was started " +
                                    std::to_string(RestartBudget::kMost) + " times within " +
                                    std::to_string(RestartBudget::kWindow.count()) + " s")
                    .hint("`dmesg` may say what ends it, for example too little memory"));
  }
  spawner_ = TRY(Spawner::start(label_));
  ++spawners_started_;
  return spawner_;
}

std::shared_ptr<NetworkProxy> NamespaceBackend::proxy() {
  std::lock_guard lock(mutex_);
  if (!proxy_) proxy_ = std::make_shared<NetworkProxy>();
  return proxy_;
}

Result<std::unique_ptr<Sandbox>> NamespaceBackend::create(const SandboxSpec& spec) {
  for (int attempt = 1;; ++attempt) {
    const auto spawner = TRY(live_spawner());
    auto spawned = spawner->spawn(spec);
    if (!spawned) {
      if (spawner->lost() && attempt < kMostAttempts) continue;
      return fail(std::move(spawned).error());
    }
    auto sandbox = std::make_unique<NamespaceSandbox>(std::move(*spawned), spec);
    Status ready = sandbox->wait_until_ready();
    if (ready && !spec.network.empty()) ready = sandbox->open_network(proxy());
    if (ready) return sandbox;
    // Whoever killed its first process has not said that there can be none.
    if (ready.code() != Code::kUnavailable || attempt == kMostAttempts) return fail(std::move(ready));
  }
}

}  // namespace tandem::envs
