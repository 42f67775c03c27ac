#include "trainer/trainer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <optional>
#include <stop_token>

#include "base/work_queue.h"
#include "rollout/books/trajectory.h"
#include "trainer/device_turns.h"
#include "trainer/learn/checkpoints.h"
#include "trainer/learn/teacher.h"
#include "trainer/publisher.h"
#include "trainer/remote_teacher.h"
#include "trainer/standby_copies.h"
#include "trainer/step_json.h"
#include "trainer/stored_batches.h"
#include "trainer/torch/function_loader.h"
#include "trainer/work_order.h"
#include "weights_sync/carrier.h"
#include "weights_sync/stored_versions.h"
#include "wire/coordinator_link.h"

namespace tandem::trainer {

using namespace std::chrono_literals;
using rollout::EpisodeKey;
using rollout::Trajectory;
using rollout::TrajectoryStore;

namespace {

constexpr size_t kReceivedBytes = size_t{256} << 20;  // of trajectories that wait to be stored

class Trainer {
 public:
  Trainer(const TrainerSettings& settings, const Clock& clock, Ranks ranks, Learner learner, std::optional<Turns> turns,
          std::optional<Demonstrations> demonstrations, TrajectoryStore store, StandbyCopies copies,
          wire::Socket rollouts, wire::CoordinatorLink link, std::unique_ptr<weights_sync::StoredVersions> weight_store)
      : settings_(settings),
        clock_(clock),
        ranks_(std::move(ranks)),
        learner_(std::move(learner)),
        turns_(std::move(turns)),
        demonstrations_(std::move(demonstrations)),
        store_(std::move(store)),
        copies_(std::move(copies)),
        rollouts_(std::move(rollouts)),
        link_(std::move(link)),
        publisher_({.run_dir = settings.run_dir,
                    .history = settings.weights,
                    .threads = settings.place.threads,
                    .audit_every = settings.audit_every},
                   learner_, clock),
        weight_store_(std::move(weight_store)),
        started_(clock.now()),
        stored_(store_.size()),
        storage_(1, 4),
        compute_(1, 4),
        asking_(1, 4) {
    if (settings.algorithm.teacher.is_remote())
      teacher_.emplace(settings.run_dir, settings.algorithm.teacher.endpoint, settings.teacher_key, settings.standby,
                       clock);
    offer(publisher_.publish());
    failure_ = publisher_.audited();
    for (const int fd : {storage_.wake_fd(), compute_.wake_fd(), asking_.wake_fd()}) {
      epoll_event event{.events = EPOLLIN, .data = {}};
      (void)::epoll_ctl(wake_.get(), EPOLL_CTL_ADD, fd, &event);  // without it both are looked at every 20 ms
    }
  }

  void introduce(wire::Hello::Builder hello) {
    hello.setRole("trainer");
    hello.setName(settings_.identity.sender);
    hello.setPid(::getpid());
    hello.setNumericsId(numerics_id_);
    hello.setStep(order_.version());
    introduced_ = true;
  }

  Status run(const std::atomic<bool>& stop) {
    while (!quit_) {
      wire::Socket* const sockets[] = {&link_.socket(), &rollouts_};
      wire::wait(sockets, 20ms, wake_.get());
      storage_.run_completions();
      compute_.run_completions();
      asking_.run_completions();
      TRY(Status(failure_));
      for (int i = 0; i < 64; ++i) {
        auto message = link_.receive();
        if (!message) break;
        on_coordinator(*message);
      }
      for (int i = 0; i < 64; ++i) {
        auto message = rollouts_.receive();
        if (!message) break;
        on_rollout(*message);
      }
      start_storing();
      if (stop) {
        leaving_.source.request_stop();
        apply(WorkOrder::Leave{});
      }
      apply(WorkOrder::Turn{.coordinator_known = link_.known()});
      keep_in_touch();
      link_.tick(order_.doing(clock_.now()), [&] { return metrics(); });
      if (std::exchange(introduced_, false)) apply(WorkOrder::Introduced{});
    }
    if (settings_.standby != nullptr) settings_.standby->cancel();  // nobody waits for it any more
    return {};
  }

