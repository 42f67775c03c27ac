#include "rollout/worker.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <map>

#include "rollout/conversation.h"
#include "rollout/peer.h"
#include "rollout/trajectory.h"
#include "rollout/weights_feed.h"

namespace tandem::rollout {

using namespace std::chrono_literals;

namespace {

// What an episode waits for.
enum class Waiting : uint8_t {
  kWeights,
  kSandbox,
  kTokens,
  kTools,
  kGrade,
  kTrainer,
  kCoordinator,
  kHandedOver,
  kClaim
};

struct AgentEpisode {
  EpisodeKey key;
  uint64_t group = 0;
  std::string kind, split;
  uint64_t task_seed = 0, sample_seed = 0, min_version = 0, max_version = 0;
  float temperature = 1;

  Waiting waiting = Waiting::kWeights;
  Trajectory trajectory;
  uint64_t env_lease = 0;
  uint32_t turns = 0, max_turns = 0, tool_calls = 0, prompt_tokens = 0, steals = 0;
  Waiting parked_as = Waiting::kWeights;  // what it waited for when it was handed over
  std::string said;                       // in the last turn
  bool truncated = false;
  Outcome outcome = Outcome::kCompleted;
  std::string reason;  // of an outcome that is not the policy's
  std::optional<double> reward;
  std::map<std::string, double> terms;

  uint64_t request = 0;  // outstanding
  int sends = 0;
  Time started{}, sent{};
};

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
        env_(std::move(env)),
        peers_(std::move(peers)),
        context_(context),
        feed_(config, 0, settings.chunk_window, clock) {}

  void introduce(wire::Hello::Builder hello) {
    hello.setRole("rollout");
    hello.setName(settings_.identity.sender);
    hello.setPid(::getpid());
    hello.setNumericsId(engine_.numerics_id());
    hello.setAddress(peers_.address());
    auto holding = hello.initHolding(static_cast<unsigned>(episodes_.size()));
    unsigned i = 0;
    for (const auto& [id, episode] : episodes_) {
      holding[i].setEpisode(episode.key.episode);
      holding[i++].setAttempt(episode.key.attempt);
    }
    credits_announced_ = UINT32_MAX;
  }

