#include "rollout/worker.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <map>

#include "rollout/conversation.h"
#include "rollout/env_line.h"
#include "rollout/lease.h"
#include "rollout/peer.h"
#include "rollout/weights_feed.h"

namespace tandem::rollout {

using namespace std::chrono_literals;

namespace {

class Worker {
 public:
  Worker(const WorkerSettings& settings, const Clock& clock, Engine engine, Conversation conversation,
         model::ModelConfig config, CoordinatorLink link, wire::Socket trainer, wire::Socket env, wire::Socket peers,
         zmq::context_t& context)
      : settings_(settings),
        clock_(clock),
        engine_(std::move(engine)),
        conversation_(std::move(conversation)),
        link_(std::move(link)),
        trainer_(std::move(trainer)),
        env_(std::move(env), clock),
        peers_(std::move(peers)),
        context_(context),
        feed_(config, settings.format, 0, settings.chunk_window, clock) {}

  void introduce(wire::Hello::Builder hello) {
    hello.setRole("rollout");
    hello.setName(settings_.identity.sender);
    hello.setPid(::getpid());
    hello.setNumericsId(engine_.numerics_id());
    hello.setAddress(peers_.address());
    auto holding = hello.initHolding(static_cast<unsigned>(episodes_.size()));
    unsigned i = 0;
    for (const auto& [id, episode] : episodes_) {
      holding[i].setEpisode(episode.lease.key.episode);
      holding[i++].setAttempt(episode.lease.key.attempt);
    }
    credits_announced_ = UINT32_MAX;
  }

  Status run(const std::atomic<bool>& stop) {
    while (!stop && !stopped_) {
      const bool busy = !engine_.idle();
      if (!busy) {
        wire::Socket* const sockets[] = {&link_.socket(), &trainer_, &env_.socket(), &peers_};
        const Time before = clock_.now();
        wire::wait(sockets, 5ms);
        idle_seconds_ += to_seconds(clock_.now() - before);
      }
      receive();
      feed_.tick(trainer_);
      take_weights();
      start_ready();
      resend_late();
      pull();
      if (!engine_.idle()) {
        const auto sampled = TRY(engine_.step());
        for (const SampledToken& token : sampled) record(token);
      }
      link_.tick(doing(), [&] { return metrics(); });
    }
    return {};
  }

 private:
  // ---- Messages ----

  void receive() {
    for (int i = 0; i < 64; ++i) {
      auto message = link_.receive();
      if (!message) break;
      on_coordinator(*message);
    }
    for (int i = 0; i < 16; ++i) {
      auto message = trainer_.receive();
      if (!message) break;
      const auto body = message->body();
      if (body.isWeightsManifest()) feed_.on_manifest(body.getWeightsManifest());
      if (body.isChunk()) feed_.on_chunk(*message);
      if (body.isTrajectoryAck())
        on_stored({body.getTrajectoryAck().getEpisode(), body.getTrajectoryAck().getAttempt()});
    }
    for (int i = 0; i < 64; ++i) {
      auto message = env_.socket().receive();
      if (!message) break;
      on_env(*message);
    }
    for (int i = 0; i < 16; ++i) {
      auto message = peers_.receive();
      if (!message) break;
      if (message->body().isHandover()) on_handover(*message);
    }
  }

  void on_coordinator(const wire::Incoming& message) {
    const auto body = message.body();
    switch (body.which()) {
      case wire::Body::GRANT: {
        for (const auto lease : body.getGrant().getLeases()) {
          AgentEpisode e{.lease = read_lease(lease), .started = clock_.now()};
          const uint64_t id = e.lease.key.episode;
          if (episodes_.contains(id)) forget(id);
          episodes_.emplace(id, std::move(e));
        }
        credits_announced_ = UINT32_MAX;
        return;
      }
      case wire::Body::REVOKE: {
        const auto found = episodes_.find(body.getRevoke().getEpisode());
        if (found != episodes_.end() && found->second.lease.key.attempt == body.getRevoke().getAttempt())
          forget(found->first);
        return;
      }
      case wire::Body::COMMIT_ACK: {
        const auto found = episodes_.find(body.getCommitAck().getEpisode());
        if (found != episodes_.end() && found->second.lease.key.attempt == body.getCommitAck().getAttempt() &&
            found->second.waiting == Waiting::kCoordinator) {
          forget(found->first);
          ++finished_;
        }
        return;
      }
      case wire::Body::STEAL:
        return hand_over(body.getSteal());
      case wire::Body::CLAIM:
        return on_mine({body.getClaim().getEpisode(), body.getClaim().getAttempt()});
      case wire::Body::CLAIMED:
        return on_gone({body.getClaimed().getEpisode(), body.getClaimed().getAttempt()});
      case wire::Body::STOP:
        stopped_ = true;
        return;
      default:
        return;
    }
  }