 private:
  void on_coordinator(const wire::Incoming& message) {
    const auto body = message.body();
    if (body.isStop()) {
      leaving_.source.request_stop();
      if (std::string_view(body.getStop().getReason().cStr()) == "finish")
        apply(WorkOrder::Finish{});
      else
        apply(WorkOrder::Stop{});
      return;
    }
    if (!body.isTrain()) return;
    Batch batch{.step = body.getTrain().getStep(), .entries = {}};
    for (const auto entry : body.getTrain().getEntries()) {
      auto& added = batch.entries.emplace_back();
      added = {
          {entry.getEpisode(), entry.getAttempt()}, entry.getGroup(), entry.getAdvantage(), {}, entry.getKind().cStr()};
      for (const double reward : entry.getTurnRewards()) added.turn_rewards.push_back(reward);
      for (const auto metric : entry.getMetrics()) added.metrics[metric.getName()] = metric.getValue();
    }
    apply(WorkOrder::Ordered{std::move(batch)});
  }

  void on_rollout(const wire::Incoming& message) {
    if (const auto sent = weights_sync::answer(handout_, rollouts_, message, clock_.now())) {
      sent_bytes_ += *sent;
      return;
    }
    if (!message.body().isTrajectory()) return;
    auto trajectory = rollout::read_trajectory(message.body().getTrajectory(), message);
    if (!trajectory) return spdlog::warn("{}; it will be sent again", trajectory.error().message());
    // What there is no room for is not acknowledged, so it is sent again.
    if (received_.bytes >= kReceivedBytes) return;
    received_.bytes += rollout::bytes_of(*trajectory);
    received_.trajectories.push_back(std::move(*trajectory));
    received_.senders.push_back(message.sender());
  }

  // ---- Work of the storage thread: what comes in while it waits for the disk is stored together ----

  void start_storing() {
    if (storing_ || received_.trajectories.empty()) return;
    storing_ = true;
    const auto received = std::make_shared<Received>(std::exchange(received_, {}));
    storage_.submit([this, received]() -> WorkQueue::Completion {
      Stored stored = store_all(store_, *received);
      if (stored.status.ok()) stored.status = copies_.trajectories(store_.bytes());
      return [this, received, stored] {
        storing_ = false;
        if (!stored.status.ok()) failure_ = stored.status;
        if (!failure_.ok()) return;
        prompt_tokens_ += stored.prompt_tokens;
        generated_tokens_ += stored.generated_tokens;
        stored_ = stored.stored;
        for (size_t i = 0; i < received->senders.size(); ++i)
          acknowledge(received->senders[i], received->trajectories[i].key);
        start_storing();
      };
    });
  }

  void acknowledge(const std::string& rollout, const EpisodeKey& key) {
    wire::Outgoing ack;
    auto out = ack.body().initTrajectoryAck();
    out.setEpisode(key.episode);
    out.setAttempt(key.attempt);
    (void)rollouts_.send(rollout, ack);
  }

  // ---- What the order of work asks for ----

  void apply(WorkOrder::Event event) {
    for (const auto& action : order_.step(std::move(event), clock_.now()))
      std::visit([&](const auto& wanted) { perform(wanted); }, action);
  }
  void perform(const WorkOrder::Train& wanted) { load_and_train(wanted.batch); }
  void perform(const WorkOrder::Save& wanted) { save(wanted.version); }
  void perform(const WorkOrder::AnnounceWeights&) { weights_sync::announce(handout_, rollouts_); }
  // A coordinator that missed it learns the step from our next hello, and the rest from what follows that.
  void perform(const WorkOrder::ReportStep& wanted) {
    wire::Outgoing message;
    auto out = message.body().initTrained();
    out.setStep(wanted.step);
    out.setMetrics(wanted.report);
    (void)link_.send(message);
  }
  void perform(const WorkOrder::ReportCheckpoint& wanted) {
    wire::Outgoing message;
    message.body().setCheckpointed(wanted.version);
    (void)link_.send(message);
  }
  void perform(const WorkOrder::Quit&) { quit_ = true; }

