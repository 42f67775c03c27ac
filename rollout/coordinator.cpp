#include "rollout/coordinator.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <set>

#include "base/record_log.h"
#include "rollout/books/lease.h"
#include "rollout/books/metrics_log.h"

namespace tandem::rollout {

using namespace std::chrono_literals;

namespace {

fs::path log_path(const fs::path& run_dir) { return run_dir / "ledger" / "events.log"; }

Status replay(const fs::path& path, Ledger& ledger) {
  TRY(read_log(path, [&](std::string_view record, uint64_t) -> Status {
    ledger.step(TRY(event_from_json(TRY(parse_json(record)))));
    return {};
  }));
  return {};
}

struct Peer {
  std::string role;
  int pid = 0;
  uint64_t epoch = 0;
  Time last_seen{};
  double since = 0;  // unix time of its hello
  bool lost = false;
  std::string doing;
  Json metrics;
  std::string address;  // where other rollouts reach it
};

class Coordinator {
 public:
  Coordinator(const CoordinatorSettings& settings, const Clock& clock, wire::Socket socket, RecordLog log,
              Ledger ledger)
      : settings_(settings),
        clock_(clock),
        socket_(std::move(socket)),
        log_(std::move(log)),
        ledger_(std::move(ledger)),
        metrics_log_(settings.run_dir / "metrics.jsonl") {
    // What was leased before our start may take as long as what we lease.
    for (const EpisodeRecord& episode : ledger_.episodes()) {
      if (episode.state == EpisodeState::kLeased) set_deadline({episode.episode, episode.attempt});
    }
  }

  Status run(const std::atomic<bool>& stop) {
    // Of steps whose trainer and coordinator were killed before their line was written.
    for (const uint64_t step : metrics_log_.missing(ledger_.steps_trained())) carry_out(StepDone{step});
    done_ = ledger_.finished();
    if (!done_) TRY(apply(CoordinatorStarted{}));
    while (!done_) {
      wire::Socket* const sockets[] = {&socket_};
      wire::wait(sockets, 50ms);
      for (int i = 0; i < 256; ++i) {
        auto message = socket_.receive();
        if (!message) break;
        TRY(on(*message));
      }
      TRY(check_deadlines());
      if (stop && !finishing_) TRY(finish());
      if (finishing_ && (trainer_saved_ || clock_.now() > finish_deadline_)) done_ = true;
      report();
    }
    farewell();
    return log_.sync();
  }

 private:
  // ---- Events in ----

  Status apply(const Event& event, bool durable = false) {
    TRY(log_.append(dump_json(to_json(event))));
    if (durable) TRY(log_.sync());
    for (const Action& action : ledger_.step(event)) std::visit([&](const auto& a) { carry_out(a); }, action);
    return {};
  }

  Status on(const wire::Incoming& message) {
    const auto body = message.body();
    if (body.isWatch()) {
      watcher_ = message.sender();
      return {};
    }
    if (body.isFinish()) return finishing_ ? Status() : finish();
    if (body.isHello()) return on_hello(message, body.getHello());
    const auto found = peers_.find(message.sender());
    if (found == peers_.end() || found->second.epoch != message.epoch() || found->second.lost) {
      // Someone from before our start, or given up for lost: it must introduce itself.
      wire::Outgoing welcome(0);
      welcome.body().initWelcome();
      (void)socket_.send(message.sender(), welcome);
      return {};
    }
    Peer& peer = found->second;
    peer.last_seen = clock_.now();
    const std::string& worker = message.sender();
    switch (body.which()) {
      case wire::Body::HEARTBEAT: {
        peer.doing = body.getHeartbeat().getDoing();
        if (auto metrics = parse_json(std::string_view(body.getHeartbeat().getMetrics().cStr())))
          peer.metrics = *metrics;
        return {};
      }
      case wire::Body::PULL:
        return apply(Pull{worker, body.getPull().getCredits()});
      case wire::Body::COMMIT:
        return on_commit(worker, body.getCommit());
      case wire::Body::TRAINED: {
        Trained event{.step = body.getTrained().getStep(), .missing = {}};
        if (auto metrics = parse_json(std::string_view(body.getTrained().getMetrics().cStr()))) {
          trainer_metrics_ = {event.step, *metrics};
          for (const Json& key : metrics->value("missing", Json::array()))
            event.missing.push_back({key[0].get<uint64_t>(), key[1].get<uint32_t>()});
        }
        TRY(apply(event, true));
        // Its hello may have come first, and with it the step but not what is to be said of it.
        if (without_metrics_.contains(event.step)) carry_out(StepDone{event.step});
        return {};
      }
      case wire::Body::CHECKPOINTED: {
        TRY(apply(Checkpointed{body.getCheckpointed()}, true));
        if (finishing_) trainer_saved_ = ledger_.checkpointed() >= ledger_.steps_trained();
        return {};
      }
      case wire::Body::CLAIM: {
        const EpisodeKey key{body.getClaim().getEpisode(), body.getClaim().getAttempt()};
        return apply(Claimed{key, worker}, true);
      }
      case wire::Body::DECLINED: {
        for (const auto& [name, other] : peers_) {
          if (other.address == std::string_view(body.getDeclined().cStr())) return apply(StealEnded{name});
        }
        return {};
      }
      default:
        return {};
    }
  }