  void on_env(const wire::Incoming& message) {
    if (env_.is_new_life(message)) ask_new_env();
    if (message.body().isWelcome()) return;
    const auto id = env_.episode_of(message);
    if (!id) {
      if (message.body().isAcquired()) on_unasked_lease(message.body().getAcquired());
      return;
    }
    const auto found = episodes_.find(*id);
    if (found == episodes_.end() || found->second.request != message.id()) return;
    AgentEpisode& e = found->second;
    e.request = 0;
    tool_seconds_ += to_seconds(clock_.now() - e.sent);
    const auto body = message.body();
    if (body.isFailed()) {
      const Status failure = wire::read_failure(body.getFailed());
      return hand_back(e, Outcome::kInfraError, failure.message());
    }
    if (body.isAcquired() && e.waiting == Waiting::kSandbox) return begin(e, body.getAcquired());
    if (body.isCalled() && e.waiting == Waiting::kTools) return on_called(e, body.getCalled());
    if (body.isScored() && e.waiting == Waiting::kGrade) {
      e.reward = body.getScored().getReward();
      for (const auto term : body.getScored().getTerms()) e.terms[term.getName()] = term.getValue();
      return deliver(e);
    }
  }

  // The environment has started anew: what was asked of its former life is asked again, and leases of then are refused
  // at once instead of being waited for.
  void ask_new_env() {
    for (auto& [id, e] : episodes_) {
      if (is_for_env(e.waiting)) env_.repeat(e);
    }
  }

  // The answer to a request that was given up. The environment gives the same lease to the same attempt, so it is let
  // go only where that attempt is not here, or has come back and asks again.
  void on_unasked_lease(wire::Acquired::Reader acquired) {
    const auto found = episodes_.find(acquired.getEpisode());
    if (found == episodes_.end() || found->second.lease.key.attempt != acquired.getAttempt())
      env_.release(acquired.getLease());
  }

  // ---- The life of an episode ----

  // Episodes whose weights are here ask for a sandbox.
  void start_ready() {
    for (auto& [id, e] : episodes_) {
      if (e.waiting != Waiting::kWeights) continue;
      if (engine_.version() > e.lease.max_version) {
        hand_back(e, Outcome::kInfraError,
                  fmt::format("its weights {} are gone, {} are here", e.lease.max_version, engine_.version()));
        continue;
      }
      if (engine_.version() < e.lease.min_version) continue;
      e.waiting = Waiting::kSandbox;
      env_.ask(e);
    }
  }

  void begin(AgentEpisode& e, wire::Acquired::Reader acquired) {
    e.env_lease = acquired.getLease();
    e.max_turns = acquired.getMaxTurns();
    std::vector<ChatMessage> messages;
    for (const auto message : acquired.getMessages()) messages.push_back({message.getRole(), message.getContent()});
    auto prompt = conversation_.prompt(messages);
    if (!prompt) return hand_back(e, Outcome::kInfraError, prompt.error().message());
    e.prompt_tokens = static_cast<uint32_t>(prompt->size());
    e.trajectory = {.key = e.lease.key, .group = e.lease.group, .numerics_id = engine_.numerics_id()};
    e.trajectory.append(*prompt);
    e.waiting = Waiting::kTokens;
    if (const Status status = engine_.add(e.lease.key.episode, std::move(*prompt), turn_request(e)); !status.ok()) {
      hand_back(e, Outcome::kInfraError, status.message());
    }
  }

  TurnRequest turn_request(const AgentEpisode& e) const {
    return {.max_new_tokens = settings_.max_new_tokens,
            .sampling = {.temperature = e.lease.temperature},
            .seed = e.lease.sample_seed,
            .stop_tokens = conversation_.end_tokens()};
  }

  void record(const SampledToken& token) {
    const auto found = episodes_.find(token.sequence);
    if (found == episodes_.end()) return engine_.release(token.sequence);
    AgentEpisode& e = found->second;
    e.trajectory.append_sampled(token.token, token.logprob, token.version);
    if (!token.turn_ended) return;
    ++e.turns;
    size_t start = e.trajectory.tokens.size();
    while (start > 0 && e.trajectory.sampled[start - 1]) --start;
    e.said = conversation_.text_of(std::span(e.trajectory.tokens).subspan(start));
    if (token.end != TurnEnd::kStop) {
      e.truncated = true;
      return ask_for_grade(e, "");
    }
    e.waiting = Waiting::kTools;
    env_.ask(e);
  }

