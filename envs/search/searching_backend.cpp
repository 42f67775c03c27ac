#include "envs/search/searching_backend.h"

#include <algorithm>

#include "envs/sandbox/capabilities.h"
#include "envs/sandbox/forwarding_sandbox.h"

namespace tandem::envs {
namespace {

SandboxSpec with_all_tools(SandboxSpec spec) {
  if (spec.tools.empty()) spec.tools = tool_names(WithSearch::kYes);
  return spec;
}

class SearchingSandbox final : public ForwardingSandbox {
 public:
  // Gives the index that it begins with.
  using Begin = std::function<Result<CodeIndex>()>;
  SearchingSandbox(std::unique_ptr<Sandbox> inner, CodeSearcher& searcher, const SandboxSpec& spec, Begin begin)
      : ForwardingSandbox(std::move(inner)), searcher_(searcher), begin_(std::move(begin)) {
    take(spec);
  }

  Result<ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) override {
    if (name != kSearchTool || !offers_search_) return inner_->call(name, arguments, stop);
    if (stop.stop_requested()) return fail(Status::cancelled("the call was cancelled"));
    Status trouble;
    auto outcome = run_tool(context_, name, arguments, [&](const ToolContext& context, const Json& checked) {
      // Calls that read run at once; the view is one, and the second finds it up to date.
      std::lock_guard lock(mutex_);
      if (!view_) {
        auto begun = begin_();
        if (!begun) {
          trouble = std::move(begun).error();
          return ToolOutcome{};
        }
        view_ = std::move(*begun);
      }
      const SourceAccess access{
          [&](auto known) -> Result<SourceChanges> { return TRY(sources_of(*inner_))->source_changes(known); },
          [&](auto wanted) -> Result<std::vector<std::string>> {
            return TRY(sources_of(*inner_))->source_lines(wanted);
          }};
      auto answer = searcher_.answer(*view_, access, context, checked);
      if (answer) return std::move(*answer);
      trouble = std::move(answer).error();
      return ToolOutcome{};
    });
    if (!trouble) return fail(std::move(trouble));
    return outcome;
  }

  void set_call_limits(const SandboxSpec& spec) override {
    const auto full = with_all_tools(spec);
    inner_->set_call_limits(full);
    take(full);
  }

 private:
  void take(const SandboxSpec& spec) {
    context_.output_limit = spec.output_limit;
    context_.time_limit_s = spec.call_time_limit_s;
    context_.tools = spec.tools;
    offers_search_ = std::find(spec.tools.begin(), spec.tools.end(), kSearchTool) != spec.tools.end();
  }

  CodeSearcher& searcher_;
  const Begin begin_;
  ToolContext context_;
  bool offers_search_ = false;
  std::mutex mutex_;
  std::optional<CodeIndex> view_;
};

}  // namespace

Result<std::unique_ptr<Sandbox>> SearchingBackend::create(const SandboxSpec& spec) {
  const auto full = with_all_tools(spec);
  auto begin = [this, spec = full]() -> Result<CodeIndex> {
    if (!snapshots_ || spec.begins_on.empty()) return searcher_.view();
    return CodeIndex::over(TRY(snapshots_->of(backend_, spec)));
  };
  return std::make_unique<SearchingSandbox>(TRY(backend_.create(full)), searcher_, full, std::move(begin));
}

}  // namespace tandem::envs
