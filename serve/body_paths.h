// Paths whose requests are small and answered on the server's loop: what changes the server, and what clients tell it.
// Their bodies are checked against tables, which the OpenAPI document shows.
//
// Thread safety: none; the server's loop owns it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/access.h"
#include "serve/fields.h"
#include "serve/openapi.h"
#include "wire/http_server.h"

namespace tandem::serve {

struct BodyPath {
  std::string_view path, method, summary;
  FieldTable fields;
  std::vector<std::string_view> required;
  // `who`: the admin's key, or where others may use it whose request it is.
  std::function<void(const wire::HttpRequest&, Fields&, const std::string& who, const wire::HttpReply&)> answer;
  bool admins_only = true;
};

class BodyPaths {
 public:
  // `access` outlives this.
  explicit BodyPaths(const Access& access) : access_(access) {}
  // All before the first request.
  void add(BodyPath path) { paths_.push_back(std::move(path)); }

  const BodyPath* find(std::string_view path) const;
  std::vector<DescribedPath> described() const;
  // The method fits; the models are loaded.
  void answer(const BodyPath& path, const wire::HttpRequest& request, const std::string& key,
              const wire::HttpReply& reply) const;

 private:
  const Access& access_;
  std::vector<BodyPath> paths_;
};

}  // namespace tandem::serve
