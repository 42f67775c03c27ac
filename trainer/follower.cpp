#include "trainer/follower.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "trainer/device_turns.h"
#include "trainer/learn/checkpoints.h"
#include "trainer/learn/teacher.h"
#include "trainer/team.h"
#include "trainer/torch/function_loader.h"
#include "wire/coordinator_link.h"

namespace tandem::trainer {

using namespace std::chrono_literals;

namespace {

constexpr Duration kEndGrace = 1s;

// The work of the rank, on a thread of its own: it waits for the other ranks most of the time.
class Share {
 public:
  Share(const TrainerSettings& settings, const Clock& clock)
      : settings_(settings), clock_(clock), thread_([this] { work(); }) {}
  ~Share() {
    leave();
    thread_.join();
  }
  void leave() { leaving_ = true; }
  bool has_ended() const { return ended_; }
  // The outcome of the work, once it has ended.
  const Status& outcome() const { return outcome_; }

  std::string doing() const {
    const std::lock_guard lock(mutex_);
    return doing_;
  }
  Json metrics() const {
    const std::lock_guard lock(mutex_);
    return {{"version", version_}, {"train_seconds", train_seconds_}, {"save_seconds", save_seconds_}};
  }

 private:
  void work() {
    while (!leaving_) {
      const Status status = take_part();
      if (status.code() == Code::kUnavailable || status.code() == Code::kDeadline) {
        // At the end of a run the first rank may be gone a moment before the word of the end is here.
        for (const Time start = clock_.now(); !leaving_ && clock_.now() - start < kEndGrace;)
          std::this_thread::sleep_for(20ms);
        if (leaving_) break;
        spdlog::warn("{}; beginning again with those that come", status.message());
        continue;
      }
      if (!status.ok() && !leaving_) outcome_ = status;
      break;
    }
    ended_ = true;
  }

  Status take_part() {
    set_doing("waiting for the other ranks", 0);
    Ranks ranks = TRY(meet(settings_.team, [this] { return leaving_.load(); }));
    auto learner = TRY(Learner::create(TRY(model::load_weights(settings_.model, true, settings_.format)),
                                       settings_.place, settings_.optimizer, ranks));
    TRY(learner.prepare(settings_.algorithm));
    if (!settings_.teacher.empty())
      TRY(learner.keep_teacher(TRY(load_teacher(settings_.teacher, settings_.model, settings_.format))));
    auto turns = TRY(turns_at(settings_.turns));
    learner.use(TRY(functions_of_run(settings_.algorithm, settings_.run_dir)));
    while (!leaving_) {
      set_doing("waiting for a batch", static_cast<uint64_t>(learner.steps()));
      const Order order = TRY(hear(ranks));
      const Time start = clock_.now();
      switch (order.kind) {
        case Order::Kind::kRest:
          break;
        case Order::Kind::kTrain: {
          set_doing(fmt::format("training step {}", order.version + 1), order.version);
          TRY(reinforce_in_turn(turns, learner, order.samples, settings_.algorithm, order.version));
          count(train_seconds_, start);
          break;
        }
        case Order::Kind::kSkip:
          learner.skip();
          break;
        case Order::Kind::kSave: {
          set_doing(fmt::format("saving step {}", order.version), order.version);
          TRY(learner.save(checkpoint_path(settings_.run_dir, order.version)));
          count(save_seconds_, start);
          break;
        }
        case Order::Kind::kLoad: {
          // The first rank chooses an older one where this cannot be read.
          const Status loaded = learner.load(checkpoint_path(settings_.run_dir, order.version));
          if (loaded.code() == Code::kUnavailable || loaded.code() == Code::kDeadline) return loaded;
          if (!loaded.ok()) spdlog::error("{}", loaded.to_string());
          break;
        }
      }
    }
    return {};
  }

  void set_doing(std::string what, uint64_t version) {
    const std::lock_guard lock(mutex_);
    doing_ = std::move(what);
    version_ = version;
  }
  void count(double& seconds, Time since) {
    const std::lock_guard lock(mutex_);
    seconds += to_seconds(clock_.now() - since);
  }

  const TrainerSettings& settings_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::string doing_ = "starting";
  uint64_t version_ = 0;
  double train_seconds_ = 0, save_seconds_ = 0;
  std::atomic<bool> leaving_{false}, ended_{false};
  Status outcome_;
  std::thread thread_;  // uses what stands above
};

}  // namespace

Status run_follower(const TrainerSettings& settings, const Clock& clock, const std::atomic<bool>& stop) {
  zmq::context_t context;
  auto coordinator = TRY(wire::Socket::connect(context, settings.coordinator, settings.identity,
                                               settings.secret ? &*settings.secret : nullptr));
  const std::string numerics_id = TRY(kernels::numerics_id(settings.place.device, model::to_string(settings.format)));
  wire::CoordinatorLink link(std::move(coordinator), clock, [&](wire::Hello::Builder hello) {
    hello.setRole("trainer");
    hello.setName(settings.identity.sender);
    hello.setPid(::getpid());
    hello.setNumericsId(numerics_id);
  });
  const Time started = clock.now();
  Share share(settings, clock);
  bool stopping = false;
  while (!stopping && !share.has_ended()) {
    wire::Socket* const sockets[] = {&link.socket()};
    wire::wait(sockets, 50ms);
    while (auto message = link.receive()) stopping = stopping || message->body().isStop();
    stopping = stopping || stop;
    link.tick(share.doing(), [&] {
      Json metrics = share.metrics();
      metrics["wall_seconds"] = to_seconds(clock.now() - started);
      return metrics;
    });
  }
  return share.has_ended() ? share.outcome() : Status();
}

}  // namespace tandem::trainer
