#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/command.h"
#include "model/gguf_import.h"

namespace tandem::cli {

Action add_import(CLI::App& command) {
  struct Options {
    std::string gguf;
    std::string out;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  command
      .add_option("--gguf", options->gguf,
                  "GGUF file to read (F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K)")
      ->required();
  command.add_option("OUT", options->out, "folder to write: config, weights in bf16, tokenizer, chat template")
      ->required();
  command.add_flag("--json", options->json, "print what was written as JSON");
  return [options]() -> Result<int> {
    const model::ImportSummary summary = TRY(model::import_gguf(options->gguf, options->out));
    if (options->json) {
      const Json result = {{"out", options->out},
                           {"family", summary.config.family},
                           {"parameters", model::parameter_count(summary.config)},
                           {"tensors", summary.tensors},
                           {"bytes", summary.bytes},
                           {"source_formats", summary.source_formats}};
      fmt::print("{}\n", dump_json(result));
      return kDone;
    }
    fmt::print("{}: {} with {} parameters, {} tensors ({}) as bf16, {}\n", options->out, summary.config.family,
               model::parameter_count(summary.config), summary.tensors, summary.source_formats,
               format_bytes(summary.bytes));
    return kDone;
  };
}

}  // namespace tandem::cli
