#include "rollout/coordinator.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <set>

#include "rollout/books/lease.h"
#include "rollout/books/measured_checkpoints.h"
#include "rollout/books/metrics_log.h"
#include "rollout/members.h"
#include "rollout/run_notes.h"

namespace tandem::rollout {

using namespace std::chrono_literals;

namespace {

constexpr size_t kKeptMetrics = 64;
constexpr Duration kVerdictPatience = std::chrono::seconds(30);
constexpr Duration kThiefRests = std::chrono::milliseconds(250);

// The rank that orders of batches go to. Further ranks share its work, and say only that they are there.
constexpr wire::Peer kLeadTrainer{wire::Role::kTrainer, 0};

// Such a peer follows the directory.
bool fetches_weights(const wire::Peer& peer) {
  return peer.role == wire::Role::kRollout || peer.role == wire::Role::kRelay;
}

class Coordinator {
 public:
  Coordinator(const CoordinatorSettings& settings, const Clock& clock, wire::Socket socket, LedgerLog log)
      : settings_(settings),
        clock_(clock),
        socket_(std::move(socket)),
        log_(std::move(log)),
        members_(settings.directory),
        metrics_log_(settings.run_dir / "metrics.jsonl") {
    // What was leased before our start may take as long as what we lease.
    for (const EpisodeKey& key : ledger_.leased()) set_deadline(key);
  }

  Status run(const std::atomic<bool>& stop) {
    // Steps may lack their line where trainer and coordinator were killed before it was written.
    for (const uint64_t step : metrics_log_.missing(ledger_.steps_trained())) carry_out(StepDone{step});
    if (settings_.standby != nullptr) (void)settings_.standby->extend("metrics.jsonl", metrics_log_.bytes());
    done_ = ledger_.finished();
    link_measured_checkpoints(settings_.run_dir, ledger_);
    if (!done_) TRY(apply(CoordinatorStarted{}));
    TRY(carry_out_pending());
    while (!done_) {
      wire::Socket* const sockets[] = {&socket_};
      wire::wait(sockets, 50ms, settings_.standby != nullptr ? settings_.standby->wake_fd() : -1);
      for (int i = 0; i < 256; ++i) {
        auto message = socket_.receive();
        if (!message) break;
        TRY(on(*message));
      }
      for (const Compared& compared : judging_.take()) TRY(on_compared(compared));
      wait_with_deadlines();
      TRY(check_deadlines());
      TRY(end_thefts());
      if (stop && !finishing_ && !notes_.verdict()) TRY(finish());
      TRY(carry_out_pending());
      if (finishing_ && ((trainer_saved_ && uncopied_.empty()) || clock_.now() > finish_deadline_)) done_ = true;
      publish_directory();
      report();
      if (notes_.verdict() && !done_ && !finishing_ && (stop || is_verdict_old())) break;
    }
    farewell();
    TRY(log_.sync());
    return done_ ? Status() : Status::unfit(*notes_.verdict());
  }

 private:
  // ---- Events in ----

  // The supervisor ends the run when it has heard why; it may not be there yet, and what ends before it has heard
  // counts as a machine that cannot be worked on.
  bool is_verdict_old() {
    if (!verdict_at_) {
      verdict_at_ = clock_.now();
      next_report_ = {};
    }
    return clock_.now() - *verdict_at_ > kVerdictPatience;
  }

  // Whether what follows from an event waits until the event survives the machine.
  enum class Durable : uint8_t { kNo, kYes };

  // What follows from the event is carried out at the end of the turn.
  Status apply(const Event& event, Durable durable = Durable::kNo) {
    auto actions = TRY(log_.apply(event));
    must_sync_ = must_sync_ || durable == Durable::kYes;
    std::move(actions.begin(), actions.end(), std::back_inserter(pending_));
    return {};
  }

  // One wait for the disk a turn, however many events came in.
  Status carry_out_pending() {
    if (settings_.standby != nullptr) return carry_out_copied();
    if (std::exchange(must_sync_, false)) TRY(log_.sync());
    for (const Action& action : std::exchange(pending_, {})) std::visit([&](const auto& a) { carry_out(a); }, action);
    return log_.save_snapshot_if_due();
  }

