#include "serve/model_set.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "serve/api_error.h"

namespace tandem::serve {

bool takes_candidate(std::string_view session, std::string_view trial, double share) {
  const auto seed = XXH3_64bits(trial.data(), trial.size());
  const auto hash = XXH3_64bits_withSeed(session.data(), session.size(), seed);
  return static_cast<double>(hash >> 11) * 0x1p-53 < share;
}

ModelSet::ModelSet(std::vector<LaneSettings> models, fs::path embedding_model)
    : settings_(std::move(models)), embedding_model_(std::move(embedding_model)) {
  for (const auto& model : settings_) models_.push_back({.names = model.names});
}

Status ModelSet::load(int threads, const Clock& clock) {
  std::vector<std::shared_ptr<Lane>> lanes;
  for (const LaneSettings& model : settings_) lanes.emplace_back(TRY(Lane::load(model, clock)));
  std::unique_ptr<Embedder> embedder;
  if (!embedding_model_.empty()) embedder = TRY(Embedder::load(embedding_model_, threads));
  const std::scoped_lock lock(mutex_);
  embedder_ = std::move(embedder);
  for (size_t i = 0; i < lanes.size(); ++i) models_[i].current = std::move(lanes[i]);
  return {};
}

std::vector<std::shared_ptr<Lane>> ModelSet::lanes() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<Lane>> lanes;
  for (const auto& model : models_) {
    for (const auto& lane : {model.current, model.candidate}) {
      if (lane) lanes.push_back(lane);
    }
  }
  lanes.insert(lanes.end(), retired_.begin(), retired_.end());
  return lanes;
}

ServedModel* ModelSet::at(const std::string& name) {
  const auto found = std::ranges::find_if(models_, [&](const auto& model) {
    return name.empty() || std::ranges::find(model.names, name) != model.names.end();
  });
  return found == models_.end() ? nullptr : &*found;
}

const Embedder* ModelSet::embedder() const {
  const std::scoped_lock lock(mutex_);
  return embedder_.get();
}

ChosenLane ModelSet::choose(const std::string& name, std::string_view session, Version version) const {
  const std::scoped_lock lock(mutex_);
  const ServedModel* const model = at(name);
  if (model == nullptr) return {};
  if (version == Version::kCandidate) return {.lane = model->candidate, .candidate = true};
  if (version == Version::kCurrent || !model->candidate) return {.lane = model->current};
  const bool tried = takes_candidate(session, model->candidate->settings().directory.native(), model->share);
  if (tried && !model->shadow) return {.lane = model->candidate, .candidate = true};
  return {.lane = model->current, .copied = tried};
}

std::optional<ServedModel> ModelSet::find(const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  const ServedModel* const model = at(name);
  return model == nullptr ? std::nullopt : std::optional(*model);
}

std::vector<ServedModel> ModelSet::all() const {
  const std::scoped_lock lock(mutex_);
  return models_;
}

void ModelSet::set_candidate(const std::string& name, std::shared_ptr<Lane> lane) {
  const std::scoped_lock lock(mutex_);
  ServedModel& model = *at(name);
  model.candidate = std::move(lane);
  model.share = 0;
  model.shadow = false;
}

void ModelSet::set_share(const std::string& name, double share, bool shadow) {
  const std::scoped_lock lock(mutex_);
  ServedModel& model = *at(name);
  model.share = share;
  model.shadow = shadow;
}

void ModelSet::end_trial(const std::string& name, bool promote) {
  const std::scoped_lock lock(mutex_);
  ServedModel& model = *at(name);
  if (promote) std::swap(model.current, model.candidate);
  retired_.push_back(std::exchange(model.candidate, nullptr));
  model.share = 0;
  model.shadow = false;
}

std::vector<std::shared_ptr<Lane>> ModelSet::take_idle() {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<Lane>> idle;
  // A request that is being read holds its lane.
  std::erase_if(retired_, [&](auto& lane) {
    if (lane.use_count() > 1 || lane->requests() > 0) return false;
    idle.push_back(std::move(lane));
    return true;
  });
  return idle;
}

std::optional<Json> ModelSet::describe(const std::string& name, int64_t created) const {
  Json object = {{"id", name}, {"object", "model"}, {"created", created}, {"owned_by", "tandem"}};
  if (const auto* const other = embedder(); other && other->name() == name) return object;
  const auto model = name.empty() ? std::nullopt : find(name);
  if (!model) return std::nullopt;
  if (model->current) object["max_model_len"] = model->current->max_tokens();
  return object;
}

Json ModelSet::list(int64_t created) const {
  Json data = Json::array();
  for (const auto& model : settings_) {
    for (const auto& name : model.names) data.push_back(*describe(name, created));
  }
  if (const auto* const other = embedder()) data.push_back(*describe(other->name(), created));
  return {{"object", "list"}, {"data", std::move(data)}};
}

wire::HttpResponse ModelSet::unknown(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& model : settings_) names.insert(names.end(), model.names.begin(), model.names.end());
  return error_response(
      404, fmt::format("there is no model \"{}\"; there is {}", name.substr(0, 200), join(names, ", ")), "model");
}

}  // namespace tandem::serve
