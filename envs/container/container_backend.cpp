#include "envs/container/container_backend.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/digest.h"
#include "base/file.h"
#include "base/text.h"
#include "envs/container/image_plan.h"
#include "envs/container/rendezvous.h"
#include "envs/container/settings.h"
#include "envs/network/proxy.h"
#include "envs/sandbox/confine.h"
#include "envs/sandbox/fields.h"
#include "envs/sandbox/frames.h"
#include "envs/sandbox/guest.h"
#include "envs/sandbox/owner.h"
#include "envs/sandbox/process_fields.h"
#include "envs/sandbox/request_kind.h"
#include "envs/sandbox/served_sandbox.h"

namespace tandem::envs {

using namespace std::chrono_literals;

namespace {

constexpr auto kStartLimit = 30s;         // from the start of a container to the connection of its first process
constexpr auto kPreparationLimit = 120s;  // of an image
constexpr size_t kMostImages = 256;       // that are remembered

// A container that is removed with this, whatever became of it.
class Container {
 public:
  Container(std::shared_ptr<const Engine> engine, std::string id) : engine_(std::move(engine)), id_(std::move(id)) {}
  Container(Container&& other) noexcept : engine_(std::move(other.engine_)), id_(std::exchange(other.id_, "")) {}
  Container& operator=(Container&&) = delete;
  ~Container() {
    // Where the engine does not answer, the next process that starts removes it.
    if (!id_.empty()) (void)engine_->remove(id_).ok();
  }
  const std::string& id() const { return id_; }

 private:
  std::shared_ptr<const Engine> engine_;
  std::string id_;
};

// Its members end in this order: the first process, then the container.
class ContainerSandbox final : public ServedSandbox {
 public:
  ContainerSandbox(Container container, SpawnedSandbox spawned, const SandboxSpec& spec)
      : ServedSandbox(std::move(spawned), spec), container_(std::move(container)) {}
  ~ContainerSandbox() override { end("the sandbox was let go"); }

 private:
  Container container_;
};

struct Started {
  FileDescriptor socket, process;
  bool is_counted = false;
};

// Whether the kernel bounds the number of a container's processes. An engine that is an ordinary user's may not be able
// to have it do so, and then says nothing.
bool is_counted(pid_t process) {
  const auto groups = read_file("/proc/" + std::to_string(process) + "/cgroup", 64 << 10).value_or("");
  for (const auto line : split(groups, '\n')) {
    const auto parts = split(line, ':');
    if (parts.size() < 3 || (parts[1] != "pids" && !parts[1].empty())) continue;
    const auto folder = "/sys/fs/cgroup/" + std::string(parts[1]) + std::string(parts[2]);
    if (atoi(read_file(folder + "/pids.max", 64).value_or("").c_str()) > 0) return true;
  }
  return false;
}

Result<Started> start(const Engine& engine, const std::string& container, Rendezvous& rendezvous) {
  TRY(engine.start(container));
  const auto state = TRY(engine.state(container));
  const auto still_runs = [&]() -> Status {
    const auto now = TRY(engine.state(container));
    if (now.running) return {};
    return Status::unavailable(fmt::format(
        "the first process of a container ended with {} before it had begun; is the image of another kind of machine?",
        now.exit_code));
  };
  if (!state.running || state.process <= 0) TRY(still_runs());
  Started started{.socket = TRY(rendezvous.admit(state.process, kStartLimit, still_runs)),
                  .process = {},
                  .is_counted = is_counted(state.process)};
  started.process = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, state.process, 0)));
  if (!started.process) return fail(Status::unavailable("the first process of a container has ended"));
  return started;
}

std::string key_of(const SandboxImage& image, const Links& links) {
  std::string key;
  put_text(key, image.name);
  put_files(key, links);
  return key;
}

}  // namespace

ContainerBackend::ContainerBackend(Engine engine, std::unique_ptr<RendezvousFolder> folder_of_all, std::string filter,
                                   std::string label)
    : engine_(std::make_shared<const Engine>(std::move(engine))),
      rendezvous_(std::move(folder_of_all)),
      filter_(std::move(filter)),
      label_(std::move(label)),
      owner_(this_owner()) {}
ContainerBackend::~ContainerBackend() = default;

Result<std::unique_ptr<ContainerBackend>> ContainerBackend::start(const std::string& place, std::string label) {
  auto engine = TRY(Engine::find(place));
  auto folder_of_all = TRY(RendezvousFolder::make());
  std::unique_ptr<ContainerBackend> backend(
      new ContainerBackend(std::move(engine), std::move(folder_of_all), TRY(make_filter()), std::move(label)));
  backend->sweep();
  return backend;
}