  // The same where the run has a standby: both disks are waited for, and the second one without standing still.
  Status carry_out_copied() {
    standby::Replicator& standby = *settings_.standby;
    standby.clear();
    if (log_.bytes() > copied_bytes_) {
      copied_bytes_ = log_.bytes();
      copied_mark_ = standby.extend("ledger/events.log", copied_bytes_);
    }
    const bool is_durable = std::exchange(must_sync_, false);
    if (is_durable) TRY(log_.sync());
    if (is_durable || !pending_.empty())
      uncopied_.push_back({.mark = is_durable ? copied_mark_ : 0, .actions = std::exchange(pending_, {})});
    TRY(standby.check());
    while (!uncopied_.empty() && standby.covers(uncopied_.front().mark)) {
      for (const Action& action : uncopied_.front().actions) std::visit([&](const auto& a) { carry_out(a); }, action);
      uncopied_.pop_front();
    }
    return log_.save_snapshot_if_due();
  }

  // No episode is late while the run waits for its standby.
  void wait_with_deadlines() {
    const Time now = clock_.now();
    const Duration since = now - std::exchange(last_turn_, now);
    if (settings_.standby == nullptr || !settings_.standby->is_waited_for()) return;
    for (auto& [key, deadline] : deadlines_) deadline += since;
  }

  Status on(const wire::Incoming& message) {
    const auto body = message.body();
    if (body.isWatch()) {
      watcher_ = message.sender();
      return {};
    }
    if (body.isFinish()) return finishing_ ? Status() : finish();
    const auto peer = wire::parse_peer(message.sender());
    if (!peer) return on_stranger(message);
    if (body.isHello()) return on_hello(*peer, message, body.getHello());
    Members::Member* const member = members_.hear(*peer, message.epoch(), clock_.now());
    if (member == nullptr) {
      // Someone from before our start, or given up for lost: it must introduce itself.
      wire::Outgoing welcome(0);
      welcome.body().initWelcome();
      (void)socket_.send(message.sender(), welcome);
      return {};
    }
    const std::string& worker = message.sender();
    // It comes again; the log is not to grow by it while nothing can follow from it.
    if (body.isCommit() && settings_.standby != nullptr && settings_.standby->is_waited_for()) return {};
    switch (body.which()) {
      case wire::Body::HEARTBEAT: {
        member->doing = body.getHeartbeat().getDoing();
        if (auto metrics = parse_json(std::string_view(body.getHeartbeat().getMetrics().cStr())))
          member->metrics = *metrics;
        return {};
      }
      case wire::Body::PULL:
        return apply(Pull{worker, body.getPull().getCredits()});
      case wire::Body::COMMIT:
        return on_commit(worker, body.getCommit());
      case wire::Body::TRAINED: {
        if (*peer != kLeadTrainer) return {};
        Trained event{.step = body.getTrained().getStep(), .missing = {}};
        if (auto metrics = parse_json(std::string_view(body.getTrained().getMetrics().cStr()))) {
          trainer_metrics_[event.step] = *metrics;
          while (trainer_metrics_.size() > kKeptMetrics) trainer_metrics_.erase(trainer_metrics_.begin());
          for (const Json& key : metrics->value("missing", Json::array()))
            event.missing.push_back({key[0].get<uint64_t>(), key[1].get<uint32_t>()});
        }
        TRY(apply(event, Durable::kYes));
        // Its hello may have come first, and with it the step but not what is to be said of it.
        if (without_metrics_.contains(event.step)) carry_out(StepDone{event.step});
        return {};
      }
      case wire::Body::CHECKPOINTED: {
        if (*peer != kLeadTrainer) return {};
        TRY(apply(Checkpointed{body.getCheckpointed()}, Durable::kYes));
        link_measured_checkpoints(settings_.run_dir, ledger_);
        if (finishing_) trainer_saved_ = ledger_.checkpointed() >= ledger_.steps_trained();
        return {};
      }
      case wire::Body::CLAIM: {
        const EpisodeKey key{body.getClaim().getEpisode(), body.getClaim().getAttempt()};
        return apply(Claimed{key, worker, body.getClaim().getClaims()}, Durable::kYes);
      }
      case wire::Body::DECLINED: {
        const auto thief = members_.directory().at(body.getDeclined().cStr());
        if (thief) resting_[to_string(*thief)] = clock_.now() + kThiefRests;
        return {};
      }
      case wire::Body::LEAVE: {
        if (members_.directory().find(*peer) != nullptr) spdlog::info("{} leaves", message.sender());
        members_.leave(*peer);
        send_directory(*peer);
        return {};
      }
      default:
        return {};
    }
  }

