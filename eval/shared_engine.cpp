#include "eval/shared_engine.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/text.h"
#include "model/forward.h"
#include "model/weights.h"
#include "rollout/agent/engine_model.h"

namespace tandem::eval {
namespace {

using rollout::SampledToken;
using rollout::SequenceId;

constexpr int kMostContext = 8192;

void ring(const FileDescriptor& bell) {
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(bell.get(), &one, sizeof one);
}

}  // namespace

SharedEngine::SharedEngine(rollout::Engine engine)
    : max_tokens_(engine.settings().max_tokens),
      numerics_id_(engine.numerics_id()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      engine_(std::move(engine)),
      distributor_([this] { distribute(); }) {}

SharedEngine::~SharedEngine() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  ring(wake_);
  distributor_.join();
}

Status SharedEngine::sample(SequenceId, std::span<const int32_t> tokens, const rollout::TurnRequest& request,
                            const std::function<void(const SampledToken&)>& on_token, const std::stop_token& stop) {
  if (static_cast<int>(tokens.size()) >= max_tokens_)
    return Status::exhausted(fmt::format("{} tokens, and there is room for {}", tokens.size(), max_tokens_));
  std::unique_lock lock(mutex_);
  const SequenceId id = ++last_;
  Turn& turn = turns_[id];
  to_start_.push_back({.id = id, .prompt = {tokens.begin(), tokens.end()}, .request = request});
  ring(wake_);
  Status status;
  for (bool ended = false; !ended;) {
    const auto ready = [&] { return !turn.tokens.empty() || !turn.refused.ok() || !trouble_.ok(); };
    if (!changed_.wait(lock, stop, ready)) {
      status = Status::cancelled("the turn was cancelled");
      break;
    }
    if (turn.tokens.empty()) {
      status = turn.refused.ok() ? trouble_ : turn.refused;
      break;
    }
    const auto token = std::move(turn.tokens.front());
    turn.tokens.pop_front();
    ended = token.turn_ended;
    lock.unlock();
    on_token(token);
    lock.lock();
  }
  turns_.erase(id);
  to_release_.push_back(id);
  ring(wake_);
  return status;
}

void SharedEngine::distribute() {
  std::array<pollfd, 2> waits = {pollfd{wake_.get(), POLLIN, 0}, pollfd{engine_.wake_fd(), POLLIN, 0}};
  for (;;) {
    ::poll(waits.data(), waits.size(), -1);
    uint64_t count;
    while (::read(wake_.get(), &count, sizeof count) < 0 && errno == EINTR) {
    }
    auto news = engine_.take();
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    for (auto& turn : std::exchange(to_start_, {})) engine_.start(std::move(turn));
    for (const SequenceId id : std::exchange(to_release_, {})) engine_.release(id);
    // What came of a turn that was let go is of nobody.
    for (auto& token : news.tokens) {
      if (const auto turn = turns_.find(token.sequence); turn != turns_.end())
        turn->second.tokens.push_back(std::move(token));
    }
    for (auto& refused : news.refused) {
      if (const auto turn = turns_.find(refused.id); turn != turns_.end())
        turn->second.refused = std::move(refused.status);
    }
    if (!news.trouble.ok() && trouble_.ok())
      trouble_ = Status::unavailable("the engine has failed: " + news.trouble.message());
    changed_.notify_all();
  }
}

namespace {

rollout::EngineSettings settings_of(const EngineTerms& terms, int made_for) {
  rollout::EngineSettings settings{.slots = terms.slots, .speculation = rollout::Speculation::kNgram};
  settings.max_tokens = terms.max_tokens > 0 ? terms.max_tokens : std::min(made_for, kMostContext);
  return settings;
}

}  // namespace

Result<uint64_t> EngineSource::memory_of(const EngineTerms& terms) {
  const auto config = TRY(model::read_config(terms.model));
  const auto weights = TRY(model::Weights::memory_of(config, false, terms.format));
  const auto pages = static_cast<uint64_t>(rollout::pages_of(settings_of(terms, config.max_positions)));
  return weights.all() - weights.returned + model::KvPool::page_bytes_of(config, terms.format) * pages;
}

Result<std::unique_ptr<EngineSource>> EngineSource::load(EngineTerms terms) {
  auto weights = std::make_shared<model::Weights>(TRY(model::load_weights(terms.model, false, terms.format)));
  TRY(terms.place.ready(*weights));
  auto conversation = TRY(rollout::Conversation::load(terms.model, terms.conversation));
  const int made_for = weights->config().max_positions;
  if (terms.max_tokens > made_for) {
    return fail(Status::invalid(
        fmt::format("limits.context is {}, and {} was made for {}", terms.max_tokens, terms.model.string(), made_for)));
  }
  const auto settings = settings_of(terms, made_for);
  auto engine = TRY(rollout::Engine::create(weights, 0, terms.place, settings));
  return std::unique_ptr<EngineSource>(new EngineSource(std::move(terms), std::move(conversation), std::move(engine)));
}

namespace {

// The turns of one conversation, with the seconds of their passes.
class MeteredTurns final : public rollout::TurnSource {
 public:
  explicit MeteredTurns(rollout::TurnSource& source) : source_(source) {}
  int max_tokens() const override { return source_.max_tokens(); }
  std::string numerics_id() const override { return source_.numerics_id(); }
  Status sample(SequenceId conversation, std::span<const int32_t> tokens, const rollout::TurnRequest& request,
                const std::function<void(const SampledToken&)>& on_token, const std::stop_token& stop) override {
    const auto metered = [&](const SampledToken& token) {
      seconds_ += token.compute_seconds;
      on_token(token);
    };
    return source_.sample(conversation, tokens, request, metered, stop);
  }
  void forget(SequenceId conversation) override { source_.forget(conversation); }
  double seconds() const { return seconds_; }

