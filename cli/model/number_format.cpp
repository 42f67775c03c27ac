#include "cli/model/number_format.h"

#include <fmt/format.h>

#include "model/config.h"

namespace tandem::cli {

void add_number_format_options(CLI::App& command, NumberFormatOptions& options) {
  command
      .add_option("--dtype", options.dtype,
                  "Number format of all that is computed (default: the model's; float16 is computed in bfloat16)")
      ->check(CLI::IsMember({"bfloat16", "float32"}));
  command.add_option("--weights", options.weights, "Number format of the layers' products, beside bfloat16")
      ->check(CLI::IsMember(model::weight_format_names()));
}

Result<model::WeightFormat> number_format(const NumberFormatOptions& options, const fs::path& model) {
  if (!options.weights.empty()) {
    if (options.dtype == "float32") {
      return fail(
          Status::invalid(fmt::format("--weights {} goes with --dtype bfloat16, not float32", options.weights)));
    }
    return model::weight_format_named(options.weights);
  }
  const bool float32 =
      options.dtype.empty() ? TRY(model::read_config(model)).dtype == model::DType::kF32 : options.dtype == "float32";
  return float32 ? model::WeightFormat::kFloat32 : model::WeightFormat::kBf16;
}

}  // namespace tandem::cli
