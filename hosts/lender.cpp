#include "hosts/lender.h"

#include <fmt/format.h>

#include <map>
#include <optional>

#include "base/overloaded.h"
#include "base/unique_number.h"
#include "hosts/auto_take_over.h"
#include "hosts/epochs.h"
#include "hosts/session.h"
#include "standby/keeper.h"

namespace tandem::hosts {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kMostLogOfAProcess = 64 << 10;  // in one answer
constexpr Duration kLastWords = 3s;                // for a run to hear how its processes ended
constexpr Duration kTurn = 20ms;

// To one run.
struct Lease {
  uint64_t run = 0, session_number = 0;
  std::string name;  // of the run, for people
  Session session;
  Time heard{};
  bool is_settled = false, knows_end = false;  // the run has heard that nothing is left
};

class Lender {
 public:
  Lender(const LenderSettings& settings, Store store, Epochs epochs, const Clock& clock, zmq::context_t& context,
         wire::Socket socket)
      : settings_(settings),
        store_(std::move(store)),
        epochs_(std::move(epochs)),
        clock_(clock),
        socket_(std::move(socket)),
        keeper_({.folder = settings.store / "standby",
                 .host = socket_.address(),
                 .key = settings.key,
                 .say = settings.say}),
        take_over_({.copies = settings.store / "standby", .secret = settings.secret, .say = settings.say}, context,
                   clock) {}
  ~Lender() { end_run(); }

  void run(const std::atomic<int>& interrupts) {
    for (;;) {
      wire::Socket* const sockets[] = {&socket_};
      wire::wait(sockets, kTurn, keeper_.wake_fd());
      take_over_.turn();
      receive();
      keeper_.turn([this](const standby::Keeper::Reply& reply) {
        wire::Outgoing out(reply.id, reply.run);
        standby::write_answer(reply.answer, out.body().initCopyAnswer());
        (void)socket_.send(reply.to, out);
      });
      for (const run::Ending& ending : launcher_.poll()) {
        if (lease_) lease_->session.ended(ending);
      }
      if (lease_ && to_seconds(clock_.now() - lease_->heard) > kLeaseSeconds) {
        say(fmt::format("run {} has said nothing for {:g} s: its lease has ended", lease_->name, kLeaseSeconds));
        end_run();
      }
      if (settings_.once && was_closed_ && !take_over_.is_running()) return settle_answers();
      if (interrupts > 1 || (interrupts == 1 && has_drained())) return;
    }
  }

 private:
  void say(const std::string& line) const {
    if (settings_.say) settings_.say(line);
  }

  // What was answered last goes out on another thread, and a socket that is closed takes it with it.
  void settle_answers() {
    wire::Socket* const sockets[] = {&socket_};
    for (const Time limit = clock_.now() + 200ms; clock_.now() < limit;) {
      wire::wait(sockets, 50ms);
      receive();
    }
  }

  bool has_drained() {
    const Time now = clock_.now();
    if (!draining_since_) {
      draining_since_ = now;
      say("draining: nothing new is started, and what runs is asked to end; interrupt again to end at once");
      if (lease_) perform(lease_->session.drain());
      take_over_.drain();
    }
    if (take_over_.is_running() && now - *draining_since_ < from_seconds(settings_.drain_seconds)) return false;
    if (!lease_ || now - *draining_since_ > from_seconds(settings_.drain_seconds)) return true;
    if (!lease_->session.running().empty()) {
      empty_since_.reset();
      return false;
    }
    if (!empty_since_) empty_since_ = now;
    return lease_->knows_end || now - *empty_since_ > kLastWords;
  }

  void receive() {
    // The last of several beats that have piled up counts: what the others wanted may be over.
    std::map<std::string, wire::Incoming> beats;
    for (int i = 0; i < 256; ++i) {
      auto message = socket_.receive();
      if (!message) break;
      if (message->body().isCopyRequest() && message->protocol() == wire::kProtocolVersion) {
        take_over_.heard(message->run());
        keeper_.take(std::move(*message));
        continue;
      }
      if (!message->body().isHostRequest()) continue;
      if (message->protocol() == wire::kProtocolVersion && message->body().getHostRequest().isBeat())
        beats.insert_or_assign(message->sender(), std::move(*message));
      else
        on(*message);
    }
    for (const auto& [sender, message] : beats) on(message);
  }

