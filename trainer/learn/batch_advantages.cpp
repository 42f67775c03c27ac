#include "trainer/learn/batch_advantages.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace tandem::trainer {

namespace {

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

// GiGPO (Feng et al. 2025): the advantage of the episode in its group, and `weight` times that of the turn among all
// turns of the group that began in the same state, each by what followed it, discounted by turns.
Result<Rows> of_states(const LossBatch& batch, const Rows& rewards, const Algorithm& algorithm) {
  Algorithm of_episodes = algorithm;
  of_episodes.advantage = algorithm.gigpo.scaled ? AdvantageKind::kGrpo : AdvantageKind::kDrGrpo;
  Rows advantages = TRY(of_groups(batch, rewards, of_episodes));
  if (batch.anchors.size() != batch.rows)
    return fail(Status::invalid("advantage gigpo needs \"anchors\", a list a row: the state before each of its turns"));
  const auto turns = turns_of(batch);
  std::vector<std::vector<double>> following(batch.rows);  // by turn
  std::map<std::pair<int64_t, int64_t>, std::vector<double*>> states;
  for (size_t row = 0; row < batch.rows; ++row) {
    auto& of_row = following[row];
    for (size_t i = row * batch.length; i < (row + 1) * batch.length; ++i) {
      if (!batch.mask[i]) continue;
      of_row.resize(std::max(of_row.size(), static_cast<size_t>(turns[i]) + 1), 0);
      of_row[static_cast<size_t>(turns[i])] += rewards[i];
    }
    if (batch.anchors[row].size() != of_row.size()) {
      return fail(
          Status::invalid(fmt::format("anchors[{}] has {} states, and the row has {} turns (runs of tokens that "
                                      "count)",
                                      row, batch.anchors[row].size(), of_row.size())));
    }
    for (size_t turn = of_row.size(); turn-- > 1;) of_row[turn - 1] += algorithm.gamma * of_row[turn];
    for (size_t turn = 0; turn < of_row.size(); ++turn)
      states[{batch.groups[row], batch.anchors[row][turn]}].push_back(&of_row[turn]);
  }
  for (const auto& [state, members] : states) {
    std::vector<double> returns;
    for (const double* member : members) returns.push_back(*member);
    // A state that was met once has nothing to be compared with.
    const auto found = members.size() > 1
                           ? group_advantages(returns, of_episodes.advantage, algorithm.std_epsilon, algorithm.pass_k)
                           : std::vector<double>{0};
    for (size_t k = 0; k < members.size(); ++k) *members[k] = found[k];
  }
  for (size_t i = 0; i < advantages.size(); ++i) {
    if (batch.mask[i])
      advantages[i] += algorithm.gigpo.weight * following[i / batch.length][static_cast<size_t>(turns[i])];
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

std::vector<int64_t> turns_of(const LossBatch& batch) {
  if (!batch.turns.empty()) return batch.turns;
  std::vector<int64_t> turns;
  for (size_t row = 0; row < batch.rows; ++row) {
    int64_t turn = -1;
    for (size_t i = row * batch.length; i < (row + 1) * batch.length; ++i) {
      if (batch.mask[i] && (i == row * batch.length || !batch.mask[i - 1])) ++turn;
      turns.push_back(batch.mask[i] ? turn : -1);
    }
  }
  return turns;
}

void whiten(Rows& values, const std::vector<uint8_t>& mask) {
  double count = 0, sum = 0, squares = 0, least = 0, most = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!mask[i]) continue;
    least = count > 0 ? std::min(least, values[i]) : values[i];
    most = count > 0 ? std::max(most, values[i]) : values[i];
    ++count, sum += values[i];
  }
  if (count < 2) return;
  // Their mean may be another number by its rounding, which must not become a signal.
  if (least == most) {
    std::ranges::fill(values, 0);
    return;
  }
  const double mean = sum / count;
  for (size_t i = 0; i < values.size(); ++i) {
    if (mask[i]) squares += (values[i] - mean) * (values[i] - mean);
  }
  const double scale = 1 / std::sqrt(squares / (count - 1) + 1e-8);
  for (size_t i = 0; i < values.size(); ++i) values[i] = mask[i] ? (values[i] - mean) * scale : 0;
}

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
    case AdvantageKind::kGigpo:
      advantages = TRY(of_states(batch, rewards, algorithm));
      break;
    case AdvantageKind::kDistill:
      advantages.assign(batch.mask.size(), 0);
      break;
    default:
      advantages = TRY(of_groups(batch, rewards, algorithm));
  }
  if (algorithm.whiten_advantages) whiten(advantages, batch.mask);
  return advantages;
}

}  // namespace tandem::trainer
