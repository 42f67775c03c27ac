#include "rollout/relay.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <utility>

#include "model/weights.h"
#include "rollout/weights_source.h"
#include "wire/coordinator_link.h"

namespace tandem::rollout {
namespace {

using namespace std::chrono_literals;

class Relay {
 public:
  Relay(const RelaySettings& settings, const Clock& clock, weights_sync::Held held, wire::CoordinatorLink link,
        wire::Socket trainer, wire::Socket listeners, WeightsSource::Connect connect)
      : settings_(settings),
        clock_(clock),
        blocks_(held.blocks()),
        link_(std::move(link)),
        trainer_(std::move(trainer)),
        listeners_(std::move(listeners)),
        threads_(settings.threads),
        feed_(std::move(held), settings.chunk_window, settings.threads, clock, nullptr,
              [this](const weights_sync::Wanted& version, std::span<const std::byte> bytes) {
                return take(version, bytes);
              }),
        source_(feed_, settings.above, from_seconds(settings.above_seconds), clock, std::move(connect)) {}

  // Offers what it begins with.
  Status begin() {
    TRY(take(feed_.held().holds(), feed_.held().bytes()));
    handout_.offer(std::exchange(taken_, nullptr));
    return source_.follow(settings_.directory);
  }

  void introduce(wire::Hello::Builder hello) {
    hello.setRole("relay");
    hello.setName(settings_.identity.sender);
    hello.setPid(::getpid());
    hello.setAddress(listeners_.address());
    hello.setHost(settings_.host);
  }

  Status run(const std::atomic<bool>& stop) {
    while (!stop && !stopped_) {
      std::vector<wire::Socket*> sockets = {&link_.socket(), &trainer_, &listeners_};
      source_.add_sockets(sockets);
      wire::wait(sockets, feed_.preparing() ? 2ms : 20ms);
      receive();
      source_.tick(trainer_);
      TRY(take_ready());
      link_.tick(doing(), [&] { return metrics(); });
    }
    spdlog::info("sent {} bytes of weights, and received {}; asked the trainer {} times as its relay failed",
                 sent_bytes_, received_bytes_, source_.relay_failures());
    return {};
  }

 private:
  // On the feed's thread, but for the first.
  Status take(const weights_sync::Wanted& version, std::span<const std::byte> bytes) {
    if (!history_) history_.emplace(blocks_, std::string(model::to_string(settings_.format)), settings_.weights);
    auto offer = history_->add(version.version, bytes, threads_);
    // The copy that is served, against what the trainer took of its own.
    if (weights_sync::digest_of_parts(offer->whole().parts) != version.digest) {
      history_.reset();  // the next delta would be on that copy
      return Status::corrupt(
          fmt::format("weights {}: the copy to be served is not what was received", version.version));
    }
    taken_ = std::move(offer);
    return {};
  }

  void receive() {
    for (int i = 0; i < 64; ++i) {
      const auto message = link_.receive();
      if (!message) break;
      const auto body = message->body();
      if (body.isStop()) stopped_ = true;
      if (body.isPeers()) follow(body.getPeers());
    }
    for (int i = 0; i < 16; ++i) {
      const auto message = trainer_.receive();
      if (!message) break;
      source_.on_trainer(*message);
    }
    source_.receive();
    for (int i = 0; i < 64; ++i) {
      const auto message = listeners_.receive();
      if (!message) break;
      on_listener(*message);
    }
  }

  void follow(wire::Peers::Reader peers) {
    const auto directory = wire::Directory::read(peers);
    const Status status = directory ? source_.follow(*directory) : directory.error();
    if (!status) spdlog::error("the directory of the run: {}", status.message());
  }

  void on_listener(const wire::Incoming& message) {
    if (message.body().isWeightsWanted()) {
      const auto wanted = weights_sync::read_wanted(message.body().getWeightsWanted());
      if (wanted.holds && wanted.version >= handout_.offered().newest()) {
        handout_.wants(message.sender(), wanted);
        return say_what_there_is(message.sender(), wanted.version);
      }
    }
    sent_bytes_ += weights_sync::answer(handout_, listeners_, message, clock_.now()).value_or(0);
  }

