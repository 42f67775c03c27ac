#include "envs/backends/choosing_backend.h"

#include <fmt/format.h>

#include <cstdlib>

#include "envs/container/container_backend.h"

namespace tandem::envs {
namespace {

constexpr size_t kMostShown = 5;  // of the images that are not there

Status no_engine_wanted() {
  return Status::unfit("an image needs a container engine, and env.engine is none")
      .hint("set env.engine to auto, or to the path of an engine's socket");
}

}  // namespace

std::string engine_place(const std::string& engine) {
  if (!engine.empty()) return engine;
  const char* variable = getenv(kEngineVariable);
  return variable != nullptr && variable[0] != '\0' ? variable : std::string(kAnyEngine);
}

ChoosingBackend::ChoosingBackend(std::unique_ptr<SandboxBackend> own, std::string engine, std::string label)
    : own_(std::move(own)), engine_(std::move(engine)), label_(std::move(label)) {}
ChoosingBackend::~ChoosingBackend() = default;

Result<ContainerBackend*> ChoosingBackend::containers() {
  if (engine_ == kNoEngine) return fail(no_engine_wanted());
  std::lock_guard lock(mutex_);
  if (!containers_) {
    containers_ = TRY(ContainerBackend::start(engine_, label_));
    if (const size_t swept = containers_->swept(); swept > 0)
      fmt::print(stderr, "swept: {} containers of processes that were killed\n", swept);
  }
  return containers_.get();
}

Result<std::unique_ptr<Sandbox>> ChoosingBackend::create(const SandboxSpec& spec) {
  if (!spec.image) return own_->create(spec);
  return TRY(containers())->create(spec);
}

Status check_images(const std::string& engine, const std::set<std::string>& images) {
  if (images.empty()) return {};
  if (engine == kNoEngine) return no_engine_wanted();
  const auto found = TRY(Engine::find(engine));
  std::string missing;
  size_t count = 0;
  for (const auto& name : images) {
    const auto image = found.image(name);
    if (image) continue;
    if (image.error().code() != Code::kUnfit) return image.error();
    if (++count <= kMostShown) missing += (missing.empty() ? "" : "\n") + image.error().message();
  }
  if (count == 0) return {};
  if (count > kMostShown) missing += fmt::format("\n... and {} more images", count - kMostShown);
  return Status::unfit(missing);
}

}  // namespace tandem::envs
