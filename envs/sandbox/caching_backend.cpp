#include "envs/sandbox/caching_backend.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/clock.h"
#include "base/text.h"
#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/fields.h"
#include "envs/sandbox/forwarding_sandbox.h"
#include "envs/sandbox/repeatable_lints.h"
#include "envs/tools/project_linters.h"

namespace tandem::envs {
namespace {

// Functions of the files and their arguments alone. A time limit, or a limit of processes or memory, ends in a refusal,
// which is never kept.
constexpr std::string_view kReaders[] = {"read_file", "grep", "list_dir"};
// What they leave follows from the files, their arguments and what they answered.
constexpr std::string_view kWriters[] = {"write", "search_replace", "delete_file", "apply_patch", "edit_file"};

// Leave the files as they are.
constexpr std::string_view kOthers[] = {"glob_file_search", "todo_write"};
constexpr std::string_view kLints = "read_lints";

bool is_in(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string packed(const Files& files) {
  std::string bytes;
  put_files(bytes, files);
  return bytes;
}

class CachingSandbox final : public ForwardingSandbox, private Snapshots, private ToolServers, private Inspector {
 public:
  CachingSandbox(std::unique_ptr<Sandbox> inner, ReadCache& cache, const SandboxSpec& spec)
      : ForwardingSandbox(std::move(inner)), cache_(cache) {
    const auto& on = spec.begins_on;
    if (!spec.workspace && !spec.below && !spec.image && (on.empty() || !on.content.empty()))
      known_ = content_digest({on.empty() ? spec.base ? "base" : "empty" : "on layers",
                               on.empty() && spec.base ? spec.base->digest : on.content, packed(spec.links),
                               std::to_string(spec.file_bytes), std::to_string(spec.disk_bytes)});
    // What is in a base or in layers is not looked at.
    may_name_linters_ = !on.empty() || spec.base.has_value();
    outside_ = content_digest({packed(spec.home), join(spec.environment, "\n")});
    set_words(spec);
  }

  Result<ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) override {
    if (is_in(kOthers, name)) return inner_->call(name, arguments, stop);
    if (name == kLints && asks_for_repeatable_lints(arguments)) return lint(arguments, stop);
    return is_in(kReaders, name) ? read(name, arguments, stop) : change(name, arguments, stop);
  }

  Status put(const Files& files) override {
    if (files.contains(kProjectLinters)) may_name_linters_ = true;
    const Step step = begin_change();
    const Status status = inner_->put(files);
    if (status && step.before) end_change(step, content_digest({bytes_of(*step.before), "put", packed(files)}));
    return status;
  }

  void set_call_limits(const SandboxSpec& spec) override {
    inner_->set_call_limits(spec);
    std::lock_guard lock(mutex_);
    set_words(spec);
  }

  void end(std::string_view why) override {
    begin_change();  // no call has an answer from now on
    inner_->end(why);
  }

  Snapshots* snapshots() override { return inner_->snapshots() ? this : nullptr; }
  ToolServers* tool_servers() override { return inner_->tool_servers() ? this : nullptr; }
  Inspector* inspector() override { return inner_->inspector() ? this : nullptr; }

 private:
  Result<Snapshot> snapshot() override { return inner_->snapshots()->snapshot(); }
  // What is on layers has the files already.
  Status restore(const Snapshot& snapshot) override {
    if (snapshot.layers.empty()) begin_change();
    return inner_->snapshots()->restore(snapshot);
  }
  Result<Snapshot> seal() override {
    const Step step = begin_change();
    auto sealed = inner_->snapshots()->seal();
    if (sealed && step.before) sealed->layers.content = bytes_of(*step.before);
    if (!sealed && step.before) end_change(step, *step.before);
    return sealed;
  }
  Status start_servers(std::span<const McpServerSpec> servers) override {
    if (!servers.empty()) begin_change();
    return inner_->tool_servers()->start_servers(servers);
  }
  std::vector<ForeignTool> foreign_tools() const override { return inner_->tool_servers()->foreign_tools(); }
  Result<ExecOutcome> exec(const ExecRequest& request, const std::stop_token& stop) override {
    begin_change();
    return inner_->inspector()->exec(request, stop);
  }
  SandboxUsage usage() const override { return inner_->inspector()->usage(); }

  // A change that has begun: from what, where that was known, and the how-manieth it is.
  struct Step {
    std::optional<ContentDigest> before;
    uint64_t number = 0;
  };

  Step begin_change() {
    std::lock_guard lock(mutex_);
    return {std::exchange(known_, std::nullopt), ++changes_};
  }
  // Several that ran at once end in an unknown state.
  bool end_change(const Step& step, const ContentDigest& after) {
    std::lock_guard lock(mutex_);
    if (changes_ == step.number) known_ = after;
    return changes_ == step.number;
  }

  Result<ToolOutcome> read(std::string_view name, const Json& arguments, const std::stop_token& stop) {
    std::optional<ContentDigest> key;
    uint64_t number = 0;
    {
      std::lock_guard lock(mutex_);
      if (known_) key = content_digest({bytes_of(*known_), words_, name, dump_json(arguments)});
      number = changes_;
    }
    if (!key || stop.stop_requested() || inner_->has_ended()) return inner_->call(name, arguments, stop);
    const SystemClock clock;
    const Time start = clock.now();
    if (auto kept = cache_.find(*key)) {
      kept->seconds = to_seconds(clock.now() - start);
      kept->core_seconds = 0;
      return std::move(*kept);
    }
    auto outcome = inner_->call(name, arguments, stop);
    std::lock_guard lock(mutex_);
    const bool unchanged = known_ && changes_ == number;
    if (outcome && outcome->ok && unchanged && !stop.stop_requested()) cache_.keep(*key, *outcome);
    return outcome;
  }

  // As a reader, where its linters are functions of the files; else it may have done anything.
  Result<ToolOutcome> lint(const Json& arguments, const std::stop_token& stop) {
    std::optional<ContentDigest> key;
    {
      std::lock_guard lock(mutex_);
      if (known_ && !may_name_linters_)
        key = content_digest(
            {bytes_of(*known_), words_, bytes_of(outside_), installed_linters(), kLints, dump_json(arguments)});
    }
    if (!key || stop.stop_requested() || inner_->has_ended()) return change(kLints, arguments, stop);
    const SystemClock clock;
    const Time start = clock.now();
    if (auto kept = cache_.find(*key)) {
      kept->seconds = to_seconds(clock.now() - start);
      kept->core_seconds = 0;
      return std::move(*kept);
    }
    const Step step = begin_change();
    auto outcome = inner_->call(kLints, arguments, stop);
    if (outcome && outcome->ok && !outcome->truncated && !stop.stop_requested() && step.before &&
        is_repeatable_report(outcome->output)) {
      if (end_change(step, *step.before)) cache_.keep(*key, *outcome);
    }
    return outcome;
  }

  Result<ToolOutcome> change(std::string_view name, const Json& arguments, const std::stop_token& stop) {
    const Step step = begin_change();
    if (dump_json(arguments).find(kProjectLinters) != std::string::npos) may_name_linters_ = true;
    auto outcome = inner_->call(name, arguments, stop);
    const bool ended_by_itself =
        outcome && outcome->output.find(kCallWasKilled) == std::string::npos && !stop.stop_requested();
    if (step.before && ended_by_itself && is_in(kWriters, name)) {
      end_change(step, content_digest({bytes_of(*step.before), words_of(outcome->output), name, dump_json(arguments),
                                       outcome->ok ? "1" : "0"}));
    }
    return outcome;
  }

  // The limits decide what a call answers, and which tools there are whether it is one.
  std::string words_of(std::string_view output) {
    std::lock_guard lock(mutex_);
    return words_ + std::string(output);
  }
  void set_words(const SandboxSpec& spec) {
    words_ = std::to_string(spec.output_limit) + "," + join(spec.tools, ",") + ";";
  }

  ReadCache& cache_;
  std::mutex mutex_;
  std::optional<ContentDigest> known_;         // which files there are; nothing: that is not known
  uint64_t changes_ = 0;                       // that have begun
  std::atomic<bool> may_name_linters_{false};  // whether the files may name linters of their own
  ContentDigest outside_ = {};                 // what linters read beside the files: the home folder, variables
  std::string words_;
};

}  // namespace

Result<std::unique_ptr<Sandbox>> CachingBackend::create(const SandboxSpec& spec) {
  return std::make_unique<CachingSandbox>(TRY(backend_.create(spec)), cache_, spec);
}

}  // namespace tandem::envs
