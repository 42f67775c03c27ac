// What admins say of requests while the server runs, over HTTP: GET /rules, POST /rules/set, POST /rules/remove. Rules
// end with the server.
//
// Thread safety: none; the server's loop owns it.
#pragma once

#include <string>

#include "serve/access.h"
#include "serve/body_paths.h"
#include "serve/model_set.h"

namespace tandem::serve {

class RuleDesk {
 public:
  // Both outlive this.
  RuleDesk(Access& access, const ModelSet& models) : access_(access), models_(models) {}
  void add_to(BodyPaths& paths);

 private:
  void show(const wire::HttpReply& reply) const;
  void set(Fields& fields, const std::string& who, const wire::HttpReply& reply);
  void remove(Fields& fields, const std::string& who, const wire::HttpReply& reply);

  Access& access_;
  const ModelSet& models_;
};

}  // namespace tandem::serve
