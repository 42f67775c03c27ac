// LoRA adapters of the served models, each under a name of its own: loaded at the start or while the server runs.
//
//   POST /v1/load_lora_adapter     reads an adapter from a folder below those of `folders`
//   POST /v1/unload_lora_adapter   its name is unknown from then on; requests that have it end with it
//
// Paths and fields are vLLM's. An adapter is kept beside the weights (model/live_adapter.h), so requests of many of
// them, and of none, are sampled in one batch. It goes with the name of its model: a version that is promoted takes it
// over. Each change leaves a line in the log, with the name of the key.
//
// Thread safety: none; the server's loop owns it, but for `load_first`. Files are read on a thread of its own.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/work_queue.h"
#include "serve/body_paths.h"
#include "serve/model_set.h"

namespace tandem::serve {

struct AdapterSettings {
  struct First {
    std::string name, model;  // model: empty, the first
    fs::path directory;
  };
  std::vector<First> first;        // loaded with the models
  std::vector<fs::path> folders;   // that others may come from; none: there are no others
  int count = 64;                  // at once, at most
  int rank = 256;                  // of one, at most
  size_t bytes = size_t{1} << 30;  // of the factors of all together
  double load_seconds = 60;        // for reading one
};

// Fields of the bodies of its two paths.
std::span<const FieldRow> adapter_load_fields();
std::span<const FieldRow> adapter_unload_fields();

class Adapters {
 public:
  // All of them outlive this.
  Adapters(AdapterSettings settings, ModelSet& models, wire::HttpServer& http, const Clock& clock);

  // Its paths.
  void add_to(BodyPaths& paths);
  // Loads the adapters of `first`. Call once, on any thread, after the models are loaded and before any other use.
  Status load_first();

  // A request of the adapter has ended.
  void note_request(const std::string& name, uint64_t answer_tokens);
  std::vector<AdapterGauges> gauges() const;
  int most() const { return settings_.count; }
  // Now and then: answers those that wait for a file for too long.
  void tick();

 private:
  struct Loading {
    std::string name, model;  // model: its first name
    fs::path directory;
    bool in_place = false;
    std::string who;
    wire::HttpReply reply;
    Time deadline{};
  };
  struct Counts {
    uint64_t requests = 0, tokens = 0;
  };

  void load(Fields& fields, const std::string& who, const wire::HttpReply& reply);
  void unload(Fields& fields, const std::string& who, const wire::HttpReply& reply);
  void loaded(uint64_t number, Result<ServedAdapter> read);
  // The adapter of that name, if there is one.
  std::optional<ServedAdapter> find(const std::string& name) const;
  Status check_name(const std::string& name) const;
  // On any thread.
  Result<ServedAdapter> read(const std::string& name, const std::string& model, const fs::path& directory,
                             const Lane& lane) const;
  Status check_room(const ServedAdapter& wanted) const;

  const AdapterSettings settings_;
  ModelSet& models_;
  const Clock& clock_;
  uint64_t loads_begun_ = 0;
  std::map<uint64_t, Loading> loading_;
  std::map<std::string, Counts> counts_;  // of those that there are
  WorkQueue loads_;
};

}  // namespace tandem::serve
