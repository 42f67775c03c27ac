#include "cli/serve/isolated.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::cli {

Status check_isolated(const ServeConfig& config) {
  const auto not_here = [](const char* what, const char* hint) {
    return Status::invalid(fmt::format("{} is not there with --isolate", what)).hint(hint);
  };
  if (!config.promoted.empty())
    return not_here("--promoted", "promote in a server without --isolate, which keeps both versions in one process");
  if (!config.embedding_model.empty()) {
    return not_here("--embedding-model",
                    "serve it with another `tandem serve`, and put both behind a gateway (--upstream)");
  }
  if (!config.front_key_file.empty())
    return not_here("serve.front_key_file", "the processes get a key of their own; leave it out");
  return {};
}

ModelProcessesSettings processes_of(const ServeConfig& config, const std::vector<serve::LaneSettings>& models,
                                    const std::vector<serve::AdapterSettings::First>& adapters,
                                    const NumberFormatOptions& format) {
  ModelProcessesSettings settings{.config = config};
  if (!format.dtype.empty()) settings.arguments.insert(settings.arguments.end(), {"--dtype", format.dtype});
  if (!format.weights.empty()) settings.arguments.insert(settings.arguments.end(), {"--weights", format.weights});
  for (const auto& lane : models)
    settings.models.push_back({.names = lane.names, .directory = lane.directory, .draft_model = lane.draft_model});
  for (const auto& adapter : adapters) {
    auto owner = std::ranges::find_if(settings.models, [&](const ServedProcess& model) {
      return adapter.model.empty() || std::ranges::find(model.names, adapter.model) != model.names.end();
    });
    settings.adapters.push_back({.owner = owner == settings.models.end() ? adapter.model : owner->names.front(),
                                 .adapter = {.name = adapter.name, .directory = adapter.directory}});
  }
  return settings;
}

}  // namespace tandem::cli
