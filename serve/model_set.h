// The models of a server, by the names that clients ask for; beside the version that a name has, another may be on
// trial.
//
// Beside models there are adapters under names of their own; a request that names one is computed by its model's
// version with it.
//
// A version is current, a candidate that takes a share of the requests, or retired: then it ends what it has begun, and
// goes. Names are known before models are loaded.
//
// Thread safety: `choose`, `adapters`, `list`, `describe` and `unknown` from any thread; all else, and the end of a
// lane, belongs to the server's loop.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/lane.h"
#include "serve/lookups.h"

namespace tandem::serve {

// One model with all of its names.
struct ServedModel {
  std::vector<std::string> names;
  std::shared_ptr<Lane> current;    // null until it is loaded
  std::shared_ptr<Lane> candidate;  // null: none
  double share = 0;                 // of the sessions, that the candidate takes
  bool shadow = false;              // it takes copies, whose answers nobody sees
};

struct ServedAdapter {
  std::string name, model;  // model: the first name of the one that it is for
  fs::path directory;
  int rank = 0;
  int64_t created = 0;  // Unix seconds
  std::shared_ptr<const model::LiveAdapter> live;
};

// Which version is to answer: as the share says, or one of them in any case.
enum class Version : uint8_t { kByShare, kCurrent, kCandidate };

struct ChosenLane {
  std::shared_ptr<Lane> lane;  // null: there is no such model, or no such version of it
  bool candidate = false;      // that is what `lane` is
  bool copied = false;         // the candidate gets a copy
  // The adapter that the name stands for; null: the model alone.
  std::shared_ptr<const model::LiveAdapter> adapter;
};

// Whether a session is among the `share` of all that a trial takes: as the share grows, those that it had stay. `trial`
// says which trial, so that not always the same ones are tried on.
bool takes_candidate(std::string_view session, std::string_view trial, double share);

class ModelSet {
 public:
  ModelSet(std::vector<LaneSettings> models, fs::path embedding_model);

  // Once, on any thread, before anything else is asked of it but names.
  Status load(int threads, const Clock& clock);

  // All that live: current ones, candidates, retired ones.
  std::vector<std::shared_ptr<Lane>> lanes() const;
  const Embedder* embedder() const;  // null: none, or not loaded yet

  // The first model's lane where `name` is empty; `name` may be an adapter's. `session`: whose requests keep to one
  // version.
  ChosenLane choose(const std::string& name, std::string_view session, Version version = Version::kByShare) const;

  // A copy; nothing where there is no model of the name. Empty: the first.
  std::optional<ServedModel> find(const std::string& name) const;
  std::vector<ServedModel> all() const;
  // Gives a model that there is, and has none yet, a candidate. It takes no request before its share is set.
  void set_candidate(const std::string& name, std::shared_ptr<Lane> lane);
  void set_share(const std::string& name, double share, bool shadow = false);
  // The candidate becomes the current version, or the current one stays; the other is retired.
  void end_trial(const std::string& name, bool promote);
  // Removes and returns retired lanes that are idle.
  std::vector<std::shared_ptr<Lane>> take_idle();

  // By name.
  std::vector<ServedAdapter> adapters() const;
  // In place of the one of its name, if there is one. No model has the name, and its own is there.
  void set_adapter(ServedAdapter adapter);
  void remove_adapter(const std::string& name);

  // As /v1/models has them; `created`: Unix seconds.
  Json list(int64_t created) const;
  std::optional<Json> describe(const std::string& name, int64_t created) const;
  // The 404 that names those that there are; of the second, models without adapters.
  wire::HttpResponse unknown(const std::string& name) const;
  wire::HttpResponse unknown_model(const std::string& name) const;

 private:
  std::vector<std::string> model_names() const;
  ServedModel* at(const std::string& name);
  const ServedModel* at(const std::string& name) const { return const_cast<ModelSet*>(this)->at(name); }

  const std::vector<LaneSettings> settings_;
  const fs::path embedding_model_;
  mutable std::mutex mutex_;  // of what follows
  std::unique_ptr<Embedder> embedder_;
  std::vector<ServedModel> models_;
  std::vector<std::shared_ptr<Lane>> retired_;
  std::map<std::string, ServedAdapter> adapters_;  // by name
};

}  // namespace tandem::serve