  void on_called(AgentEpisode& e, wire::Called::Reader called) {
    if (called.getCalls() == 0) return ask_for_grade(e, e.said);  // a message without calls is the answer
    e.tool_calls += called.getCalls();
    if (called.getOver()) return ask_for_grade(e, "");
    if (e.turns >= e.max_turns) {
      e.truncated = true;
      return ask_for_grade(e, "");
    }
    const auto response = called.getResponse();
    const auto tokens = conversation_.next_turn({response.getRole(), response.getContent()});
    if (!tokens) return hand_back(e, Outcome::kInfraError, tokens.error().message());
    const Status status = engine_.knows(e.lease.key.episode)
                              ? engine_.extend(e.lease.key.episode, *tokens, turn_request(e))
                              : adopt(e, *tokens);
    if (status.code() == Code::kExhausted) {
      e.truncated = true;
      return ask_for_grade(e, "");
    }
    if (!status.ok()) return hand_back(e, Outcome::kInfraError, status.message());
    e.trajectory.append(*tokens);
    e.waiting = Waiting::kTokens;
  }

  // An episode that began in another engine: all its tokens are a prompt here.
  Status adopt(const AgentEpisode& e, std::span<const int32_t> tokens) {
    auto prompt = e.trajectory.tokens;
    prompt.insert(prompt.end(), tokens.begin(), tokens.end());
    if (static_cast<int>(prompt.size()) >= settings_.engine.max_tokens)
      return Status::exhausted("no room for the next turn");
    return engine_.add(e.lease.key.episode, std::move(prompt), turn_request(e));
  }

  void ask_for_grade(AgentEpisode& e, std::string answer) {
    engine_.release(e.lease.key.episode);
    e.said = std::move(answer);
    e.outcome = e.truncated ? Outcome::kTruncated : Outcome::kCompleted;
    e.waiting = Waiting::kGrade;
    env_.ask(e);
  }

  // First the trainer has it on disk, then the coordinator hears of it.
  void deliver(AgentEpisode& e) {
    env_.release(e);
    e.waiting = Waiting::kTrainer;
    send_trajectory(e);
  }
  void on_stored(const EpisodeKey& key) {
    const auto found = episodes_.find(key.episode);
    if (found == episodes_.end() || found->second.lease.key != key || found->second.waiting != Waiting::kTrainer)
      return;
    commit(found->second);
  }
  void commit(AgentEpisode& e) {
    e.waiting = Waiting::kCoordinator;
    send_commit(e);
  }

  void hand_back(AgentEpisode& e, Outcome outcome, const std::string& reason) {
    spdlog::warn("episode {} attempt {} ({}): {}", e.lease.key.episode, e.lease.key.attempt, to_string(outcome),
                 reason);
    engine_.release(e.lease.key.episode);
    env_.release(e);
    e.outcome = outcome;
    e.reason = reason;
    e.reward.reset();
    commit(e);
  }

  void forget(uint64_t id) {
    AgentEpisode& e = episodes_.at(id);
    engine_.release(id);
    env_.release(e);
    env_.drop(e);
    episodes_.erase(id);
    credits_announced_ = UINT32_MAX;
  }

  // ---- Handing over: copy, verify, switch owner ----

  // Episodes not begun go first, then those parked in a tool call: their state is tokens and a sandbox lease.
  void hand_over(wire::Steal::Reader steal) {
    uint32_t left = steal.getCount();
    const std::string thief = steal.getThief();
    for (const Waiting kind : {Waiting::kWeights, Waiting::kSandbox, Waiting::kTools}) {
      for (auto& [id, e] : episodes_) {
        if (left == 0 || e.waiting != kind) continue;
        if (!send_handover(e, thief)) break;
        --left;
        ++handed_over_;
      }
    }
    // What there was is on its way, or nothing was: the thief may ask again.
    wire::Outgoing message;
    message.body().setDeclined(thief);
    (void)link_.send(message);
  }

  bool send_handover(AgentEpisode& e, const std::string& thief) {
    auto found = thieves_.find(thief);
    if (found == thieves_.end()) {
      auto socket = wire::Socket::connect(context_, thief, settings_.identity);
      if (!socket) return false;
      found = thieves_.emplace(thief, std::move(*socket)).first;
    }
    wire::Outgoing message;
    write_handover(e, message);
    if (!found->second.send("", message).ok()) return false;
    e.parked_as = e.waiting;
    e.waiting = Waiting::kHandedOver;
    e.sent = clock_.now();
    env_.drop(e);
    return true;
  }

