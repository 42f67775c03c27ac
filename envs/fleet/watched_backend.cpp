#include "envs/fleet/watched_backend.h"

#include <fmt/format.h>

#include <atomic>
#include <map>
#include <mutex>

#include "envs/sandbox/capabilities.h"

namespace tandem::envs {

struct WatchedBackend::State {
  State(const Clock& clock_of_all, uint64_t life)
      : clock(clock_of_all), fleet(life, {clock_of_all.now(), clock_of_all.unix_seconds()}) {}

  Moment moment() const { return {clock.now(), clock.unix_seconds()}; }

  // null where it has ended.
  std::shared_ptr<Sandbox> sandbox_of(uint64_t number) {
    std::lock_guard lock(mutex);
    const auto found = sandboxes.find(number);
    return found == sandboxes.end() ? nullptr : found->second.lock();
  }

  const Clock& clock;
  std::mutex mutex;  // of what follows; never held while a sandbox is asked
  Fleet fleet;
  std::map<uint64_t, std::weak_ptr<Sandbox>> sandboxes;
};

namespace {

using State = WatchedBackend::State;

std::optional<EndReason> why_ended(const ToolOutcome& outcome) {
  if (!outcome.ok && outcome.output.find(kCallWasKilled) != std::string::npos) return EndReason::kMemory;
  if (outcome.exit_code == 124 && outcome.output.find("[ended after the time limit of ") != std::string::npos)
    return EndReason::kTimeLimit;
  return std::nullopt;
}

class WatchedSandbox final : public Sandbox,
                             private Snapshots,
                             private Freezer,
                             private ToolServers,
                             private SourceView {
 public:
  WatchedSandbox(std::shared_ptr<State> state, std::shared_ptr<Sandbox> inner, uint64_t number)
      : state_(std::move(state)), inner_(std::move(inner)), number_(number) {}
  // Whoever looks in just now lets go of it soon; the sandbox itself is over with this.
  ~WatchedSandbox() override {
    const bool was_lost = !sealed_ && inner_->has_ended();
    if (inner_.use_count() > 1) inner_->end("the sandbox was let go");
    inner_.reset();
    std::lock_guard lock(state_->mutex);
    if (was_lost) state_->fleet.ending(number_, EndReason::kLost, state_->moment());
    state_->sandboxes.erase(number_);
    state_->fleet.ended(number_, state_->moment());
  }

  Result<ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) override {
    const Time began = state_->clock.now();
    {
      std::lock_guard lock(state_->mutex);
      state_->fleet.call_began(number_, name, state_->moment());
    }
    auto outcome = inner_->call(name, arguments, stop);
    std::lock_guard lock(state_->mutex);
    const Moment at = state_->moment();
    Fleet::CallEnd end{.tool = name, .took = at.now - began, .ended_by = std::nullopt};
    if (outcome) {
      end.exit_code = outcome->exit_code;
      end.ended_by = why_ended(*outcome);
    } else {
      end.exit_code = -1;
    }
    state_->fleet.call_ended(number_, end, at);
    // The socket closes a moment before the first process counts as ended.
    if (!outcome && outcome.error().code() != Code::kCancelled) {
      const bool is_late = outcome.error().code() == Code::kDeadline;
      state_->fleet.ending(number_, is_late ? EndReason::kDeadline : EndReason::kLost, at);
    }
    return outcome;
  }

  Status put(const Files& files) override { return seen(inner_->put(files)); }
  Result<Collected> collect() override { return seen(inner_->collect()); }
  // A pool says by this whom a sandbox goes to that was kept ready.
  void set_call_limits(const SandboxSpec& spec) override {
    inner_->set_call_limits(spec);
    std::lock_guard lock(state_->mutex);
    state_->fleet.leased(number_, spec.holder, state_->moment());
  }
  bool has_ended() const override { return inner_->has_ended(); }
  void end(std::string_view why) override { inner_->end(why); }

  Snapshots* snapshots() override { return inner_->snapshots() ? this : nullptr; }
  Freezer* freezer() override { return inner_->freezer() ? this : nullptr; }
  ToolServers* tool_servers() override { return inner_->tool_servers() ? this : nullptr; }
  SourceView* sources() override { return inner_->sources() ? this : nullptr; }
  Inspector* inspector() override { return inner_->inspector(); }

 private:
  Result<Snapshot> snapshot() override { return seen(inner_->snapshots()->snapshot()); }
  Status restore(const Snapshot& snapshot) override { return seen(inner_->snapshots()->restore(snapshot)); }
  Result<Snapshot> seal() override {
    auto sealed = seen(inner_->snapshots()->seal());
    sealed_ = sealed.has_value();
    return sealed;
  }
  Status freeze() override { return seen(inner_->freezer()->freeze()); }
  Status thaw() override { return seen(inner_->freezer()->thaw()); }
  Status start_servers(std::span<const McpServerSpec> servers) override {
    return seen(inner_->tool_servers()->start_servers(servers));
  }
  std::vector<ForeignTool> foreign_tools() const override { return inner_->tool_servers()->foreign_tools(); }
  Result<SourceChanges> source_changes(std::span<const KnownSource> known) override {
    return seen(inner_->sources()->source_changes(known));
  }
  Result<std::vector<std::string>> source_lines(std::span<const SourceLines> wanted) override {
    return seen(inner_->sources()->source_lines(wanted));
  }

