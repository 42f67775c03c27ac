#include "envs/sandbox/namespace_backend.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "envs/network/proxy.h"
#include "envs/sandbox/confine.h"
#include "envs/sandbox/layer_holder.h"
#include "envs/sandbox/overlay.h"
#include "envs/sandbox/served_sandbox.h"
#include "envs/sandbox/spawner.h"

namespace tandem::envs {
namespace {

struct Begun {
  FileDescriptor trees;  // the socket that they come over
  std::shared_ptr<FileLayer> written;
};

// What it begins on is made while the sandbox is.
Result<Begun> begin_on(const SandboxSpec& spec) {
  if (spec.below && spec.begins_on.empty())
    return Begun{.trees = TRY(send_folder_below(*spec.below)), .written = nullptr};
  if (spec.begins_on.empty()) return Begun();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail(Status::from_errno("socketpair", errno));
  const FileDescriptor theirs(ends[1]);
  Begun begun{.trees = FileDescriptor(ends[0]), .written = nullptr};
  begun.written = TRY(spec.begins_on.all.front()->holder().begin_on(spec.begins_on, spec.disk_bytes, theirs));
  return begun;
}

constexpr size_t kMostBases = 64;
constexpr int kNamespaceBackendMostAttempts = 3;  // at making one, where what makes it is killed meanwhile

}  // namespace

NamespaceBackend::NamespaceBackend(IsolatedBy by, std::shared_ptr<Spawner> spawner, std::string label)
    : by_(by), label_(std::move(label)), spawner_(std::move(spawner)) {}
NamespaceBackend::~NamespaceBackend() = default;

Result<std::unique_ptr<NamespaceBackend>> NamespaceBackend::start(IsolatedBy by, std::string label) {
  std::shared_ptr<Spawner> spawner = TRY(Spawner::start(by, label));
  return std::unique_ptr<NamespaceBackend>(new NamespaceBackend(by, std::move(spawner), std::move(label)));
}

Result<std::shared_ptr<Spawner>> NamespaceBackend::live_spawner() {
  std::lock_guard lock(mutex_);
  if (!spawner_->lost()) return spawner_;
  if (!restarts_.take(SystemClock().now())) {
    return fail(Status::unavailable("the sandbox spawner was killed again and again; it was started " +
                                    std::to_string(RestartBudget::kMost) + " times within " +
                                    std::to_string(RestartBudget::kWindow.count()) + " s" + why_not_started_)
                    .hint("`dmesg` may say what ends it, for example too little memory"));
  }
  auto started = Spawner::start(by_, label_);
  why_not_started_ = started ? "" : ", lastly in vain: " + started.error().message();
  spawner_ = TRY(std::move(started));
  ++spawners_started_;
  return spawner_;
}

std::shared_ptr<NetworkProxy> NamespaceBackend::proxy() {
  std::lock_guard lock(mutex_);
  if (!proxy_) proxy_ = std::make_shared<NetworkProxy>();
  return proxy_;
}

std::shared_ptr<LayerHolder> NamespaceBackend::holder() {
  std::lock_guard lock(mutex_);
  if (holder_ && holder_->lost()) holder_.reset();
  if (!holder_ && can_hold_ && restarts_.take(SystemClock().now())) {
    auto started = LayerHolder::start(label_);
    can_hold_ = started || started.error().code() != Code::kUnfit;
    holder_ = started ? std::move(*started) : nullptr;
  }
  return holder_;
}

Result<std::shared_ptr<const FileLayer>> NamespaceBackend::layer_of(const BaseTree& base) {
  const auto holding = holder();
  if (by_ != IsolatedBy::kNamespaces || !holding)
    return fail(Status::unfit("files of this machine cannot be shared with sandboxes here")
                    .hint("`tandem doctor` says what overlayfs lacks; it takes root and sandboxes by namespaces"));
  std::lock_guard lock(mutex_);
  if (const auto known = bases_.find(base.digest); known != bases_.end()) {
    if (&known->second->holder() == holding.get()) return known->second;
    bases_.clear();  // lost with what held them
  }
  if (bases_.size() >= kMostBases) bases_.clear();  // they live on below the sandboxes that begin on them
  FileTrees trees;
  trees.workspace = TRY(bound_folder(base.tree()));
  trees.temporary = TRY(empty_temporary(outer_user(std::nullopt)));
  return bases_[base.digest] = TRY(holding->bind(std::move(trees)));
}

Result<FileLayers> NamespaceBackend::layers_of(const FolderBelow& below) {
  const auto holding = geteuid() == 0 ? holder() : nullptr;
  if (!holding) return FileLayers();
  auto folder = TRY(trees_of_folder(below));
  FileLayers layers;
  if (!below.hidden.empty()) {
    auto hidden = trees_of_hidden(below, folder);
    if (!hidden) return fail(std::move(hidden).error());
    layers.all.push_back(TRY(holding->keep(std::move(*hidden))));
  }
  auto bound = holding->bind(std::move(folder));
  if (!bound) return fail(std::move(bound).error());
  layers.all.push_back(std::move(*bound));
  return layers;
}

Result<std::unique_ptr<Sandbox>> NamespaceBackend::create(const SandboxSpec& wanted) {
  if (wanted.base && wanted.begins_on.empty()) {
    SandboxSpec spec = wanted;
    spec.begins_on = {.all = {TRY(layer_of(*wanted.base))}, .content = wanted.base->digest};
    return create(spec);
  }
  if (wanted.below && by_ == IsolatedBy::kNamespaces && wanted.begins_on.empty() && !wanted.workspace) {
    SandboxSpec spec = wanted;
    spec.begins_on = TRY(layers_of(*wanted.below));
    if (!spec.begins_on.empty()) return create(spec);
  }
  const SandboxSpec& spec = wanted;
  if (!spec.begins_on.empty() && by_ == IsolatedBy::kBubblewrap)
    return fail(Status::internal("sandboxes by bubblewrap begin on no layers"));
  if (spec.below && by_ == IsolatedBy::kBubblewrap)
    return fail(Status::unfit("bubblewrap makes no workspace over a folder"));
  if (spec.below && (spec.workspace || spec.base))
    return fail(Status::internal("a workspace begins on a folder or on something else"));
  if (spec.image) return fail(Status::internal("a sandbox of an image is made by a container engine"));
  for (int attempt = 1;; ++attempt) {
    const auto spawner = TRY(live_spawner());
    const auto begun = TRY(begin_on(spec));
    auto spawned = spawner->spawn(spec, begun.trees);
    if (!spawned) {
      const bool killed = spawner->lost() || spawned.error().code() == Code::kUnavailable;
      if (killed && attempt < kNamespaceBackendMostAttempts) continue;
      return fail(std::move(spawned).error());
    }
    auto sandbox = std::make_unique<ServedSandbox>(std::move(*spawned), spec);
    if (begun.written || (spec.sealable && by_ == IsolatedBy::kNamespaces))
      sandbox->let_hold(begun.written ? begun.written->holder().shared_from_this() : holder(), begun.written);
    Status ready = sandbox->wait_until_ready();
    if (ready && spec.has_proxy()) ready = sandbox->open_network(proxy());
    if (ready) return sandbox;
    // Whoever killed its first process has not said that there can be none.
    if (ready.code() != Code::kUnavailable || attempt == kNamespaceBackendMostAttempts) return fail(std::move(ready));
  }
}

}  // namespace tandem::envs
