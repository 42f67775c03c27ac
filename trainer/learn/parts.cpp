#include "trainer/learn/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "trainer/learn/algorithm_parts.h"
#include "trainer/learn/anchors.h"
#include "trainer/learn/branch_credit.h"
#include "trainer/learn/learner.h"

namespace tandem::trainer {

namespace {

template <typename T>
std::vector<T> rows_of(const std::vector<T>& values, size_t length, std::span<const size_t> rows) {
  std::vector<T> chosen;
  if (values.empty()) return chosen;
  chosen.reserve(rows.size() * length);
  for (const size_t row : rows) {
    const auto begin = values.begin() + static_cast<ptrdiff_t>(row * length);
    chosen.insert(chosen.end(), begin, begin + static_cast<ptrdiff_t>(length));
  }
  return chosen;
}

// Back to their rows; nothing where the part has none.
void put_back(const Rows& values, std::span<const size_t> rows, size_t length, double scale, Rows& all, size_t count) {
  if (values.empty()) return;
  all.resize(count, 0);
  for (size_t i = 0; i < values.size(); ++i) all[rows[i / length] * length + i % length] = scale * values[i];
}

// What a part's credit is made of: rewards, or the advantages that its samples have.
LossBatch batch_of(const LossBatch& batch, std::span<const Sample> samples, const Part& part) {
  LossBatch of_part = rows_of(batch, part.rows);
  if (is_of_whole_batch(*part.algorithm) || !of_part.advantages.empty()) return of_part;
  of_part.advantages.assign(of_part.mask.size(), 0);
  for (size_t i = 0; i < of_part.mask.size(); ++i) {
    if (of_part.mask[i]) of_part.advantages[i] = samples[part.rows[i / batch.length]].advantage;
  }
  return of_part;
}

std::string name_of(const Algorithm& part) {
  return part.kinds.empty() ? kOtherKinds : fmt::format("{}", fmt::join(part.kinds, ","));
}

}  // namespace

std::vector<Part> parts_in(const Algorithm& algorithm, std::span<const Sample> samples) {
  std::vector<Part> all;
  for (size_t i = 0; i <= algorithm.parts.size(); ++i) all.push_back({.algorithm = &part_of(algorithm, i), .rows = {}});
  for (size_t i = 0; i < samples.size(); ++i) {
    const size_t part = samples[i].part;
    all[part < all.size() ? part : 0].rows.push_back(i);
  }
  std::erase_if(all, [](const Part& part) { return part.rows.empty(); });
  for (Part& part : all) {
    part.scale = part.algorithm->weight * (static_cast<double>(part.rows.size()) / static_cast<double>(samples.size()));
  }
  return all;
}

std::vector<RowTrunk> trunks_of(std::span<const Sample> samples) {
  std::vector<RowTrunk> trunks(samples.size());
  for (size_t row = 0; row < samples.size(); ++row) {
    const Sample& sample = samples[row];
    if (sample.trunk < 0) continue;
    const auto end = sample.trained.begin() + static_cast<ptrdiff_t>(sample.trunk_tokens);
    trunks[row] = {.number = sample.trunk,
                   .tokens = static_cast<size_t>(std::count(sample.trained.begin() + 1, end, uint8_t{1}))};
  }
  return trunks;
}

std::vector<TrunkShare> trunk_shares(std::span<const Sample> samples, std::span<const Part> parts) {
  const auto trunks = trunks_of(samples);
  std::vector<TrunkShare> shares(samples.size());
  for (const Part& part : parts) {
    const auto of_part = trunk_shares(rows_of(trunks, 1, part.rows), part.algorithm->branches);
    for (size_t i = 0; i < of_part.size(); ++i) shares[part.rows[i]] = of_part[i];
  }
  return shares;
}

std::vector<RowCredit> branch_credit(std::span<const Sample> samples, std::span<const Part> parts) {
  const auto trunks = trunks_of(samples);
  std::vector<RowCredit> credits(samples.size());
  for (const Part& part : parts) {
    std::vector<double> advantages;
    for (const size_t row : part.rows) advantages.push_back(samples[row].advantage);
    const auto of_part = credit_trunks(rows_of(trunks, 1, part.rows), advantages, part.algorithm->branches);
    for (size_t i = 0; i < of_part.size(); ++i) credits[part.rows[i]] = of_part[i];
  }
  return credits;
}

std::vector<double> sequence_weights(std::span<const double> lengths, std::span<const Part> parts) {
  std::vector<double> weights(lengths.size(), 0);
  for (const Part& part : parts) {
    std::vector<double> of_part;
    for (const size_t row : part.rows) of_part.push_back(lengths[row]);
    const auto found = sequence_weights(of_part, *part.algorithm);
    for (size_t i = 0; i < part.rows.size(); ++i) weights[part.rows[i]] = part.scale * found[i];
  }
  return weights;
}

LossBatch rows_of(const LossBatch& batch, std::span<const size_t> rows) {
  LossBatch chosen{.rows = rows.size(), .length = batch.length};
  for (const auto member :
       {&LossBatch::logprobs, &LossBatch::old_logprobs, &LossBatch::rollout_logprobs, &LossBatch::ref_logprobs,
        &LossBatch::values, &LossBatch::teacher_logprobs, &LossBatch::advantages, &LossBatch::rewards})
    chosen.*member = rows_of(batch.*member, batch.length, rows);
  chosen.mask = rows_of(batch.mask, batch.length, rows);
  chosen.turns = rows_of(batch.turns, batch.length, rows);
  chosen.groups = rows_of(batch.groups, 1, rows);
  chosen.anchors = rows_of(batch.anchors, 1, rows);
  chosen.trunks = rows_of(batch.trunks, 1, rows);
  for (const auto& [name, values] : batch.metrics) chosen.metrics[name] = rows_of(values, 1, rows);
  chosen.is_credited = batch.is_credited;
  return chosen;
}

Result<Credit> credit_of(const LossBatch& batch, std::span<const Sample> samples, std::span<const Part> parts,
                         const OwnFunctions& functions, int64_t step) {
  Credit credit;
  for (const Part& part : parts) {
    const LossBatch of_part = batch_of(batch, samples, part);
    Credit found;
    if (of_part.advantages.empty()) {
      found = TRY(credit_of(of_part, *part.algorithm, functions, step));
    } else {
      found.advantages = of_part.advantages;
      credit_trunks(of_part, part.algorithm->branches, found.advantages);
      found.taught = add_teacher(of_part, part.algorithm->teacher, found.advantages);
    }
    put_back(found.advantages, part.rows, batch.length, 1, credit.advantages, batch.mask.size());
    put_back(found.returns, part.rows, batch.length, 1, credit.returns, batch.mask.size());
    credit.taught.add(found.taught);
    credit.function_metrics.merge(found.function_metrics);
  }
  return credit;
}

Result<BatchLoss> batch_loss(const LossBatch& batch, std::span<const Sample> samples, std::span<const Part> parts,
                             const OwnFunctions& functions, int64_t step, PartMetrics& counted) {
  BatchLoss sum;
  const size_t count = batch.mask.size();
  for (const Part& part : parts) {
    LossBatch of_part = batch_of(batch, samples, part);
    // Ratios of built-in losses are taken against the sampler where the batch has one update; a function and a
    // correction are given the policy before it.
    if (of_part.old_logprobs.empty() &&
        (is_function(*part.algorithm) || part.algorithm->correction.kind != Correction::Kind::kNone))
      of_part.old_logprobs = of_part.logprobs;
    BatchLoss loss = TRY(batch_loss(of_part, *part.algorithm, functions, step));
    put_back(loss.grad_logprobs, part.rows, batch.length, part.scale, sum.grad_logprobs, count);
    put_back(loss.advantages, part.rows, batch.length, 1, sum.advantages, count);
    put_back(loss.returns, part.rows, batch.length, 1, sum.returns, count);
    sum.taught.add(loss.taught);
    sum.loss += part.scale * loss.loss;
    sum.function_metrics.merge(loss.function_metrics);
    counted.add(part, loss.loss, std::move(loss.metrics));
  }
  return sum;
}

const Algorithm* critic_of(std::span<const Part> parts) {
  const auto found = std::ranges::find_if(parts, [](const Part& part) { return needs_critic(*part.algorithm); });
  return found == parts.end() ? nullptr : found->algorithm;
}

std::vector<uint8_t> critic_mask(const LossBatch& batch, std::span<const Part> parts) {
  std::vector<uint8_t> mask(batch.mask.size(), 0);
  for (const Part& part : parts) {
    for (const size_t row : part.rows) {
      if (needs_critic(*part.algorithm))
        std::copy_n(batch.mask.begin() + static_cast<ptrdiff_t>(row * batch.length), batch.length,
                    mask.begin() + static_cast<ptrdiff_t>(row * batch.length));
    }
  }
  return mask;
}

std::vector<std::vector<int64_t>> anchors_of(std::span<const Sample> samples, std::span<const Part> parts) {
  const auto has = [](const Part& part) { return part.algorithm->advantage == AdvantageKind::kGigpo; };
  if (std::ranges::none_of(parts, has)) return {};
  auto anchors = anchors_of(samples);
  for (const Part& part : parts) {
    for (const size_t row : part.rows) {
      if (!has(part)) anchors[row].clear();
    }
  }
  return anchors;
}

void PartMetrics::add(const Part& part, double loss, std::map<std::string, double> means) {
  means["loss"] = loss;
  means["samples"] = static_cast<double>(part.rows.size());
  entries_.push_back({part.algorithm, std::move(means)});
}

void PartMetrics::write(const Algorithm& algorithm, StepMetrics& metrics) const {
  std::map<std::string, double> all;
  double tokens = 0, ratio_max = 0;
  for (const Entry& entry : entries_) tokens += entry.means.at("tokens");
  for (const Entry& entry : entries_) {
    const double share = tokens > 0 ? entry.means.at("tokens") / tokens : 0;
    for (const auto& [name, value] : entry.means) all[name] += share * value;
    // Where there is no correction, its weights are 1.
    if (!entry.means.contains("correction_mean")) all["correction_mean"] += share;
    if (share > 0) ratio_max = std::max(ratio_max, entry.means.at("ratio_max"));
  }
  all["tokens"] = tokens;
  all["ratio_max"] = ratio_max;
  take_means(std::move(all), metrics);
  if (algorithm.parts.empty()) return;
  for (const Entry& entry : entries_) metrics.parts[name_of(*entry.algorithm)] = entry.means;
}

}  // namespace tandem::trainer
