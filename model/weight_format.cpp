#include "model/weight_format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tandem::model {

std::vector<std::string> weight_format_names() { return {kWeightFormatNames.begin(), kWeightFormatNames.end() - 1}; }

Result<WeightFormat> weight_format_named(std::string_view name) {
  const auto names = weight_format_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    return fail(Status::invalid(
        fmt::format("\"{}\" is not a format of weights; expected one of {}", name, fmt::join(names, ", "))));
  }
  return static_cast<WeightFormat>(found - names.begin());
}

Result<const kernels::bf16*> QuantizedActivations::of(kernels::Stream& stream, WeightFormat format,
                                                      const kernels::bf16* x, int rows, int columns) {
  if (!is_quantised(format)) return x;
  const size_t count = static_cast<size_t>(rows) * columns;
  if (values_.size() < count) values_.resize(count);
  TRY(kernels::round_to_codes(
      stream, {.x = x, .out = values_.data(), .rows = rows, .columns = columns, .block = block_columns(format)}));
  return values_.data();
}

}  // namespace tandem::model
