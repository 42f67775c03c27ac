// The promotion paths of a server (serve/promotions.h), asked over HTTP.
//
// Thread safety: none.
#pragma once

#include <stop_token>
#include <string>

#include "base/json.h"
#include "cli/serve/admin_client.h"
#include "eval/promotion.h"

namespace tandem::cli {

// The answer of GET /promotion for a model.
struct PromotionState {
  std::string server;                            // another one after it was started again
  std::string model;                             // its first name
  std::string state;                             // "none", "loading", "trial"
  std::string current;                           // folder
  std::string candidate;                         // folder, or empty
  std::string current_digest, candidate_digest;  // of their files; empty: not known yet
  eval::PromotionReading reading;
};

class PromotionClient {
 public:
  PromotionClient(AdminClient client, std::string model, std::stop_token stop)
      : client_(std::move(client)), model_(std::move(model)), stop_(std::move(stop)) {}

  // Errors of AdminClient::ask.
  Result<PromotionState> state() const;
  // Waits until it is loaded. `digest`: of its files.
  Result<PromotionState> begin(const std::string& folder, const std::string& digest) const;
  Result<PromotionState> share(double share, bool shadow, double lease_seconds) const;
  // Not cancelled by `stop`.
  Result<PromotionState> end(bool promote) const;

 private:
  Result<PromotionState> ask(const char* method, const std::string& path, const Json& body, Duration limit,
                             const std::stop_token& stop) const;
  const AdminClient client_;
  const std::string model_;
  const std::stop_token stop_;
};

}  // namespace tandem::cli
