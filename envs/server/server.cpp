#include "envs/server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/work_queue.h"
#include "envs/fleet/operator_requests.h"
#include "envs/server/hosted_episode.h"
#include "envs/server/hosted_runs.h"

namespace tandem::envs {

using namespace std::chrono_literals;

namespace {

// Who waits for an answer.
struct Asker {
  explicit Asker(const wire::Incoming& message) : peer(message.sender()), id(message.id()), run(message.run()) {}
  std::string peer;
  uint64_t id, run;
};

class EnvServer {
 public:
  EnvServer(const ServerSettings& settings, SandboxBackend& backend, const Clock& clock, wire::Socket socket)
      : settings_(settings),
        backend_(backend),
        clock_(clock),
        socket_(std::move(socket)),
        queue_(settings.threads, settings.queue),
        scores_(settings.score_threads, settings.queue),
        next_lease_(settings.identity.epoch << 20) {
    if (settings.fleet) operator_requests_.emplace(*settings.fleet, clock);
  }

  void run(const StopFlags& stop, const std::function<void(const std::string&, const ServerCounters&)>& tick) {
    while (!stop.now && !(draining_ && episodes_.empty())) {
      draining_ = stop.drain;
      wire::Socket* const sockets[] = {&socket_};
      wire::wait(sockets, 50ms, queue_.wake_fd());
      queue_.run_completions();
      scores_.run_completions();
      if (operator_requests_) operator_requests_->run_completions();
      for (int i = 0; i < 256; ++i) {
        auto message = socket_.receive();
        if (!message) break;
        on(std::move(*message));
      }
      reap();
      counters_.live = episodes_.size();
      counters_.waiting = queue_.pending() + scores_.pending();
      tick(fmt::format("{}{} episodes, {} requests", draining_ ? "draining, " : "", counters_.live, counters_.waiting),
           counters_);
    }
  }

 private:
  static void write_welcome(wire::Body::Builder body) { body.initWelcome(); }

  void on(wire::Incoming message) {
    const auto body = message.body();
    switch (body.which()) {
      case wire::Body::ACQUIRE:
        return acquire(std::move(message));
      case wire::Body::CALL:
        return with_episode(
            std::move(message), body.getCall().getLease(),
            [](HostedEpisode& episode, const auto& asked) { return episode.call(asked.body().getCall()); });
      case wire::Body::SCORE:
        return with_episode(std::move(message), body.getScore().getLease(),
                            [this](HostedEpisode& episode, const auto& asked) {
                              return episode.score(asked.body().getScore(), backend_);
                            });
      case wire::Body::RELEASE: {
        const auto found = episodes_.find(body.getRelease());
        if (found == episodes_.end() || found->second->run != message.run()) return;
        let_go(found->second);
        episodes_.erase(found);
        return;
      }
      case wire::Body::HELLO:  // by our epoch they see whether we are who they asked
        return answer(Asker(message), AnswerWriter(write_welcome));
      case wire::Body::OPEN_RUN:
        return open_run(message);
      case wire::Body::CLOSE_RUN:
        forget_run(message.run());
        return answer(Asker(message), AnswerWriter(write_welcome));
      case wire::Body::FLEET_QUERY:
        return ask_fleet(message);
      default:
        return;
    }
  }

  void ask_fleet(const wire::Incoming& message) {
    const auto answer = [this, asker = Asker(message)](const Result<FleetAnswer>& outcome) {
      wire::Outgoing out(asker.id, asker.run);
      if (outcome) {
        write_answer(*outcome, out.body().initFleetAnswer());
      } else {
        wire::write_failure(out.body(), outcome.error());
      }
      (void)socket_.send(asker.peer, out);  // an operator who does not listen any more will not miss it
    };
    if (!operator_requests_) return answer(fail(Status::unfit("this environment server does not answer operators")));
    operator_requests_->ask(
        read_query(message.body().getFleetQuery()), [this] { return figures(); }, answer);
  }

  LoopFigures figures() const {
    LoopFigures own{.episodes = episodes_.size(),
                    .waiting = queue_.pending(),
                    .queue = settings_.queue,
                    .failed = counters_.failed};
    if (settings_.read_cache) own.reads = settings_.read_cache->counters();
    const Time now = clock_.now();
    for (const auto& [lease, episode] : episodes_)
      own.lease_seconds[lease] = settings_.idle_seconds - to_seconds(now - episode->last_used);
    return own;
  }