  Status on_hello(const wire::Incoming& message, wire::Hello::Reader hello) {
    Peer& peer = peers_[message.sender()];
    const bool again = peer.epoch == message.epoch() && !peer.lost;
    peer = {.role = hello.getRole(),
            .pid = hello.getPid(),
            .epoch = message.epoch(),
            .last_seen = clock_.now(),
            .since = clock_.unix_seconds(),
            .lost = false,
            .doing = "starting",
            .metrics = {},
            .address = hello.getAddress()};
    wire::Outgoing welcome(1);
    welcome.body().initWelcome().setStep(ledger_.steps_trained());
    (void)socket_.send(message.sender(), welcome);
    if (again && peer.role != "trainer") return {};  // a trainer that says hello twice has let go of its batches
    spdlog::info("{} joined (pid {}, {})", message.sender(), peer.pid, std::string_view(hello.getNumericsId().cStr()));
    if (peer.role == "rollout") {
      WorkerJoined event{.worker = message.sender(), .holding = {}};
      for (const auto key : hello.getHolding()) event.holding.push_back({key.getEpisode(), key.getAttempt()});
      return apply(event);
    }
    if (peer.role == "trainer") {
      trainer_ = message.sender();
      if (hello.getStep() > ledger_.steps_trained() && !ledger_.batch(hello.getStep())) {
        return Status::corrupt(fmt::format("the log ends before step {}, which the checkpoint of {} has trained",
                                           hello.getStep(), message.sender()))
            .at(log_path(settings_.run_dir).string())
            .hint("restore the log from a copy, or remove the checkpoints after its last step");
      }
      TRY(apply(TrainerJoined{hello.getStep()}, true));
      if (!finishing_) return {};
      // It came back while the run is being stopped.
      TRY(apply(FinishRequested{}));
      return ask_for_checkpoint();
    }
    return {};
  }

  Status on_commit(const std::string& worker, wire::Commit::Reader in) {
    Commit event{.worker = worker,
                 .key = {in.getEpisode(), in.getAttempt()},
                 .reason = in.getReason(),
                 .reward = {},
                 .terms = {},
                 .first_version = in.getFirstVersion(),
                 .last_version = in.getLastVersion(),
                 .turns = in.getTurns(),
                 .tool_calls = in.getToolCalls(),
                 .steals = in.getSteals(),
                 .prompt_tokens = in.getPromptTokens(),
                 .sampled_tokens = in.getSampledTokens(),
                 .seconds = in.getSeconds()};
    const auto outcome = outcome_from(in.getOutcome().cStr());
    event.outcome = outcome ? *outcome : Outcome::kInfraError;
    if (in.getHasReward()) event.reward = in.getReward();
    for (const auto term : in.getTerms()) event.terms[term.getName()] = term.getValue();
    deadlines_.erase(event.key);
    return apply(event, true);
  }

  // ---- Actions out ----

