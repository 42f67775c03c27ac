#include "envs/server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "base/digest.h"
#include "base/work_queue.h"
#include "envs/episodes/call_messages.h"
#include "envs/episodes/work_record.h"
#include "envs/fleet/operator_requests.h"
#include "envs/server/session_record.h"

namespace tandem::envs {

using namespace std::chrono_literals;

namespace {

// What a turn or a score was answered, to be said again.
struct TurnAnswer {
  Digest asked;  // of the request
  bool over = false;
  std::vector<std::string> results;
  std::optional<std::string> instruction;  // of the next step
};

// The digest of what was said in a turn, whoever's turn it is: a branch has the turns of its trunk.
Digest digest_of_message(wire::Call::Reader in) {
  std::string said;
  for (const auto call : in.getCalls()) said += call.toString().flatten().cStr();
  for (const std::string_view part : {std::string_view(in.getAnswer().cStr(), in.getAnswer().size()),
                                      std::string_view(in.getReasoning().cStr(), in.getReasoning().size())})
    said += fmt::format("\n{}:", part.size()) + std::string(part);
  return digest_of(said);
}

// The most runs that a host knows at once; one without episodes is forgotten for another.
constexpr size_t kMostRuns = 256;
constexpr const char* kTooManyRuns = "the environment server has too many runs";

// One of the runs of a host.
class HostedRun {
 public:
  // Opened when it is first needed; what went wrong is tried again.
  Result<std::shared_ptr<const RunTerms>> terms(const ServerSettings& settings, uint64_t run,
                                                const std::string& run_dir) {
    std::lock_guard lock(mutex_);
    if (!terms_) {
      terms_ = std::make_shared<const RunTerms>(settings.open_run ? TRY(settings.open_run(run, run_dir))
                                                                  : RunTerms{.name = "",
                                                                             .make_task = settings.make_task,
                                                                             .episode = settings.episode,
                                                                             .rewards = settings.rewards,
                                                                             .foreign = settings.foreign});
    }
    return terms_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<const RunTerms> terms_;
};

// Who waits for an answer.
struct Asker {
  explicit Asker(const wire::Incoming& message) : peer(message.sender()), id(message.id()), run(message.run()) {}
  std::string peer;
  uint64_t id, run;
};

struct Session {
  uint64_t run = 0;
  std::mutex mutex;                              // one request of an episode at a time
  std::shared_ptr<ForeignEnvironments> foreign;  // outlives its attempts
  std::unique_ptr<Attempt> episode;
  EpisodeOptions options;
  std::shared_ptr<Rewards> rewards;
  SessionRecord record;  // where there are rewards
  std::map<uint32_t, TurnAnswer> turns;
  WorkRecord work;
  Time began{};  // of a branch: its trunk's
  std::optional<Grade> grade;
  Behaviour behaviour;  // once there is a grade
  Time last_used{};
  int opening = 0;  // requests to acquire it that have not been answered
  int working = 0;  // other requests that have not been answered
  std::atomic<bool> is_scored_apart{false};
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
    while (!stop.now && !(draining_ && sessions_.empty())) {
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
      counters_.live = sessions_.size();
      counters_.waiting = queue_.pending() + scores_.pending();
      tick(fmt::format("{}{} episodes, {} requests", draining_ ? "draining, " : "", counters_.live, counters_.waiting),
           counters_);
    }
  }

 private:
  using Writer = std::function<void(wire::Body::Builder)>;

  static void write_welcome(wire::Body::Builder body) { body.initWelcome(); }

