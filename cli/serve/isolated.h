// `tandem serve --isolate`: one process for each model (model_processes.h), from one config.
//
// Pure but for names of folders; any thread.
#pragma once

#include <vector>

#include "cli/model/number_format.h"
#include "cli/serve/model_processes.h"
#include "cli/serve/serve_config.h"
#include "serve/adapters.h"
#include "serve/lane.h"

namespace tandem::cli {

// An answer of a process may take as long as its client waits.
inline constexpr double kLongestAnswerSeconds = 604800;

// kInvalid names what one process can do and several cannot, and what to do in its place.
Status check_isolated(const ServeConfig& config);

// Each lane is a process; adapters go to that of their model.
ModelProcessesSettings processes_of(const ServeConfig& config, const std::vector<serve::LaneSettings>& models,
                                    const std::vector<serve::AdapterSettings::First>& adapters,
                                    const NumberFormatOptions& format);

}  // namespace tandem::cli
