// The models of a server, by the names that clients ask for.
//
// Loaded by one thread, used by another from then on. Names and folders are known before. Thread safety: const methods
// from any thread once `load` has returned.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/lane.h"
#include "serve/lookups.h"

namespace tandem::serve {

class ModelSet {
 public:
  ModelSet(std::vector<LaneSettings> models, fs::path embedding_model)
      : models_(std::move(models)), embedding_model_(std::move(embedding_model)) {}

  Status load(int threads, const Clock& clock);

  const std::vector<std::unique_ptr<Lane>>& lanes() const { return lanes_; }
  const Embedder* embedder() const { return embedder_.get(); }  // null: none
  // The first where `name` is empty; null where there is none.
  Lane* lane_of(const std::string& name) const;

  // As /v1/models has them; `created`: Unix seconds.
  Json list(int64_t created) const;
  std::optional<Json> describe(const std::string& name, int64_t created) const;
  // The 404 that names those that there are.
  wire::HttpResponse unknown(const std::string& name) const;

 private:
  const std::vector<LaneSettings> models_;
  const fs::path embedding_model_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<Embedder> embedder_;
};

}  // namespace tandem::serve
