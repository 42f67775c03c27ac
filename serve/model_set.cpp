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
  const auto adapter = adapters_.find(name);
  const bool adapted = adapter != adapters_.end();
  const ServedModel* const model = at(adapted ? adapter->second.model : name);
  if (model == nullptr) return {};
  ChosenLane chosen{.lane = model->current, .adapter = adapted ? adapter->second.live : nullptr};
  if (version == Version::kCurrent || (version == Version::kByShare && !model->candidate)) return chosen;
  const bool tried = version == Version::kCandidate ||
                     takes_candidate(session, model->candidate->settings().directory.native(), model->share);
  chosen.candidate = tried && (version == Version::kCandidate || !model->shadow);
  chosen.copied = tried && !chosen.candidate;
  if (chosen.candidate) chosen.lane = model->candidate;
  return chosen;
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

std::vector<ServedAdapter> ModelSet::adapters() const {
  const std::scoped_lock lock(mutex_);
  std::vector<ServedAdapter> all;
  for (const auto& [name, adapter] : adapters_) all.push_back(adapter);
  return all;
}

void ModelSet::set_adapter(ServedAdapter adapter) {
  const std::scoped_lock lock(mutex_);
  adapters_.insert_or_assign(adapter.name, std::move(adapter));
}

void ModelSet::remove_adapter(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  adapters_.erase(name);
}

std::optional<Json> ModelSet::describe(const std::string& name, int64_t created) const {
  Json object = {{"id", name}, {"object", "model"}, {"created", created}, {"owned_by", "tandem"}};
  if (const auto* const other = embedder(); other && other->name() == name) return object;
  auto model = name.empty() ? std::nullopt : find(name);
  if (!model) {
    const auto all = adapters();
    const auto adapter = std::ranges::find(all, name, &ServedAdapter::name);
    if (adapter == all.end()) return std::nullopt;
    object["created"] = adapter->created;
    object["root"] = adapter->directory.string();
    object["parent"] = adapter->model;
    model = find(adapter->model);
  }
  if (model->current) object["max_model_len"] = model->current->max_tokens();
  return object;
}

Json ModelSet::list(int64_t created) const {
  Json data = Json::array();
  for (const auto& model : settings_) {
    for (const auto& name : model.names) data.push_back(*describe(name, created));
  }
  for (const auto& adapter : adapters()) {
    // One that was unloaded since is none.
    if (auto object = describe(adapter.name, created)) data.push_back(std::move(*object));
  }
  if (const auto* const other = embedder()) data.push_back(*describe(other->name(), created));
  return {{"object", "list"}, {"data", std::move(data)}};
}

namespace {
wire::HttpResponse not_among(const std::vector<std::string>& names, const std::string& name) {
  return error_response(
      404, fmt::format("there is no model \"{}\"; there is {}", name.substr(0, 200), join(names, ", ")), "model");
}
}  // namespace

wire::HttpResponse ModelSet::unknown(const std::string& name) const {
  auto names = model_names();
  for (const auto& adapter : adapters()) names.push_back(adapter.name);
  return not_among(names, name);
}

wire::HttpResponse ModelSet::unknown_model(const std::string& name) const { return not_among(model_names(), name); }

std::vector<std::string> ModelSet::model_names() const {
  std::vector<std::string> names;
  for (const auto& model : settings_) names.insert(names.end(), model.names.begin(), model.names.end());
  return names;
}

}  // namespace tandem::serve
