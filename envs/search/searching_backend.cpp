#include "envs/search/searching_backend.h"

#include <algorithm>

namespace tandem::envs {
namespace {

SandboxSpec with_all_tools(SandboxSpec spec) {
  if (spec.tools.empty()) spec.tools = tool_names(WithSearch::kYes);
  return spec;
}

class SearchingSandbox final : public Sandbox {
 public:
  SearchingSandbox(std::unique_ptr<Sandbox> inner, CodeSearcher& searcher, const SandboxSpec& spec)
      : inner_(std::move(inner)), searcher_(searcher) {
    take(spec);
  }

  Result<ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) override {
    if (name != kSearchTool || !offers_search_) return inner_->call(name, arguments, stop);
    if (stop.stop_requested()) return fail(Status::cancelled("the call was cancelled"));
    Status trouble;
    auto outcome = run_tool(context_, name, arguments, [&](const ToolContext& context, const Json& checked) {
      // Calls that read run at once; the view is one, and the second finds it up to date.
      std::lock_guard lock(mutex_);
      if (!view_) view_ = searcher_.view();
      const SourceAccess access{[&](std::span<const KnownSource> known) { return inner_->source_changes(known); },
                                [&](std::span<const SourceLines> wanted) { return inner_->source_lines(wanted); }};
      auto answer = searcher_.answer(*view_, access, context, checked);
      if (answer) return std::move(*answer);
      trouble = std::move(answer).error();
      return ToolOutcome{};
    });
    if (!trouble) return fail(std::move(trouble));
    return outcome;
  }

  Status put(const Files& files) override { return inner_->put(files); }
  Result<Collected> collect() override { return inner_->collect(); }
  Result<Snapshot> snapshot() override { return inner_->snapshot(); }
  Status restore(const Snapshot& snapshot) override { return inner_->restore(snapshot); }
  Result<Snapshot> seal() override { return inner_->seal(); }
  Status freeze() override { return inner_->freeze(); }
  Status thaw() override { return inner_->thaw(); }
  Result<SourceChanges> source_changes(std::span<const KnownSource> known) override {
    return inner_->source_changes(known);
  }
  Result<std::vector<std::string>> source_lines(std::span<const SourceLines> wanted) override {
    return inner_->source_lines(wanted);
  }
  Status start_servers(std::span<const McpServerSpec> servers) override { return inner_->start_servers(servers); }
  std::vector<ForeignTool> foreign_tools() const override { return inner_->foreign_tools(); }
  void set_call_limits(const SandboxSpec& spec) override {
    const auto full = with_all_tools(spec);
    inner_->set_call_limits(full);
    take(full);
  }
  bool has_ended() const override { return inner_->has_ended(); }

 private:
  void take(const SandboxSpec& spec) {
    context_.output_limit = spec.output_limit;
    context_.time_limit_s = spec.call_time_limit_s;
    context_.tools = spec.tools;
    offers_search_ = std::find(spec.tools.begin(), spec.tools.end(), kSearchTool) != spec.tools.end();
  }

  std::unique_ptr<Sandbox> inner_;
  CodeSearcher& searcher_;
  ToolContext context_;
  bool offers_search_ = false;
  std::mutex mutex_;
  std::optional<CodeIndex> view_;
};

}  // namespace

Result<std::unique_ptr<Sandbox>> SearchingBackend::create(const SandboxSpec& spec) {
  const auto full = with_all_tools(spec);
  return std::make_unique<SearchingSandbox>(TRY(backend_.create(full)), searcher_, full);
}

}  // namespace tandem::envs
