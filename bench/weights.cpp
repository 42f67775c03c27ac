// Benchmarks of a new version of the weights: how much of it changed, and from the trainer's numbers to the engine's.
//
// Training is stood in for by AdamW on gradients of noise around a direction of each weight's own: what a step of
// reinforcement learning changes is a matter of the learning rate and of how an update's size compares with it, which
// after some steps is 0.3, as measured in real runs.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "base/buffer.h"
#include "base/random.h"
#include "bench/measure.h"
#include "kernels/optimizer.h"
#include "model/executor.h"
#include "rollout/weights_feed.h"
#include "weights_sync/carrier.h"
#include "wire/address.h"

namespace tandem::bench {

namespace {

using namespace std::chrono_literals;
using Seconds = std::chrono::duration<double>;
using Steady = std::chrono::steady_clock;

constexpr uint64_t kFirstTimes = 3;  // versions that take memory which later ones take over
constexpr int kWarmup = 12;          // steps, until moments have forgotten how they began

// Weights that are trained on noise.
class Training {
 public:
  static Result<Training> begin(model::Weights weights, float learning_rate, kernels::Stream stream) {
    Training training(std::move(weights), learning_rate, std::move(stream));
    training.draw([](float weight, float noise) { return weight + noise * kHalfUlp * std::abs(weight); },
                  training.masters_);
    return training;
  }

  Status step() {
    // A fifth of the gradient is the weight's own direction.
    draw([](float weight, float noise) { return noise + (weight > 0 ? 0.2f : -0.2f); }, gradients_);
    return kernels::adamw(stream_, {.grad = gradients_.data(),
                                    .master = masters_.data(),
                                    .first_moment = first_.data(),
                                    .second_moment = second_.data(),
                                    .weight = weights_.flat().data(),
                                    .count = masters_.size(),
                                    .learning_rate = learning_rate_,
                                    .beta2 = 0.999f,
                                    .step = ++steps_});
  }
  Status encode() { return weights_.encode(stream_); }
  const model::Weights& weights() const { return weights_; }
  kernels::ThreadPool& threads() { return stream_.threads(); }

 private:
  static constexpr float kHalfUlp = 0.00195f;  // of bf16, of a number that is half way to the next power of two

  Training(model::Weights weights, float learning_rate, kernels::Stream stream)
      : weights_(std::move(weights)),
        learning_rate_(learning_rate),
        stream_(std::move(stream)),
        masters_(weights_.layout().elements),
        gradients_(masters_.size()),
        first_(masters_.size()),
        second_(masters_.size()) {}

  // to = of(weight, noise), noise even in [-1, 1], another in each call.
  template <typename Of>
  void draw(const Of& of, Buffer<float>& to) {
    constexpr size_t kPiece = size_t{1} << 18;
    ++draws_;
    stream_.threads().run(static_cast<int>((to.size() + kPiece - 1) / kPiece), [&](int piece) {
      Random random(derive_seed(7, {draws_, static_cast<uint64_t>(piece)}));
      const size_t end = std::min(to.size(), (piece + 1) * kPiece);
      uint64_t bits = 0;
      for (size_t i = piece * kPiece; i < end; ++i) {
        bits = i % 4 == 0 ? random.bits() : bits >> 16;
        const float noise = static_cast<float>(bits & 0xffff) / 32767.5f - 1;
        to[i] = of(kernels::to_float(weights_.flat()[i]), noise);
      }
    });
  }

  model::Weights weights_;
  float learning_rate_;
  kernels::Stream stream_;
  Buffer<float> masters_, gradients_, first_, second_;
  int64_t steps_ = 0;
  uint64_t draws_ = 0;
};

// Hands versions out over a socket of one host, as a trainer does.
class Sender {
 public:
  static Result<std::unique_ptr<Sender>> start(zmq::context_t& context, const std::string& address,
                                               std::shared_ptr<const weights_sync::Offer> first) {
    auto sender = std::unique_ptr<Sender>(
        new Sender(TRY(wire::Socket::listen(context, address, {.sender = "trainer-0", .epoch = 1, .run = 1}))));
    sender->offer(std::move(first));
    sender->thread_ = std::thread([raw = sender.get()] { raw->serve(); });
    return sender;
  }
  ~Sender() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void offer(std::shared_ptr<const weights_sync::Offer> offer) {
    const std::scoped_lock lock(mutex_);
    handout_.offer(std::move(offer));
    announce_ = true;
  }
  size_t sent() const { return sent_; }

 private:
  explicit Sender(wire::Socket socket) : socket_(std::move(socket)) {}
  void serve() {
    const SystemClock clock;
    wire::Socket* const sockets[] = {&socket_};
    while (!stop_) {
      wire::wait(sockets, 1ms);
      const std::scoped_lock lock(mutex_);
      if (std::exchange(announce_, false)) weights_sync::announce(handout_, socket_);
      while (auto message = socket_.receive())
        sent_ += weights_sync::answer(handout_, socket_, *message, clock.now()).value_or(0);
    }
  }
  wire::Socket socket_;
  std::mutex mutex_;
  weights_sync::Handout handout_;
  bool announce_ = false;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> sent_{0};
  std::thread thread_;
};

// Medians of what is measured in each round.
struct Rounds {
  std::vector<double> publish, quantise, receive, prepare, whole, flip, bytes, changed;
  static double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  }
};

// The share of elements that differ, of those that are quantised or, where none is, of all.
double changed_share(const weights_sync::Blocks& blocks, std::span<const std::byte> before,
                     std::span<const std::byte> after) {
  uint32_t least = 4;
  for (const auto& block : blocks.all()) least = std::min(least, block.element_bytes);
  size_t changed = 0, all = 0;
  for (const auto& block : blocks.all()) {
    if (block.element_bytes != least) continue;
    all += block.elements;
    changed += weights_sync::difference(block, before.subspan(block.begin, block.bytes()),
                                        after.subspan(block.begin, block.bytes()))
                   .differences.size();
  }
  return static_cast<double>(changed) / static_cast<double>(all);
}

}  // namespace