  // ---- Work of the compute thread; one piece at a time ----

  // While there is nothing to do the other ranks hear so, and this one that they are there.
  void keep_in_touch() {
    if (ranks_.count() == 1 || compute_.pending() > 0 || clock_.now() < next_touch_) return;
    next_touch_ = clock_.now() + 200ms;
    compute_.submit([this]() -> WorkQueue::Completion {
      const Status said = say(ranks_, {.kind = Order::Kind::kRest});
      return [this, said] {
        if (failure_.ok()) failure_ = said;
      };
    });
  }

  // The storage thread reads the batch, the compute thread trains it.
  void load_and_train(const Batch& batch) {
    storage_.submit([this, batch]() -> WorkQueue::Completion {
      const auto loaded = std::make_shared<Loaded>(load(store_, batch, settings_.algorithm));
      const bool is_to_teach = teacher_ && !loaded->samples.empty();
      return [this, loaded, is_to_teach] { is_to_teach ? teach(loaded) : train(loaded); };
    });
  }

  // The compute thread is free meanwhile, and the other ranks hear of this one.
  void teach(const std::shared_ptr<Loaded>& loaded) {
    asking_.submit([this, loaded]() -> WorkQueue::Completion {
      const Status taught = teacher_->teach(*loaded, leaving_.source.get_token());
      return [this, loaded, taught] {
        if (taught.code() == Code::kCancelled)
          apply(WorkOrder::GivenUp{});
        else if (!taught.ok())
          failure_ = taught;
        else
          train(loaded);
      };
    });
  }

  void train(const std::shared_ptr<Loaded>& loaded) {
    compute_.submit([this, loaded]() -> WorkQueue::Completion {
      const uint64_t step = loaded->step;
      const Time start = clock_.now();
      auto metrics = take_step(*loaded);
      const double train_seconds = to_seconds(clock_.now() - start);
      std::shared_ptr<const weights_sync::Offer> next;
      if (metrics) next = publisher_.publish();
      Status exported = publisher_.audited();
      if (metrics && exported.ok() && step == static_cast<uint64_t>(settings_.steps)) {
        // Not the folder of the run, which may have been moved away.
        exported = make_folder(settings_.run_dir / "export");
        if (exported) exported = learner_.export_model(settings_.run_dir / "export", settings_.model);
        if (exported) exported = copies_.exported();
      }
      const double total = to_seconds(clock_.now() - start);
      return [this, step, metrics, next, exported, loaded, train_seconds, total] {
        if (!metrics)
          failure_ = metrics.error();
        else if (!exported.ok())
          failure_ = exported;
        if (!failure_.ok()) return;
        offer(next);
        train_seconds_ += train_seconds;
        sync_seconds_ += total - train_seconds;
        trained_tokens_ += metrics->trained_tokens;
        compared_tokens_ += metrics->compared_tokens;
        max_diff_ = std::max(max_diff_, metrics->max_abs_logprob_diff);
        apply(WorkOrder::Trained{report_of(step, *metrics, *loaded, *next, train_seconds, total)});
      };
    });
  }

  Result<StepMetrics> take_step(Loaded& loaded) {
    add_demonstrations(demonstrations_, settings_.algorithm, settings_.optimizer.updates.seed, loaded);
    Order order{.kind = loaded.samples.empty() ? Order::Kind::kSkip : Order::Kind::kTrain,
                .version = loaded.step - 1,
                .samples = std::move(loaded.samples)};
    TRY(say(ranks_, order));
    if (order.kind == Order::Kind::kTrain)
      return reinforce_in_turn(turns_, learner_, order.samples, settings_.algorithm, order.version);
    learner_.skip();
    return StepMetrics{};
  }

