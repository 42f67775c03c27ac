#include "trainer/learn/branch_credit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tandem::trainer {

namespace {

// The rows of each trunk, in their order.
std::map<int64_t, std::vector<size_t>> rows_by_trunk(std::span<const RowTrunk> trunks) {
  std::map<int64_t, std::vector<size_t>> rows;
  for (size_t row = 0; row < trunks.size(); ++row) {
    if (trunks[row].number >= 0 && trunks[row].tokens > 0) rows[trunks[row].number].push_back(row);
  }
  std::erase_if(rows, [](const auto& entry) { return entry.second.size() < 2; });
  return rows;
}

// Where the tokens of a row lie that count.
std::vector<size_t> counted(const LossBatch& batch, size_t row) {
  std::vector<size_t> places;
  for (size_t i = row * batch.length; i < (row + 1) * batch.length; ++i) {
    if (batch.mask[i]) places.push_back(i);
  }
  return places;
}

}  // namespace

std::vector<TrunkShare> trunk_shares(std::span<const RowTrunk> trunks, const BranchCredit& credit) {
  const auto by_trunk = rows_by_trunk(trunks);
  if (!credit.by_tree || by_trunk.empty()) return {};
  std::vector<TrunkShare> shares(trunks.size());
  for (const auto& [number, rows] : by_trunk) {
    for (const size_t row : rows)
      shares[row] = {.tokens = trunks[row].tokens, .weight = 1 / static_cast<double>(rows.size())};
  }
  return shares;
}

double weight_of(size_t length, const TrunkShare& share) {
  const size_t shared = std::min(length, share.tokens);
  return static_cast<double>(shared) * share.weight + static_cast<double>(length - shared);
}

std::vector<double> token_weights(size_t length, const TrunkShare& share) {
  if (share.tokens == 0 || share.weight == 1) return {};
  std::vector<double> weights(length, 1);
  std::fill_n(weights.begin(), std::min(length, share.tokens), share.weight);
  return weights;
}

void credit_trunks(const LossBatch& batch, const BranchCredit& credit, std::vector<double>& advantages) {
  if (batch.is_credited || !credit.by_tree) return;
  for (const auto& [number, rows] : rows_by_trunk(batch.trunks)) {
    std::vector<std::vector<size_t>> places;
    const auto count = static_cast<double>(rows.size());
    double mean = 0;  // of the samples
    std::vector<double> of_samples;
    for (const size_t row : rows) {
      places.push_back(counted(batch, row));
      of_samples.push_back(places.back().empty() ? 0 : advantages[places.back().back()]);
      mean += of_samples.back() / count;
    }
    const size_t shared = batch.trunks[rows.front()].tokens;
    for (size_t token = 0; token < shared; ++token) {
      double of_token = 0;
      for (const auto& row : places) of_token += advantages[row[token]] / count;
      for (const auto& row : places) advantages[row[token]] = of_token;
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      for (size_t token = shared; token < places[i].size(); ++token)
        advantages[places[i][token]] += credit.local * (of_samples[i] - mean);
    }
  }
}

std::vector<RowCredit> credit_trunks(std::span<const RowTrunk> trunks, std::span<const double> advantages,
                                     const BranchCredit& credit) {
  std::vector<RowCredit> credits;
  for (const double advantage : advantages) credits.push_back({.of_trunk = advantage, .own = advantage});
  if (!credit.by_tree) return credits;
  for (const auto& [number, rows] : rows_by_trunk(trunks)) {
    double mean = 0;
    for (const size_t row : rows) mean += advantages[row] / static_cast<double>(rows.size());
    for (const size_t row : rows)
      credits[row] = {.of_trunk = mean, .own = advantages[row] + credit.local * (advantages[row] - mean)};
  }
  return credits;
}

Status check_trunks(const LossBatch& batch) {
  for (const auto& [number, rows] : rows_by_trunk(batch.trunks)) {
    for (const size_t row : rows) {
      const size_t tokens = batch.trunks[row].tokens, length = counted(batch, row).size();
      if (tokens > length) {
        return Status::invalid(
            fmt::format("trunks[{}] has {} tokens, and the row has {} that count", row, tokens, length));
      }
      if (tokens != batch.trunks[rows.front()].tokens) {
        return Status::invalid(fmt::format("trunk {} has {} tokens in row {} and {} in row {}", number,
                                           batch.trunks[rows.front()].tokens, rows.front(), tokens, row));
      }
    }
  }
  return {};
}

}  // namespace tandem::trainer