 private:
  rollout::TurnSource& source_;
  double seconds_ = 0;
};

class MeteredModel final : public rollout::AgentModel {
 public:
  MeteredModel(rollout::TurnSource& source, const rollout::Conversation& conversation,
               const rollout::EngineModelSettings& settings, const envs::Task& task)
      : turns_(source), model_(turns_, conversation, settings, task) {}
  std::string name() const override { return model_.name(); }
  const std::vector<envs::Message>& opening() const override { return model_.opening(); }
  const Json& tools() const override { return model_.tools(); }
  Result<rollout::AgentTurn> turn(std::span<const envs::ToolOutcome> replies, const rollout::TurnListener& listener,
                                  const std::stop_token& stop) override {
    return model_.turn(replies, listener, stop);
  }
  double seconds() const { return turns_.seconds(); }

 private:
  MeteredTurns turns_;
  rollout::EngineModel model_;
};

}  // namespace

std::optional<ModelUse> EngineSource::use_of(const rollout::AgentModel& conversation) const {
  const auto* const metered = dynamic_cast<const MeteredModel*>(&conversation);
  if (metered == nullptr) return std::nullopt;
  if (terms_.place.device.kind == kernels::Device::Kind::kCuda) return ModelUse{.gpu_seconds = metered->seconds()};
  return ModelUse{.core_seconds = metered->seconds() * terms_.place.threads};
}

Result<std::unique_ptr<rollout::AgentModel>> EngineSource::begin(const envs::Task& task, uint64_t seed,
                                                                 std::vector<envs::ForeignTool> foreign) {
  rollout::EngineModelSettings settings{.name = terms_.model.filename().string(),
                                        .seed = seed,
                                        .max_new_tokens = terms_.max_new_tokens,
                                        .tools = terms_.tools,
                                        .foreign_tools = std::move(foreign),
                                        .system = terms_.system,
                                        .compaction = terms_.compaction,
                                        .conversation = ++conversations_};
  settings.sampling.temperature = static_cast<float>(terms_.temperature);
  return std::unique_ptr<rollout::AgentModel>(std::make_unique<MeteredModel>(engine_, conversation_, settings, task));
}

}  // namespace tandem::eval
