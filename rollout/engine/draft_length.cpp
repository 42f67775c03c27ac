#include "rollout/engine/draft_length.h"

#include <algorithm>
#include <cmath>

namespace tandem::rollout {

namespace {

constexpr double kWeight = 0.2;      // of a new observation
constexpr double kForget = 0.02;     // towards the first guess, for each draft that was not tried
constexpr double kLossShare = 0.02;  // of what a turn takes, that its drafts may lose
constexpr double kAllowance = 1.5;   // tokens' worth that a turn may lose at once
constexpr double kRowShare = 0.1;    // of a pass of one row, that each further row takes: before it is known

}  // namespace

int PassCost::size_of(int rows) {
  if (rows <= 4) return rows - 1;
  const int doubling = static_cast<int>(std::log2(rows));  // 4 to 7: 2
  const int within = (rows << 2 >> doubling) - 4;          // 0 to 3
  return std::min(kSizes - 1, 3 + (doubling - 2) * 4 + within);
}

double PassCost::rows_of(int size) {
  if (size < 4) return size + 1;
  const int doubling = (size - 3) / 4 + 2, within = (size - 3) % 4;
  return (4 + within) * std::exp2(doubling - 2);
}

void PassCost::observe(int rows, double seconds) {
  const int size = size_of(rows);
  double& mean = seconds_[size];
  // One pass that the machine held up says little.
  mean = known(size) ? mean + kWeight * (std::min(seconds, 2 * mean) - mean) : seconds;
  when_[size] = ++observed_;
}

double PassCost::of(int rows) const {
  // Between the nearest sizes that were observed; beyond them by a line.
  const int size = size_of(rows);
  int below = size, above = size;
  while (below >= 0 && !known(below)) --below;
  while (above < kSizes && !known(above)) ++above;
  if (below < 0 && above == kSizes) return 0;
  if (above < kSizes && below >= 0 && above != below) {
    const double share = (rows - rows_of(below)) / (rows_of(above) - rows_of(below));
    return std::lerp(seconds_[below], std::max(seconds_[below], seconds_[above]), std::clamp(share, 0.0, 1.0));
  }
  const int near = below >= 0 ? below : above;
  const double one = seconds_[near] / (1 + kRowShare * (rows_of(near) - 1));
  return std::max(one, seconds_[near] + one * kRowShare * (rows - rows_of(near)));
}

int DraftRecord::place_of(const Draft& draft) {
  constexpr std::array kBounds = {4, 7, 12, 24};
  const auto length = std::ranges::upper_bound(kBounds, draft.matched) - kBounds.begin();
  return static_cast<int>(draft.source) * kLengths + static_cast<int>(length);
}

void DraftRecord::observe(const Draft& draft, int right) {
  double& chance = chances_[place_of(draft)];
  for (int i = 0; i < right; ++i) chance += kWeight * (1 - chance);
  if (right < static_cast<int>(draft.tokens.size())) chance -= kWeight * chance;
  chance = std::clamp(chance, 0.02, 0.995);
}

void DraftRecord::skip(const Draft& draft) {
  const int place = place_of(draft);
  chances_[place] += kForget * (kFirst[place] - chances_[place]);
}

double cost_of_rows(const PassCost& cost, const DraftLoad& load, int drafted) {
  return std::max(0.0, cost.of(load.rows + drafted) - cost.of(load.rows));
}

double cost_of_token(const PassCost& cost, const DraftLoad& load) {
  return cost.of(std::max(1, load.sequences)) / std::max(1, load.sequences);
}

int worthwhile(const Draft& draft, const DraftRecord& record, const PassCost& cost, const DraftLoad& load,
               const DraftBalance& balance) {
  const double token = cost_of_token(cost, load);
  if (token <= 0) return 0;
  const double chance = record.chance(draft);
  const double may_lose = kLossShare * balance.plain + kAllowance * token + balance.won;
  double right = 0, likely = 1, most = 0;
  int best = 0;
  for (int count = 1; count <= static_cast<int>(draft.tokens.size()); ++count) {
    likely *= chance;
    right += likely;
    const double spent = cost_of_rows(cost, load, count) + count * draft.seconds_of_token;
    if (spent > may_lose) break;
    const double won = right * token - spent;
    if (won > most) {
      most = won;
      best = count;
    }
  }
  return best;
}

}  // namespace tandem::rollout
