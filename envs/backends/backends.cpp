#include "envs/backends/backends.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/text.h"
#include "envs/backends/choosing_backend.h"
#include "envs/sandbox/namespace_backend.h"

namespace tandem::envs {
namespace {

Result<std::unique_ptr<SandboxBackend>> start(IsolatedBy by, const std::string& label) {
  auto backend = TRY(NamespaceBackend::start(by, label));
  TRY(backend->create({}));  // what stands in its way shows nowhere else
  return backend;
}

std::string_view kind_of_environment() {
  const char* kind = getenv(kSandboxVariable);
  return kind ? kind : "auto";
}

Result<std::unique_ptr<SandboxBackend>> start_own(const std::string& label, std::string_view kind) {
  if (kind.empty()) kind = kind_of_environment();
  if (std::find(kSandboxKinds.begin(), kSandboxKinds.end(), kind) == kSandboxKinds.end()) {
    return fail(Status::invalid(std::string(kSandboxVariable) + " is \"" + std::string(kind) + "\", which is none of " +
                                join(std::vector<std::string>(kSandboxKinds.begin(), kSandboxKinds.end()), ", ")));
  }
  if (kind == "bubblewrap") return start(IsolatedBy::kBubblewrap, label);
  auto own = start(IsolatedBy::kNamespaces, label);
  if (own || own.error().code() != Code::kUnfit || kind == "namespaces") return own;
  auto bubblewrap = start(IsolatedBy::kBubblewrap, label);
  if (bubblewrap || bubblewrap.error().code() != Code::kUnfit) return bubblewrap;
  return fail(Status::unfit(own.error().message() + "; with bubblewrap: " + bubblewrap.error().message())
                  .hint("`tandem doctor` says what is missing"));
}

}  // namespace

Result<std::unique_ptr<SandboxBackend>> start_sandboxes(std::string label, std::string_view kind,
                                                        const std::string& engine) {
  return std::make_unique<ChoosingBackend>(TRY(start_own(label, kind)), engine_place(engine), label);
}

}  // namespace tandem::envs