  void carry_out(const Grant& grant) {
    wire::Outgoing message;
    auto leases = message.body().initGrant().initLeases(static_cast<unsigned>(grant.leases.size()));
    for (unsigned i = 0; i < leases.size(); ++i) {
      write_lease(grant.leases[i], leases[i]);
      set_deadline(grant.leases[i].key);
    }
    (void)socket_.send(grant.worker, message);  // a worker that is gone will be found silent
  }
  void carry_out(const Acknowledge& ack) {
    wire::Outgoing message;
    auto out = message.body().initCommitAck();
    out.setEpisode(ack.key.episode);
    out.setAttempt(ack.key.attempt);
    (void)socket_.send(ack.worker, message);
  }
  void carry_out(const Revoke& revoke) {
    wire::Outgoing message;
    auto out = message.body().initRevoke();
    out.setEpisode(revoke.key.episode);
    out.setAttempt(revoke.key.attempt);
    deadlines_.erase(revoke.key);
    (void)socket_.send(revoke.worker, message);
  }
  void carry_out(const Steal& steal) {
    wire::Outgoing message;
    auto out = message.body().initSteal();
    out.setCount(steal.count);
    out.setThief(peers_[steal.thief].address);
    (void)socket_.send(steal.victim, message);
  }
  void carry_out(const Transferred& transferred) {
    const auto fill = [&](wire::EpisodeAttempt::Builder out) {
      out.setEpisode(transferred.key.episode);
      out.setAttempt(transferred.key.attempt);
    };
    wire::Outgoing yours;
    fill(yours.body().initClaim());
    (void)socket_.send(transferred.to, yours);
    if (transferred.from == transferred.to) return;
    wire::Outgoing gone;
    fill(gone.body().initClaimed());
    (void)socket_.send(transferred.from, gone);
    ++steals_;
  }
  void carry_out(const TrainBatch& batch) {
    wire::Outgoing message;
    auto out = message.body().initTrain();
    out.setStep(batch.step);
    auto entries = out.initEntries(static_cast<unsigned>(batch.entries.size()));
    for (unsigned i = 0; i < entries.size(); ++i) {
      entries[i].setEpisode(batch.entries[i].key.episode);
      entries[i].setAttempt(batch.entries[i].key.attempt);
      entries[i].setGroup(batch.entries[i].group);
      entries[i].setAdvantage(batch.entries[i].advantage);
    }
    (void)socket_.send(trainer_, message);  // a trainer that joins later gets it again
  }
  void carry_out(const StepDone& done) {
    Json line = {{"step", done.step}, {"time", clock_.unix_seconds()}};
    if (const auto* groups = ledger_.step_groups(done.step)) {
      line["success"] = groups->success;
      line["groups"] = groups->groups;
      line["groups_with_signal"] = groups->with_signal;
      for (const auto& [kind, sums] : groups->kinds) line["success_by_kind"][kind] = sums.first / sums.second;
    }
    if (trainer_metrics_.first == done.step) {
      for (const auto& [key, value] : trainer_metrics_.second.items()) line[key] = value;
      without_metrics_.erase(done.step);
    } else {
      without_metrics_.insert(done.step);
    }
    for (const auto& [name, peer] : peers_) {
      if (peer.role != "trainer") line["roles"][name] = peer.metrics;
    }
    last_step_ = line;
    metrics_log_.append(line);
  }
  void carry_out(const PhaseDone& done) { spdlog::info("phase {} is done", done.phase); }
  void carry_out(const Finish&) { done_ = true; }

  // ---- Time ----

  void set_deadline(const EpisodeKey& key) { deadlines_[key] = clock_.now() + from_seconds(settings_.episode_seconds); }

  Status check_deadlines() {
    const Time now = clock_.now();
    for (auto& [name, peer] : peers_) {
      if (peer.lost || now - peer.last_seen < from_seconds(settings_.silence_seconds)) continue;
      peer.lost = true;
      spdlog::warn("{} (pid {}) has been silent for {:.1f} s; it was {}", name, peer.pid,
                   to_seconds(now - peer.last_seen), peer.doing);
      if (peer.role == "rollout") TRY(apply(WorkerLost{name}));
    }
    std::vector<EpisodeKey> late;
    for (const auto& [key, deadline] : deadlines_) {
      if (deadline <= now) late.push_back(key);
    }
    for (const EpisodeKey& key : late) {
      deadlines_.erase(key);
      spdlog::warn("episode {} attempt {} took longer than {} s", key.episode, key.attempt, settings_.episode_seconds);
      TRY(apply(Expired{key}));
    }
    return {};
  }

