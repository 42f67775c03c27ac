#include "trainer/trainer.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <deque>
#include <set>

#include "base/work_queue.h"
#include "rollout/books/trajectory.h"
#include "trainer/learn/checkpoints.h"
#include "weights_sync/carrier.h"
#include "wire/coordinator_link.h"

namespace tandem::trainer {

using namespace std::chrono_literals;
using rollout::EpisodeKey;
using rollout::Trajectory;
using rollout::TrajectoryStore;

namespace {

constexpr size_t kKeptCheckpoints = 2;
constexpr size_t kKeptReports = 8;

// A version as it is handed out: a copy that stays while the learner goes on.
struct Published {
  weights_sync::Manifest manifest;
  std::vector<std::byte> bytes;
};

struct Batch {
  uint64_t step = 0;
  std::vector<rollout::BatchEntry> entries;
};

Json to_json(const StepMetrics& m) {
  return {{"loss", m.loss},
          {"grad_norm", m.grad_norm},
          {"learning_rate", m.learning_rate},
          {"entropy", m.entropy},
          {"mismatch_kl", m.mismatch_kl},
          {"clip_fraction", m.clip_fraction},
          {"kl", m.kl},
          {"correction_mean", m.correction_mean},
          {"dropped_fraction", m.dropped_fraction},
          {"ratio_mean", m.ratio_mean},
          {"ratio_max", m.ratio_max},
          {"trained_tokens", m.trained_tokens},
          {"sample_tokens", m.sample_tokens},
          {"tree_tokens", m.tree_tokens},
          {"max_abs_logprob_diff", m.max_abs_logprob_diff},
          {"compared_tokens", m.compared_tokens}};
}

class Trainer {
 public:
  Trainer(const TrainerSettings& settings, const Clock& clock, Learner learner, TrajectoryStore store,
          wire::Socket rollouts, wire::CoordinatorLink link)
      : settings_(settings),
        clock_(clock),
        learner_(std::move(learner)),
        store_(std::move(store)),
        rollouts_(std::move(rollouts)),
        link_(std::move(link)),
        started_(clock.now()),
        compute_(1, 4) {
    published_ = publish();
  }

  void introduce(wire::Hello::Builder hello) {
    hello.setRole("trainer");
    hello.setName(settings_.identity.sender);
    hello.setPid(::getpid());
    hello.setNumericsId(numerics_id_);
    hello.setStep(version_);
    // What was sent before is sent again, in order.
    batches_.clear();
    repeat_reports_ = true;
  }

  Status run(const std::atomic<bool>& stop) {
    while (!stopped_) {
      wire::Socket* const sockets[] = {&link_.socket(), &rollouts_};
      wire::wait(sockets, 20ms, compute_.wake_fd());
      compute_.run_completions();
      TRY(Status(failure_));
      for (int i = 0; i < 64; ++i) {
        auto message = link_.receive();
        if (!message) break;
        on_coordinator(*message);
      }
      for (int i = 0; i < 64; ++i) {
        auto message = rollouts_.receive();
        if (!message) break;
        TRY(on_rollout(*message));
      }
      if (stop) finishing_ = leaving_ = true;
      start_work();
      link_.tick(doing(), [&] { return metrics(); });
      if (std::exchange(repeat_reports_, false)) {
        for (const auto& [step, report] : reports_) send_report(step, report);
        report_checkpoint();
      }
    }
    return {};
  }

 private:
  void on_coordinator(const wire::Incoming& message) {
    const auto body = message.body();
    if (body.isStop()) {
      if (std::string_view(body.getStop().getReason().cStr()) == "finish") {
        finishing_ = true;
        announced_save_ = false;  // whoever asks again has not heard
      } else {
        stopped_ = true;
      }
      return;
    }
    if (!body.isTrain()) return;
    Batch batch{.step = body.getTrain().getStep(), .entries = {}};
    for (const auto entry : body.getTrain().getEntries()) {
      batch.entries.push_back({{entry.getEpisode(), entry.getAttempt()}, entry.getGroup(), entry.getAdvantage()});
    }
    batches_[batch.step] = std::move(batch);
  }

