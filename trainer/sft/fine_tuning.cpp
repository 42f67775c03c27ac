#include "trainer/sft/fine_tuning.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/text.h"
#include "model/weights.h"
#include "trainer/learn/checkpoints.h"
#include "trainer/sft/reference_sums.h"
#include "trainer/sft/sample_order.h"
#include "trainer/sft/whole_directory.h"

namespace tandem::trainer {

namespace {

constexpr size_t kKeptCheckpoints = 2;
constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr const char* kReferenceFile = "reference.jsonl";
constexpr int kValidatedAtOnce = 16;  // samples, between looks at whether to stop

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

SampleOrder order_of(const FineTuningSettings& settings, const SampleSet& samples) {
  std::vector<int> lengths;
  const size_t each = samples.pairs ? 2 : 1;
  for (size_t i = 0; i < samples.train.size(); ++i) {
    const auto length = static_cast<int>(samples.train[i].sample.tokens.size());
    if (i % each == 0)
      lengths.push_back(length);
    else
      lengths.back() += length;
  }
  return {std::move(lengths), settings.tokens_per_step, settings.seed};
}

Json to_json(const Validations& v) {
  if (v.last_step == 0) return nullptr;
  return {{"best", v.best}, {"best_step", v.best_step}, {"since_best", v.since_best}, {"last_step", v.last_step}};
}

Result<Validations> validations_from(const Json& json) {
  Validations v;
  if (json.is_null()) return v;
  try {
    v = {.best = json.at("best").get<double>(),
         .best_step = json.at("best_step").get<int64_t>(),
         .since_best = json.at("since_best").get<int>(),
         .last_step = json.at("last_step").get<int64_t>()};
  } catch (const Json::exception& error) {
    return fail(Status::corrupt(fmt::format("not the validations of a training: {}", error.what())));
  }
  return v;
}

// metrics.jsonl as far as the steps that are behind: later lines were of steps that are taken again.
Status cut_metrics(const fs::path& file, int64_t step) {
  std::error_code error;
  if (!fs::exists(file, error)) return {};
  const std::string text = TRY(read_file(file));
  std::string kept;
  for (const auto line : split(text, '\n')) {
    const auto parsed = parse_json(line);
    if (parsed && parsed->is_object() && parsed->value("step", step + 1) <= step) kept.append(line) += '\n';
  }
  return write_file(file, kept);
}

Status copy_directory(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::copy(from, to, fs::copy_options::recursive, error);
  return error ? Status::from_errno(fmt::format("copy {} to {}", from.string(), to.string()), error.value()) : Status();
}

class FineTuning {
 public:
  FineTuning(const FineTuningSettings& settings, const SampleSet& samples, const std::function<void(const Json&)>& tell,
             const std::stop_token& stop, Learner learner)
      : settings_(settings),
        samples_(samples),
        digest_(samples.digest().hex()),
        tell_(tell),
        stop_(stop),
        learner_(std::move(learner)),
        order_(order_of(settings, samples)) {
    result_.steps = planned_steps(settings, samples);
    for (const PlacedSample& placed : samples.validation) validation_.push_back(placed.sample);
  }

