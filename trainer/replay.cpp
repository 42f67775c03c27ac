#include "trainer/replay.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <memory>

#include "trainer/learn/checkpoints.h"
#include "trainer/learn/segment_logprobs.h"
#include "trainer/learn/tape.h"
#include "trainer/learn/teacher.h"
#include "trainer/teacher_record.h"
#include "trainer/torch/function_loader.h"
#include "weights_sync/version.h"

namespace tandem::trainer {

Digest digest_of_version(const Learner& learner) {
  const auto& weights = learner.weights();
  return weights_sync::digest_of_version(weights_sync::make_manifest(
      static_cast<uint64_t>(learner.steps()), weights.wire(), model::to_string(weights.format())));
}

Result<Replay> Replay::open(const ReplaySettings& settings, uint64_t version) {
  auto learner = TRY(Learner::create(TRY(model::load_weights(settings.model, true, settings.format)), settings.place,
                                     settings.optimizer));
  TRY(learner.prepare(settings.algorithm));
  if (!settings.teacher.empty())
    TRY(learner.keep_teacher(TRY(load_teacher(settings.teacher, settings.model, settings.format))));
  learner.use(TRY(recorded_functions(settings.algorithm, settings.run_dir)));
  auto all = checkpoints_of(settings.run_dir);
  while (!all.empty() && all.back().first > version) all.pop_back();
  if (!all.empty()) TRY(learner.load(all.back().second));
  auto demonstrations = TRY(read_demonstrations(settings.run_dir, settings.algorithm, learner.weights().config()));
  return Replay(settings, std::move(learner), std::move(demonstrations),
                TRY(rollout::TrajectoryStore::open_to_read(settings.run_dir / "trajectories")),
                TRY(settings.place.host_stream()));
}

Result<Replay::Step> Replay::next(const Batch& batch) {
  if (batch.step != version() + 1)
    return fail(Status::internal(fmt::format("step {} does not follow version {}", batch.step, version())));
  Loaded loaded = load(store_, batch, settings_.algorithm);
  Step step{.step = batch.step, .episodes = loaded.samples.size(), .metrics = {}, .missing = std::move(loaded.missing)};
  if (settings_.algorithm.teacher.is_remote() && !loaded.samples.empty()) {
    if (Status taught = read_teacher_record(settings_.run_dir, batch.step, loaded.samples); !taught) {
      return fail(std::move(taught).hint(
          "a replay takes what the teacher said from the run directory: without it the step cannot be repeated"));
    }
  }
  add_demonstrations(demonstrations_, settings_.algorithm, settings_.optimizer.updates.seed, loaded);
  if (loaded.samples.empty())
    learner_.skip();
  else
    step.metrics = TRY(learner_.reinforce(loaded.samples, settings_.algorithm, batch.step - 1));
  return step;
}

Result<std::optional<std::string>> Replay::difference_from_checkpoint() {
  const fs::path folder = checkpoint_path(settings_.run_dir, version());
  if (!fs::exists(folder)) return std::optional<std::string>();
  return learner_.difference_from(folder);
}

Result<std::vector<float>> Replay::logprobs(const rollout::Trajectory& trajectory, float logit_scale) {
  std::vector<TokenPick> picks;
  std::vector<KeptTokens> kept;
  const auto of_tokens = trajectory.kept.sets();
  for (size_t i = 1; i < trajectory.tokens.size(); ++i) {
    if (!trajectory.sampled[i] || trajectory.versions[i] != version()) continue;
    picks.push_back({static_cast<int32_t>(i - 1), trajectory.tokens[i]});
    kept.push_back(of_tokens.empty() ? KeptTokens() : of_tokens[i]);
  }
  std::vector<float> logprobs(trajectory.tokens.size(), std::numeric_limits<float>::quiet_NaN());
  if (picks.empty()) return logprobs;
  const auto& weights = learner_.weights();
  const int positions = weights.config().max_positions;
  const kernels::Device& device = settings_.place.device;
  // The weights are encoded for where the learner's passes run.
  const auto tape = device.on_cpu() ? std::make_unique<Tape>(weights.config(), positions)
                                    : TRY(Tape::on_device(device, weights, positions));
  const auto computed =
      TRY(logprobs_of(*tape, stream_, weights, trajectory.tokens, trajectory.later_segments, picks, logit_scale, kept));
  for (size_t i = 0; i < picks.size(); ++i) logprobs[static_cast<size_t>(picks[i].row) + 1] = computed[i];
  return logprobs;
}

}  // namespace tandem::trainer