  void save(uint64_t version) {
    compute_.submit([this, version]() -> WorkQueue::Completion {
      const Time start = clock_.now();
      Status status = make_folder(settings_.run_dir / "checkpoints");
      if (status.ok()) status = say(ranks_, {.kind = Order::Kind::kSave, .version = version});
      if (status.ok()) status = learner_.save(checkpoint_path(settings_.run_dir, version));
      const uint64_t every = static_cast<uint64_t>(settings_.measured_every);
      // The newest of what is to be measured stays, since its measurement may not have begun.
      if (status.ok())
        keep_newest_checkpoints(settings_.run_dir, version, settings_.kept_checkpoints,
                                every > 0 ? version / every * every : version);
      if (status.ok()) status = copies_.checkpoint(version);
      const double seconds = to_seconds(clock_.now() - start);
      return [this, status, seconds] {
        save_seconds_ += seconds;
        if (!status.ok()) failure_ = status;
        if (failure_.ok()) apply(WorkOrder::Saved{});
      };
    });
  }

  // The report of a step, for the coordinator; also logged. Its metrics of the trainer are those when the step is done.
  std::string report_of(uint64_t step, const StepMetrics& metrics, const Loaded& loaded,
                        const weights_sync::Offer& next, double train_seconds, double seconds) {
    Json json = to_json(metrics);
    if (metrics.skipped_spikes > 0)
      spdlog::warn("step {}: {} updates were left out: the gradient's norm was {:.3g}, a spike (trainer.skip_spikes)",
                   step, metrics.skipped_spikes, metrics.grad_norm);
    json["weights_digest"] = weights_sync::digest_of_version(next.whole()).hex();
    json["delta_bytes"] = next.delta_bytes();
    if (const Json& audit = publisher_.audit(); !audit.is_null() && audit.at("version") == step)
      json["weights_audit"] = audit;
    json["train_seconds"] = train_seconds;
    json["step_seconds"] = seconds;
    if (teacher_)
      json["teacher"] = {{"seconds", loaded.teacher_seconds},
                         {"requests", loaded.teacher.requests},
                         {"failed", loaded.teacher.failed}};
    json["trainer"] = this->metrics();
    json["trainer"]["version"] = step;
    json["missing"] = Json::array();
    for (const EpisodeKey& key : loaded.missing) json["missing"].push_back({key.episode, key.attempt});
    spdlog::info(
        "step {}: loss {:.4f}, grad {:.3f}, entropy {:.3f}, {} tokens of {} computed as {}, logprob diff {} over {}, "
        "{:.1f} s",
        step, metrics.loss, metrics.grad_norm, metrics.entropy, metrics.trained_tokens, metrics.sample_tokens,
        metrics.tree_tokens, metrics.max_abs_logprob_diff, metrics.compared_tokens, train_seconds);
    if (metrics.routes_taken > 0)
      spdlog::info("step {}: {} of {} routes of the sampler are not those that the weights would choose", step,
                   metrics.routes_changed, metrics.routes_taken);
    return dump_json(json);
  }

  void offer(std::shared_ptr<const weights_sync::Offer> offer) {
    if (weight_store_) weight_store_->offer(offer);
    handout_.offer(std::move(offer));
  }

  Json metrics() const {
    Json json = {{"version", order_.version()},
                 {"train_seconds", train_seconds_},
                 {"sync_seconds", sync_seconds_},
                 {"save_seconds", save_seconds_},
                 {"idle_seconds", order_.idle_seconds()},
                 {"wall_seconds", to_seconds(clock_.now() - started_)},
                 {"prompt_tokens", prompt_tokens_},
                 {"generated_tokens", generated_tokens_},
                 {"trained_tokens", trained_tokens_},
                 {"sent_bytes", sent_bytes_},
                 {"full_bytes", handout_.offered().whole_bytes()},
                 {"compared_tokens", compared_tokens_},
                 {"max_abs_logprob_diff", max_diff_},
                 {"trajectories", stored_}};
    if (weight_store_) json.update(weight_store_->metrics());
    return json;
  }