  void answer(const wire::Incoming& message, const Answer& answer) {
    wire::Outgoing out(message.id(), message.run());
    write_answer(message.body().getHostRequest().getSession(), answer, out.body().initHostAnswer());
    (void)socket_.send(message.sender(), out);  // who is gone asks again
  }

  void on(const wire::Incoming& message) {
    if (message.protocol() != wire::kProtocolVersion) {
      return answer(
          message,
          Refused{Status::unfit(fmt::format("it speaks version {} of the protocol, and this machine version {}",
                                            wire::kProtocolVersion, message.protocol()))});
    }
    const auto request = read_request(message.body().getHostRequest());
    const auto outcome = request ? carry_out(message, *request) : Result<Answer>(fail(request.error()));
    answer(message, outcome ? *outcome : Answer(Refused{outcome.error()}));
  }

  Result<Answer> carry_out(const wire::Incoming& message, const Request& request) {
    const uint64_t session = message.body().getHostRequest().getSession();
    if (const auto* open = std::get_if<Open>(&request)) return begin(message, session, *open);
    if (std::holds_alternative<AskSilence>(request)) return take_over_.silence(message.run());
    if (!lease_ || lease_->session_number != session) {
      if (const auto* beat = std::get_if<Beat>(&request)) return HostState{.beat = beat->number, .is_known = false};
      if (std::holds_alternative<Close>(request)) return Closed{};
      return fail(Status::not_found("the host does not know this session"));
    }
    lease_->heard = clock_.now();
    take_over_.heard(lease_->run);
    return std::visit(
        Overloaded{[](const auto&) -> Result<Answer> {  // Open is above; the others are for runs
                     return fail(Status::invalid("this is a host, and no run"));
                   },
                   [&](const Offer& offer) -> Result<Answer> { return Missing{TRY(store_.offer(offer.files))}; },
                   [&](const SendChunk& send) -> Result<Answer> {
                     if (message.bulk_count() != 1) return fail(Status::invalid("a chunk without its bytes"));
                     const uint64_t have = TRY(store_.add(send.chunk, message.bulk(0)));
                     return Took{{.digest = send.chunk.digest, .offset = have}};
                   },
                   [&](const Settle& settle) -> Result<Answer> {
                     for (const HomeText& text : settle.texts) TRY(store_.write(text));
                     if (settings_.check_home) TRY(settings_.check_home(store_.home()));
                     lease_->is_settled = true;
                     lease_->heard = clock_.now();
                     return Settled{};
                   },
                   [&](const Beat& beat) -> Result<Answer> { return on_beat(beat); },
                   [&](const Close&) -> Result<Answer> {
                     say(fmt::format("run {} is over", lease_->name));
                     take_over_.over(lease_->run);
                     end_run();
                     was_closed_ = true;
                     return Closed{};
                   }},
        request);
  }

  Result<Answer> begin(const wire::Incoming& message, uint64_t session, const Open& open) {
    if (const auto fenced = TRY(epochs_.admit(message.run(), open.epoch, open.holder))) return *fenced;
    if (draining_since_) return fail(Status::unavailable("it is draining, and takes no run"));
    // Another life of the supervisor of the same run takes the place of the one before.
    if (lease_ && lease_->run != message.run())
      return fail(Status::exhausted(fmt::format("it is lent to run {} already", lease_->name)));
    const std::string numerics = TRY(settings_.numerics_id(open.weights));
    if (!lease_ || lease_->session_number != session) {
      end_run();
      take_over_.opened(message.run());
      TRY(store_.make_home(message.run()));
      lease_.emplace();
      lease_->run = message.run();
      lease_->session_number = session;
      lease_->name = open.run.substr(0, 200);
      say(fmt::format("lent to run {}", lease_->name));
    }
    lease_->heard = clock_.now();
    return Opened{.version = settings_.version,
                  .numerics_id = numerics,
                  .home = store_.home().string(),
                  .cores = settings_.cores,
                  .memory_bytes = settings_.memory_bytes};
  }