// What cannot be removed now is tried again by the next process.
void ContainerBackend::sweep() {
  const auto containers = engine_->containers(std::string(kOwnerLabel));
  if (!containers) return;
  for (const auto& container : *containers) {
    const auto owner = container.labels.find(std::string(kOwnerLabel));
    if (owner == container.labels.end() || !owner_is_gone(owner->second)) continue;
    if (engine_->remove(container.id).ok()) ++swept_;
  }
}

std::shared_ptr<NetworkProxy> ContainerBackend::proxy() {
  std::lock_guard lock(mutex_);
  if (!proxy_) proxy_ = std::make_shared<NetworkProxy>();
  return proxy_;
}

Result<std::shared_ptr<ContainerBackend::Prepared>> ContainerBackend::prepared(const SandboxImage& image,
                                                                               const Links& links) {
  std::shared_ptr<Prepared> found;
  {
    std::lock_guard lock(mutex_);
    if (images_.size() >= kMostImages) images_.clear();
    auto& slot = images_[key_of(image, links)];
    if (!slot) slot = std::make_shared<Prepared>();
    found = slot;
  }
  std::lock_guard lock(found->mutex);
  if (found->name.empty()) TRY(prepare(TRY(engine_->image(image.name)), links, *found));
  return found;
}

Status ContainerBackend::prepare(const EngineImage& image, const Links& links, Prepared& prepared) {
  ImagePlan plan{.folder = image.folder, .links = links};
  // A task that says where its workspace is knows better.
  for (const auto& [path, target] : links) {
    if (target == "/workspace") plan.folder = path;
  }
  if (!can_be_workspace(plan.folder)) plan.folder.clear();
  const auto message = encode(plan);
  const auto tag = digest_of(fmt::format("{} {} {}", kPreparation, image.id, message)).hex();
  const auto name = fmt::format("{}:{}", kPreparedName, tag);
  if (const auto known = engine_->image(name); !known) {
    if (known.error().code() != Code::kUnfit) return known.error();
    TRY(run_preparation(image.id, message, tag));
  }
  prepared.environment = image.environment;
  prepared.has_beginning = !plan.folder.empty();
  prepared.name = name;
  return {};
}

Status ContainerBackend::run_preparation(const std::string& image, const std::string& plan, const std::string& tag) {
  auto rendezvous = TRY(rendezvous_->open());
  const Container container(engine_, TRY(engine_->create(settings_of_preparation(image, rendezvous, owner_))));
  const auto started = TRY(envs::start(*engine_, container.id(), rendezvous));
  const Time deadline = SystemClock().now() + kPreparationLimit;
  TRY(send_frame(started.socket.get(), plan, deadline));
  const auto said = TRY(receive_frame(started.socket.get(), deadline));
  if (said != kWorked) return Status::unfit("the image cannot be made ready for sandboxes: " + said);
  if (const int code = TRY(engine_->wait(container.id(), 30s)); code != 0)
    return Status::unavailable(fmt::format("making an image ready for sandboxes ended with {}", code));
  return engine_->commit(container.id(), std::string(kPreparedName), tag);
}

Result<std::unique_ptr<Sandbox>> ContainerBackend::create(const SandboxSpec& spec) {
  if (!spec.image) return fail(Status::internal("a container needs an image"));
  if (spec.base || spec.below) return fail(Status::unfit("a container begins with the files of its image"));
  const auto image = TRY(prepared(*spec.image, spec.links));
  auto rendezvous = TRY(rendezvous_->open());
  Container container(engine_, TRY(engine_->create(settings_of(spec, image->name, rendezvous, owner_, label_))));
  auto started = TRY(envs::start(*engine_, container.id(), rendezvous));
  FirstProcess process{.spec = spec, .filter = filter_};
  process.spec.memory_is_bounded = true;
  // Where the engine counts those of this container nobody else must: the kernel counts all of their user.
  process.spec.processes = started.is_counted ? 0 : spec.processes + static_cast<int>(processes_of(std::nullopt));
  process.spec.environment.insert(process.spec.environment.begin(), image->environment.begin(),
                                  image->environment.end());
  TRY(send_to_guest(started.socket.get(), process, SystemClock().now() + kStartLimit));
  auto sandbox = std::make_unique<ContainerSandbox>(
      std::move(container), SpawnedSandbox{std::move(started.socket), std::move(started.process)}, spec);
  TRY(sandbox->wait_until_ready());
  if (spec.has_proxy()) TRY(sandbox->open_network(proxy()));
  if (!image->has_beginning || spec.workspace || !spec.image->begins_with_files) return sandbox;
  TRY(sandbox->begin_with(std::string(kBeginning)));
  std::lock_guard lock(image->mutex);
  if (!image->is_small && !TRY(sandbox->collect()).complete)
    return fail(Status::unfit("the folder that the image " + spec.image->name +
                              " works in holds more files than an episode collects"));
  image->is_small = true;
  return sandbox;
}

}  // namespace tandem::envs
