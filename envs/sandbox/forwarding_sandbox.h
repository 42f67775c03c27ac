// A sandbox around another one, which does everything: what is around overrides where it differs.
//
// Thread safety: that of the inner one.
#pragma once

#include <memory>
#include <utility>

#include "envs/sandbox/sandbox.h"

namespace tandem::envs {

class ForwardingSandbox : public Sandbox {
 public:
  // `inner`: never null.
  explicit ForwardingSandbox(std::unique_ptr<Sandbox> inner) : inner_(std::move(inner)) {}

  Status put(const Files& files) override { return inner_->put(files); }
  Result<ToolOutcome> call(std::string_view name, const Json& arguments, const std::stop_token& stop) override {
    return inner_->call(name, arguments, stop);
  }
  Result<Collected> collect() override { return inner_->collect(); }
  void set_call_limits(const SandboxSpec& spec) override { inner_->set_call_limits(spec); }
  bool has_ended() const override { return inner_->has_ended(); }
  void end(std::string_view why) override { inner_->end(why); }
  Snapshots* snapshots() override { return inner_->snapshots(); }
  Freezer* freezer() override { return inner_->freezer(); }
  ToolServers* tool_servers() override { return inner_->tool_servers(); }
  SourceView* sources() override { return inner_->sources(); }
  Inspector* inspector() override { return inner_->inspector(); }
  FolderView* folder_view() override { return inner_->folder_view(); }

 protected:
  const std::unique_ptr<Sandbox> inner_;
};

}  // namespace tandem::envs
