// Credit of samples that begin as one: a trunk that was drawn once, and what each sample drew behind it.
//
// With N samples on a trunk, and A the advantage of a sample by its algorithm, of its last token where it has several:
// a token of the trunk has the mean of the advantages that it has in the N samples, and counts 1/N in each, so that
// together it counts once. A token behind the trunk has its own, plus BranchCredit::local times (A - the mean of A over
// the N samples). Weights are those of the loss and of what it is divided by; sequences are counted as they are.
//
// Formulas and their sources: docs/algorithms.md. Everything in double. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "trainer/learn/algorithm.h"
#include "trainer/learn/batch.h"

namespace tandem::trainer {

// The weights of a row's tokens.
struct TrunkShare {
  size_t tokens = 0;  // that count, from the first on
  double weight = 1;  // of each of them; those behind weigh 1
};

// By row; empty where no trunk is shared, or the algorithm does not use branch credit.
std::vector<TrunkShare> trunk_shares(std::span<const RowTrunk> trunks, const BranchCredit& credit);

// The weight of `length` tokens that count, and of each of them: empty where all are 1.
double weight_of(size_t length, const TrunkShare& share);
std::vector<double> token_weights(size_t length, const TrunkShare& share);

// Advantages of the rows of a batch, [rows * length], 0 where the mask is 0. Nothing changes in one that is credited.
void credit_trunks(const LossBatch& batch, const BranchCredit& credit, std::vector<double>& advantages);

// The same for rows with one advantage each.
struct RowCredit {
  double of_trunk = 0, own = 0;
};
std::vector<RowCredit> credit_trunks(std::span<const RowTrunk> trunks, std::span<const double> advantages,
                                     const BranchCredit& credit);

// kInvalid where a row is shorter than its trunk, or rows of one trunk differ in its length.
Status check_trunks(const LossBatch& batch);

}  // namespace tandem::trainer