  Status on_rollout(const wire::Incoming& message) {
    const auto body = message.body();
    switch (body.which()) {
      case wire::Body::TRAJECTORY: {
        auto trajectory = rollout::read_trajectory(body.getTrajectory(), message);
        if (!trajectory) {
          spdlog::warn("{}; it will be sent again", trajectory.error().message());
          return {};
        }
        if (!store_.contains(trajectory->key)) {
          TRY(store_.append(*trajectory));
          prompt_tokens_ += std::count(trajectory->sampled.begin(), trajectory->sampled.end(), 0);
          generated_tokens_ += std::count(trajectory->sampled.begin(), trajectory->sampled.end(), 1);
        }
        wire::Outgoing ack;
        auto out = ack.body().initTrajectoryAck();
        out.setEpisode(trajectory->key.episode);
        out.setAttempt(trajectory->key.attempt);
        (void)rollouts_.send(message.sender(), ack);
        return {};
      }
      case wire::Body::WEIGHTS_QUERY: {
        listeners_.insert(message.sender());
        announce(message.sender());
        return {};
      }
      case wire::Body::CHUNK_REQUEST: {
        const auto request = body.getChunkRequest();
        if (request.getVersion() != published_->manifest.version) return announce(message.sender()), Status();
        const auto bytes = weights_sync::chunk_of(published_->manifest, published_->bytes, request.getIndex());
        wire::Outgoing chunk(message.id());
        auto out = chunk.body().initChunk();
        out.setVersion(request.getVersion());
        out.setIndex(request.getIndex());
        chunk.add_bulk(bytes);
        sent_bytes_ += bytes.size();
        (void)rollouts_.send(message.sender(), chunk);
        return {};
      }
      default:
        return {};
    }
  }

  void announce(const std::string& listener) {
    wire::Outgoing message;
    weights_sync::write_manifest(published_->manifest, message.body().initWeightsManifest());
    (void)rollouts_.send(listener, message);
  }

  // ---- Work of the compute thread; one piece at a time ----

  void start_work() {
    if (busy_) return;
    if (finishing_) {
      if (saved_version_ != version_) return save();
      if (!announced_save_) {
        report_checkpoint();
        announced_save_ = true;
      }
      if (leaving_ || !link_.known()) stopped_ = true;
      return;
    }
    const auto next = batches_.find(version_ + 1);
    if (next == batches_.end()) return;
    train(next->second);
  }

  void begin(std::string what) {
    busy_ = true;
    working_on_ = std::move(what);
    work_started_ = clock_.now();
    idle_seconds_ += to_seconds(work_started_ - work_ended_);
  }
  void end() {
    busy_ = false;
    work_ended_ = clock_.now();
  }

  void train(const Batch& batch) {
    begin(fmt::format("training step {}", batch.step));
    std::vector<Sample> samples;
    std::vector<EpisodeKey> missing;
    for (const auto& entry : batch.entries) {
      auto trajectory = store_.read(entry.key);
      if (!trajectory) {
        spdlog::error("step {}: {}", batch.step, trajectory.error().message());
        missing.push_back(entry.key);
        continue;
      }
      samples.push_back({.tokens = std::move(trajectory->tokens),
                         .trained = std::move(trajectory->sampled),
                         .logprobs = std::move(trajectory->logprobs),
                         .versions = std::move(trajectory->versions),
                         .advantage = entry.advantage,
                         .group = trajectory->group});
    }
    compute_.submit([this, step = batch.step, samples = std::move(samples),
                     missing = std::move(missing)]() -> WorkQueue::Completion {
      const Time start = clock_.now();
      Result<StepMetrics> metrics = StepMetrics{};
      if (samples.empty())
        learner_.skip();
      else
        metrics = learner_.reinforce(samples, settings_.algorithm, step - 1);
      const double train_seconds = to_seconds(clock_.now() - start);
      std::shared_ptr<Published> next;
      if (metrics) next = publish();
      Status exported;
      if (metrics && step == static_cast<uint64_t>(settings_.steps)) {
        exported = learner_.export_model(settings_.run_dir / "export", settings_.model);
      }
      const double total = to_seconds(clock_.now() - start);
      return [this, step, metrics, next, exported, missing, train_seconds, total] {
        end();
        if (!metrics)
          failure_ = metrics.error();
        else if (!exported.ok())
          failure_ = exported;
        if (!failure_.ok()) return;
        version_ = step;
        published_ = next;
        train_seconds_ += train_seconds;
        sync_seconds_ += total - train_seconds;
        trained_tokens_ += metrics->trained_tokens;
        compared_tokens_ += metrics->compared_tokens;
        max_diff_ = std::max(max_diff_, metrics->max_abs_logprob_diff);
        batches_.erase(step);
        report_step(step, *metrics, missing, train_seconds, total);
        for (const auto& listener : listeners_) announce(listener);
        if (step % settings_.checkpoint_every == 0 || step == static_cast<uint64_t>(settings_.steps)) save();
      };
    });
  }

