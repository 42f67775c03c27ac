// Helpers of all benchmarks: timing, the machine's limits, and a model to run.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/benchmarks.h"
#include "kernels/limits.h"
#include "model/encoder_config.h"
#include "model/weights.h"

namespace tandem::bench {

struct Limits {
  double flops = 0;  // of products, all threads
  double bytes = 0;  // read from memory each second, all threads
};
Limits measure_limits(kernels::Stream& stream);
// For a GPU: bf16 products by its tensor cores, and copies within its memory, counted as read and written.
Result<Limits> measure_limits(const model::Place& place);

// The model that the settings name, ready for their device.
Result<model::Weights> load_model(const Settings& settings, bool for_training);

// Products of one token's forward pass: without the head, and of the head. FLOP.
double body_flops(const model::ModelConfig& config);
double head_flops(const model::ModelConfig& config);

// The shape of all-MiniLM-L6-v2; products of one token of a text of `tokens` (FLOP); and a stream of fp32, in which
// encoders compute: what sets with a product of their own for bf16 do with it is no limit of theirs.
model::EncoderConfig default_encoder();
double token_flops(const model::EncoderConfig& config, int tokens);
Result<kernels::Stream> stream_of_fp32(int threads);

// Lines that look like code, of names that mostly differ; at least so many bytes.
std::string made_up_code(size_t bytes);

// Seconds that `work` takes in each of the rounds that fit into `seconds`, at least three, after one that is not
// counted; sorted. `work` gives a Status.
template <typename Work>
Result<std::vector<double>> sorted_rounds(double seconds, const Work& work) {
  using Clock = std::chrono::steady_clock;
  TRY(work());
  std::vector<double> rounds;
  double total = 0;
  while (rounds.size() < 3 || (total < seconds && rounds.size() < 10000)) {
    const auto start = Clock::now();
    TRY(work());
    rounds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total += rounds.back();
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds;
}

// The median of them.
template <typename Work>
Result<double> median_seconds(double seconds, const Work& work) {
  const auto rounds = TRY(sorted_rounds(seconds, work));
  return rounds[rounds.size() / 2];
}

}  // namespace tandem::bench
