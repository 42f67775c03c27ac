#include "trainer/learn/batch_advantages.h"

#include <cmath>
#include <map>
#include <numeric>

namespace tandem::trainer {

namespace {

// (x - mean) / sqrt(var + 1e-8) over the tokens that count, with the unbiased variance.
void whiten(Rows& values, const std::vector<uint8_t>& mask) {
  double count = 0, sum = 0, squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (mask[i]) ++count, sum += values[i];
  }
  if (count < 2) return;
  const double mean = sum / count;
  for (size_t i = 0; i < values.size(); ++i) {
    if (mask[i]) squares += (values[i] - mean) * (values[i] - mean);
  }
  const double scale = 1 / std::sqrt(squares / (count - 1) + 1e-8);
  for (size_t i = 0; i < values.size(); ++i) values[i] = mask[i] ? (values[i] - mean) * scale : 0;
}

Result<Rows> of_groups(const LossBatch& batch, const Rows& rewards, const Algorithm& algorithm) {
  if (batch.groups.empty()) return fail(Status::invalid("advantages of groups need \"groups\", a number a row"));
  std::map<int64_t, std::vector<size_t>> rows_of;
  for (size_t row = 0; row < batch.rows; ++row) rows_of[batch.groups[row]].push_back(row);
  Rows advantages(rewards.size(), 0);
  for (const auto& [group, rows] : rows_of) {
    std::vector<double> scores;
    for (const size_t row : rows) {
      double score = 0;
      for (size_t i = row * batch.length; i < (row + 1) * batch.length; ++i) score += batch.mask[i] ? rewards[i] : 0;
      scores.push_back(score);
    }
    const auto found = group_advantages(scores, algorithm.advantage, algorithm.std_epsilon, algorithm.pass_k);
    for (size_t k = 0; k < rows.size(); ++k) {
      for (size_t i = rows[k] * batch.length; i < (rows[k] + 1) * batch.length; ++i)
        advantages[i] = batch.mask[i] ? found[k] : 0;
    }
  }
  return advantages;
}

// OPO (Hao et al. 2025): R minus the mean of the group, weighted by the lengths of its samples; a group of one has
// none.
Result<Rows> of_lengths(const LossBatch& batch, const Rows& rewards) {
  if (batch.groups.empty()) return fail(Status::invalid("advantages of groups need \"groups\", a number a row"));
  struct Sums {
    double rows = 0, length = 0, reward = 0;
  };
  std::map<int64_t, Sums> groups;
  std::vector<double> scores(batch.rows, 0);
  for (size_t row = 0; row < batch.rows; ++row) {
    double length = 0;
    for (size_t i = row * batch.length; i < (row + 1) * batch.length; ++i) {
      length += batch.mask[i];
      scores[row] += batch.mask[i] ? rewards[i] : 0;
    }
    Sums& sums = groups[batch.groups[row]];
    ++sums.rows;
    sums.length += length;
    sums.reward += length * scores[row];
  }
  Rows advantages(rewards.size(), 0);
  for (size_t row = 0; row < batch.rows; ++row) {
    const Sums& sums = groups[batch.groups[row]];
    const double baseline = sums.rows > 1 && sums.length > 0 ? sums.reward / sums.length : 0;
    for (size_t i = row * batch.length; i < (row + 1) * batch.length; ++i)
      advantages[i] = batch.mask[i] ? scores[row] - baseline : 0;
  }
  return advantages;
}

// The discounted sum of what follows, within a run of tokens that count.
Rows returns(const LossBatch& batch, const Rows& rewards, double gamma) {
  Rows result(rewards.size(), 0);
  for (size_t row = 0; row < batch.rows; ++row) {
    double following = 0;
    for (size_t i = (row + 1) * batch.length; i-- > row * batch.length;) {
      following = batch.mask[i] ? rewards[i] + gamma * following : 0;
      result[i] = following;
    }
  }
  return result;
}

// Generalised advantage estimation (Schulman et al. 2016). Tokens that do not count are passed over: value and
// advantage of the next one that does are carried through them (verl's rule).
Result<Rows> generalised(const LossBatch& batch, const Rows& rewards, const Algorithm& algorithm) {
  if (batch.values.empty()) return fail(Status::invalid("advantage gae needs \"values\""));
  Rows result(rewards.size(), 0);
  for (size_t row = 0; row < batch.rows; ++row) {
    double next_value = 0, next_advantage = 0;
    for (size_t i = (row + 1) * batch.length; i-- > row * batch.length;) {
      if (!batch.mask[i]) continue;
      const double delta = rewards[i] + algorithm.gamma * next_value - batch.values[i];
      next_advantage = delta + algorithm.gamma * algorithm.lambda * next_advantage;
      next_value = batch.values[i];
      result[i] = next_advantage;
    }
  }
  return result;
}

}  // namespace

Result<Rows> batch_advantages(const LossBatch& batch, const Rows& rewards, const Algorithm& algorithm) {
  Rows advantages;
  switch (algorithm.advantage) {
    case AdvantageKind::kReturns:
      advantages = returns(batch, rewards, algorithm.gamma);
      break;
    case AdvantageKind::kGae:
      advantages = TRY(generalised(batch, rewards, algorithm));
      break;
    case AdvantageKind::kOpo:
      advantages = TRY(of_lengths(batch, rewards));
      break;
    default:
      advantages = TRY(of_groups(batch, rewards, algorithm));
  }
  if (algorithm.whiten_advantages) whiten(advantages, batch.mask);
  return advantages;
}

}  // namespace tandem::trainer
