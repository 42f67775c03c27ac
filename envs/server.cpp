#include "envs/server.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "base/work_queue.h"
#include "envs/fleet/desk.h"

namespace tandem::envs {

using namespace std::chrono_literals;

namespace {

// What a turn or a score was answered, to be said again.
struct TurnAnswer {
  bool over = false;
  uint32_t calls = 0;
  bool next_step = false;
  Message response;
};

struct Session {
  std::mutex mutex;  // one request of an episode at a time
  std::unique_ptr<Episode> episode;
  std::map<uint32_t, TurnAnswer> turns;
  std::optional<Grade> grade;
  Time last_used{};
  int opening = 0;  // requests to acquire it that have not been answered
};

class Server {
 public:
  Server(const ServerSettings& settings, SandboxBackend& backend, const Clock& clock, wire::Socket socket)
      : settings_(settings),
        backend_(backend),
        clock_(clock),
        socket_(std::move(socket)),
        queue_(settings.threads, settings.queue),
        next_lease_(settings.identity.epoch << 20) {
    if (settings.fleet) desk_.emplace(*settings.fleet, clock);
  }

  void run(const std::atomic<bool>& stop, const std::function<void(const std::string&, const ServerCounters&)>& tick) {
    while (!stop) {
      wire::Socket* const sockets[] = {&socket_};
      wire::wait(sockets, 50ms, queue_.wake_fd());
      queue_.run_completions();
      if (desk_) desk_->run_completions();
      for (int i = 0; i < 256; ++i) {
        auto message = socket_.receive();
        if (!message) break;
        on(std::move(*message));
      }
      reap();
      counters_.live = sessions_.size();
      counters_.waiting = queue_.pending();
      tick(fmt::format("{} episodes, {} requests", counters_.live, counters_.waiting), counters_);
    }
  }

 private:
  void on(wire::Incoming message) {
    const auto body = message.body();
    switch (body.which()) {
      case wire::Body::ACQUIRE:
        return acquire(std::move(message));
      case wire::Body::CALL:
        return with_session(std::move(message), body.getCall().getLease(), &Server::call);
      case wire::Body::SCORE:
        return with_session(std::move(message), body.getScore().getLease(), &Server::score);
      case wire::Body::RELEASE: {
        sessions_.erase(body.getRelease());
        return;
      }
      case wire::Body::HELLO: {
        wire::Outgoing welcome(message.id());  // by its epoch they see whether we are who they asked
        welcome.body().initWelcome();
        (void)socket_.send(message.sender(), welcome);
        return;
      }
      case wire::Body::FLEET_QUERY:
        return ask_fleet(message);
      default:
        return;
    }
  }

