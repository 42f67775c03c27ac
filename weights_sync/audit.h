// Whether the bytes of a version that is published are the weights: each tensor decoded again, by the layout and the
// formats alone, and compared with the bf16 values that it was made of.
//
// It shares no code with what quantises, so that a wrong scale, a wrong block or a tensor that was left out is seen and
// not repeated. Pure.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "kernels/threads.h"
#include "model/weights.h"

namespace tandem::weights_sync {

// Relative RMS error above which a tensor of 8 bits is bad: rounding to E4M3 gives about 0.026. In bf16 any error is.
inline constexpr double kMostRelativeRms = 0.06;

struct TensorAudit {
  std::string name;
  std::string format;       // "bf16", "fp8", "mxfp8"
  double max_error = 0;     // largest |published - weight|
  double relative_rms = 0;  // root of sum of squares of that, over that of the weights
  size_t zero_blocks = 0;   // published as zeros, though their weights are not
  size_t not_finite = 0;    // published numbers that are NaN or infinite
  std::string first_block;  // where the first of the last two is: "group 0, rows 128-255, columns 0-127"
  bool is_bad() const;
};

struct Audit {
  std::vector<TensorAudit> tensors;      // in the order of the layout
  const TensorAudit& worst() const;      // by relative_rms, bad ones first; there is one at least
  std::vector<std::string> bad() const;  // a line each: name, numbers, place
};

// `published` as Weights::wire has it, of weights whose flat() is in place. kInvalid where the bytes, their number or a
// name are not those of the layout.
Result<Audit> audit(const model::Weights& weights, std::span<const model::Weights::WirePart> parts,
                    std::span<const std::byte> published, kernels::ThreadPool& threads);

// {"version", "worst": {..}, "bad": [..]}, and with `whole` "tensors": all of them.
Json to_json(const Audit& audit, uint64_t version, bool whole);

}  // namespace tandem::weights_sync
