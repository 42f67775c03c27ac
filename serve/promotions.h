// A new version of a model into service beside the one that is served: loaded, given a share of the requests, compared,
// and made the served one or let go. `tandem promote` drives it (docs/serving.md, "A new version").
//
//   GET  /promotion?model=NAME   both versions and what they answered
//   POST /promotion/begin        loads a candidate from a folder below those of `folders`
//   POST /promotion/share        the share of the sessions that it answers, for as long as somebody renews it
//   POST /promotion/end          serves it from now on, or lets it go; what it has begun it ends
//   POST /feedback               whether an answer was of use, from who asked for it
//
// A share lasts for a lease, so that a command that has died leaves one whole version in service; a candidate whose
// engine fails gets no more requests. Each change leaves a line in the log, with the name of the key.
//
// Thread safety: none; the server's loop owns it. Models are loaded on a thread of its own.
#pragma once

#include <deque>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/unique_number.h"
#include "base/work_queue.h"
#include "serve/body_paths.h"
#include "serve/model_set.h"

namespace tandem::serve {

struct PromotionSettings {
  std::vector<fs::path> folders;  // that candidates may come from; none: there are no candidates
  fs::path kept;  // JSON, {"NAME": {"folder", "digest"}}: what was promoted, for the next start; empty: nowhere
};

struct KeptVersion {
  fs::path folder;
  std::string digest;  // of its files (model/model_digest.h); empty: written by an older version
};
// Reads a file of `kept`, by the models' names; empty where there is no such file.
Result<std::map<std::string, KeptVersion>> read_promoted(const fs::path& kept);
// kInvalid where the files of its folder are others now.
Status check_unchanged(const std::string& name, const KeptVersion& version, const fs::path& kept);

class Promotions {
 public:
  // All of them outlive this.
  Promotions(PromotionSettings settings, ModelSet& models, wire::HttpServer& http, const Clock& clock);

  // Finds out what the versions are that were loaded first.
  void begin_digests();

  // Its paths.
  void add_to(BodyPaths& paths);

  // `lane` has the request that is answered under `id`.
  void note_request(const std::string& id, const std::string& key, const std::shared_ptr<Lane>& lane);
  // Now and then: ends leases, and versions that nobody uses.
  void tick();

 private:
  struct Trial {
    fs::path folder;
    std::string digest;  // of its files; empty: not known yet
    bool loading = false;
    std::vector<wire::HttpReply> waiting;  // who asked for it while it is loaded
    Time lease_end{}, drop_at{};
  };
  struct Asked {
    std::string key;
    std::weak_ptr<Lane> lane;
  };

  void show(const wire::HttpRequest&, Fields&, const std::string& who, const wire::HttpReply&);
  void begin(const wire::HttpRequest&, Fields&, const std::string& who, const wire::HttpReply&);
  void share(const wire::HttpRequest&, Fields&, const std::string& who, const wire::HttpReply&);
  void end(const wire::HttpRequest&, Fields&, const std::string& who, const wire::HttpReply&);
  void feedback(const wire::HttpRequest&, Fields&, const std::string& key, const wire::HttpReply&);

  void load(const std::string& name, Result<std::string> digest);
  void loaded(const std::string& name, Result<std::shared_ptr<Lane>> lane);
  void reply_all(const std::string& name, const wire::HttpResponse& response);
  void let_go(const std::string& name, bool promote);
  Status keep(const ServedModel& model, const fs::path& folder) const;
  Json state_of(const ServedModel& model) const;

  const PromotionSettings settings_;
  const std::string server_ = std::to_string(unique_number());  // tells a server from one that was started again
  ModelSet& models_;
  wire::HttpServer& http_;
  const Clock& clock_;
  std::map<std::string, Trial> trials_;  // by the first name of the model
  std::unordered_map<std::string, Asked> asked_;
  std::deque<std::string> asked_order_;
  WorkQueue loads_;
};

}  // namespace tandem::serve
