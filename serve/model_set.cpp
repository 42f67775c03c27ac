#include "serve/model_set.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "serve/api_error.h"

namespace tandem::serve {

Status ModelSet::load(int threads, const Clock& clock) {
  for (const LaneSettings& model : models_) lanes_.push_back(TRY(Lane::load(model, clock)));
  if (!embedding_model_.empty()) embedder_ = TRY(Embedder::load(embedding_model_, threads));
  return {};
}

Lane* ModelSet::lane_of(const std::string& name) const {
  if (name.empty()) return lanes_.empty() ? nullptr : lanes_.front().get();
  for (const auto& lane : lanes_) {
    if (std::ranges::find(lane->settings().names, name) != lane->settings().names.end()) return lane.get();
  }
  return nullptr;
}

std::optional<Json> ModelSet::describe(const std::string& name, int64_t created) const {
  Json object = {{"id", name}, {"object", "model"}, {"created", created}, {"owned_by", "tandem"}};
  if (embedder_ && embedder_->name() == name) return object;
  for (const auto& model : models_) {
    if (std::ranges::find(model.names, name) == model.names.end()) continue;
    if (const Lane* const lane = lane_of(name)) object["max_model_len"] = lane->max_tokens();
    return object;
  }
  return std::nullopt;
}

Json ModelSet::list(int64_t created) const {
  Json data = Json::array();
  for (const auto& model : models_) {
    for (const auto& name : model.names) data.push_back(*describe(name, created));
  }
  if (embedder_) data.push_back(*describe(embedder_->name(), created));
  return {{"object", "list"}, {"data", std::move(data)}};
}

wire::HttpResponse ModelSet::unknown(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& model : models_) names.insert(names.end(), model.names.begin(), model.names.end());
  return error_response(
      404, fmt::format("there is no model \"{}\"; there is {}", name.substr(0, 200), join(names, ", ")), "model");
}

}  // namespace tandem::serve
