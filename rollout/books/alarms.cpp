#include "rollout/books/alarms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tandem::rollout {
namespace {

constexpr size_t kWindow = 8;        // steps that a rule looks at
constexpr size_t kKept = 24;         // of the newest steps
constexpr size_t kTellingSteps = 3;  // in a row: fewer may be chance
constexpr double kTellingGroups = 16, kTellingEpisodes = 64;
constexpr double kSolved = 0.9;  // success above which little is left to learn

double number_of(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

// Those of the last `most` values of `member` that are there.
template <typename Steps, typename Member>
std::vector<double> values_of(const Steps& steps, Member member, size_t most, size_t but_last = 0) {
  std::vector<double> values;
  const size_t end = steps.size() - std::min(but_last, steps.size());
  for (size_t i = end - std::min(most, end); i < end; ++i) {
    if (!std::isnan(steps[i].*member)) values.push_back(steps[i].*member);
  }
  return values;
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}
double mean_of(const std::vector<double>& values) {
  return values.empty() ? 0 : sum_of(values) / static_cast<double>(values.size());
}
double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}
double deviation_of(const std::vector<double>& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

}  // namespace

Json to_json(const Alarm& alarm) {
  return {{"name", alarm.name}, {"evidence", alarm.evidence}, {"key", alarm.key}, {"advice", alarm.advice}};
}

std::string alarm_line(uint64_t step, const Json& alarm) {
  const auto text = [&](const char* key) {
    return alarm.is_object() ? alarm.value(key, std::string()) : std::string();
  };
  return fmt::format("alarm at step {}: {}; {} ({})", step, text("evidence"), text("advice"), text("key"));
}

Alarms::Seen Alarms::read(const Json& line) {
  Seen seen{};
  seen.taught = std::numeric_limits<double>::quiet_NaN();
  seen.step = number_of(line, "step");
  seen.success = number_of(line, "success");
  seen.groups = number_of(line, "groups");
  seen.with_signal = number_of(line, "groups_with_signal");
  seen.entropy = number_of(line, "entropy");
  seen.grad_norm = number_of(line, "grad_norm");
  seen.loss = number_of(line, "loss");
  seen.mismatch = number_of(line, "max_abs_logprob_diff");
  seen.compared = number_of(line, "compared_tokens");
  seen.ratio_max = number_of(line, "ratio_max");
  seen.dropped_fraction = number_of(line, "dropped_fraction");
  seen.clip_fraction = number_of(line, "clip_fraction");
  seen.mismatch_kl = number_of(line, "mismatch_kl");
  seen.learned = number_of(line, "learned_reward");
  // What a teacher thinks otherwise is there to learn, also where rewards are equal or nothing is compared.
  if (const auto metrics = line.find("loss_metrics"); metrics != line.end() && metrics->is_object())
    seen.taught = number_of(*metrics, "teacher_kl");
  // A step in which no group had a signal, and no teacher either, has no tokens to take these over: its zeros say
  // nothing.
  if (seen.with_signal == 0 && (std::isnan(seen.taught) || seen.taught == 0)) {
    for (double* value : {&seen.entropy, &seen.grad_norm}) {
      if (*value == 0) *value = std::numeric_limits<double>::quiet_NaN();
    }
  }
  seen.finished = seen.truncated = std::numeric_limits<double>::quiet_NaN();
  if (const auto outcomes = line.find("outcomes"); outcomes != line.end() && outcomes->is_object()) {
    seen.finished = 0;
    for (const auto& [outcome, count] : outcomes->items()) seen.finished += count.is_number() ? count.get<double>() : 0;
    const double truncated = number_of(*outcomes, "truncated");
    seen.truncated = std::isnan(truncated) ? 0 : truncated;
  }
  return seen;
}

std::vector<Alarm> Alarms::step(const Json& line) {
  const Seen seen = read(line);
  // A trainer that came back with an older checkpoint, or that said its metrics later, replaces what was said.
  const bool is_next = recent_.empty() || seen.step > recent_.back().step;
  while (!recent_.empty() && recent_.back().step >= seen.step) recent_.pop_back();
  while (!first_.empty() && first_.back().step >= seen.step) first_.pop_back();
  recent_.push_back(seen);
  if (recent_.size() > kKept) recent_.pop_front();
  if (first_.size() < kWindow) first_.push_back(seen);
  const auto by_kind = line.find("success_by_kind");
  if (is_next && by_kind != line.end() && by_kind->is_object()) {
    for (const auto& [name, success] : by_kind->items()) {
      if (!success.is_number()) continue;
      Kind& kind = kinds_[name];
      if (!kind.recent.empty()) {
        const double change = success.get<double>() - kind.recent.back();
        kind.squares += change * change;
        ++kind.differences;
      }
      kind.recent.push_back(success.get<double>());
      if (kind.recent.size() > 2 * kWindow) kind.recent.pop_front();
      // Only steps before those that are looked at count: a fall does not raise its own measure.
      if (kind.recent.size() < 2 * kWindow) continue;
      kind.best = std::max(kind.best, mean_of({kind.recent.begin(), kind.recent.begin() + kWindow}));
    }
  }

  std::vector<Alarm> held;
  mismatch(held);
  entropy(held);
  signal(held);
  truncation(held);
  ratios(held);
  gradient(held);
  kinds(held);
  reward(held);
  dead_loss(held);
  published(line, held);
  stored(line, held);

  std::vector<Alarm> news;
  std::map<std::string, double> raised;
  for (Alarm& alarm : held) {
    const auto before = raised_.find(alarm.name);
    const bool is_new = before == raised_.end() || seen.step - before->second >= kAlarmAgain;
    raised[alarm.name] = is_new ? seen.step : before->second;
    if (is_new && !is_off(alarm.name)) news.push_back(std::move(alarm));
  }
  // One that comes and goes is not raised each time that it comes.
  for (const auto& [name, step] : raised_) {
    if (seen.step - step < kAlarmAgain) raised.try_emplace(name, step);
  }
  raised_ = std::move(raised);
  return news;
}

bool Alarms::is_off(const std::string& name) const {
  return std::ranges::find(off_, name.substr(0, name.find('.'))) != off_.end();
}

void Alarms::mismatch(std::vector<Alarm>& held) const {
  const Seen& last = recent_.back();
  if (!(last.compared > 0) || !(last.mismatch > 0)) return;
  held.push_back({"mismatch",
                  fmt::format("trainer and engines disagree by up to {:g} in the logprob of a token that both computed "
                              "with the same weights, over {:.0f} tokens",
                              last.mismatch, last.compared),
                  "trainer.device",
                  "they are built to give the same bits: put trainer and rollouts on devices with one numerics_id "
                  "(it stands in their logs), and report what stays"});
}

void Alarms::entropy(std::vector<Alarm>& held) const {
  const auto before = values_of(first_, &Seen::entropy, kWindow), now = values_of(recent_, &Seen::entropy, kWindow);
  if (before.size() < kWindow || recent_.size() < 2 * kWindow || now.size() < kWindow) return;
  const double success = mean_of(values_of(recent_, &Seen::success, kTellingSteps));
  const double was = median_of(before), is = median_of(now);
  // A policy that has solved its tasks has little left to vary.
  if (is > 0.1 * was || success >= kSolved) return;
  held.push_back(
      {"entropy_collapse",
       fmt::format("the entropy fell from {:.3g} to {:.3g} a token, at {} success", was, is, percent(success)),
       "algorithm.entropy.target",
       fmt::format("the policy hardly tries anything new: set it to what was good before, such as {:.2g}, lower "
                   "trainer.learning_rate, or widen algorithm.clip_high",
                   was / 2)});
}

void Alarms::signal(std::vector<Alarm>& held) const {
  const double groups = sum_of(values_of(recent_, &Seen::groups, kWindow));
  const double with_signal = sum_of(values_of(recent_, &Seen::with_signal, kWindow));
  const double success = mean_of(values_of(recent_, &Seen::success, kTellingSteps));
  if (groups < kTellingGroups || 2 * with_signal >= groups || success >= kSolved) return;
  held.push_back({"no_signal",
                  fmt::format("{} of the last {:.0f} groups had equal rewards and taught nothing, at {} success",
                              percent(1 - with_signal / groups), groups, percent(success)),
                  success < 0.1 ? "tasks.kinds" : "trainer.group_size",
                  success < 0.1
                      ? "the tasks are too hard for this policy: add easier ones, demonstrations, or a reward for parts"
                      : "raise it, so that more groups differ, or choose tasks that are neither solved nor out of "
                        "reach"});
}

void Alarms::truncation(std::vector<Alarm>& held) const {
  const double finished = sum_of(values_of(recent_, &Seen::finished, kWindow));
  const double truncated = sum_of(values_of(recent_, &Seen::truncated, kWindow));
  if (finished < kTellingEpisodes || truncated < 0.3 * finished) return;
  held.push_back(
      {"truncation",
       fmt::format("{} of the last {:.0f} episodes were cut short by a limit of tokens or turns",
                   percent(truncated / finished), finished),
       "rollout.max_new_tokens",
       "raise it, or rollout.max_tokens: what is cut short is graded as it stands, and teaches to be brief"});
}

void Alarms::ratios(std::vector<Alarm>& held) const {
  if (recent_.size() < kTellingSteps) return;
  const auto least = [&](double Seen::*member) {
    const auto values = values_of(recent_, member, kTellingSteps);
    return values.size() < kTellingSteps ? 0 : *std::min_element(values.begin(), values.end());
  };
  const double ratio = least(&Seen::ratio_max), dropped = least(&Seen::dropped_fraction);
  const double clipped = least(&Seen::clip_fraction);
  // The largest of many tokens is large in a healthy run, too: it tells where the mean is off as well.
  const auto means = values_of(recent_, &Seen::mismatch_kl, kTellingSteps);
  const bool is_far = ratio >= 10 && (means.empty() || *std::min_element(means.begin(), means.end()) >= 0.01);
  if (!is_far && dropped < 0.1 && clipped < 0.3) return;
  const Seen& last = recent_.back();
  held.push_back({"ratio_tails",
                  fmt::format("{} steps in a row had a largest ratio of {:.3g} or more, {} clipped and {} masked at "
                              "least; the last: {:.3g}, {}, {}",
                              kTellingSteps, ratio, percent(clipped), percent(dropped), last.ratio_max,
                              percent(last.clip_fraction), percent(last.dropped_fraction)),
                  "trainer.max_lag",
                  "the weights that sampled are far from those that learn: lower it, or trainer.learning_rate"});
}

void Alarms::gradient(std::vector<Alarm>& held) const {
  const double last = recent_.back().grad_norm;
  if (std::isnan(last)) return;
  const auto before = values_of(recent_, &Seen::grad_norm, kKept, 1);
  if (before.size() < kWindow) return;
  const double usual = median_of(before), most = *std::max_element(before.begin(), before.end());
  if (usual <= 0 || last < 10 * usual || last < 3 * most) return;
  held.push_back({"gradient_spike",
                  fmt::format("the gradient's norm is {:.3g}, and was {:.3g} at the median of the {} steps before and "
                              "{:.3g} at most",
                              last, usual, before.size(), most),
                  "trainer.max_grad_norm",
                  "the step was scaled down to it, where it is not 0: lower it, or trainer.learning_rate, where this "
                  "comes again, or leave such updates out: trainer.skip_spikes; the step's episodes are named by "
                  "`tandem episodes`"});
}

void Alarms::kinds(std::vector<Alarm>& held) const {
  for (const auto& [name, kind] : kinds_) {
    if (kind.recent.size() < 2 * kWindow) continue;
    const double now = mean_of({kind.recent.end() - kWindow, kind.recent.end()});
    if (kind.best - now < 0.35 || now > 0.5 * kind.best) continue;
    // A kind with a task or two a step is solved by chance now and then; the best of many windows is chance, too.
    if (kind.best - now < 4.5 * kind.scatter() * std::sqrt(2.0 / kWindow)) continue;
    held.push_back({"unlearned." + name,
                    fmt::format("tasks of the kind {} were solved in {} and are in {} now, over {} steps each", name,
                                percent(kind.best), percent(now), kWindow),
                    "trainer.learning_rate",
                    "other kinds are learned at its cost: lower it, hold on to the start by algorithm.kl.coefficient, "
                    "or give the kind more room in tasks.kinds"});
  }
}

void Alarms::reward(std::vector<Alarm>& held) const {
  if (recent_.size() < kKept) return;
  const auto before = values_of(first_, &Seen::learned, kWindow), now = values_of(recent_, &Seen::learned, kWindow);
  if (before.size() < kWindow || now.size() < kWindow) return;
  const double rise = mean_of(now) - mean_of(before);
  const double noise = std::max(deviation_of(before), deviation_of(now));
  const double success_before = mean_of(values_of(first_, &Seen::success, kWindow));
  const double success_now = mean_of(values_of(recent_, &Seen::success, kWindow));
  if (rise <= 0 || rise < 3 * noise || success_now > success_before || success_before >= kSolved) return;
  held.push_back({"reward_without_success",
                  fmt::format("the learned reward rose from {:.3g} to {:.3g}, and success went from {} to {}",
                              mean_of(before), mean_of(now), percent(success_before), percent(success_now)),
                  "reward.weights",
                  "what is added to the tasks' own reward is learned in its place: lower these weights, and read some "
                  "episodes for how it is earned"});
}

void Alarms::dead_loss(std::vector<Alarm>& held) const {
  if (recent_.size() < kTellingSteps) return;
  const auto norms = values_of(recent_, &Seen::grad_norm, kTellingSteps);
  const auto signals = values_of(recent_, &Seen::with_signal, kTellingSteps);
  const auto taught = values_of(recent_, &Seen::taught, kTellingSteps);
  if (norms.size() < kTellingSteps) return;
  const bool is_dead = *std::max_element(norms.begin(), norms.end()) == 0;
  const auto each = [](const std::vector<double>& values) {
    return values.size() == kTellingSteps && std::ranges::none_of(values, [](double value) { return value == 0; });
  };
  if (!is_dead || (!each(signals) && !each(taught))) return;
  const std::string why = each(signals) ? fmt::format("{:.0f} of their groups had a signal", sum_of(signals))
                                        : fmt::format("the teacher is {:.3g} nats a token away", mean_of(taught));
  held.push_back({"dead_loss", fmt::format("{} steps in a row had a gradient of 0, though {}", kTellingSteps, why),
                  "algorithm.name",
                  "the loss does not move the weights: all its tokens are clipped or masked (algorithm.clip_high, "
                  "mask_high), or a loss of one's own has no gradient"});
}

void Alarms::published(const Json& line, std::vector<Alarm>& held) {
  const auto audit = line.find("weights_audit");
  if (audit == line.end() || !audit->is_object()) return;
  const auto bad = audit->find("bad");
  if (bad == audit->end() || !bad->is_array() || bad->empty() || !bad->front().is_string()) return;
  held.push_back({"published_weights",
                  fmt::format("{} of the tensors that rollouts are sent are not the trainer's: {}", bad->size(),
                              bad->front().get<std::string>()),
                  "model.weights",
                  "what samples is another model than what learns: weights_audit.json names the tensors; train in bf16 "
                  "until this is mended, or look whether the weights themselves have become no numbers"});
}

void Alarms::stored(const Json& line, std::vector<Alarm>& held) {
  const auto trainer = line.find("trainer");
  const bool is_known = trainer != line.end() && trainer->is_object() && trainer->contains("store_failures") &&
                        trainer->at("store_failures").is_number_unsigned();
  if (!is_known) return;
  const uint64_t before = std::exchange(store_failures_, trainer->at("store_failures").get<uint64_t>());
  failing_ = store_failures_ > before ? failing_ + 1 : 0;
  if (failing_ < static_cast<int>(kTellingSteps)) return;
  held.push_back(
      {"weight_store",
       fmt::format("weights could not be stored in {} steps in a row, {} times in all", failing_, store_failures_),
       "trainer.weight_store",
       "the trainer sends them itself, and rollouts wait for the store first: the trainer's log says why it "
       "fails"});
}

}  // namespace tandem::rollout