  void ask_fleet(const wire::Incoming& message) {
    const auto answer = [this, peer = message.sender(), id = message.id()](const Result<FleetAnswer>& outcome) {
      wire::Outgoing out(id);
      if (outcome) {
        write_answer(*outcome, out.body().initFleetAnswer());
      } else {
        wire::write_failure(out.body(), outcome.error());
      }
      (void)socket_.send(peer, out);  // an operator who does not listen any more will not miss it
    };
    if (!desk_) return answer(fail(Status::unfit("this environment server does not answer operators")));
    desk_->ask(
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

  using Writer = std::function<void(wire::Body::Builder)>;

  // Runs `work` on a thread of the queue; what it returns is sent back.
  // `after` comes before the answer, on the loop's thread, also where the queue is full.
  void answer_later(
      const wire::Incoming& message, std::function<Result<Writer>()> work,
      std::function<void(bool worked)> after = [](bool) {}) {
    const std::string peer = message.sender();
    const uint64_t id = message.id();
    const bool taken = queue_.submit([this, peer, id, work = std::move(work), after]() -> WorkQueue::Completion {
      const Time start = clock_.now();
      auto outcome = work();
      const double seconds = to_seconds(clock_.now() - start);
      return [this, peer, id, seconds, after, outcome = std::move(outcome)] {
        counters_.busy_seconds += seconds;
        after(outcome.has_value());
        answer(peer, id, outcome);
      };
    });
    if (taken) return;
    after(false);
    answer(peer, id, fail(Status::exhausted("the environment server has too many requests waiting")));
  }

  void answer(const std::string& peer, uint64_t id, const Result<Writer>& outcome) {
    wire::Outgoing message(id);
    if (outcome) {
      (*outcome)(message.body());
    } else {
      ++counters_.failed;
      wire::write_failure(message.body(), outcome.error());
    }
    (void)socket_.send(peer, message);  // a rollout that is gone will not miss it; one that is not asks again
  }

  void acquire(wire::Incoming message) {
    const auto in = message.body().getAcquire();
    const auto key = fmt::format("{}/{}/{}", message.sender(), in.getEpisode(), in.getAttempt());
    uint64_t lease = 0;
    std::shared_ptr<Session> session;
    if (const auto known = leases_.find(key); known != leases_.end() && sessions_.contains(known->second)) {
      lease = known->second;
      session = sessions_.at(lease);
    } else {
      lease = ++next_lease_;
      session = std::make_shared<Session>();
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
    EpisodeOptions options = settings_.episode;
    options.holder = {.lease = lease, .episode = in.getEpisode(), .attempt = in.getAttempt(), .task = ""};
    const TaskSpec spec{
        .kind = in.getKind(), .split = split_from(in.getSplit().cStr()).value_or(Split::kTrain), .seed = in.getSeed()};
    answer_later(
        message,
        [this, lease, session, spec, options, episode_id = in.getEpisode(),
         attempt = in.getAttempt()]() -> Result<Writer> {
          std::lock_guard lock(session->mutex);
          if (!session->episode)
            session->episode = TRY(Episode::open(TRY(settings_.make_task(spec)), backend_, options));
          const Episode& episode = *session->episode;
          return Writer([lease, episode_id, attempt, prompt = episode.prompt(),
                         turns = episode.task().max_turns](wire::Body::Builder body) {
            auto out = body.initAcquired();
            out.setLease(lease);
            out.setEpisode(episode_id);
            out.setAttempt(attempt);
            out.setMaxTurns(static_cast<uint32_t>(turns));
            auto messages = out.initMessages(static_cast<unsigned>(prompt.size()));
            for (unsigned i = 0; i < messages.size(); ++i) {
              messages[i].setRole(prompt[i].role);
              messages[i].setContent(prompt[i].content);
            }
          });
        },
        after);
  }

  void with_session(wire::Incoming message, uint64_t lease,
                    Result<Writer> (Server::*work)(Session&, const wire::Incoming&)) {
    const auto found = sessions_.find(lease);
    if (found == sessions_.end()) {
      return answer(message.sender(), message.id(), fail(Status::not_found(fmt::format("no lease {}", lease))));
    }
    const auto session = found->second;
    session->last_used = clock_.now();
    message.body().isCall() ? ++counters_.calls : ++counters_.scored;
    const auto kept = std::make_shared<wire::Incoming>(std::move(message));
    answer_later(*kept, [this, session, kept, work]() -> Result<Writer> {
      std::lock_guard lock(session->mutex);
      return (this->*work)(*session, *kept);
    });
  }

  Result<Writer> call(Session& session, const wire::Incoming& message) {
    const auto in = message.body().getCall();
    auto known = session.turns.find(in.getTurn());
    if (known == session.turns.end()) {
      if (session.grade || !session.episode) return fail(Status::not_found("the episode is over"));
      const ParsedMessage parsed = parse_message(in.getMessage().cStr());
      TurnAnswer answer{.calls = static_cast<uint32_t>(parsed.calls.size()), .response = {}};
      if (!parsed.calls.empty()) {
        const auto outcomes = TRY(session.episode->turn(parsed.calls));
        answer.response = render_responses(outcomes);
        answer.over = session.episode->over();
      } else if (auto instruction = TRY(session.episode->next_step(parsed.text))) {
        answer.next_step = true;
        answer.response = {"user", std::move(*instruction)};
      }
      known = session.turns.emplace(in.getTurn(), std::move(answer)).first;
    }
    return Writer([answer = known->second](wire::Body::Builder body) {
      auto out = body.initCalled();
      out.setOver(answer.over);
      out.setCalls(answer.calls);
      out.setNextStep(answer.next_step);
      auto response = out.initResponse();
      response.setRole(answer.response.role);
      response.setContent(answer.response.content);
    });
  }

  Result<Writer> score(Session& session, const wire::Incoming& message) {
    if (!session.grade) {
      if (!session.episode) return fail(Status::not_found("the episode has not begun"));
      session.grade = TRY(session.episode->score(message.body().getScore().getAnswer().cStr()));
    }
    return Writer([grade = *session.grade](wire::Body::Builder body) {
      auto out = body.initScored();
      out.setReward(grade.reward);
      auto terms = out.initTerms(static_cast<unsigned>(grade.terms.size()));
      unsigned i = 0;
      for (const auto& [name, value] : grade.terms) {
        terms[i].setName(name);
        terms[i++].setValue(value);
      }
    });
  }

  void reap() {
    const Time now = clock_.now();
    if (now < next_reap_) return;
    next_reap_ = now + 5s;
    counters_.reaped += std::erase_if(sessions_, [&](const auto& entry) {
      const bool is_idle = now - entry.second->last_used > from_seconds(settings_.idle_seconds);
      if (is_idle && settings_.fleet) settings_.fleet->lease_ending(entry.first, EndReason::kIdle);
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
  ServerCounters counters_;
  WorkQueue queue_;  // its threads use what stands above
  uint64_t next_lease_;
  Time next_reap_{};
  std::optional<OperatorDesk> desk_;
};

}  // namespace

Status serve(const ServerSettings& settings, SandboxBackend& backend, const Clock& clock, const std::atomic<bool>& stop,
             const std::function<void(const std::string&, const ServerCounters&)>& tick) {
  zmq::context_t context;
  auto socket = TRY(wire::Socket::listen(context, settings.address, settings.identity));
  Server(settings, backend, clock, std::move(socket)).run(stop, tick);
  return {};
}

}  // namespace tandem::envs
