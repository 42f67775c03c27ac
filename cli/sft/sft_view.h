// Training on transcripts as people see it, and one of its samples with what is learned from marked.
#pragma once

#include <chrono>
#include <string>

#include "cli/sft/sft_config.h"
#include "trainer/sft/fine_tuning.h"

namespace tandem::cli {

// Summary of the data and the plan; lines ended by '\n'.
std::string describe(const SftConfig& config, const trainer::SampleSet& samples, int64_t steps);
// The same for scripts, as an event.
Json to_json(const trainer::SampleSet& samples, int64_t steps);

// A sample as text: what is trained in colour, or between ⟦ and ⟧.
std::string marked_text(std::span<const trainer::TokenRun> runs, bool colour);

// An event of the training as a line without its end, `seconds` after its begin.
std::string line_of(const Json& event, double seconds);

// Says what happens: lines to stderr, or with --json events to stdout.
class Reporter {
 public:
  explicit Reporter(bool json) : json_(json) {}
  void text(const std::string& lines) const;
  void event(const Json& event) const;
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  bool json() const { return json_; }

 private:
  const bool json_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace tandem::cli