  // An operator may ask where everybody is.
  Status on_stranger(const wire::Incoming& message) {
    if (!message.body().isHello()) return {};
    wire::Outgoing answer(message.id());
    members_.directory().write(answer.body().initPeers());
    (void)socket_.send(message.sender(), answer);
    return {};
  }

  Status on_hello(const wire::Peer& peer, const wire::Incoming& message, wire::Hello::Reader hello) {
    const auto joined = members_.join({.peer = peer,
                                       .epoch = message.epoch(),
                                       .pid = hello.getPid(),
                                       .address = hello.getAddress(),
                                       .host = hello.getHost()},
                                      clock_.now(), clock_.unix_seconds());
    if (!joined || *joined == Members::Joined::kOutdated) {
      if (std::exchange(refused_[peer], message.epoch()) != message.epoch()) {
        spdlog::warn("{} (pid {}) is not heard: {}", message.sender(), hello.getPid(),
                     joined ? "a later life of it is there" : joined.error().message());
      }
      // Its machine was given up for lost, and it goes on there: nobody else would end it.
      if (joined) {
        wire::Outgoing stop;
        stop.body().initStop().setReason("a later life of it is there");
        (void)socket_.send(message.sender(), stop);
      }
      return {};
    }
    wire::Outgoing welcome(1);
    welcome.body().initWelcome().setStep(ledger_.steps_trained());
    (void)socket_.send(message.sender(), welcome);
    if (fetches_weights(peer)) send_directory(peer);
    const bool again = *joined == Members::Joined::kAgain;
    if (again && peer != kLeadTrainer) return {};  // a trainer that says hello twice has let go of its batches
    spdlog::info("{} joined (pid {}, {})", message.sender(), hello.getPid(),
                 std::string_view(hello.getNumericsId().cStr()));
    if (peer.role == wire::Role::kRollout) {
      WorkerJoined event{.worker = message.sender(), .holding = {}};
      for (const auto key : hello.getHolding()) event.holding.push_back({key.getEpisode(), key.getAttempt()});
      return apply(event);
    }
    if (peer == kLeadTrainer) {
      if (hello.getStep() > ledger_.steps_trained() && !ledger_.batch(hello.getStep())) {
        return Status::corrupt(fmt::format("the log ends before step {}, which the checkpoint of {} has trained",
                                           hello.getStep(), message.sender()))
            .at(ledger_log_path(settings_.run_dir).string())
            .hint("restore the log from a copy, or remove the checkpoints after its last step");
      }
      TRY(apply(TrainerJoined{hello.getStep()}, Durable::kYes));
      if (!finishing_) return {};
      // It came back while the run is being stopped.
      TRY(apply(FinishRequested{}));
      return ask_for_checkpoint();
    }
    return {};
  }

  Status on_commit(const std::string& worker, wire::Commit::Reader in) {
    const Commit event = read_commit(worker, in);
    deadlines_.erase(event.key);
    const uint64_t late = ledger_.late_commits(), given_up = RunNotes::given_up(ledger_.books());
    TRY(apply(event, Durable::kYes));
    if (ledger_.late_commits() == late) notes_.committed(event, ledger_, given_up);
    return {};
  }