  Result<FineTuningResult> run() {
    TRY(make_directories(settings_.folder / "checkpoints"));
    for (const auto& folder : {settings_.folder, settings_.folder / "checkpoints"}) sweep_unfinished(folder);
    if (samples_.pairs && !settings_.reward) {
      auto sums = TRY(reference_sums(settings_.folder / kReferenceFile, samples_, learner_, tell_, stop_));
      if (!sums) {
        result_.end = FineTuningEnd::kInterrupted;
        return result_;
      }
      reference_ = std::move(*sums);
    }
    TRY(resume());
    const fs::path metrics = settings_.folder / kMetricsFile;
    std::error_code ignored;
    if (result_.step == 0)
      fs::remove(metrics, ignored);  // of a training before this one
    else
      TRY(cut_metrics(metrics, result_.step));
    metrics_ = FileDescriptor(::open(metrics.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!metrics_) return fail(Status::from_errno(metrics.string(), errno));
    // Step 0 is what the model could before; it is no model of ours and never the best.
    if (result_.step == 0 && !validation_.empty()) TRY(validate());
    TRY(validate_if_due());  // of the step after which the checkpoint was saved
    while (!ended()) {
      if (stop_.stop_requested()) return interrupted();
      TRY(take_step());
      TRY(validate_if_due());
      if (!ended() && !stop_.stop_requested() && result_.step % settings_.checkpoint_every == 0) TRY(save());
    }
    // A validation that was interrupted has said nothing of the last step.
    if (stop_.stop_requested() && validation_due()) return interrupted();
    result_.end = result_.step < result_.steps ? FineTuningEnd::kStoppedEarly : FineTuningEnd::kDone;
    TRY(write_result());
    return result_;
  }

 private:
  bool ended() const { return result_.step >= result_.steps || result_.validations.exhausted(settings_.patience); }

  Status resume() {
    auto all = checkpoints_of(settings_.folder);
    for (; !all.empty(); all.pop_back()) {
      const fs::path& newest = all.back().second;
      const Json progress = TRY(checkpoint_progress(newest));
      if (!progress.is_object() || progress.value("samples", "") != digest_) {
        return Status::invalid("the checkpoint is of other transcripts than those that data names now")
            .at(newest.string())
            .hint("go on with the files as they were, or name another `out` to begin anew");
      }
      result_.validations = TRY(validations_from(progress.value("validations", Json())));
      const Status loaded = learner_.load(newest);
      if (loaded.ok()) {
        result_.step = learner_.steps();
        tell_({{"event", "resumed"}, {"step", result_.step}, {"from", newest.string()}});
        return {};
      }
      // An older one costs steps that are taken again; a damaged one would cost the training.
      if (all.size() == 1) return loaded;
      spdlog::error("{}", loaded.to_string());
    }
    return {};
  }

  Status take_step() {
    const auto start = std::chrono::steady_clock::now();
    const auto step = order_.step(result_.step + 1);
    auto metrics = settings_.reward ? learn_rewards(step.samples)
                   : samples_.pairs ? prefer(step.samples)
                                    : imitate(step.samples);
    if (!metrics) return Status(metrics.error()).hint("a lower trainer.learning_rate may help");
    result_.step = learner_.steps();
    const double seconds = seconds_since(start);
    Json event = {{"event", "step"},
                  {"step", result_.step},
                  {"steps", result_.steps},
                  {"epoch", step.epoch + 1},
                  {samples_.pairs ? "pairs" : "samples", step.samples.size()},
                  {"loss", metrics->loss},
                  {"grad_norm", metrics->grad_norm},
                  {"learning_rate", metrics->learning_rate},
                  {"trained_tokens", metrics->trained_tokens},
                  {"sample_tokens", metrics->sample_tokens},
                  {"tree_tokens", metrics->tree_tokens},
                  {"seconds", seconds}};
    if (metrics->skipped_spikes > 0) event["skipped_spikes"] = metrics->skipped_spikes;
    for (const auto& [name, value] : metrics->of_loss) event[name] = value;
    return say(event);
  }

  Result<StepMetrics> imitate(std::span<const uint32_t> indices) {
    std::vector<Sample> batch;
    for (const uint32_t index : indices) batch.push_back(samples_.train[index].sample);
    return learner_.imitate(batch);
  }
  Result<StepMetrics> prefer(std::span<const uint32_t> pairs) {
    std::vector<Sample> answers;
    std::vector<double> reference;
    for (const uint32_t pair : pairs) {
      for (const size_t index : {2 * size_t{pair}, 2 * size_t{pair} + 1}) {
        answers.push_back(samples_.train[index].sample);
        reference.push_back(reference_.train[index]);
      }
    }
    return learner_.prefer(answers, reference, settings_.preference);
  }

  Result<StepMetrics> learn_rewards(std::span<const uint32_t> pairs) {
    std::vector<Sample> answers;
    for (const uint32_t pair : pairs) {
      for (const size_t index : {2 * size_t{pair}, 2 * size_t{pair} + 1})
        answers.push_back(samples_.train[index].sample);
    }
    std::vector<double> margins;
    for (const uint32_t pair : pairs) margins.push_back(samples_.train[2 * size_t{pair}].margin);
    return learner_.learn_rewards(answers, margins, settings_.reward->loss);
  }

  bool validation_due() const {
    return !validation_.empty() && result_.step > 0 && result_.validations.last_step != result_.step &&
           (result_.step % settings_.validate_every == 0 || result_.step == result_.steps);
  }
  Status validate_if_due() { return validation_due() ? validate() : Status(); }

  // Nothing is known, and nothing said, where it was interrupted.
  Status validate() {
    const auto start = std::chrono::steady_clock::now();
    std::vector<double> sums, tokens;  // or rewards
    for (size_t begin = 0; begin < validation_.size(); begin += kValidatedAtOnce) {
      if (stop_.stop_requested()) return {};
      const auto part =
          std::span(validation_).subspan(begin, std::min<size_t>(kValidatedAtOnce, validation_.size() - begin));
      const auto found = TRY(settings_.reward ? learner_.rewards(part) : learner_.sums_of_logprobs(part));
      sums.insert(sums.end(), found.begin(), found.end());
      for (const Sample& sample : part) tokens.push_back(trained_tokens(std::span(&sample, 1)));
    }
    const double counted = std::accumulate(tokens.begin(), tokens.end(), 0.0);
    double loss = -std::accumulate(sums.begin(), sums.end(), 0.0) / counted;
    Json of_pairs = Json::object();
    if (settings_.reward) {
      std::vector<double> margins;
      for (size_t i = 0; i < samples_.validation.size(); i += 2) margins.push_back(samples_.validation[i].margin);
      const RewardLosses pairs = reward_loss(sums, margins, settings_.reward->loss);
      loss = pairs.loss;
      of_pairs = {{"accuracy", pairs.accuracy}, {"margin", pairs.margin}, {"reward", pairs.mean_reward()}};
    } else if (samples_.pairs) {
      const PairLosses pairs = preference_loss(sums, reference_.validation, tokens, settings_.preference);
      loss = pairs.loss;
      of_pairs = {{"accuracy", pairs.accuracy}, {"margin", pairs.margin}};
    }
    bool best = false;
    if (result_.step > 0) {
      best = result_.validations.add(result_.step, loss);
      if (best) TRY(keep_best());
    }
    Json event = {{"event", "validation"},
                  {"step", result_.step},
                  {"loss", loss},
                  {"best", best},
                  {samples_.pairs ? "pairs" : "samples", validation_.size() / (samples_.pairs ? 2 : 1)},
                  {"trained_tokens", static_cast<int64_t>(counted)},
                  {"seconds", seconds_since(start)}};
    event.update(of_pairs);
    return say(event);
  }

  fs::path best_path(int64_t step) const { return settings_.folder / fmt::format("best_{}", step); }

  // The one before goes once this one is there.
  Status keep_best() {
    const fs::path best = best_path(result_.step);
    TRY(write_model(best));
    remove_best_but(best);
    return {};
  }
  void remove_best_but(const fs::path& kept) const {
    std::vector<fs::path> old;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(settings_.folder, error)) {
      if (entry.path().filename().string().starts_with("best_") && entry.path() != kept) old.push_back(entry.path());
    }
    for (const auto& folder : old) fs::remove_all(folder, error);
  }

