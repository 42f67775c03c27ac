#include "envs/episode.h"

#include <algorithm>
#include <future>

namespace tandem::envs {
namespace {

bool only_reads(std::string_view name) {
  const Tool* tool = find_tool(name);
  return tool && tool->effect == ToolEffect::kReads;
}

SandboxSpec spec_of(const EpisodeOptions& options) {
  SandboxSpec spec;
  spec.output_limit = options.output_limit;
  spec.call_time_limit_s = options.call_time_limit_s;
  spec.tools = prompted_tools();
  return spec;
}

}  // namespace

Episode::Episode(Task task, SandboxBackend& backend, const EpisodeOptions& options, std::unique_ptr<Sandbox> sandbox)
    : task_(std::move(task)), backend_(backend), options_(options), sandbox_(std::move(sandbox)) {}

Result<std::unique_ptr<Episode>> Episode::open(Task task, SandboxBackend& backend, const EpisodeOptions& options) {
  auto sandbox = TRY(backend.create(spec_of(options)));
  TRY(sandbox->put(task.files));
  return std::unique_ptr<Episode>(new Episode(std::move(task), backend, options, std::move(sandbox)));
}

Result<ToolOutcome> Episode::call(std::string_view name, const Json& arguments) {
  if (!sandbox_) return fail(Status::unavailable("the episode has been scored; its sandbox is gone"));
  ++tool_calls_;
  auto outcome = TRY(sandbox_->call(name, arguments));
  changed_ = changed_ || outcome.changed_files;
  return outcome;
}

Result<std::vector<ToolOutcome>> Episode::turn(std::span<const ParsedCall> calls) {
  if (!sandbox_) return fail(Status::unavailable("the episode has been scored; its sandbox is gone"));
  std::vector<Result<ToolOutcome>> results(calls.size(), ToolOutcome{});
  const auto run = [&](size_t i) -> Result<ToolOutcome> {
    if (!calls[i].error.empty()) {
      ToolOutcome outcome;
      outcome.output = calls[i].error;
      return outcome;
    }
    return sandbox_->call(calls[i].call.name, calls[i].call.arguments);
  };
  for (size_t begin = 0; begin < calls.size();) {
    size_t end = begin + 1;
    if (only_reads(calls[begin].call.name)) {
      while (end < calls.size() && only_reads(calls[end].call.name)) ++end;
    }
    std::vector<std::future<Result<ToolOutcome>>> others;
    for (size_t i = begin + 1; i < end; ++i) others.push_back(std::async(std::launch::async, run, i));
    results[begin] = run(begin);
    for (size_t i = begin + 1; i < end; ++i) results[i] = others[i - begin - 1].get();
    begin = end;
  }
  std::vector<ToolOutcome> outcomes;
  for (auto& result : results) {
    outcomes.push_back(TRY(std::move(result)));
    changed_ = changed_ || outcomes.back().changed_files;
    ++tool_calls_;
  }
  return outcomes;
}

Result<std::unique_ptr<Episode>> Episode::branch() {
  if (!sandbox_) return fail(Status::unavailable("the episode has been scored; its sandbox is gone"));
  const auto snapshot = TRY(sandbox_->snapshot());
  auto sandbox = TRY(backend_.create(spec_of(options_)));
  TRY(sandbox->restore(snapshot));
  std::unique_ptr<Episode> branch(new Episode(task_, backend_, options_, std::move(sandbox)));
  branch->changed_ = changed_;
  branch->tool_calls_ = tool_calls_;
  return branch;
}

Result<Grade> Episode::score(std::string_view final_answer) {
  if (!sandbox_) return fail(Status::unavailable("the episode has been scored; its sandbox is gone"));
  const auto collected = TRY(sandbox_->collect());
  sandbox_.reset();
  if (!collected.complete) {
    Grade failed;
    failed.terms["files"] = 0;
    return failed;
  }
  return grade(task_, collected.files, final_answer, sandbox_runner(backend_, options_.test_time_limit_s));
}

Runner sandbox_runner(SandboxBackend& backend, double time_limit_s) {
  return [&backend, time_limit_s](const Files& files, const std::string& program) -> Result<std::string> {
    SandboxSpec spec;
    spec.call_time_limit_s = time_limit_s;
    auto sandbox = TRY(backend.create(spec));
    TRY(sandbox->put(files));
    // Isolated mode: neither the environment nor files of the workspace can stand in for the standard library.
    const Json arguments = {{"command", "/usr/bin/python3 -I - <<'TANDEM_END'\n" + program + "\nTANDEM_END\n"}};
    return TRY(sandbox->call("run_terminal_cmd", arguments)).output;
  };
}

}  // namespace tandem::envs