  HostState on_beat(const Beat& beat) {
    HostState state{.beat = beat.number, .is_known = lease_->is_settled, .is_draining = draining_since_.has_value()};
    if (!lease_->is_settled) return state;
    perform(lease_->session.on_beat(beat));
    uint64_t room = kMostLogBytes;
    for (const auto& [number, process] : lease_->session.processes()) {
      const bool is_running = process.state == Session::Process::State::kRunning;
      HostProcess line{.number = number,
                       .pid = static_cast<int32_t>(std::max<int64_t>(process.process, 0)),
                       .is_running = is_running,
                       .code = process.code,
                       .signal = process.signal,
                       .failure = process.failure};
      for (const HostJob& job : beat.jobs) {
        if (job.number == number) line.log_offset = job.log_offset;
      }
      const auto [text, is_end] = read_log(process.log, line.log_offset, std::min(room, kMostLogOfAProcess));
      room -= text.size();
      line.log = text;
      line.is_log_complete = !is_running && is_end;
      state.processes.push_back(std::move(line));
    }
    lease_->knows_end = state.processes.empty() && state.is_draining;
    return state;
  }

  // What stands in a log from `offset` on, and whether that is all of it.
  std::pair<std::string, bool> read_log(const std::string& name, uint64_t offset, uint64_t most) const {
    std::error_code error;
    const fs::path path = store_.home() / "logs" / name;
    const uint64_t size = fs::file_size(path, error);
    if (error || offset >= size) return {"", true};
    const auto mapped = MappedFile::open(path);
    if (!mapped || mapped->bytes().size() <= offset) return {"", true};
    const auto part = mapped->bytes().subspan(offset, std::min<uint64_t>(most, mapped->bytes().size() - offset));
    return {std::string(reinterpret_cast<const char*>(part.data()), part.size()),
            offset + part.size() == mapped->bytes().size()};
  }

  void perform(const std::vector<Session::Action>& actions) {
    for (const auto& action : actions) {
      std::visit(Overloaded{[&](const Session::Start& start) { this->start(start.job); },
                            [&](const Session::End& end) { launcher_.end(end.process, end.kind); }},
                 action);
    }
  }

  // Roles alone, in the home of the run: a key lends no more than that.
  void start(const HostJob& job) {
    if (job.arguments.empty() || job.arguments[0] != "role")
      return lease_->session.failed(job, "a host starts roles of runs, and nothing else");
    auto arguments = job.arguments;
    for (const std::string& more : {std::string("--run-dir"), store_.home().string()}) arguments.push_back(more);
    const auto process = launcher_.start({.arguments = arguments, .log = store_.home() / "logs" / job.log});
    if (!process) return lease_->session.failed(job, process.error().message());
    lease_->session.started(job, *process);
    say(fmt::format("started {}", fs::path(job.log).stem().string()));
  }

  void end_run() {
    if (lease_) {
      const auto running = lease_->session.running();
      for (const int64_t process : running) launcher_.end(process, run::EndKind::kNow);
      for (const int64_t process : running) launcher_.await(process);
    }
    lease_.reset();
    store_.remove_home();
  }

  const LenderSettings& settings_;
  Store store_;
  Epochs epochs_;
  const Clock& clock_;
  wire::Socket socket_;
  standby::Keeper keeper_;
  AutoTakeOver take_over_;
  run::LocalLauncher launcher_;
  std::optional<Lease> lease_;
  std::optional<Time> draining_since_, empty_since_;
  bool was_closed_ = false;  // by a run that is over
};

}  // namespace

Status lend(const LenderSettings& settings, Store store, const Clock& clock, const std::atomic<int>& interrupts) {
  zmq::context_t context;
  const wire::Identity identity{
      .sender = "host", .epoch = unique_number(), .run = wire::kEveryRun, .hears_other_protocols = true};
  auto epochs = TRY(Epochs::open(settings.store / "epochs.json"));
  auto socket = TRY(wire::Socket::listen(context, settings.address, identity, &settings.secret));
  if (settings.on_address) settings.on_address(socket.address());
  Lender(settings, std::move(store), std::move(epochs), clock, context, std::move(socket)).run(interrupts);
  return {};
}

}  // namespace tandem::hosts