  // Runs `work` on a thread of the queue, or of that for scores; what it returns is sent back.
  // `after` comes before the answer, on the loop's thread, also where the queue is full.
  void answer_later(
      const wire::Incoming& message, std::function<Result<AnswerWriter>()> work,
      std::function<void(bool worked)> after = [](bool) {}, bool is_apart = false) {
    const Asker asker(message);
    const auto job = [this, asker, work = std::move(work), after]() -> WorkQueue::Completion {
      const Time start = clock_.now();
      auto outcome = work();
      const double seconds = to_seconds(clock_.now() - start);
      return [this, asker, seconds, after, outcome = std::move(outcome)] {
        counters_.busy_seconds += seconds;
        after(outcome.has_value());
        answer(asker, outcome);
      };
    };
    if ((is_apart ? scores_ : queue_).submit(job, asker.run)) return;
    after(false);
    answer(asker, fail(Status::exhausted("the environment server has too many requests waiting")));
  }

  void answer(const Asker& asker, const Result<AnswerWriter>& outcome) {
    wire::Outgoing message(asker.id, asker.run);
    if (outcome) {
      (*outcome)(message.body());
    } else {
      ++counters_.failed;
      wire::write_failure(message.body(), outcome.error());
    }
    (void)socket_.send(asker.peer, message);  // a rollout that is gone will not miss it; one that is not asks again
  }

  Result<std::shared_ptr<HostedRun>> run_of(uint64_t number) {
    return runs_.of(number, [this] {
      std::set<uint64_t> busy;
      for (const auto& [lease, episode] : episodes_) busy.insert(episode->run);
      return busy;
    });
  }

  // Why no new episode of this run can begin.
  Status has_room(uint64_t run) const {
    if (draining_) return Status::exhausted("the environment server is about to end, and takes no new episodes");
    if (episodes_.size() >= settings_.most_episodes)
      return Status::exhausted(fmt::format("the environment server has its {} episodes", settings_.most_episodes));
    const auto is_its = [run](const auto& entry) { return entry.second->run == run; };
    if (settings_.most_episodes_of_a_run < settings_.most_episodes &&
        static_cast<size_t>(std::count_if(episodes_.begin(), episodes_.end(), is_its)) >=
            settings_.most_episodes_of_a_run) {
      return Status::exhausted(fmt::format("the run has its {} episodes here", settings_.most_episodes_of_a_run));
    }
    return {};
  }

  // A foreign environment is told that its episode is over, and may take its time: not this thread's.
  void let_go(const std::shared_ptr<HostedEpisode>& episode) {
    if (episode->opening > 0 || !episode->is_foreign()) return;  // while it opens, another thread writes that
    const auto kept = std::make_shared<std::shared_ptr<HostedEpisode>>(episode);
    (void)scores_.submit(
        [kept]() -> WorkQueue::Completion {
          kept->reset();
          return [] {};
        },
        episode->run);
  }

  // Its directory may hold another one the next time.
  void forget_run(uint64_t run) {
    std::erase_if(episodes_, [this, run](const auto& entry) {
      const bool is_its = entry.second->run == run;
      if (is_its) let_go(entry.second);
      return is_its;
    });
    runs_.forget(run);
  }

  // It begins, or goes on after its end: what a life of it that was killed has left is nobody's.
  void open_run(const wire::Incoming& message) {
    forget_run(message.run());
    const auto run = run_of(message.run());
    if (!run) return answer(Asker(message), fail(Status(run.error())));
    answer_later(message,
                 [this, run = *run, number = message.run(),
                  run_dir = std::string(message.body().getOpenRun())]() -> Result<AnswerWriter> {
                   TRY(run->terms(settings_, number, run_dir));
                   return AnswerWriter(write_welcome);
                 });
  }