Result<std::vector<Figure>> bench_weights(const Settings& settings) {
  auto weights = TRY(load_model(settings, false));
  auto limits_stream = TRY(settings.place().host_stream());
  const double bandwidth = kernels::measure_read_bandwidth(limits_stream);
  auto sampled =
      std::make_shared<model::Weights>(TRY(model::Weights::create(weights.config(), false, weights.format())));
  auto training = TRY(Training::begin(std::move(weights), settings.learning_rate, TRY(settings.place().host_stream())));
  for (int i = 0; i < kWarmup; ++i) TRY(training.step());
  TRY(training.encode());

  const std::string format(model::to_string(training.weights().format()));
  weights_sync::History history(weights_sync::Blocks::of(training.weights()), format, {});
  const auto& blocks = history.blocks();
  zmq::context_t context;
  const std::string address =
      wire::Address::of_path(fmt::format("/tmp/tandem-bench-weights-{}.sock", ::getpid())).text();
  const auto sender =
      TRY(Sender::start(context, address, history.add(0, training.weights().wire(), training.threads())));
  auto line = TRY(wire::Socket::connect(context, address, {.sender = "rollout-0", .epoch = 1, .run = 1}));
  TRY(sampled->pack_received(limits_stream, training.weights().wire()));
  const auto executor = TRY(model::make_cpu_executor(std::move(sampled), TRY(settings.place().host_stream()),
                                                     {.pages = 16, .max_positions = 64}));
  weights_sync::Held held(blocks, format);
  held.hold(0, training.weights().wire(), training.threads());
  const SystemClock clock;
  rollout::WeightsFeed feed(std::move(held), 8, settings.threads, clock, [&] { return executor->stage(); });

  Rounds rounds;
  double total = 0;
  for (uint64_t version = 1; version <= kFirstTimes + 3 || total < settings.seconds; ++version) {
    const std::vector<std::byte> before(training.weights().wire().begin(), training.weights().wire().end());
    TRY(training.step());
    const size_t sent = sender->sent();
    const auto start = Steady::now();
    TRY(training.encode());
    const auto encoded = Steady::now();
    sender->offer(history.add(version, training.weights().wire(), training.threads()));
    const auto published = Steady::now();
    std::optional<rollout::WeightsFeed::Ready> ready;
    while (!ready) {
      if (Steady::now() - published > 60s) return fail(Status::deadline("the version did not arrive within 60 s"));
      feed.tick(line);
      wire::Socket* const sockets[] = {&line};
      wire::wait(sockets, 1ms);
      while (auto message = line.receive()) {
        if (message->body().isWeightsManifest()) feed.on_manifest(message->body().getWeightsManifest());
        if (message->body().isChunk()) feed.on_chunk(*message);
      }
      ready = TRY(feed.take_ready());
    }
    const auto prepared = Steady::now();
    TRY(executor->flip(std::move(ready->weights)));
    const auto live = Steady::now();
    total += Seconds(live - start).count();
    if (version <= kFirstTimes) continue;
    rounds.quantise.push_back(Seconds(encoded - start).count() * 1e3);
    rounds.publish.push_back(Seconds(published - encoded).count() * 1e3);
    rounds.receive.push_back((Seconds(prepared - published).count() - ready->prepare_seconds) * 1e3);
    rounds.prepare.push_back(ready->prepare_seconds * 1e3);
    rounds.flip.push_back(Seconds(live - prepared).count() * 1e3);
    rounds.whole.push_back(Seconds(live - start).count() * 1e3);
    rounds.bytes.push_back(static_cast<double>(sender->sent() - sent));
    rounds.changed.push_back(changed_share(blocks, before, training.weights().wire()));
  }
  const auto bytes = static_cast<double>(blocks.bytes());
  // A figure for so many passes over the weights in the time of a step.
  const auto figure = [&](const char* name, double milliseconds) { return Figure{name, milliseconds, "ms", 0, ""}; };
  const auto speed = [&](const char* name, int passes, double milliseconds) {
    return Figure{name, bytes / milliseconds / 1e6, "GB/s", bandwidth / passes / 1e9, "memory"};
  };
  const double publish = Rounds::median(rounds.publish), prepare = Rounds::median(rounds.prepare);
  std::vector<Figure> figures = {
      {fmt::format("elements of the layers that changed, learning rate {:g}", settings.learning_rate),
       Rounds::median(rounds.changed) * 100, "%", 0, ""},
      {"bytes sent of a version", Rounds::median(rounds.bytes) / 1e6, "MB", bytes / 1e6, "the weights whole"},
      figure("quantise", Rounds::median(rounds.quantise)),
      figure("find what changed, copy, take digests", publish),
      // The new ones and the last ones are read, and written; then read once more.
      speed("throughput of that", 4, publish),
      figure("announce, ask, send", Rounds::median(rounds.receive)),
      figure("apply, pack, verify", prepare),
      // Read and written as panels, compared with both, read for digests.
      speed("throughput of apply, pack, verify", 5, prepare),
      figure("pause of the engine", Rounds::median(rounds.flip)),
      figure("from the trainer's numbers to the engine's", Rounds::median(rounds.whole))};
  return figures;
}

}  // namespace tandem::bench