  Status save() {
    const fs::path folder = checkpoint_path(settings_.folder, static_cast<uint64_t>(result_.step));
    TRY(learner_.save(folder, {{"samples", digest_}, {"validations", to_json(result_.validations)}}));
    keep_newest_checkpoints(settings_.folder, static_cast<uint64_t>(result_.step), kKeptCheckpoints,
                            static_cast<uint64_t>(result_.step));
    tell_({{"event", "checkpoint"}, {"step", result_.step}, {"path", folder.string()}});
    return {};
  }

  Result<FineTuningResult> interrupted() {
    TRY(save());
    result_.end = FineTuningEnd::kInterrupted;
    return result_;
  }

  Status write_result() {
    std::error_code error;
    if (validation_.empty() || result_.validations.best_step == 0) {
      TRY(write_model(settings_.out));
    } else {
      const fs::path best = best_path(result_.validations.best_step);
      fs::rename(best, settings_.out, error);
      if (error)
        TRY(write_whole_directory(settings_.out, [&](const fs::path& aside) { return copy_directory(best, aside); }));
    }
    fs::remove_all(settings_.folder / "checkpoints", error);
    remove_best_but({});
    return {};
  }

  Status write_model(const fs::path& directory) const {
    return write_whole_directory(directory,
                                 [&](const fs::path& aside) { return learner_.export_model(aside, settings_.model); });
  }

  Status say(const Json& event) {
    tell_(event);
    return write_all(metrics_.get(), dump_json(event) + "\n", kMetricsFile);
  }

  const FineTuningSettings& settings_;
  const SampleSet& samples_;
  const std::string digest_;
  const std::function<void(const Json&)>& tell_;
  const std::stop_token& stop_;
  Learner learner_;
  SampleOrder order_;
  std::vector<Sample> validation_;
  ReferenceSums reference_;  // of pairs
  FileDescriptor metrics_;
  FineTuningResult result_;
};

}  // namespace

bool Validations::add(int64_t step, double loss) {
  last_step = step;
  if (!(loss < best)) return ++since_best, false;
  best = loss;
  best_step = step;
  since_best = 0;
  return true;
}

int64_t planned_steps(const FineTuningSettings& settings, const SampleSet& samples) {
  return settings.steps > 0 ? settings.steps : order_of(settings, samples).steps_of(settings.epochs);
}

Result<Learner> make_learner(const FineTuningSettings& settings) {
  auto learner =
      TRY(Learner::create(TRY(model::load_weights(settings.model, true)), settings.place, settings.optimizer));
  if (settings.reward) {
    const auto head = TRY(model::read_reward_head(settings.model, learner.weights().config().width));
    TRY(learner.keep_reward_head(settings.reward->learning_rate, head, settings.reward->notes));
  }
  return learner;
}

Result<FineTuningResult> fine_tune(const FineTuningSettings& settings, const SampleSet& samples, Learner learner,
                                   const std::function<void(const Json&)>& tell, const std::stop_token& stop) {
  return FineTuning(settings, samples, tell, stop, std::move(learner)).run();
}

}  // namespace tandem::trainer
