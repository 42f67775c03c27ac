#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "model/weights.h"
#include "rollout/worker_process.h"

namespace tandem::rollout {

using namespace std::chrono_literals;

void Worker::introduce(wire::Hello::Builder hello) {
  hello.setRole("rollout");
  hello.setName(settings_.identity.sender);
  hello.setPid(::getpid());
  hello.setNumericsId(engine_.numerics_id());
  hello.setAddress(peers_.address());
  hello.setHost(settings_.host);
  auto holding = hello.initHolding(static_cast<unsigned>(episodes_.size()));
  unsigned i = 0;
  for (const auto& [id, episode] : episodes_) {
    holding[i].setEpisode(episode.key().episode);
    holding[i++].setAttempt(episode.key().attempt);
  }
  credits_announced_ = UINT32_MAX;
}

Status Worker::run(const std::atomic<bool>& stop) {
  while (!stop && !stopped_) {
    TRY(take_turns());
    const bool busy = !engine_.asleep() && !engine_.idle();
    if (!busy) {
      std::vector<wire::Socket*> sockets = {&link_.socket(), &trainer_, &peers_};
      env_.end_unused(env_load());
      env_.add_sockets(sockets);
      if (!engine_.asleep()) source_.add_sockets(sockets);
      const Time before = clock_.now();
      wire::wait(sockets, 5ms);
      idle_seconds_ += to_seconds(clock_.now() - before);
    }
    receive();
    if (!engine_.asleep()) {
      source_.tick(trainer_);
      TRY(take_weights());
    }
    tick();
    pull();
    if (!engine_.asleep() && !engine_.idle()) {
      auto sampled = TRY(engine_.step());
      for (SampledToken& token : sampled) record(token);
    }
    link_.tick(doing(), [&] { return metrics(); });
  }
  if (stop && !stopped_) let_go();
  return {};
}

// Asked to end alone: the run goes on, and the environment servers should not wait for us.
void Worker::let_go() {
  std::vector<EpisodeKey> keys;
  for (const auto& [id, episode] : episodes_) keys.push_back(episode.key());
  if (keys.empty()) return;
  for (const EpisodeKey& key : keys) step(key, Episode::Revoked{key});
  // What was sent goes out on another thread, and sockets that are closed take it with them.
  std::vector<wire::Socket*> sockets;
  env_.add_sockets(sockets);
  for (const Time limit = clock_.now() + 200ms; clock_.now() < limit;) {
    wire::wait(sockets, 50ms);
    receive();  // a sandbox that was on its way is let go of, too
  }
}

Status Worker::take_turns() {
  if (!turns_) return {};
  if (!engine_.asleep()) {
    if (!turns_->is_wanted()) return {};
    for (SampledToken& token : TRY(engine_.sleep())) record(token);
    turns_->sleep();
    ++sleeps_;
    return {};
  }
  if (!turns_->wake()) return {};
  const Status woken = engine_.wake();
  if (woken.ok() || woken.code() != Code::kExhausted) return woken;
  turns_->sleep();  // what others have of the device may be free soon
  return {};
}

void Worker::read_weights_from(const weights_sync::StoreSettings& settings) {
  auto store = weights_sync::open_store(settings);
  if (!store) return spdlog::warn("weights are asked for from the trainer: {}", store.error().to_string());
  feed_.read_from(std::make_unique<weights_sync::StoredChunks>(
      std::move(*store),
      weights_sync::StoredChunks::Settings{
          .run = settings_.identity.run, .deltas = settings_.weight_deltas, .seconds = settings.seconds},
      clock_));
}

Status Worker::take_weights() {
  auto ready = TRY(feed_.take_ready());
  if (!ready) return {};
  const Time before = clock_.now();
  TRY(engine_.swap_weights(std::move(ready->weights), ready->version));
  last_pause_ms_ = to_seconds(clock_.now() - before) * 1e3;
  max_pause_ms_ = std::max(max_pause_ms_, last_pause_ms_);
  received_bytes_ += ready->bytes;
  fetch_seconds_ += ready->fetch_seconds;
  prepare_seconds_ += ready->prepare_seconds;
  ++swaps_;
  return {};
}

void Worker::pull() {
  // Slots that are free, and a few more: what waits for a sandbox or a tool leaves the engine to others.
  const int wanted = settings_.engine.slots + settings_.engine.slots / 4 - static_cast<int>(active());
  const auto credits = static_cast<uint32_t>(std::max(0, wanted));
  if (!link_.known() || credits == credits_announced_) return;
  if (credits < static_cast<uint32_t>(settings_.engine.slots) / 4 && credits_announced_ != UINT32_MAX) return;
  wire::Outgoing message;
  message.body().initPull().setCredits(credits);
  if (link_.send(message).ok()) credits_announced_ = credits;
}

void Worker::tick() {
  settle_trunks();
  step_all(Episode::Tick{engine_.version()});
  const Time now = clock_.now();
  if (now < next_env_check_) return;
  next_env_check_ = now + 200ms;
  for (const int server : env_.silent()) step_all(Episode::ServerSilent{server});
  for (const int server : env_.lost()) step_all(Episode::ServerLost{server});
  env_.greet_if_late();
}

size_t Worker::active() const {
  return static_cast<size_t>(std::count_if(episodes_.begin(), episodes_.end(), [](const auto& e) {
    return e.second.waiting() <= Waiting::kTools || e.second.waiting() >= Waiting::kTrunk;
  }));
}

EnvLines::Load Worker::env_load() const {
  EnvLines::Load load;
  for (const auto& [id, e] : episodes_) {
    if (e.server()) ++load[*e.server()];
  }
  return load;
}

Episode::Settings Worker::episode_settings(const std::string& kind) const {
  const auto slow = settings_.seconds_of_kind.find(kind);
  const double seconds = slow == settings_.seconds_of_kind.end() ? 0 : slow->second;
  return {.numerics_id = engine_.numerics_id(),
          .routes = engine_.route_shape(),
          .vocabulary = static_cast<uint32_t>(engine_.vocabulary()),
          .patience = from_seconds(std::max(settings_.request_seconds, seconds)),
          .grade_patience = from_seconds(settings_.grade_seconds)};
}

std::string Worker::doing() const {
  std::map<Waiting, int> counts;
  for (const auto& [id, e] : episodes_) ++counts[e.waiting()];
  std::string text = engine_.asleep() ? "asleep while a step trains" : engine_.idle() ? "waiting" : "sampling";
  for (const auto& [waiting, count] : counts) text += fmt::format(", {} for {}", count, to_string(waiting));
  return episodes_.empty() ? "waiting for episodes" : text;
}

Json Worker::metrics() const {
  const EngineCounters& c = engine_.counters();
  return {{"version", engine_.version()},
          {"episodes", episodes_.size()},
          {"finished", finished_},
          {"engine_steps", c.steps},
          {"sampled_tokens", c.sampled_tokens},
          {"prompt_tokens", c.prompt_tokens},
          {"shared_tokens", c.shared_tokens},
          {"recomputed_tokens", c.recomputed_tokens},
          {"drafted_tokens", c.drafted_tokens},
          {"accepted_tokens", c.accepted_tokens},
          {"mixed_tokens", c.mixed_tokens},
          {"forward_seconds", c.forward_seconds},
          {"sample_seconds", c.sample_seconds},
          {"idle_seconds", idle_seconds_},
          {"tool_seconds", tool_seconds_},
          {"fetch_seconds", fetch_seconds_},
          {"prepare_seconds", prepare_seconds_},
          {"swaps", swaps_},
          {"sleeps", sleeps_},
          {"pause_ms", last_pause_ms_},
          {"max_pause_ms", max_pause_ms_},
          {"received_bytes", received_bytes_},
          {"handed_over", handed_over_},
          {"handed_over_running", handed_over_running_},
          {"taken", taken_},
          {"refused_chunks", feed_.refused_chunks()},
          {"refused_versions", feed_.refused_versions()},
          {"stored_bytes", feed_.stored_bytes()},
          {"store_failures", feed_.store_failures()},
          {"relay_failures", source_.relay_failures()},
          {"refused_messages", trainer_.refused() + env_.refused() + source_.refused_messages()}};
}

Status run_worker(const WorkerSettings& settings, const Clock& clock, const std::atomic<bool>& stop) {
  auto conversation = TRY(Conversation::load(settings.model, settings.conversation));
  auto weights = std::make_shared<model::Weights>(TRY(model::load_weights(settings.model, false, settings.format)));
  TRY(settings.place.ready(*weights));
  weights_sync::Held held(weights_sync::Blocks::of(*weights), std::string(model::to_string(settings.format)));
  {
    kernels::ThreadPool threads(settings.place.threads);
    held.hold(0, weights->wire(), threads);
  }
  if (settings.place.device.on_cpu()) weights->give_back_flat();
  std::optional<Turns> turns;
  if (!settings.turns.empty()) {
    turns = TRY(Turns::open(settings.turns));
    TRY(turns->wake_when_free());
  }
  auto engine = TRY(Engine::create(weights, 0, settings.place, settings.engine));
  weights.reset();
  zmq::context_t context;
  const wire::Secret* const secret = settings.secret ? &*settings.secret : nullptr;
  const auto connect_to = [&](const wire::Peer& peer) -> Result<wire::Socket> {
    const auto* entry = settings.directory.find(peer);
    if (entry == nullptr) return fail(Status::invalid(fmt::format("the run has no {}", to_string(peer))));
    return wire::Socket::connect(context, entry->address.text(), settings.identity, secret);
  };
  auto coordinator = TRY(connect_to({wire::Role::kCoordinator, 0}));
  auto trainer = TRY(connect_to({wire::Role::kTrainer, 0}));
  const auto connect_to_env = [&](const wire::Address& address) {
    // Servers of many runs tell rollouts of the same name apart by their runs.
    wire::Identity identity = settings.identity;
    identity.sender = fmt::format("{:016x}/{}", identity.run, identity.sender);
    return wire::Socket::connect(context, address.text(), identity,
                                 settings.env_secret ? &*settings.env_secret : nullptr);
  };
  EnvLines env(connect_to_env, std::hash<std::string>()(settings.identity.sender), clock, settings.host);
  TRY(env.follow(settings.directory));
  auto peers = TRY(wire::Socket::listen(context, settings.address, settings.identity, secret));
  Worker* self = nullptr;
  wire::CoordinatorLink link(std::move(coordinator), clock,
                             [&self](wire::Hello::Builder hello) { self->introduce(hello); });
  Worker worker(settings, clock, std::move(engine), std::move(conversation), std::move(link), std::move(trainer),
                std::move(env), std::move(peers), context, std::move(held), std::move(turns),
                [&](const wire::Address& address) {
                  return wire::Socket::connect(context, address.text(), settings.identity, secret);
                });
  self = &worker;
  TRY(worker.find_relay());
  if (!settings.weight_store.place.empty()) worker.read_weights_from(settings.weight_store);
  return worker.run(stop);
}

}  // namespace tandem::rollout
