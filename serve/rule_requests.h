// Admin rules about requests, over HTTP: GET /rules, POST /rules/set, POST /rules/remove. Rules end with the server.
//
// Thread safety: none; the server's loop owns it.
#pragma once

#include <functional>
#include <string>

#include "serve/access.h"
#include "serve/body_paths.h"
#include "serve/model_set.h"

namespace tandem::serve {

// Whom the rules are about.
struct RuledRequests {
  std::function<bool(const std::string& model)> has_model;
  std::function<wire::HttpResponse(const std::string& model)> unknown;
  // Ends those that the rule concerns with 403 and the message.
  std::function<void(const Rule& rule, const std::string& message)> end;
};
// `models` outlives it.
RuledRequests requests_of(const ModelSet& models);

class RuleRequests {
 public:
  // `access` outlives this.
  RuleRequests(Access& access, RuledRequests requests) : access_(access), requests_(std::move(requests)) {}
  void add_to(BodyPaths& paths);

 private:
  void show(const wire::HttpReply& reply) const;
  void set(Fields& fields, const std::string& who, const wire::HttpReply& reply);
  void remove(Fields& fields, const std::string& who, const wire::HttpReply& reply);

  Access& access_;
  const RuledRequests requests_;
};

}  // namespace tandem::serve