  Status on_compared(const Compared& compared) {
    const uint64_t given_up = RunNotes::given_up(ledger_.books());
    TRY(apply(compared, Durable::kYes));
    notes_.compared(compared, ledger_, given_up);
    return {};
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
    const auto thief = wire::parse_peer(steal.thief);
    const auto* entry = thief ? members_.directory().find(*thief) : nullptr;
    if (entry == nullptr) return;  // it has not come back since our start
    out.setThief(entry->address.text());
    (void)socket_.send(steal.victim, message);
  }
  void carry_out(const Transferred& transferred) {
    wire::Outgoing yours;
    write_claim(transferred.key, transferred.claims, yours.body().initClaim());
    (void)socket_.send(transferred.to, yours);
    if (transferred.from == transferred.to) return;
    if (const auto thief = resting_.find(transferred.to); thief != resting_.end()) thief->second = clock_.now();
    carry_out(ClaimRefused{transferred.from, transferred.key, transferred.claims});
    ++steals_;
  }
  void carry_out(const ClaimRefused& refused) {
    wire::Outgoing gone;
    write_claim(refused.key, refused.claims, gone.body().initClaimed());
    (void)socket_.send(refused.worker, gone);
  }
  void carry_out(const TrainBatch& batch) {
    wire::Outgoing message;
    write_batch(batch, message.body().initTrain());
    (void)socket_.send(to_string(kLeadTrainer), message);  // a trainer that joins later gets it again
  }
  void carry_out(const Compare& group) { judging_.compare(group); }
  void carry_out(const StepDone& done) {
    Json line = {{"step", done.step}, {"time", clock_.unix_seconds()}};
    if (const auto* groups = ledger_.step_groups(done.step)) {
      line["success"] = groups->success;
      line["groups"] = groups->groups;
      line["groups_with_signal"] = groups->with_signal;
      for (const auto& [kind, sums] : groups->kinds) line["success_by_kind"][kind] = sums.first / sums.second;
      for (const auto& [name, sums] : groups->terms) line["terms"][name] = sums.first / sums.second;
      if (!groups->behaviour.empty()) line["behaviour"] = means_of(groups->behaviour);
      if (ledger_.plan().branch.ways > 1) {
        const auto& branches = groups->branches;
        line["branches"] = {{"trunks", branches.trunks},
                            {"episodes", branches.episodes},
                            {"sampled_tokens", groups->sampled_tokens - branches.inherited_tokens},
                            {"inherited_tokens", branches.inherited_tokens},
                            {"calls", groups->calls - branches.inherited_calls},
                            {"inherited_calls", branches.inherited_calls}};
      }
    }
    if (const auto found = trainer_metrics_.find(done.step); found != trainer_metrics_.end()) {
      for (const auto& [key, value] : found->second.items()) line[key] = value;
      without_metrics_.erase(done.step);
    } else {
      without_metrics_.insert(done.step);
    }
    if (Json heldout = newest_measurement(ledger_); !heldout.is_null()) line["heldout"] = std::move(heldout);
    if (const Json judge = judging_.metrics(); !judge.is_null()) line["judge"] = judge;
    for (const auto& [peer, member] : members_.all()) {
      if (peer != kLeadTrainer) line["roles"][to_string(peer)] = member.metrics;
    }
    notes_.add_to(line, done.step);
    last_step_ = line;
    metrics_log_.append(line);
    if (settings_.standby != nullptr) (void)settings_.standby->extend("metrics.jsonl", metrics_log_.bytes());
  }
  void carry_out(const HeldoutBegun& begun) {
    link_measured_checkpoints(settings_.run_dir, ledger_);
    spdlog::info("held-out tasks are measured as step {} left the model", begun.step);
  }
  void carry_out(const HeldoutDone& done) {
    link_measured_checkpoints(settings_.run_dir, ledger_);
    const auto& measured = ledger_.measurements().at(done.step);
    spdlog::info("held-out success after step {}: {:.1f} % of {} samples", done.step, 100 * measured.pass_rate(),
                 measured.samples);
  }
  void carry_out(const PhaseDone& done) { spdlog::info("phase {} is done", done.phase); }
  void carry_out(const Finish&) { done_ = true; }

  // ---- Time ----

  Status end_thefts() {
    const Time now = clock_.now();
    while (true) {
      const auto due = std::ranges::find_if(resting_, [&](const auto& entry) { return entry.second <= now; });
      if (due == resting_.end()) return {};
      const std::string thief = due->first;
      resting_.erase(due);
      TRY(apply(StealEnded{thief}));
    }
  }

  void set_deadline(const EpisodeKey& key) { deadlines_[key] = clock_.now() + from_seconds(settings_.episode_seconds); }