  void acquire(wire::Incoming message) {
    const auto in = message.body().getAcquire();
    // Where the trunk that it was to begin from is lost, an attempt begins once more, as its task says.
    const auto key = fmt::format("{}/{}/{}/{}", message.sender(), in.getEpisode(), in.getAttempt(), in.getTrunkLease());
    const auto run = run_of(message.run());
    if (!run) return answer(Asker(message), fail(Status(run.error())));
    std::shared_ptr<HostedEpisode> trunk;
    if (in.getTrunkLease() != 0) {
      const auto found = episodes_.find(in.getTrunkLease());
      if (found == episodes_.end() || found->second->run != message.run())
        return answer(Asker(message), fail(Status::not_found(fmt::format("no lease {}", in.getTrunkLease()))));
      trunk = found->second;
      trunk->last_used = clock_.now();
    }
    uint64_t lease = 0;
    std::shared_ptr<HostedEpisode> episode;
    if (const auto known = leases_.find(key); known != leases_.end() && episodes_.contains(known->second)) {
      lease = known->second;
      episode = episodes_.at(lease);
    } else {
      if (const Status status = has_room(message.run()); !status) return answer(Asker(message), fail(status));
      lease = ++next_lease_;
      episode = std::make_shared<HostedEpisode>(message.run(), clock_);
      episodes_[lease] = episode;
      leases_[key] = lease;
      ++counters_.acquired;
    }
    episode->last_used = clock_.now();
    ++episode->opening;
    // Nobody was told the lease of an episode that did not begin, and can release it.
    const auto after = [this, lease, episode, key](bool worked) {
      if (--episode->opening > 0 || worked || episode->has_begun()) return;
      episodes_.erase(lease);
      leases_.erase(key);
    };
    const SandboxHolder holder{
        .lease = lease, .episode = in.getEpisode(), .attempt = in.getAttempt(), .task = "", .run = ""};
    const HostedEpisode::Start start{
        .spec = {.kind = in.getKind(),
                 .split = split_from(in.getSplit().cStr()).value_or(Split::kTrain),
                 .seed = in.getSeed()},
        .holder = holder,
        .listing = in.getToolsInMessages() ? ToolListing::kInMessages : ToolListing::kByTemplate,
        .is_trunk = in.getBranches(),
        .trunk = trunk,
        .trunk_turn = in.getTrunkTurn()};
    answer_later(
        message,
        [this, episode, start, run = *run, number = message.run(), run_dir = std::string(in.getRunDir())] {
          return episode->begin(
              start, [&] { return run->terms(settings_, number, run_dir); }, backend_);
        },
        after);
  }

  void with_episode(wire::Incoming message, uint64_t lease,
                    const std::function<Result<AnswerWriter>(HostedEpisode&, const wire::Incoming&)>& work) {
    const auto found = episodes_.find(lease);
    if (found == episodes_.end() || found->second->run != message.run()) {
      return answer(Asker(message), fail(Status::not_found(fmt::format("no lease {}", lease))));
    }
    const auto episode = found->second;
    episode->last_used = clock_.now();
    message.body().isCall() ? ++counters_.calls : ++counters_.scored;
    const bool is_apart = message.body().isScore() && episode->is_scored_apart();
    const auto kept = std::make_shared<wire::Incoming>(std::move(message));
    ++episode->working;
    const auto after = [this, episode](bool) {
      --episode->working;
      episode->last_used = clock_.now();
    };
    answer_later(
        *kept, [episode, kept, work] { return work(*episode, *kept); }, after, is_apart);
  }

  void reap() {
    const Time now = clock_.now();
    if (now < next_reap_) return;
    next_reap_ = now + 5s;
    counters_.reaped += std::erase_if(episodes_, [&](const auto& entry) {
      if (entry.second->working > 0) return false;
      const bool is_idle = now - entry.second->last_used > from_seconds(settings_.idle_seconds);
      if (is_idle && settings_.fleet) settings_.fleet->lease_ending(entry.first, EndReason::kIdle);
      if (is_idle) let_go(entry.second);
      return is_idle;
    });
    std::erase_if(leases_, [&](const auto& entry) { return !episodes_.contains(entry.second); });
  }

  const ServerSettings settings_;
  SandboxBackend& backend_;
  const Clock& clock_;
  wire::Socket socket_;
  std::map<uint64_t, std::shared_ptr<HostedEpisode>> episodes_;
  std::map<std::string, uint64_t> leases_;  // by who asked for what
  HostedRuns runs_;
  bool draining_ = false;
  ServerCounters counters_;
  WorkQueue queue_, scores_;  // their threads use what stands above
  uint64_t next_lease_;
  Time next_reap_{};
  std::optional<OperatorRequests> operator_requests_;
};

}  // namespace

Status serve(const ServerSettings& settings, SandboxBackend& backend, const Clock& clock, const StopFlags& stop,
             const std::function<void(const std::string&, const ServerCounters&)>& tick,
             const std::function<void(const std::string&)>& on_address) {
  zmq::context_t context;
  auto socket = TRY(wire::Socket::listen(context, settings.address, settings.identity, settings.secret));
  if (on_address) on_address(socket.address());
  EnvServer(settings, backend, clock, std::move(socket)).run(stop, tick);
  return {};
}

}  // namespace tandem::envs