  void save() {
    begin(fmt::format("saving checkpoint {}", version_));
    compute_.submit([this, version = version_]() -> WorkQueue::Completion {
      const Time start = clock_.now();
      Status status = make_directories(settings_.run_dir / "checkpoints");
      if (status.ok()) status = learner_.save(checkpoint_path(settings_.run_dir, version));
      if (status.ok()) keep_newest_checkpoints(settings_.run_dir, version, kKeptCheckpoints);
      const double seconds = to_seconds(clock_.now() - start);
      return [this, version, status, seconds] {
        end();
        save_seconds_ += seconds;
        if (!status.ok()) failure_ = status;
        saved_version_ = version;
        if (status.ok() && !finishing_) report_checkpoint();
      };
    });
  }

  std::shared_ptr<Published> publish() {
    auto next = std::make_shared<Published>();
    const auto wire = learner_.weights().wire();
    next->bytes.assign(wire.begin(), wire.end());
    next->manifest = weights_sync::make_manifest(static_cast<uint64_t>(learner_.steps()), next->bytes,
                                                 model::to_string(learner_.weights().format()));
    return next;
  }

  void report_step(uint64_t step, const StepMetrics& metrics, const std::vector<EpisodeKey>& missing,
                   double train_seconds, double seconds) {
    Json json = to_json(metrics);
    json["train_seconds"] = train_seconds;
    json["step_seconds"] = seconds;
    json["trainer"] = this->metrics();
    json["missing"] = Json::array();
    for (const EpisodeKey& key : missing) json["missing"].push_back({key.episode, key.attempt});
    reports_[step] = dump_json(json);
    while (reports_.size() > kKeptReports) reports_.erase(reports_.begin());
    send_report(step, reports_[step]);
    spdlog::info(
        "step {}: loss {:.4f}, grad {:.3f}, entropy {:.3f}, {} tokens of {} computed as {}, logprob diff {} over {}, "
        "{:.1f} s",
        step, metrics.loss, metrics.grad_norm, metrics.entropy, metrics.trained_tokens, metrics.sample_tokens,
        metrics.tree_tokens, metrics.max_abs_logprob_diff, metrics.compared_tokens, train_seconds);
  }
  // A coordinator that missed it learns the step from our next hello, and the rest from what follows that.
  void send_report(uint64_t step, const std::string& report) {
    wire::Outgoing message;
    auto out = message.body().initTrained();
    out.setStep(step);
    out.setMetrics(report);
    (void)link_.send(message);
  }
  void report_checkpoint() {
    wire::Outgoing message;
    message.body().setCheckpointed(saved_version_);
    (void)link_.send(message);
  }

  std::string doing() const {
    if (busy_) return fmt::format("{} for {:.1f} s", working_on_, to_seconds(clock_.now() - work_started_));
    return finishing_ ? "saved, waiting for stop" : fmt::format("waiting for batch {}", version_ + 1);
  }