  const TrainerSettings settings_;
  const Clock& clock_;
  Ranks ranks_;  // the compute thread's
  Learner learner_;
  std::optional<Turns> turns_;  // the compute thread's
  const std::string numerics_id_ = learner_.numerics_id();
  const std::optional<Demonstrations> demonstrations_;  // the compute thread's
  TrajectoryStore store_;                               // the storage thread's
  StandbyCopies copies_;  // of trajectories the storage thread's, else the compute thread's
  wire::Socket rollouts_;
  wire::CoordinatorLink link_;
  Publisher publisher_;                                               // the compute thread's while it publishes
  const std::unique_ptr<weights_sync::StoredVersions> weight_store_;  // null: rollouts ask the trainer alone
  weights_sync::Handout handout_;
  WorkOrder order_{{.steps = static_cast<uint64_t>(settings_.steps),
                    .checkpoint_every = static_cast<uint64_t>(settings_.checkpoint_every),
                    .measured_every = static_cast<uint64_t>(settings_.measured_every)},
                   static_cast<uint64_t>(learner_.steps()),
                   clock_.now()};
  bool introduced_ = false, quit_ = false;
  const Time started_;
  Time next_touch_{};
  Status failure_;
  double train_seconds_ = 0, sync_seconds_ = 0, save_seconds_ = 0, max_diff_ = 0;
  int64_t prompt_tokens_ = 0, generated_tokens_ = 0, trained_tokens_ = 0, compared_tokens_ = 0;
  uint64_t sent_bytes_ = 0;
  Received received_;
  size_t stored_ = 0;  // trajectories
  bool storing_ = false;
  const FileDescriptor wake_{::epoll_create1(EPOLL_CLOEXEC)};  // readable when a thread has something to tell
  std::optional<RemoteTeacher> teacher_;                       // the asking thread's
  WorkQueue storage_, compute_, asking_;                       // their threads use what stands above
  // Ends what the asking thread waits for: a teacher that does not answer holds nobody up who is to go.
  struct Leaving {
    std::stop_source source;
    ~Leaving() { source.request_stop(); }
  } leaving_;
};

}  // namespace

Status run_trainer(const TrainerSettings& settings, const Clock& clock, const std::atomic<bool>& stop) {
  Ranks ranks;
  if (settings.team.ranks > 1) {
    auto met = meet(settings.team, [&] { return stop.load(); });
    if (!met && met.error().code() == Code::kCancelled) return {};
    ranks = TRY(std::move(met));
  }
  auto learner = TRY(Learner::create(TRY(model::load_weights(settings.model, true, settings.format)), settings.place,
                                     settings.optimizer, ranks));
  TRY(learner.prepare(settings.algorithm));
  if (!settings.teacher.empty())
    TRY(learner.keep_teacher(TRY(load_teacher(settings.teacher, settings.model, settings.format))));
  learner.use(TRY(functions_of_run(settings.algorithm, settings.run_dir)));
  for (const char* folder : {"checkpoints", "export"}) sweep_unfinished(settings.run_dir / folder);
  TRY(go_on_from_checkpoint(settings.run_dir, ranks, learner));
  auto turns = TRY(turns_at(settings.turns));
  auto demonstrations = TRY(read_demonstrations(settings.run_dir, settings.algorithm, learner.weights().config()));
  auto store = TRY(TrajectoryStore::open(settings.run_dir / "trajectories"));
  StandbyCopies copies(settings.run_dir, settings.standby);
  TRY(copies.begin(store.bytes()));
  zmq::context_t context;
  const wire::Secret* const secret = settings.secret ? &*settings.secret : nullptr;
  auto rollouts = TRY(wire::Socket::listen(context, settings.address, settings.identity, secret));
  auto coordinator = TRY(wire::Socket::connect(context, settings.coordinator, settings.identity, secret));
  Trainer* self = nullptr;
  wire::CoordinatorLink link(std::move(coordinator), clock,
                             [&self](wire::Hello::Builder hello) { self->introduce(hello); });
  auto weight_store =
      TRY(weights_sync::StoredVersions::open(settings.weight_store, {.run = settings.identity.run,
                                                                     .record = settings.run_dir / "weight_store.json",
                                                                     .deltas = settings.weights.deltas}));
  Trainer trainer(settings, clock, std::move(ranks), std::move(learner), std::move(turns), std::move(demonstrations),
                  std::move(store), std::move(copies), std::move(rollouts), std::move(link), std::move(weight_store));
  self = &trainer;
  return trainer.run(stop);
}

}  // namespace tandem::trainer
