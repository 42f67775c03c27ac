#include "trainer/sft/demonstration_training.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "trainer/learn/checkpoints.h"
#include "trainer/sft/whole_directory.h"

namespace tandem::trainer {

namespace {

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class DemonstrationTraining {
 public:
  DemonstrationTraining(const DemonstrationSettings& settings, const std::function<void(const Json&)>& tell,
                        const std::stop_token& stop, rollout::Conversation conversation, Learner learner)
      : settings_(settings),
        tell_(tell),
        stop_(stop),
        conversation_(std::move(conversation)),
        learner_(std::move(learner)) {
    for (const auto& stage : settings.stages) result_.steps += stage.steps;
  }

  Result<DemonstrationResult> run() {
    TRY(make_directories(settings_.folder / "checkpoints"));
    for (const auto& folder : {settings_.folder, settings_.folder / "checkpoints"}) sweep_unfinished(folder);
    TRY(resume());
    CheckpointTimer timer(settings_.checkpoint_seconds, clock_seconds());
    while (result_.step < result_.steps) {
      if (stop_.stop_requested()) {
        // What was just read or saved is on disk already.
        if (result_.step > saved_) TRY(save());
        result_.interrupted = true;
        return result_;
      }
      TRY(take_step());
      const double now = clock_seconds();
      if (result_.step < result_.steps && timer.due(now)) {
        TRY(save());
        timer.saved(now, clock_seconds());
      }
    }
    TRY(write_whole_directory(settings_.out, [&](const fs::path& aside) {
      return model::save_weights(learner_.weights(), aside, settings_.model);
    }));
    return result_;
  }

 private:
  Status resume() {
    auto all = checkpoints_of(settings_.folder);
    for (; !all.empty(); all.pop_back()) {
      const fs::path& newest = all.back().second;
      const Status loaded = learner_.load(newest);
      if (loaded.ok()) {
        result_.step = saved_ = learner_.steps();
        tell_({{"event", "resumed"}, {"step", result_.step}, {"steps", result_.steps}, {"from", newest.string()}});
        return {};
      }
      if (all.size() == 1) return loaded;
      spdlog::error("{}", loaded.to_string());
    }
    return {};
  }

  const DemonstrationStage& stage_of(int64_t step) const {  // from 0
    size_t i = 0;
    while (step >= settings_.stages[i].steps) step -= settings_.stages[i++].steps;
    return settings_.stages[i];
  }

  Status take_step() {
    const double began = clock_seconds();
    const auto& stage = stage_of(result_.step);
    learner_.set_learning_rate(stage.learning_rate);
    const WarmStartSettings drawn{.kinds = settings_.kinds,
                                  .seed = settings_.seed,
                                  .transcripts_per_step = settings_.transcripts_per_step,
                                  .noise = stage.noise};
    // Which demonstrations a step has is known from its number alone.
    const uint64_t first = static_cast<uint64_t>(result_.step) * static_cast<uint64_t>(settings_.transcripts_per_step);
    const auto samples =
        TRY(demonstrations(drawn, conversation_, first, settings_.transcripts_per_step, settings_.max_tokens));
    const auto metrics = TRY(learner_.imitate(samples));
    result_.step = learner_.steps();
    tell_({{"event", "step"},
           {"step", result_.step},
           {"steps", result_.steps},
           {"loss", metrics.loss},
           {"grad_norm", metrics.grad_norm},
           {"learning_rate", metrics.learning_rate},
           {"trained_tokens", metrics.trained_tokens},
           {"tree_tokens", metrics.tree_tokens},
           {"seconds", clock_seconds() - began}});
    return {};
  }

  Status save() {
    const auto step = static_cast<uint64_t>(result_.step);
    const fs::path folder = checkpoint_path(settings_.folder, step);
    TRY(learner_.save(folder));
    saved_ = result_.step;
    keep_newest_checkpoints(settings_.folder, step, 1, step);
    tell_({{"event", "checkpoint"}, {"step", result_.step}, {"path", folder.string()}});
    return {};
  }

  const DemonstrationSettings& settings_;
  const std::function<void(const Json&)>& tell_;
  const std::stop_token& stop_;
  rollout::Conversation conversation_;
  Learner learner_;
  int64_t saved_ = 0;  // the step of the newest checkpoint
  DemonstrationResult result_;
};

}  // namespace

void CheckpointTimer::saved(double began, double now) { due_ = now + std::max(interval_, 9 * (now - began)); }

Result<DemonstrationResult> train_on_demonstrations(const DemonstrationSettings& settings,
                                                    const std::function<void(const Json&)>& tell,
                                                    const std::stop_token& stop) {
  auto weights = TRY(model::load_weights(settings.model, true));
  auto conversation = TRY(rollout::Conversation::load(settings.model));
  const double rate = settings.stages.empty() ? 0 : settings.stages.front().learning_rate;
  auto learner = TRY(Learner::create(std::move(weights), settings.place,
                                     {.learning_rate = {.peak = rate, .warmup_steps = settings.warmup_steps}}));
  return DemonstrationTraining(settings, tell, stop, std::move(conversation), std::move(learner)).run();
}

}  // namespace tandem::trainer