  Json metrics() const {
    return {{"version", version_},
            {"train_seconds", train_seconds_},
            {"sync_seconds", sync_seconds_},
            {"save_seconds", save_seconds_},
            {"idle_seconds", idle_seconds_},
            {"wall_seconds", to_seconds(clock_.now() - started_)},
            {"prompt_tokens", prompt_tokens_},
            {"generated_tokens", generated_tokens_},
            {"trained_tokens", trained_tokens_},
            {"sent_bytes", sent_bytes_},
            {"full_bytes", published_->bytes.size()},
            {"compared_tokens", compared_tokens_},
            {"max_abs_logprob_diff", max_diff_},
            {"trajectories", store_.size()}};
  }

  const TrainerSettings settings_;
  const Clock& clock_;
  Learner learner_;
  const std::string numerics_id_ = learner_.numerics_id();
  TrajectoryStore store_;
  wire::Socket rollouts_;
  wire::CoordinatorLink link_;
  std::shared_ptr<Published> published_;
  std::map<uint64_t, Batch> batches_;        // ordered, not yet trained
  std::map<uint64_t, std::string> reports_;  // of the newest steps, as they were sent
  bool repeat_reports_ = false;
  std::set<std::string> listeners_;
  uint64_t version_ = static_cast<uint64_t>(learner_.steps());
  uint64_t saved_version_ = version_;
  bool leaving_ = false;  // asked by a signal: saves and goes, without a word of the coordinator
  bool busy_ = false, finishing_ = false, announced_save_ = false, stopped_ = false;
  std::string working_on_;
  Time work_started_{}, work_ended_ = clock_.now(), started_;
  Status failure_;
  double train_seconds_ = 0, sync_seconds_ = 0, save_seconds_ = 0, idle_seconds_ = 0, max_diff_ = 0;
  int64_t prompt_tokens_ = 0, generated_tokens_ = 0, trained_tokens_ = 0, compared_tokens_ = 0;
  uint64_t sent_bytes_ = 0;
  WorkQueue compute_;  // its thread uses what stands above
};

}  // namespace

std::optional<fs::path> newest_checkpoint(const fs::path& run_dir) {
  const auto all = checkpoints_of(run_dir);
  if (all.empty()) return std::nullopt;
  return all.back().second;
}

Status run_trainer(const TrainerSettings& settings, const Clock& clock, const std::atomic<bool>& stop) {
  auto learner = TRY(Learner::create(TRY(model::load_weights(settings.model, true, settings.format)),
                                     TRY(kernels::Stream::cpu(settings.threads)), settings.optimizer));
  if (settings.algorithm.kl.estimator != Kl::Estimator::kNone) TRY(learner.keep_reference());
  for (const char* folder : {"checkpoints", "export"}) sweep_unfinished(settings.run_dir / folder);
  auto all = checkpoints_of(settings.run_dir);
  while (!all.empty()) {
    Status loaded = learner.load(all.back().second);
    if (loaded.ok() && static_cast<uint64_t>(learner.steps()) != all.back().first)
      loaded =
          Status::corrupt(fmt::format("says that it is of step {}", learner.steps())).at(all.back().second.string());
    if (loaded.ok()) {
      spdlog::info("going on from {}", all.back().second.string());
      break;
    }
    // An older one costs steps that are trained again; a damaged one would cost the run.
    spdlog::error("{}", loaded.to_string());
    all.pop_back();
    if (all.empty()) return loaded;
  }
  auto store = TRY(TrajectoryStore::open(settings.run_dir / "trajectories"));
  zmq::context_t context;
  auto rollouts = TRY(wire::Socket::listen(context, settings.address, settings.identity));
  auto coordinator = TRY(wire::Socket::connect(context, settings.coordinator, settings.identity));
  Trainer* self = nullptr;
  wire::CoordinatorLink link(std::move(coordinator), clock,
                             [&self](wire::Hello::Builder hello) { self->introduce(hello); });
  Trainer trainer(settings, clock, std::move(learner), std::move(store), std::move(rollouts), std::move(link));
  self = &trainer;
  return trainer.run(stop);
}

}  // namespace tandem::trainer
