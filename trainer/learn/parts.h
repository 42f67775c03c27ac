// A batch whose kinds of task are learned by different algorithms: Algorithm::parts.
//
// Each part has denominators, baselines and whitening of its own samples. The loss of the batch is the sum of those of
// the parts, each times its weight and its share of the samples: where all are the same algorithm, with means over
// sequences and weight 1, it is the loss of the batch by that algorithm.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trainer/learn/algorithm.h"
#include "trainer/learn/batch_loss.h"
#include "trainer/learn/branch_credit.h"
#include "trainer/learn/sequence_loss.h"

namespace tandem::trainer {

struct Sample;
struct StepMetrics;

struct Part {
  const Algorithm* algorithm;  // borrowed
  std::vector<size_t> rows;    // its samples in the batch, ascending
  double scale = 1;            // of its loss
};

// The parts that have samples, in their order.
std::vector<Part> parts_in(const Algorithm& algorithm, std::span<const Sample> samples);

// Trunks of the rows, weights of their tokens, and the credit of each sample's advantage (branch_credit.h).
std::vector<RowTrunk> trunks_of(std::span<const Sample> samples);
std::vector<TrunkShare> trunk_shares(std::span<const Sample> samples, std::span<const Part> parts);
std::vector<RowCredit> branch_credit(std::span<const Sample> samples, std::span<const Part> parts);

// The factor of each token's loss, by sample; `lengths` are sums of the weights of counted tokens.
std::vector<double> sequence_weights(std::span<const double> lengths, std::span<const Part> parts);

// Some rows of a batch.
LossBatch rows_of(const LossBatch& batch, std::span<const size_t> rows);

// Advantages and returns of a batch with rewards: made of those, by algorithms of whole batches, or the samples' own.
Result<Credit> credit_of(const LossBatch& batch, std::span<const Sample> samples, std::span<const Part> parts,
                         const OwnFunctions& functions, int64_t step);

// The part whose critic's keys count, and the tokens of all parts with a critic; none: null, and all are 0.
const Algorithm* critic_of(std::span<const Part> parts);
std::vector<uint8_t> critic_mask(const LossBatch& batch, std::span<const Part> parts);
// anchors_of() of the samples whose part is kGigpo, and of the others none; empty where there is no such part.
std::vector<std::vector<int64_t>> anchors_of(std::span<const Sample> samples, std::span<const Part> parts);

// Metrics of single parts of a step.
class PartMetrics {
 public:
  // The means of one part, as LossCounts::metrics() and batch_loss() have them, and its loss before it is scaled.
  void add(const Part& part, double loss, std::map<std::string, double> means);
  // Means over all tokens into the fields of the same names, and those of each part by the names of its kinds, where
  // there are several.
  void write(const Algorithm& algorithm, StepMetrics& metrics) const;

 private:
  struct Entry {
    const Algorithm* algorithm;
    std::map<std::string, double> means;
  };
  std::vector<Entry> entries_;
};

// batch_loss() of a batch with several parts, whose loss and gradients are scaled. Metrics are those of functions of
// the user's own alone; the others go to `counted`. Advantages that the batch has stand for all parts, else they are
// made as credit_of() does.
Result<BatchLoss> batch_loss(const LossBatch& batch, std::span<const Sample> samples, std::span<const Part> parts,
                             const OwnFunctions& functions, int64_t step, PartMetrics& counted);

}  // namespace tandem::trainer
