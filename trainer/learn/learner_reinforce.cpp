// A step on samples that were drawn from the policy, where each has its loss by itself, and what every such step has in
// common: demonstrations, means, and the comparison with the sampler.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "trainer/learn/hints.h"
#include "trainer/learn/learner.h"
#include "trainer/learn/segment_logprobs.h"

namespace tandem::trainer {

void take_means(std::map<std::string, double> means, StepMetrics& metrics) {
  if (!(means["tokens"] > 0)) return;
  metrics.ratio_mean = means["ratio_mean"];
  metrics.ratio_max = means["ratio_max"];
  metrics.mismatch_kl = means["mismatch_kl"];
  metrics.clip_fraction = means["clip_fraction"] + means["masked_fraction"];
  metrics.kl = means["kl"];
  if (means.contains("correction_mean")) metrics.correction_mean = means["correction_mean"];
  metrics.dropped_fraction = means["dropped_fraction"];
}

void Learner::compare(const Sample& sample, const TokenLogprobs& at, uint64_t version, Outcome& outcome) {
  bool others = false;  // have sampled tokens of the segment
  for (size_t i = 1, place = 0; i < sample.tokens.size(); ++i) {
    if (std::ranges::binary_search(sample.later_segments, static_cast<uint32_t>(i))) others = false;
    if (!sample.trained[i]) continue;
    others = others || sample.versions[i] != version;
    if (sample.versions[i] == version && (sample.routes.empty() || !others)) {
      outcome.max_abs_logprob_diff =
          std::max(outcome.max_abs_logprob_diff, std::abs(at.logprobs[place] - sample.logprobs[i]));
      ++outcome.compared_tokens;
    }
    ++place;
  }
}

namespace {

// A term of the loss must not be missing unnoticed.
Status check_taught(std::span<const Sample> drawn, const Algorithm& algorithm) {
  if (!algorithm.teacher.is_remote() && !algorithm.teacher.is_hinted()) return {};
  for (size_t s = 0; s < drawn.size(); ++s) {
    const Sample& sample = drawn[s];
    bool is_whole = sample.teacher_logprobs.size() == sample.tokens.size();
    for (size_t i = 1; i < sample.tokens.size() && is_whole; ++i)
      is_whole = !sample.trained[i] || std::isfinite(sample.teacher_logprobs[i]);
    if (!is_whole) return Status::internal(fmt::format("sample {} lacks logprobs of the teacher", s));
  }
  return {};
}

}  // namespace

Result<std::vector<Sample>> Learner::ask_behind_hints(std::span<const Sample> samples) {
  std::vector<Sample> hinted;
  for (const Sample& sample : without_demonstrations(samples))
    if (!sample.hint.empty()) hinted.push_back(behind_hint(sample));
  std::vector<std::vector<double>> logprobs(hinted.size());
  if (!hinted.empty()) {
    StepMetrics of_survey;
    // No version: what the sampler said stands without the hint.
    const LossBatch batch = TRY(survey(hinted, UINT64_MAX, of_survey, Asked::kPolicyAlone));
    for (size_t row = 0; row < hinted.size(); ++row) {
      const auto begin = batch.logprobs.begin() + static_cast<ptrdiff_t>(row * batch.length);
      logprobs[row].assign(begin, begin + static_cast<ptrdiff_t>(batch.length));
    }
  }
  return taught_by_hints(samples, logprobs);
}

Result<StepMetrics> Learner::reinforce(std::span<const Sample> samples, const Algorithm& algorithm, uint64_t version) {
  std::optional<std::vector<Sample>> taught;
  if (algorithm.teacher.is_hinted()) taught = TRY(ask_behind_hints(samples));
  const double bonus = entropy_.bonus(algorithm.entropy_target).coefficient;
  StepMetrics metrics = TRY(reinforce_taught(taught ? std::span<const Sample>(*taught) : samples, algorithm, version));
  if (taught) metrics.of_loss["hinted"] = hinted_share(without_demonstrations(samples));
  if (algorithm.entropy_target.any()) metrics.of_loss["entropy_coefficient"] = bonus;
  entropy_.add(metrics.entropy, algorithm.entropy_target);
  return metrics;
}

Result<StepMetrics> Learner::reinforce_taught(std::span<const Sample> samples, const Algorithm& algorithm,
                                              uint64_t version) {
  TRY(check_taught(without_demonstrations(samples), algorithm));
  if (settings_.updates.count() > 1) return reinforce_repeatedly(samples, algorithm, version);
  if (any_part(algorithm, is_of_whole_batch)) return reinforce_whole(samples, algorithm, version);
  StepMetrics metrics;
  const auto drawn = without_demonstrations(samples);
  const double demonstrated = trained_tokens(samples.subspan(drawn.size()));
  const auto parts = parts_in(algorithm, drawn);
  const auto shares = trunk_shares(drawn, parts);
  const auto credits = branch_credit(drawn, parts);
  std::vector<double> lengths;
  for (size_t i = 0; i < drawn.size(); ++i) {
    const auto length = std::count(drawn[i].trained.begin(), drawn[i].trained.end(), uint8_t{1});
    lengths.push_back(weight_of(static_cast<size_t>(length), shares[i]));
  }
  const auto weights = sequence_weights(lengths, parts);
  const EntropyBonus bonus = entropy_.bonus(algorithm.entropy_target);
  const double tokens_of_all = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  const auto outcomes = TRY(accumulate(
      samples,
      [&](size_t index, const TokenLogprobs& at, std::vector<double>& gradients, Outcome& outcome) {
        if (index >= drawn.size()) return imitate(at, demonstrated, algorithm.demonstrations, gradients, outcome);
        const Sample& sample = samples[index];
        const Algorithm& of_part = part_of(algorithm, sample.part);
        compare(sample, at, version, outcome);
        std::vector<double> sampled;
        for (size_t i = 1; i < sample.tokens.size(); ++i) {
          if (sample.trained[i]) sampled.push_back(sample.logprobs[i]);
        }
        std::vector<double> advantages(sampled.size(), credits[index].own);
        std::fill_n(advantages.begin(), std::min(sampled.size(), shares[index].tokens), credits[index].of_trunk);
        const auto token_weight = token_weights(sampled.size(), shares[index]);
        for (size_t i = 0; i < at.teacher_logprobs.size(); ++i) {
          advantages[i] += teacher_advantage(sampled[i], at.teacher_logprobs[i], of_part.teacher);
          outcome.taught.add(sampled[i], at.teacher_logprobs[i]);
        }
        const bool corrects = of_part.correction.kind != Correction::Kind::kNone;
        const CountedTokens tokens{.logprobs = at.logprobs,
                                   .old_logprobs = corrects ? std::span(at.logprobs) : std::span<const double>(),
                                   .rollout_logprobs = sampled,
                                   .ref_logprobs = at.ref_logprobs,
                                   .advantages = advantages,
                                   .weights = token_weight};
        outcome.loss = sequence_loss(tokens, weights[index], of_part, gradients, outcome.counts);
        bonus.add(at.logprobs, token_weight, tokens_of_all, gradients);
      },
      metrics, Asked::kTeacher));
  TeacherCounts taught;
  for (const Outcome& outcome : std::span(outcomes).first(drawn.size())) {
    taught.add(outcome.taught);
    metrics.loss += outcome.loss;
  }
  metrics.loss += demonstration_loss(samples, outcomes, algorithm.demonstrations, metrics);
  means_of(parts, outcomes).write(algorithm, metrics);
  taught.write(metrics.of_loss);
  return finish(drawn, version, std::move(metrics));
}

void Learner::imitate(const TokenLogprobs& at, double tokens, const DemonstrationTerm& term,
                      std::vector<double>& gradients, Outcome& outcome) {
  for (const double logprob : at.logprobs) outcome.loss -= logprob;
  std::ranges::fill(gradients, -term.coefficient / tokens);
}

double Learner::demonstration_loss(std::span<const Sample> samples, std::span<const Outcome> outcomes,
                                   const DemonstrationTerm& term, StepMetrics& metrics) {
  const size_t drawn = without_demonstrations(samples).size();
  const double tokens = trained_tokens(samples.subspan(drawn));
  if (tokens == 0) return 0;
  double sum = 0;
  for (const Outcome& outcome : outcomes.subspan(drawn)) sum += outcome.loss;
  metrics.of_loss["demonstration_loss"] = sum / tokens;
  return term.coefficient * sum / tokens;
}

PartMetrics Learner::means_of(std::span<const Part> parts, std::span<const Outcome> outcomes) {
  PartMetrics means;
  for (const Part& part : parts) {
    LossCounts counts;
    double loss = 0;
    for (const size_t row : part.rows) {
      counts.add(outcomes[row].counts);
      loss += outcomes[row].loss;
    }
    means.add(part, loss / part.scale, counts.metrics(*part.algorithm, true));
  }
  return means;
}

Result<StepMetrics> Learner::finish(std::span<const Sample> samples, uint64_t version, StepMetrics metrics) {
  TRY(keep_previous(samples, version, metrics));
  TRY(apply(metrics));
  return metrics;
}

Status Learner::keep_previous(std::span<const Sample> samples, uint64_t version, StepMetrics& metrics) {
  if (!ranks_.is_first()) return {};
  TRY(verify_previous(samples, version, metrics));
  TRY(copy_weights(previous_));
  previous_version_ = version;
  return {};
}

// Most samples of a run whose trainer is ahead by one version were made with the weights before the last step. A few of
// them are computed again with those, so that exactness is seen on every step and not only where there is no lag.
Status Learner::verify_previous(std::span<const Sample> samples, uint64_t version, StepMetrics& metrics) {
  constexpr size_t kMaxTokens = 256;
  if (version == 0 || previous_version_ != version - 1) return {};
  size_t tokens = 0;
  for (const Sample& sample : samples) {
    std::vector<TokenPick> picks;
    std::vector<KeptTokens> kept;
    std::vector<float> expected;
    const auto of_tokens = sample.kept.sets();
    for (size_t i = 1; i < sample.tokens.size(); ++i) {
      if (!sample.trained[i] || sample.versions[i] != previous_version_) continue;
      picks.push_back({static_cast<int32_t>(i - 1), sample.tokens[i]});
      kept.push_back(of_tokens.empty() ? KeptTokens() : of_tokens[i]);
      expected.push_back(sample.logprobs[i]);
    }
    if (picks.empty() || tokens + sample.tokens.size() > kMaxTokens) continue;
    tokens += sample.tokens.size();
    const auto logprobs = TRY(logprobs_of(*tape_, stream_, *previous_, sample.tokens, sample.later_segments, picks,
                                          settings_.logit_scale, kept));
    for (size_t i = 0; i < picks.size(); ++i) {
      metrics.max_abs_logprob_diff =
          std::max(metrics.max_abs_logprob_diff, std::abs(static_cast<double>(logprobs[i]) - expected[i]));
    }
    metrics.compared_tokens += static_cast<int64_t>(picks.size());
  }
  return {};
}

}  // namespace tandem::trainer
