#include "envs/mcp_server/mcp_peer.h"

namespace tandem::envs {

// The sandbox of a client, made when it is needed. Used from several threads.
class McpPeer::Workplace {
 public:
  Workplace(SandboxBackend& backend, const SandboxSpec& spec) : backend_(backend), spec_(spec) {}

  Result<ToolOutcome> call(const McpCallStart& call, const std::stop_token& stop) {
    const auto sandbox = TRY(present());
    auto outcome = sandbox->call(call.tool, call.arguments, stop);
    if (!outcome && outcome.error().code() != Code::kCancelled) {
      std::lock_guard lock(mutex_);
      if (sandbox_ == sandbox) sandbox_.reset();
      outcome = fail(Status(outcome.error().code(), outcome.error().message() +
                                                        "; the next call begins in a new sandbox, with the files as "
                                                        "they are and a new shell"));
    }
    return outcome;
  }

 private:
  Result<std::shared_ptr<Sandbox>> present() {
    std::lock_guard lock(mutex_);
    if (!sandbox_) sandbox_ = TRY(backend_.create(spec_));
    return sandbox_;
  }

  SandboxBackend& backend_;
  const SandboxSpec spec_;
  std::mutex mutex_;
  std::shared_ptr<Sandbox> sandbox_;
};

std::shared_ptr<McpPeer> McpPeer::create(const McpServing& serving, WorkQueue& queue, OnReply on_reply) {
  return std::shared_ptr<McpPeer>(new McpPeer(serving, queue, std::move(on_reply)));
}

McpPeer::McpPeer(const McpServing& serving, WorkQueue& queue, OnReply on_reply)
    : session_(serving.version, serving.spec.tools, serving.spec.network.entries()),
      queue_(queue),
      on_reply_(std::move(on_reply)),
      workplace_(std::make_shared<Workplace>(*serving.backend, serving.spec)) {}

McpPeer::~McpPeer() {
  for (auto& [number, stop] : calls_) stop.request_stop();
}

void McpPeer::receive(uint64_t exchange, std::string_view frame) { carry_out(session_.step(exchange, frame)); }

void McpPeer::carry_out(std::vector<McpAction> actions) {
  for (auto& action : actions) {
    if (auto* reply = std::get_if<McpReply>(&action)) on_reply_(std::move(*reply));
    if (auto* begun = std::get_if<McpCallStart>(&action)) start(std::move(*begun));
    if (const auto* ended = std::get_if<McpCallStop>(&action)) calls_.at(ended->call).request_stop();
  }
}

void McpPeer::start(McpCallStart start) {
  const uint64_t number = start.call;
  const auto stop = calls_[number].get_token();
  const auto finish = [weak = weak_from_this(), number](const Result<ToolOutcome>& outcome) {
    const auto self = weak.lock();
    if (!self) return;
    self->calls_.erase(number);
    self->carry_out(self->session_.finished(number, outcome));
  };
  const auto run = [workplace = workplace_, start = std::move(start), stop, finish]() -> WorkQueue::Completion {
    return [finish, outcome = workplace->call(start, stop)] { finish(outcome); };
  };
  if (!queue_.submit(run)) finish(fail(Status::exhausted("too many calls wait; send this one again in a while")));
}

}  // namespace tandem::envs