  void on(wire::Incoming message) {
    const auto body = message.body();
    switch (body.which()) {
      case wire::Body::ACQUIRE:
        return acquire(std::move(message));
      case wire::Body::CALL:
        return with_session(std::move(message), body.getCall().getLease(), &EnvServer::call);
      case wire::Body::SCORE:
        return with_session(std::move(message), body.getScore().getLease(), &EnvServer::score);
      case wire::Body::RELEASE: {
        const auto found = sessions_.find(body.getRelease());
        if (found == sessions_.end() || found->second->run != message.run()) return;
        let_go(found->second);
        sessions_.erase(found);
        return;
      }
      case wire::Body::HELLO:  // by our epoch they see whether we are who they asked
        return answer(Asker(message), Writer(write_welcome));
      case wire::Body::OPEN_RUN:
        return open_run(message);
      case wire::Body::CLOSE_RUN:
        forget_run(message.run());
        return answer(Asker(message), Writer(write_welcome));
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
    LoopFigures own{.episodes = sessions_.size(),
                    .waiting = queue_.pending(),
                    .queue = settings_.queue,
                    .failed = counters_.failed};
    if (settings_.read_cache) own.reads = settings_.read_cache->counters();
    const Time now = clock_.now();
    for (const auto& [lease, session] : sessions_)
      own.lease_seconds[lease] = settings_.idle_seconds - to_seconds(now - session->last_used);
    return own;
  }

  // Runs `work` on a thread of the queue, or of that for scores; what it returns is sent back.
  // `after` comes before the answer, on the loop's thread, also where the queue is full.
  void answer_later(
      const wire::Incoming& message, std::function<Result<Writer>()> work,
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

  void answer(const Asker& asker, const Result<Writer>& outcome) {
    wire::Outgoing message(asker.id, asker.run);
    if (outcome) {
      (*outcome)(message.body());
    } else {
      ++counters_.failed;
      wire::write_failure(message.body(), outcome.error());
    }
    (void)socket_.send(asker.peer, message);  // a rollout that is gone will not miss it; one that is not asks again
  }

  std::shared_ptr<HostedRun> run_of(uint64_t number) {
    if (const auto known = runs_.find(number); known != runs_.end()) return known->second;
    if (runs_.size() >= kMostRuns) {
      std::set<uint64_t> busy;
      for (const auto& [lease, session] : sessions_) busy.insert(session->run);
      std::erase_if(runs_, [&](const auto& entry) { return !busy.contains(entry.first); });
    }
    if (runs_.size() >= kMostRuns) return nullptr;
    return runs_.emplace(number, std::make_shared<HostedRun>()).first->second;
  }

  // Why no new episode of this run can begin.
  Status has_room(uint64_t run) const {
    if (draining_) return Status::exhausted("the environment server is about to end, and takes no new episodes");
    if (sessions_.size() >= settings_.most_episodes)
      return Status::exhausted(fmt::format("the environment server has its {} episodes", settings_.most_episodes));
    const auto is_its = [run](const auto& entry) { return entry.second->run == run; };
    if (settings_.most_episodes_of_a_run < settings_.most_episodes &&
        static_cast<size_t>(std::count_if(sessions_.begin(), sessions_.end(), is_its)) >=
            settings_.most_episodes_of_a_run) {
      return Status::exhausted(fmt::format("the run has its {} episodes here", settings_.most_episodes_of_a_run));
    }
    return {};
  }

  // A foreign environment is told that its episode is over, and may take its time: not this thread's.
  void let_go(const std::shared_ptr<Session>& session) {
    if (session->opening > 0 || !session->foreign) return;  // while it opens, another thread writes that
    const auto kept = std::make_shared<std::shared_ptr<Session>>(session);
    (void)scores_.submit(
        [kept]() -> WorkQueue::Completion {
          kept->reset();
          return [] {};
        },
        session->run);
  }

  // Its directory may hold another one the next time.
  void forget_run(uint64_t run) {
    std::erase_if(sessions_, [this, run](const auto& entry) {
      const bool is_its = entry.second->run == run;
      if (is_its) let_go(entry.second);
      return is_its;
    });
    runs_.erase(run);
  }

  // It begins, or goes on after its end: what a life of it that was killed has left is nobody's.
  void open_run(const wire::Incoming& message) {
    forget_run(message.run());
    const auto run = run_of(message.run());
    if (!run) return answer(Asker(message), fail(Status::exhausted(kTooManyRuns)));
    answer_later(
        message,
        [this, run, number = message.run(), run_dir = std::string(message.body().getOpenRun())]() -> Result<Writer> {
          TRY(run->terms(settings_, number, run_dir));
          return Writer(write_welcome);
        });
  }

  void acquire(wire::Incoming message) {
    const auto in = message.body().getAcquire();
    // Where the trunk that it was to begin from is lost, an attempt begins once more, as its task says.
    const auto key = fmt::format("{}/{}/{}/{}", message.sender(), in.getEpisode(), in.getAttempt(), in.getTrunkLease());
    const auto run = run_of(message.run());
    if (!run) return answer(Asker(message), fail(Status::exhausted(kTooManyRuns)));
    std::shared_ptr<Session> trunk;
    if (in.getTrunkLease() != 0) {
      const auto found = sessions_.find(in.getTrunkLease());
      if (found == sessions_.end() || found->second->run != message.run())
        return answer(Asker(message), fail(Status::not_found(fmt::format("no lease {}", in.getTrunkLease()))));
      trunk = found->second;
      trunk->last_used = clock_.now();
    }
    uint64_t lease = 0;
    std::shared_ptr<Session> session;
    if (const auto known = leases_.find(key); known != leases_.end() && sessions_.contains(known->second)) {
      lease = known->second;
      session = sessions_.at(lease);
    } else {
      if (const Status status = has_room(message.run()); !status) return answer(Asker(message), fail(status));
      lease = ++next_lease_;
      session = std::make_shared<Session>();
      session->run = message.run();
      sessions_[lease] = session;
      leases_[key] = lease;
      ++counters_.acquired;
    }
    session->last_used = clock_.now();
    ++session->opening;
    // Nobody was told the lease of an episode that did not begin, and can release it.
    const auto after = [this, lease, session, key](bool worked) {
      if (--session->opening > 0 || worked || session->episode) return;
      sessions_.erase(lease);
      leases_.erase(key);
    };
    const SandboxHolder holder{
        .lease = lease, .episode = in.getEpisode(), .attempt = in.getAttempt(), .task = "", .run = ""};
    const TaskSpec spec{
        .kind = in.getKind(), .split = split_from(in.getSplit().cStr()).value_or(Split::kTrain), .seed = in.getSeed()};
    answer_later(
        message,
        [this, session, trunk, turn = in.getTrunkTurn(), is_trunk = in.getBranches(), spec, holder, run,
         number = message.run(), run_dir = std::string(in.getRunDir()),
         listing = in.getToolsInMessages() ? ToolListing::kInMessages : ToolListing::kByTemplate]() -> Result<Writer> {
          std::lock_guard lock(session->mutex);
          if (!session->episode && trunk) TRY(begin_from(*trunk, turn, holder, *session));
          if (!session->episode) {
            const auto terms = TRY(run->terms(settings_, number, run_dir));
            EpisodeOptions options = terms->episode;
            options.holder = holder;
            options.holder.run = terms->name;
            options.branches = is_trunk;
            // What is held out is measured by the task alone, whatever becomes of the user's rewards.
            const bool is_rewarded = terms->rewards != nullptr && spec.split == Split::kTrain;
            options.keep_left_behind = is_rewarded;
            session->foreign = terms->foreign;
            if (terms->foreign && terms->foreign->has(spec.kind))
              session->episode = TRY(terms->foreign->open(spec));
            else
              session->episode = TRY(Episode::open(TRY(terms->make_task(spec)), backend_, options));
            session->options = options;
            session->began = clock_.now();
            session->rewards = is_rewarded ? terms->rewards : nullptr;
            session->is_scored_apart = is_rewarded;
            if (is_rewarded) session->record.begin(*session->episode, session->episode->opening(listing));
          }
          const Attempt& episode = *session->episode;
          return Writer(
              [holder, opening = episode.opening(listing), turns = episode.task().max_turns](wire::Body::Builder body) {
                auto out = body.initAcquired();
                out.setLease(holder.lease);
                out.setEpisode(holder.episode);
                out.setAttempt(holder.attempt);
                out.setMaxTurns(static_cast<uint32_t>(turns));
                auto messages = out.initMessages(static_cast<unsigned>(opening.messages.size()));
                for (unsigned i = 0; i < messages.size(); ++i) {
                  messages[i].setRole(opening.messages[i].role);
                  messages[i].setContent(opening.messages[i].content);
                }
                out.setTools(dump_json(opening.tools));
              });
        },
        after);
  }

  // As the trunk is after `turn` turns, which are answered here as there. kUnfit where it cannot be branched.
  static Status begin_from(Session& trunk, uint32_t turn, const SandboxHolder& holder, Session& session) {
    std::lock_guard lock(trunk.mutex);
    const bool is_there = trunk.episode && !trunk.grade && !trunk.turns.empty() && trunk.turns.rbegin()->first == turn;
    if (!is_there) return Status::not_found(fmt::format("the trunk is not behind its turn {}", turn));
    auto* const episode = dynamic_cast<Episode*>(trunk.episode.get());
    if (episode == nullptr) return Status::unfit("an environment of somebody else's cannot be branched");
    auto branch = episode->branch(holder);
    if (!branch && branch.error().code() == Code::kExhausted) return Status::unfit(branch.error().message());
    if (!branch) return std::move(branch).error();
    session.episode = std::move(*branch);
    session.options = trunk.options;
    session.options.holder = holder;
    session.rewards = trunk.rewards;
    session.is_scored_apart = trunk.is_scored_apart.load();
    session.record = trunk.record;
    session.work = trunk.work;
    session.began = trunk.began;
    session.turns = trunk.turns;
    return {};
  }

  void with_session(wire::Incoming message, uint64_t lease,
                    Result<Writer> (EnvServer::*work)(Session&, const wire::Incoming&)) {
    const auto found = sessions_.find(lease);
    if (found == sessions_.end() || found->second->run != message.run()) {
      return answer(Asker(message), fail(Status::not_found(fmt::format("no lease {}", lease))));
    }
    const auto session = found->second;
    session->last_used = clock_.now();
    message.body().isCall() ? ++counters_.calls : ++counters_.scored;
    const bool is_apart = message.body().isScore() && session->is_scored_apart;
    const auto kept = std::make_shared<wire::Incoming>(std::move(message));
    ++session->working;
    const auto after = [this, session](bool) {
      --session->working;
      session->last_used = clock_.now();
    };
    answer_later(
        *kept,
        [this, session, kept, work]() -> Result<Writer> {
          std::lock_guard lock(session->mutex);
          return (this->*work)(*session, *kept);
        },
        after, is_apart);
  }

  Result<Writer> call(Session& session, const wire::Incoming& message) {
    const auto in = message.body().getCall();
    const Digest asked = digest_of_message(in);
    auto known = session.turns.find(in.getTurn());
    // Two rollouts that both take the episode for theirs may have sampled this turn by other weights.
    if (known != session.turns.end() && known->second.asked != asked)
      return fail(Status::invalid(fmt::format("turn {} was played with other calls", in.getTurn())));
    if (known == session.turns.end()) {
      if (session.grade || !session.episode) return fail(Status::not_found("the episode is over"));
      const auto calls = TRY(read_calls(in.getCalls()));
      const SessionRecord::Said said{
          .text = in.getAnswer().cStr(), .reasoning = in.getReasoning().cStr(), .calls = calls};
      TurnAnswer answer;
      answer.asked = asked;
      const double seconds = to_seconds(clock_.now() - session.began);
      if (!calls.empty()) {
        auto outcomes = TRY(session.episode->turn(calls, said.text));
        session.work.turn(calls, outcomes, seconds);
        if (session.rewards) session.record.turn(said, outcomes);
        for (auto& outcome : outcomes) answer.results.push_back(std::move(outcome.output));
        answer.over = session.episode->over();
      } else {
        answer.instruction = TRY(session.episode->next_step(said.text));
        session.work.turn({}, {}, seconds);
        if (session.rewards) session.record.answer(said, answer.instruction);
      }
      known = session.turns.emplace(in.getTurn(), std::move(answer)).first;
    }
    return Writer([answer = known->second](wire::Body::Builder body) {
      auto out = body.initCalled();
      out.setOver(answer.over);
      auto results = out.initResults(static_cast<unsigned>(answer.results.size()));
      for (unsigned i = 0; i < results.size(); ++i) results.set(i, answer.results[i]);
      out.setNextStep(answer.instruction.has_value());
      out.setInstruction(answer.instruction.value_or(""));
    });
  }

  Result<Writer> score(Session& session, const wire::Incoming& message) {
    if (!session.grade) {
      if (!session.episode) return fail(Status::not_found("the episode has not begun"));
      const auto in = message.body().getScore();
      const double seconds = to_seconds(clock_.now() - session.began);
      session.grade =
          TRY(session.record.score(*session.episode, {.answer = in.getAnswer().cStr(), .truncated = in.getTruncated()},
                                   session.rewards.get(), backend_, session.options));
      session.behaviour = session.work.behaviour(seconds);
    }
    return Writer([grade = *session.grade, behaviour = session.behaviour](wire::Body::Builder body) {
      auto out = body.initScored();
      out.setReward(grade.reward);
      auto terms = out.initTerms(static_cast<unsigned>(grade.terms.size()));
      unsigned i = 0;
      for (const auto& [name, value] : grade.terms) {
        terms[i].setName(name);
        terms[i++].setValue(value);
      }
      auto turns = out.initTurnRewards(static_cast<unsigned>(grade.turns.size()));
      for (unsigned t = 0; t < turns.size(); ++t) turns.set(t, grade.turns[t]);
      out.setShown(grade.shown);
      out.setFound(grade.why);
      out.setBehaviour(dump_json(to_json(behaviour)));
    });
  }

  void reap() {
    const Time now = clock_.now();
    if (now < next_reap_) return;
    next_reap_ = now + 5s;
    counters_.reaped += std::erase_if(sessions_, [&](const auto& entry) {
      if (entry.second->working > 0) return false;
      const bool is_idle = now - entry.second->last_used > from_seconds(settings_.idle_seconds);
      if (is_idle && settings_.fleet) settings_.fleet->lease_ending(entry.first, EndReason::kIdle);
      if (is_idle) let_go(entry.second);
      return is_idle;
    });
    std::erase_if(leases_, [&](const auto& entry) { return !sessions_.contains(entry.second); });
  }

  const ServerSettings settings_;
  SandboxBackend& backend_;
  const Clock& clock_;
  wire::Socket socket_;
  std::map<uint64_t, std::shared_ptr<Session>> sessions_;
  std::map<std::string, uint64_t> leases_;  // by who asked for what
  std::map<uint64_t, std::shared_ptr<HostedRun>> runs_;
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