  Status check_deadlines() {
    const Time now = clock_.now();
    for (const wire::Peer& peer : members_.lose_silent(now, from_seconds(settings_.silence_seconds))) {
      const Members::Member& member = members_.all().at(peer);
      spdlog::warn("{} (pid {}) has been silent for {:.1f} s; it was {}", to_string(peer), member.pid,
                   to_seconds(now - member.last_seen), member.doing);
      if (peer.role == wire::Role::kRollout) TRY(apply(WorkerLost{to_string(peer)}));
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
    if (members_.knows(kLeadTrainer)) (void)socket_.send(to_string(kLeadTrainer), message);
    return {};
  }

  void farewell() {
    report(true);
    for (const auto& [peer, member] : members_.all()) {
      wire::Outgoing message;
      message.body().initStop().setReason("done");
      (void)socket_.send(to_string(peer), message);
    }
    // ZeroMQ sends in the background; what it holds back is dropped when the socket closes.
    socket_.handle().set(zmq::sockopt::linger, 500);
  }

  // ---- Where everybody is ----

  void send_directory(const wire::Peer& peer) {
    wire::Outgoing message;
    members_.directory().write(message.body().initPeers());
    (void)socket_.send(to_string(peer), message);
  }
  // Rollouts and relays that join later are told then.
  void publish_directory() {
    if (std::exchange(published_, members_.directory().version()) == members_.directory().version()) return;
    for (const auto& [peer, member] : members_.all()) {
      if (fetches_weights(peer) && !member.lost) send_directory(peer);
    }
  }

  void report(bool last = false) {
    const Time now = clock_.now();
    notes_.write(now, last);
    if (watcher_.empty() || (!last && now < next_report_)) return;
    next_report_ = now + 500ms;
    Json status = progress_of(ledger_);
    status.update({{"finishing", finishing_}, {"last", last}, {"steals", steals_}});
    status["roles"] = members_.report(now);
    status["last_step"] = last_step_;
    status["failures"] = notes_.failures();
    if (settings_.standby != nullptr) status["standby"] = settings_.standby->report(clock_.unix_seconds());
    if (notes_.verdict() && !done_) status["given_up"] = *notes_.verdict();
    wire::Outgoing message;
    message.body().setStatusReport(dump_json(status));
    (void)socket_.send(watcher_, message);
  }

  const CoordinatorSettings settings_;
  const Clock& clock_;
  wire::Socket socket_;
  LedgerLog log_;
  std::vector<Action> pending_;
  bool must_sync_ = false;
  struct Uncopied {  // what follows from events that the standby does not have yet
    uint64_t mark = 0;
    std::vector<Action> actions;
  };
  std::deque<Uncopied> uncopied_;
  uint64_t copied_bytes_ = 0, copied_mark_ = 0;
  Time last_turn_ = clock_.now();
  const Ledger& ledger_ = log_.ledger();
  Members members_;
  Judging judging_{settings_.judging};
  uint64_t published_ = 0;                  // version of the directory that others were told
  std::map<wire::Peer, uint64_t> refused_;  // the last life that was not heard: each is named once
  MetricsLog metrics_log_;
  std::map<EpisodeKey, Time> deadlines_;
  // Thieves whose last theft has ended, until they may try again: what gave nothing gives nothing a moment later, and
  // each try is in the log.
  std::map<std::string, Time> resting_;
  std::optional<Time> verdict_at_;
  std::string watcher_;
  std::map<uint64_t, Json> trainer_metrics_;  // of the newest steps
  std::set<uint64_t> without_metrics_;        // steps that are known from a hello alone
  Json last_step_;
  RunNotes notes_{settings_.run_dir, settings_.most_unscored, settings_.alarms_off};
  uint64_t steals_ = 0;
  bool finishing_ = false, trainer_saved_ = false, done_ = false;
  Time finish_deadline_{}, next_report_{};
};

}  // namespace

Status run_coordinator(const CoordinatorSettings& settings, const Clock& clock, const std::atomic<bool>& stop) {
  auto log = TRY(LedgerLog::open(settings.run_dir));
  zmq::context_t context;
  auto socket = TRY(wire::Socket::listen(context, settings.address, settings.identity,
                                         settings.secret ? &*settings.secret : nullptr));
  const Ledger& ledger = log.ledger();
  if (ledger.epoch() > settings.epoch) {
    return Status::unfit(fmt::format("the log has epoch {} of the run, and this is epoch {}: it was taken over",
                                     ledger.epoch(), settings.epoch))
        .at(ledger_log_path(settings.run_dir).string());
  }
  spdlog::info("coordinator on {}: step {} of {}, {} episodes in the books", settings.address, ledger.steps_trained(),
               ledger.plan().steps, ledger.books().admitted);
  return Coordinator(settings, clock, std::move(socket), std::move(log)).run(stop);
}

}  // namespace tandem::rollout