  // Asks the trainer for a checkpoint; the run ends when it is there.
  Status finish() {
    finishing_ = true;
    finish_deadline_ = clock_.now() + 120s;
    spdlog::info("finishing: waiting for a checkpoint");
    TRY(apply(FinishRequested{}));
    return ask_for_checkpoint();
  }
  // A trainer that is not there now is asked when it joins.
  Status ask_for_checkpoint() {
    wire::Outgoing message;
    message.body().initStop().setReason("finish");
    if (!trainer_.empty()) (void)socket_.send(trainer_, message);
    return {};
  }

  void farewell() {
    report(true);
    for (const auto& [name, peer] : peers_) {
      wire::Outgoing message;
      message.body().initStop().setReason("done");
      (void)socket_.send(name, message);
    }
    // ZeroMQ sends in the background; what it holds back is dropped when the socket closes.
    socket_.handle().set(zmq::sockopt::linger, 500);
  }

  void report(bool last = false) {
    const Time now = clock_.now();
    if (watcher_.empty() || (!last && now < next_report_)) return;
    next_report_ = now + 500ms;
    Json status = progress_of(ledger_);
    status.update({{"finishing", finishing_}, {"last", last}, {"steals", steals_}});
    for (const auto& [name, peer] : peers_) {
      status["roles"][name] = {{"role", peer.role},
                               {"pid", peer.pid},
                               {"lost", peer.lost},
                               {"since", peer.since},
                               {"silent", to_seconds(now - peer.last_seen)},
                               {"doing", peer.doing},
                               {"metrics", peer.metrics}};
    }
    status["last_step"] = last_step_;
    wire::Outgoing message;
    message.body().setStatusReport(dump_json(status));
    (void)socket_.send(watcher_, message);
  }

  const CoordinatorSettings settings_;
  const Clock& clock_;
  wire::Socket socket_;
  RecordLog log_;
  Ledger ledger_;
  MetricsLog metrics_log_;
  std::map<std::string, Peer> peers_;
  std::map<EpisodeKey, Time> deadlines_;
  std::string trainer_, watcher_;
  std::pair<uint64_t, Json> trainer_metrics_;  // of a step
  std::set<uint64_t> without_metrics_;         // steps that are known from a hello alone
  Json last_step_;
  uint64_t steals_ = 0;
  bool finishing_ = false, trainer_saved_ = false, done_ = false;
  Time finish_deadline_{}, next_report_{};
};

}  // namespace

Result<Ledger> read_ledger(const fs::path& run_dir, RunPlan plan) {
  Ledger ledger(std::move(plan));
  const fs::path path = log_path(run_dir);
  if (fs::exists(path)) TRY(replay(path, ledger));
  return ledger;
}

Json progress_of(const Ledger& ledger) {
  const Books books = ledger.books();
  return {{"phase", to_string(ledger.phase())},
          {"step", ledger.steps_trained()},
          {"steps", ledger.plan().steps},
          {"late_commits", ledger.late_commits()},
          {"episodes",
           {{"admitted", books.admitted},
            {"trained", books.trained},
            {"dropped", books.dropped},
            {"in_flight", books.in_flight},
            {"states", ledger.in_states()}}}};
}

Status run_coordinator(const CoordinatorSettings& settings, const Clock& clock, const std::atomic<bool>& stop) {
  TRY(make_directories(settings.run_dir / "ledger"));
  uint64_t cut = 0;
  auto log = TRY(RecordLog::open(log_path(settings.run_dir), &cut));
  if (cut > 0)
    spdlog::warn("{}: the last {} bytes were torn off by a crash and cut", log_path(settings.run_dir).string(), cut);
  auto ledger = TRY(read_ledger(settings.run_dir, settings.plan));
  zmq::context_t context;
  auto socket = TRY(wire::Socket::listen(context, settings.address, settings.identity));
  const Books books = ledger.books();
  spdlog::info("coordinator on {}: step {} of {}, {} episodes in the books", settings.address, ledger.steps_trained(),
               settings.plan.steps, books.admitted);
  return Coordinator(settings, clock, std::move(socket), std::move(log), std::move(ledger)).run(stop);
}

}  // namespace tandem::rollout
