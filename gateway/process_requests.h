// Endpoints of a server with a process for each model, about these processes:
//
//   GET /processes               each: model, pid, state, since, restarts, memory, last cause
//   POST /processes/revive       one that has failed is tried again
//   POST /v1/load_lora_adapter   goes to the process of the adapter's model, which loads it again in its next life
//   POST /v1/unload_lora_adapter
//
// and the page of metrics, with those of all processes. Each change leaves a line in the log, with the name of the key.
//
// Thread safety: none; the gateway's loop owns it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "gateway/processes.h"
#include "gateway/upstream.h"
#include "serve/body_paths.h"
#include "wire/http_transfers.h"

namespace tandem::gateway {

class ProcessRequests {
 public:
  // All of them outlive this. `changed` makes the router know at once what the processes have to tell.
  static Result<std::unique_ptr<ProcessRequests>> create(Processes& processes,
                                                         const std::vector<UpstreamTerms>& upstreams,
                                                         std::function<void()> changed, const Clock& clock);

  void add_to(serve::BodyPaths& paths);
  int wake_fd() const { return transfers_->wake_fd(); }
  void take_events();

  // `own` is the page of this process. Processes that do not answer within 2 s are left out.
  void answer_metrics(std::string own, const wire::HttpReply& reply);
  // The state of each process, for people and scripts.
  Json process_list() const;
  // A model or adapter as /v1/models shows it: that entry with what is known of it.
  Json described(Json entry) const;
  // Whether all processes serve, or with a model's name that one: 200, 503 with the states, 404.
  // `share`: of the users whose requests are taken on, in a slow start less than 1.
  wire::HttpResponse readiness(const std::string& model, double share) const;

 private:
  struct Asked {
    int status = 0;
    std::string body;
    std::string model;  // whose process was asked
    std::function<void(int status, std::string body)> then;
  };

  ProcessRequests(Processes& processes, const std::vector<UpstreamTerms>& upstreams, std::function<void()> changed,
                  std::unique_ptr<wire::HttpTransfers> transfers)
      : processes_(processes), upstreams_(upstreams), changed_(std::move(changed)), transfers_(std::move(transfers)) {}
  void ask(size_t process, const char* method, const std::string& path, std::string body, Duration limit,
           std::function<void(int, std::string)> then);
  void load(const std::string& body, serve::Fields& fields, const std::string& who, const wire::HttpReply& reply);
  void unload(const std::string& body, serve::Fields& fields, const std::string& who, const wire::HttpReply& reply);
  void revive(serve::Fields& fields, const std::string& who, const wire::HttpReply& reply);

  Processes& processes_;
  const std::vector<UpstreamTerms>& upstreams_;
  const std::function<void()> changed_;
  std::unique_ptr<wire::HttpTransfers> transfers_;
  std::map<uint64_t, Asked> asked_;
};

}  // namespace tandem::gateway