  // To a listener that lacks nothing that is here: a manifest without bytes. It shows that this relay is there.
  void say_what_there_is(const std::string& listener, uint64_t held) {
    const uint64_t newest = std::max(handout_.offered().newest(), source_.heard_of());
    wire::Outgoing message;
    weights_sync::write_manifest(
        {.version = held, .base = held, .digests = {}, .base_digest = {}, .parts = {}, .newest = newest},
        message.body().initWeightsManifest());
    (void)listeners_.send(listener, message);
  }

  Status take_ready() {
    const auto ready = TRY(feed_.take_ready());
    if (!ready) return {};
    handout_.offer(std::exchange(taken_, nullptr));
    received_bytes_ += ready->bytes;
    fetch_seconds_ += ready->fetch_seconds;
    prepare_seconds_ += ready->prepare_seconds;
    weights_sync::announce(handout_, listeners_);
    return {};
  }

  std::string doing() const {
    const std::string what = feed_.receiving()   ? "receiving weights"
                             : feed_.preparing() ? "checking weights"
                                                 : "serving";
    return fmt::format("{}, {} for {} listeners", what, feed_.newest(), handout_.listeners().size());
  }

  Json metrics() const {
    return {{"version", handout_.offered().newest()},
            {"listeners", handout_.listeners().size()},
            {"sent_bytes", sent_bytes_},
            {"received_bytes", received_bytes_},
            {"fetch_seconds", fetch_seconds_},
            {"prepare_seconds", prepare_seconds_},
            {"refused_chunks", feed_.refused_chunks()},
            {"refused_versions", feed_.refused_versions()},
            {"refused_messages", trainer_.refused() + listeners_.refused() + source_.refused_messages()},
            {"relay_failures", source_.relay_failures()}};
  }

  const RelaySettings settings_;
  const Clock& clock_;
  const weights_sync::Blocks blocks_;
  wire::CoordinatorLink link_;
  wire::Socket trainer_;
  wire::Socket listeners_;
  // The feed's thread uses these while it prepares.
  std::optional<weights_sync::History> history_;
  std::shared_ptr<const weights_sync::Offer> taken_;
  kernels::ThreadPool threads_;
  weights_sync::Handout handout_;
  WeightsFeed feed_;
  WeightsSource source_;
  uint64_t sent_bytes_ = 0, received_bytes_ = 0;
  double fetch_seconds_ = 0, prepare_seconds_ = 0;
  bool stopped_ = false;
};

// The weights that the run began with. No more of them stays than their bytes.
Result<weights_sync::Held> first_version(const RelaySettings& settings) {
  const auto weights = TRY(model::load_weights(settings.model, false, settings.format));
  weights_sync::Held held(weights_sync::Blocks::of(weights), std::string(model::to_string(settings.format)));
  kernels::ThreadPool threads(settings.threads);
  held.hold(0, weights.wire(), threads);
  return held;
}

}  // namespace

Status run_relay(const RelaySettings& settings, const Clock& clock, const std::atomic<bool>& stop) {
  auto held = TRY(first_version(settings));
  zmq::context_t context;
  const wire::Secret* const secret = settings.secret ? &*settings.secret : nullptr;
  const auto connect = [&](const wire::Address& address) {
    return wire::Socket::connect(context, address.text(), settings.identity, secret);
  };
  const auto connect_to = [&](const wire::Peer& peer) -> Result<wire::Socket> {
    const auto* entry = settings.directory.find(peer);
    if (entry == nullptr) return fail(Status::invalid(fmt::format("the run has no {}", to_string(peer))));
    return connect(entry->address);
  };
  auto coordinator = TRY(connect_to({wire::Role::kCoordinator, 0}));
  auto trainer = TRY(connect_to({wire::Role::kTrainer, 0}));
  auto listeners = TRY(wire::Socket::listen(context, settings.address, settings.identity, secret));
  Relay* self = nullptr;
  wire::CoordinatorLink link(std::move(coordinator), clock,
                             [&self](wire::Hello::Builder hello) { self->introduce(hello); });
  Relay relay(settings, clock, std::move(held), std::move(link), std::move(trainer), std::move(listeners), connect);
  self = &relay;
  TRY(relay.begin());
  return relay.run(stop);
}

}  // namespace tandem::rollout