  // Other errors than these leave the sandbox as it was.
  template <typename T>
  T seen(T outcome) {
    if (outcome) return outcome;
    const bool is_late = outcome.error().code() == Code::kDeadline;
    if (!is_late && !inner_->has_ended()) return outcome;
    std::lock_guard lock(state_->mutex);
    state_->fleet.ending(number_, is_late ? EndReason::kDeadline : EndReason::kLost, state_->moment());
    return outcome;
  }

  std::shared_ptr<State> state_;
  std::shared_ptr<Sandbox> inner_;
  const uint64_t number_;
  bool sealed_ = false;  // it has ended as it was to
};

}  // namespace

WatchedBackend::WatchedBackend(SandboxBackend& backend, const Clock& clock, uint64_t life)
    : backend_(backend), state_(std::make_shared<State>(clock, life)) {}
WatchedBackend::~WatchedBackend() = default;

Result<std::unique_ptr<Sandbox>> WatchedBackend::create(const SandboxSpec& spec) {
  const Time began = state_->clock.now();
  SandboxSpec watched = spec;
  // Nothing runs in a sandbox before it has its number here.
  const auto number_of = std::make_shared<std::atomic<uint64_t>>(0);
  watched.on_network = [state = state_, number_of, on_network = spec.on_network](const NetworkUse& use) {
    if (on_network) on_network(use);
    std::lock_guard lock(state->mutex);
    state->fleet.used_network(*number_of, use, state->moment());
  };
  auto made = backend_.create(watched);
  std::lock_guard lock(state_->mutex);
  const Moment at = state_->moment();
  if (!made) {
    state_->fleet.not_made(made.error().message(), at);
    return made;
  }
  std::shared_ptr<Sandbox> inner = std::move(*made);
  const uint64_t number = state_->fleet.made(spec, at.now - began, at);
  state_->sandboxes[number] = inner;
  *number_of = number;
  return std::make_unique<WatchedSandbox>(state_, std::move(inner), number);
}

std::vector<SandboxRow> WatchedBackend::rows(uint64_t after, size_t most) const {
  std::vector<SandboxRow> rows;
  {
    std::lock_guard lock(state_->mutex);
    rows = state_->fleet.rows(after, most, state_->clock.now());
  }
  for (auto& row : rows) {
    if (const auto sandbox = state_->sandbox_of(row.number)) row.usage = usage_of(*sandbox);
  }
  return rows;
}

size_t WatchedBackend::size() const {
  std::lock_guard lock(state_->mutex);
  return state_->fleet.size();
}

Result<Fleet::Events> WatchedBackend::events(uint64_t after, std::string_view sandbox, size_t most) const {
  std::lock_guard lock(state_->mutex);
  if (!sandbox.empty()) TRY(state_->fleet.check_known(sandbox, state_->clock.now()));
  return state_->fleet.events(after, sandbox, most);
}

Result<Fleet::Events> WatchedBackend::last_events(size_t last, std::string_view sandbox) const {
  std::lock_guard lock(state_->mutex);
  if (!sandbox.empty()) TRY(state_->fleet.check_known(sandbox, state_->clock.now()));
  auto found = state_->fleet.events(state_->fleet.before_last(last, sandbox), sandbox, last);
  found.lost = 0;  // whoever asks for the last ones misses none
  return found;
}

FleetFigures WatchedBackend::figures() const {
  std::lock_guard lock(state_->mutex);
  return state_->fleet.figures(state_->clock.now());
}

Result<ExecOutcome> WatchedBackend::exec(std::string_view id, const ExecRequest& request, const std::stop_token& stop) {
  SandboxRow row;
  std::shared_ptr<Sandbox> sandbox;
  {
    std::lock_guard lock(state_->mutex);
    row = TRY(state_->fleet.find(id, state_->clock.now()));
    const auto found = state_->sandboxes.find(row.number);
    if (found != state_->sandboxes.end()) sandbox = found->second.lock();
  }
  // One that was killed counts as draining before its first process counts as ended.
  if (!sandbox || row.state == SandboxState::kDraining || sandbox->has_ended())
    return fail(Status::not_found(fmt::format("sandbox {} has ended", id)));
  const Time began = state_->clock.now();
  auto outcome = exec_in(*sandbox, request, stop);
  sandbox.reset();
  std::lock_guard lock(state_->mutex);
  const Moment at = state_->moment();
  state_->fleet.executed(row.number, request.argv.at(0), at.now - began, outcome ? outcome->exit_code : -1, at);
  return outcome;
}

Result<SandboxRow> WatchedBackend::kill(std::string_view id) {
  std::shared_ptr<Sandbox> sandbox;
  SandboxRow row;
  {
    std::lock_guard lock(state_->mutex);
    row = TRY(state_->fleet.find(id, state_->clock.now()));
    const auto found = state_->sandboxes.find(row.number);
    if (found != state_->sandboxes.end()) sandbox = found->second.lock();
    if (sandbox) state_->fleet.ending(row.number, EndReason::kOperator, state_->moment());
  }
  if (!sandbox) return fail(Status::not_found(fmt::format("sandbox {} has ended", id)));
  sandbox->end("an operator ended the sandbox");
  return row;
}

void WatchedBackend::lease_ending(uint64_t lease, EndReason reason) {
  std::lock_guard lock(state_->mutex);
  state_->fleet.lease_ending(lease, reason);
}

}  // namespace tandem::envs