  // The other side never claimed it.
  void take_back(AgentEpisode& e) {
    e.waiting = e.parked_as;
    if (e.waiting != Waiting::kWeights) env_.ask(e);
  }

  void on_handover(const wire::Incoming& message) {
    auto e = read_handover(message, clock_.now());
    if (!e) return spdlog::warn("{}", e.error().message());  // the other side takes it back
    const uint64_t id = e->lease.key.episode;
    if (!episodes_.contains(id)) send_claim(episodes_.emplace(id, std::move(*e)).first->second);
  }

  void send_claim(AgentEpisode& e) {
    e.sent = clock_.now();
    wire::Outgoing message;
    auto claim = message.body().initClaim();
    claim.setEpisode(e.lease.key.episode);
    claim.setAttempt(e.lease.key.attempt);
    (void)link_.send(message);
  }

  // What was handed over has found its taker; the sandbox went with it.
  void on_gone(const EpisodeKey& key) {
    const auto found = episodes_.find(key.episode);
    if (found == episodes_.end() || found->second.lease.key != key) return;
    found->second.env_lease = 0;
    forget(key.episode);
  }

  void on_mine(const EpisodeKey& key) {
    const auto found = episodes_.find(key.episode);
    if (found == episodes_.end() || found->second.lease.key != key || found->second.waiting != Waiting::kClaim) return;
    AgentEpisode& e = found->second;
    ++taken_;
    if (e.env_lease == 0) {
      e.waiting = Waiting::kWeights;
      return;
    }
    // The turn is answered again, not run again. The engine computes the tokens when the next turn starts.
    e.waiting = Waiting::kTools;
    env_.ask(e);
  }

  // ---- Requests ----

  void send_trajectory(AgentEpisode& e) {
    e.sent = clock_.now();
    wire::Outgoing message;
    write_trajectory(e.trajectory, message.body().initTrajectory(), message);
    (void)trainer_.send("", message);
  }
  void send_commit(AgentEpisode& e) {
    e.sent = clock_.now();
    wire::Outgoing message;
    write_commit(e, engine_.version(), e.sent, message.body().initCommit());
    (void)link_.send(message);
  }

  // The environment may be slow or gone; trainer and coordinator come back, and are asked until they do.
  void resend_late() {
    const Time now = clock_.now();
    if (now < next_resend_) return;
    next_resend_ = now + 200ms;
    bool env_is_slow = false;
    for (auto& [id, e] : episodes_) {
      const Duration waited = now - e.sent;
      env_is_slow = env_is_slow || (is_for_env(e.waiting) && waited > 1s);
      switch (e.waiting) {
        case Waiting::kSandbox:
        case Waiting::kTools:
        case Waiting::kGrade:
          if (waited < from_seconds(settings_.request_seconds)) break;
          if (e.sends >= 2)
            hand_back(
                e, Outcome::kInfraError,
                fmt::format("the environment server did not answer within {:.0f} s", 2 * settings_.request_seconds));
          else if (++e.sends; true)
            env_.repeat(e);
          break;
        case Waiting::kTrainer:
          if (waited > 2s) send_trajectory(e);
          break;
        case Waiting::kCoordinator:
          if (waited > 2s) send_commit(e);
          break;
        case Waiting::kHandedOver:
          if (waited > 5s) take_back(e);
          break;
        case Waiting::kClaim:
          if (waited > 2s) send_claim(e);
          break;
        default:
          break;
      }
    }
    if (!env_is_slow || now < next_env_hello_) return;
    next_env_hello_ = now + 1s;
    env_.greet();
  }

  void pull() {
    // Slots that are free, and a few more: what waits for a sandbox or a tool leaves the engine to others.
    const int wanted = settings_.engine.slots + settings_.engine.slots / 4 - static_cast<int>(active());
    const auto credits = static_cast<uint32_t>(std::max(0, wanted));
    if (!link_.known() || credits == credits_announced_) return;
    if (credits < static_cast<uint32_t>(settings_.engine.slots) / 4 && credits_announced_ != UINT32_MAX) return;
    wire::Outgoing message;
    message.body().initPull().setCredits(credits);
    if (link_.send(message).ok()) credits_announced_ = credits;
  }
  size_t active() const {
    return static_cast<size_t>(std::count_if(episodes_.begin(), episodes_.end(),
                                             [](const auto& e) { return e.second.waiting <= Waiting::kTools; }));
  }