  Status run(const std::atomic<bool>& stop) {
    while (!stop && !stopped_) {
      const bool busy = !engine_.idle();
      if (!busy) {
        wire::Socket* const sockets[] = {&link_.socket(), &trainer_, &env_, &peers_};
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
      auto message = env_.receive();
      if (!message) break;
      on_env(*message);
    }
    for (int i = 0; i < 16; ++i) {
      auto message = peers_.receive();
      if (!message) break;
      if (message->body().isHandover()) on_handover(*message);
    }
  }

  AgentEpisode episode_of(wire::Lease::Reader lease) const {
    AgentEpisode e;
    e.key = {lease.getEpisode(), lease.getAttempt()};
    e.group = lease.getGroup();
    e.kind = lease.getKind();
    e.split = lease.getSplit();
    e.task_seed = lease.getTaskSeed();
    e.sample_seed = lease.getSampleSeed();
    e.min_version = lease.getMinVersion();
    e.max_version = lease.getMaxVersion();
    e.temperature = lease.getTemperature();
    e.started = clock_.now();
    return e;
  }

  void on_coordinator(const wire::Incoming& message) {
    const auto body = message.body();
    switch (body.which()) {
      case wire::Body::GRANT: {
        for (const auto lease : body.getGrant().getLeases()) {
          AgentEpisode e = episode_of(lease);
          const uint64_t id = e.key.episode;
          if (episodes_.contains(id)) forget(id);
          episodes_.emplace(id, std::move(e));
        }
        credits_announced_ = UINT32_MAX;
        return;
      }
      case wire::Body::REVOKE: {
        const auto found = episodes_.find(body.getRevoke().getEpisode());
        if (found != episodes_.end() && found->second.key.attempt == body.getRevoke().getAttempt())
          forget(found->first);
        return;
      }
      case wire::Body::COMMIT_ACK: {
        const auto found = episodes_.find(body.getCommitAck().getEpisode());
        if (found != episodes_.end() && found->second.key.attempt == body.getCommitAck().getAttempt() &&
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
    if (std::exchange(env_epoch_, message.epoch()) != message.epoch()) ask_new_env();
    if (message.body().isWelcome()) return;
    const auto asked = requests_.find(message.id());
    if (asked == requests_.end()) {
      if (message.body().isAcquired()) on_unasked_lease(message.body().getAcquired());
      return;
    }
    const uint64_t id = asked->second;
    requests_.erase(asked);
    const auto found = episodes_.find(id);
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
      if (waits_for_env(e)) send_env(e);
    }
  }
  static bool waits_for_env(const AgentEpisode& e) {
    return e.waiting == Waiting::kSandbox || e.waiting == Waiting::kTools || e.waiting == Waiting::kGrade;
  }

  // The answer to a request that was given up. The environment gives the same lease to the same attempt, so it is let
  // go only where that attempt is not here, or has come back and asks again.
  void on_unasked_lease(wire::Acquired::Reader acquired) {
    const auto found = episodes_.find(acquired.getEpisode());
    if (found == episodes_.end() || found->second.key.attempt != acquired.getAttempt())
      release_lease(acquired.getLease());
  }

  // ---- The life of an episode ----

  // Episodes whose weights are here ask for a sandbox.
  void start_ready() {
    for (auto& [id, e] : episodes_) {
      if (e.waiting != Waiting::kWeights) continue;
      if (engine_.version() > e.max_version) {
        hand_back(e, Outcome::kInfraError,
                  fmt::format("its weights {} are gone, {} are here", e.max_version, engine_.version()));
        continue;
      }
      if (engine_.version() < e.min_version) continue;
      e.waiting = Waiting::kSandbox;
      ask_env(e);
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
    e.trajectory = {.key = e.key, .group = e.group, .numerics_id = engine_.numerics_id()};
    e.trajectory.append(*prompt);
    e.waiting = Waiting::kTokens;
    if (const Status status = engine_.add(e.key.episode, std::move(*prompt), turn_request(e)); !status.ok()) {
      hand_back(e, Outcome::kInfraError, status.message());
    }
  }

  TurnRequest turn_request(const AgentEpisode& e) const {
    return {.max_new_tokens = settings_.max_new_tokens,
            .sampling = {.temperature = e.temperature},
            .seed = e.sample_seed,
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
    ask_env(e);
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
    const Status status =
        engine_.knows(e.key.episode) ? engine_.extend(e.key.episode, *tokens, turn_request(e)) : adopt(e, *tokens);
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
    return engine_.add(e.key.episode, std::move(prompt), turn_request(e));
  }

  void ask_for_grade(AgentEpisode& e, std::string answer) {
    engine_.release(e.key.episode);
    e.said = std::move(answer);
    e.outcome = e.truncated ? Outcome::kTruncated : Outcome::kCompleted;
    e.waiting = Waiting::kGrade;
    ask_env(e);
  }

  // First the trainer has it on disk, then the coordinator hears of it.
  void deliver(AgentEpisode& e) {
    release_env(e);
    e.waiting = Waiting::kTrainer;
    send_trajectory(e);
  }
  void on_stored(const EpisodeKey& key) {
    const auto found = episodes_.find(key.episode);
    if (found == episodes_.end() || found->second.key != key || found->second.waiting != Waiting::kTrainer) return;
    commit(found->second);
  }
  void commit(AgentEpisode& e) {
    e.waiting = Waiting::kCoordinator;
    send_commit(e);
  }

  void hand_back(AgentEpisode& e, Outcome outcome, const std::string& reason) {
    spdlog::warn("episode {} attempt {} ({}): {}", e.key.episode, e.key.attempt, to_string(outcome), reason);
    engine_.release(e.key.episode);
    release_env(e);
    e.outcome = outcome;
    e.reason = reason;
    e.reward.reset();
    commit(e);
  }

  void forget(uint64_t id) {
    AgentEpisode& e = episodes_.at(id);
    engine_.release(id);
    release_env(e);
    requests_.erase(e.request);
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
    auto out = message.body().initHandover();
    auto lease = out.initLease();
    lease.setEpisode(e.key.episode);
    lease.setAttempt(e.key.attempt);
    lease.setGroup(e.group);
    lease.setKind(e.kind);
    lease.setSplit(e.split);
    lease.setTaskSeed(e.task_seed);
    lease.setSampleSeed(e.sample_seed);
    lease.setTemperature(e.temperature);
    lease.setMinVersion(e.min_version);
    lease.setMaxVersion(e.max_version);
    write_trajectory(e.trajectory, out.initTrajectory(), message);
    const bool begun = e.waiting == Waiting::kTools;
    out.setEnvLease(begun ? e.env_lease : 0);
    out.setSaid(e.said);
    out.setTurns(e.turns);
    out.setMaxTurns(e.max_turns);
    out.setToolCalls(e.tool_calls);
    out.setSteals(e.steals + 1);
    out.setPromptTokens(e.prompt_tokens);
    if (!found->second.send("", message).ok()) return false;
    e.parked_as = e.waiting;
    e.waiting = Waiting::kHandedOver;
    e.sent = clock_.now();
    requests_.erase(e.request);
    return true;
  }

  // The other side never claimed it.
  void take_back(AgentEpisode& e) {
    e.waiting = e.parked_as;
    if (e.waiting != Waiting::kWeights) ask_env(e);
  }

  void on_handover(const wire::Incoming& message) {
    const auto in = message.body().getHandover();
    auto trajectory = read_trajectory(in.getTrajectory(), message);
    if (!trajectory) return spdlog::warn("{}", trajectory.error().message());  // the other side takes it back
    const uint64_t id = in.getLease().getEpisode();
    if (episodes_.contains(id)) return;
    AgentEpisode e = episode_of(in.getLease());
    e.trajectory = std::move(*trajectory);
    e.env_lease = in.getEnvLease();
    e.said = in.getSaid();
    e.turns = in.getTurns();
    e.max_turns = in.getMaxTurns();
    e.tool_calls = in.getToolCalls();
    e.steals = in.getSteals();
    e.prompt_tokens = in.getPromptTokens();
    e.waiting = Waiting::kClaim;
    send_claim(episodes_.emplace(id, std::move(e)).first->second);
  }

  void send_claim(AgentEpisode& e) {
    e.sent = clock_.now();
    wire::Outgoing message;
    auto claim = message.body().initClaim();
    claim.setEpisode(e.key.episode);
    claim.setAttempt(e.key.attempt);
    (void)link_.send(message);
  }

  // What was handed over has found its taker; the sandbox went with it.
  void on_gone(const EpisodeKey& key) {
    const auto found = episodes_.find(key.episode);
    if (found == episodes_.end() || found->second.key != key) return;
    found->second.env_lease = 0;
    forget(key.episode);
  }

  void on_mine(const EpisodeKey& key) {
    const auto found = episodes_.find(key.episode);
    if (found == episodes_.end() || found->second.key != key || found->second.waiting != Waiting::kClaim) return;
    AgentEpisode& e = found->second;
    ++taken_;
    if (e.env_lease == 0) {
      e.waiting = Waiting::kWeights;
      return;
    }
    // The turn is answered again, not run again. The engine computes the tokens when the next turn starts.
    e.waiting = Waiting::kTools;
    ask_env(e);
  }

  // ---- Requests ----

  void ask_env(AgentEpisode& e) {
    requests_.erase(e.request);
    e.request = ++last_request_;
    e.sends = 1;
    requests_[e.request] = e.key.episode;
    send_env(e);
  }
  void send_env(AgentEpisode& e) {
    e.sent = clock_.now();
    wire::Outgoing message(e.request);
    if (e.waiting == Waiting::kSandbox) {
      auto acquire = message.body().initAcquire();
      acquire.setEpisode(e.key.episode);
      acquire.setAttempt(e.key.attempt);
      acquire.setKind(e.kind);
      acquire.setSplit(e.split);
      acquire.setSeed(e.task_seed);
    } else if (e.waiting == Waiting::kTools) {
      auto call = message.body().initCall();
      call.setLease(e.env_lease);
      call.setTurn(e.turns);
      call.setMessage(e.said);
    } else {
      auto score = message.body().initScore();
      score.setLease(e.env_lease);
      score.setAnswer(e.said);
    }
    (void)env_.send("", message);
  }
  void release_env(AgentEpisode& e) {
    if (e.env_lease != 0) release_lease(std::exchange(e.env_lease, 0));
  }
  void release_lease(uint64_t lease) {
    wire::Outgoing message;
    message.body().setRelease(lease);
    (void)env_.send("", message);
  }
  void send_trajectory(AgentEpisode& e) {
    e.sent = clock_.now();
    wire::Outgoing message;
    write_trajectory(e.trajectory, message.body().initTrajectory(), message);
    (void)trainer_.send("", message);
  }
  void send_commit(AgentEpisode& e) {
    e.sent = clock_.now();
    wire::Outgoing message;
    auto out = message.body().initCommit();
    out.setEpisode(e.key.episode);
    out.setAttempt(e.key.attempt);
    out.setOutcome(std::string(to_string(e.outcome)));
    out.setReason(e.reason);
    out.setHasReward(e.reward.has_value());
    out.setReward(e.reward.value_or(0));
    auto terms = out.initTerms(static_cast<unsigned>(e.terms.size()));
    unsigned i = 0;
    for (const auto& [name, value] : e.terms) {
      terms[i].setName(name);
      terms[i++].setValue(value);
    }
    uint64_t first = UINT64_MAX, last = 0;
    uint32_t sampled = 0;
    for (size_t t = 0; t < e.trajectory.tokens.size(); ++t) {
      if (!e.trajectory.sampled[t]) continue;
      first = std::min(first, e.trajectory.versions[t]);
      last = std::max(last, e.trajectory.versions[t]);
      ++sampled;
    }
    out.setFirstVersion(sampled > 0 ? first : engine_.version());
    out.setLastVersion(sampled > 0 ? last : engine_.version());
    out.setTurns(e.turns);
    out.setToolCalls(e.tool_calls);
    out.setSeconds(to_seconds(clock_.now() - e.started));
    out.setPromptTokens(e.prompt_tokens);
    out.setSampledTokens(sampled);
    out.setSteals(e.steals);
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
      env_is_slow = env_is_slow || (waits_for_env(e) && waited > 1s);
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
            send_env(e);
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
    wire::Outgoing message;  // is it still who was asked?
    message.body().initHello();
    (void)env_.send("", message);
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
    static constexpr const char* kNames[] = {"weights",     "sandbox",           "tokens", "tools", "grade", "trainer",
                                             "coordinator", "a claim elsewhere", "a claim"};
    std::string text = engine_.idle() ? "waiting" : "sampling";
    for (const auto& [waiting, count] : counts)
      text += fmt::format(", {} for {}", count, kNames[static_cast<int>(waiting)]);
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
  wire::Socket trainer_, env_, peers_;
  zmq::context_t& context_;
  std::map<std::string, wire::Socket> thieves_;  // lines to other rollouts, by address
  WeightsFeed feed_;
  std::shared_ptr<const model::Weights> live_;
  std::map<uint64_t, AgentEpisode> episodes_;
  std::map<uint64_t, uint64_t> requests_;  // id -> episode
  uint64_t last_request_ = 0, finished_ = 0, swaps_ = 0, received_bytes_ = 0, handed_over_ = 0, taken_ = 0;
  uint32_t credits_announced_ = UINT32_MAX;
  uint64_t env_epoch_ = 0;  // of the environment server that answered last
  Time next_resend_{}, next_env_hello_{};
  bool stopped_ = false;
  double idle_seconds_ = 0, tool_seconds_ = 0, fetch_seconds_ = 0, last_pause_ms_ = 0, max_pause_ms_ = 0;
};

}  // namespace

Status run_worker(const WorkerSettings& settings, const Clock& clock, const std::atomic<bool>& stop) {
  auto conversation = TRY(Conversation::load(settings.model));
  auto weights = std::make_shared<model::Weights>(TRY(model::load_weights(settings.model, false)));
  auto stream = TRY(kernels::Stream::cpu(settings.threads));
  TRY(weights->pack(stream));
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