  void take_weights() {
    auto ready = feed_.take_ready();
    if (!ready) return;
    const Time before = clock_.now();
    auto old = std::exchange(live_, ready->weights);
    if (const Status status = engine_.swap_weights(ready->weights, ready->version); !status.ok()) {
      return spdlog::error("weights {}: {}", ready->version, status.message());
    }
    last_pause_ms_ = to_seconds(clock_.now() - before) * 1e3;
    max_pause_ms_ = std::max(max_pause_ms_, last_pause_ms_);
    received_bytes_ += ready->bytes;
    fetch_seconds_ += ready->fetch_seconds;
    ++swaps_;
    if (old) feed_.give_back(std::move(old));
  }

  std::string doing() const {
    std::map<Waiting, int> counts;
    for (const auto& [id, e] : episodes_) ++counts[e.waiting];
    std::string text = engine_.idle() ? "waiting" : "sampling";
    for (const auto& [waiting, count] : counts) text += fmt::format(", {} for {}", count, to_string(waiting));
    return episodes_.empty() ? "waiting for episodes" : text;
  }

  Json metrics() const {
    const EngineCounters& c = engine_.counters();
    return {{"version", engine_.version()},
            {"episodes", episodes_.size()},
            {"finished", finished_},
            {"engine_steps", c.steps},
            {"sampled_tokens", c.sampled_tokens},
            {"prompt_tokens", c.prompt_tokens},
            {"shared_tokens", c.shared_tokens},
            {"recomputed_tokens", c.recomputed_tokens},
            {"forward_seconds", c.forward_seconds},
            {"sample_seconds", c.sample_seconds},
            {"idle_seconds", idle_seconds_},
            {"tool_seconds", tool_seconds_},
            {"fetch_seconds", fetch_seconds_},
            {"swaps", swaps_},
            {"pause_ms", last_pause_ms_},
            {"max_pause_ms", max_pause_ms_},
            {"received_bytes", received_bytes_},
            {"handed_over", handed_over_},
            {"taken", taken_},
            {"refused_chunks", feed_.refused_chunks()},
            {"refused_messages", trainer_.refused() + env_.refused()}};
  }

  const WorkerSettings settings_;
  const Clock& clock_;
  Engine engine_;
  Conversation conversation_;
  CoordinatorLink link_;
  wire::Socket trainer_;
  EnvLine env_;
  wire::Socket peers_;
  zmq::context_t& context_;
  std::map<std::string, wire::Socket> thieves_;  // lines to other rollouts, by address
  WeightsFeed feed_;
  std::shared_ptr<const model::Weights> live_;
  std::map<uint64_t, AgentEpisode> episodes_;
  uint64_t finished_ = 0, swaps_ = 0, received_bytes_ = 0, handed_over_ = 0, taken_ = 0;
  uint32_t credits_announced_ = UINT32_MAX;
  Time next_resend_{}, next_env_hello_{};
  bool stopped_ = false;
  double idle_seconds_ = 0, tool_seconds_ = 0, fetch_seconds_ = 0, last_pause_ms_ = 0, max_pause_ms_ = 0;
};

}  // namespace

Status run_worker(const WorkerSettings& settings, const Clock& clock, const std::atomic<bool>& stop) {
  auto conversation = TRY(Conversation::load(settings.model));
  auto weights = std::make_shared<model::Weights>(TRY(model::load_weights(settings.model, false, settings.format)));
  auto stream = TRY(kernels::Stream::cpu(settings.threads));
  TRY(weights->pack(stream));
  weights->give_back_flat();
  const model::ModelConfig config = weights->config();
  auto engine = TRY(Engine::create(std::move(weights), 0, std::move(stream), settings.engine));
  zmq::context_t context;
  auto coordinator = TRY(wire::Socket::connect(context, settings.coordinator, settings.identity));
  auto trainer = TRY(wire::Socket::connect(context, settings.trainer, settings.identity));
  auto env = TRY(wire::Socket::connect(context, settings.env, settings.identity));
  auto peers = TRY(wire::Socket::listen(context, settings.address, settings.identity));
  Worker* self = nullptr;
  CoordinatorLink link(std::move(coordinator), clock, [&self](wire::Hello::Builder hello) { self->introduce(hello); });
  Worker worker(settings, clock, std::move(engine), std::move(conversation), config, std::move(link),
                std::move(trainer), std::move(env), std::move(peers), context);
  self = &worker;
  return worker.run(stop);
}

}  // namespace tandem::rollout
