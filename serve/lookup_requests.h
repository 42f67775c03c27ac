// Requests that are computed without sampling: tokens of texts and texts of tokens, vectors of texts.
//
// Thread safety: none; the server's loop owns it. They are computed on the thread that reads requests.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/work_queue.h"
#include "serve/keys.h"
#include "serve/lookups.h"
#include "serve/model_set.h"
#include "serve/openapi.h"

namespace tandem::serve {

class LookupRequests {
 public:
  // Both outlive this.
  LookupRequests(const ModelSet& models, WorkQueue& queue);

  bool has(std::string_view path) const;
  std::vector<DescribedPath> described() const;
  // Answers a path that it has; the models are loaded. Answers now or later, in any case.
  void answer(wire::HttpRequest request, std::shared_ptr<const KeyTerms> key, const wire::HttpReply& reply);

 private:
  struct Reading {
    Lookup lookup;
    FieldTable table;
  };
  void look_up(const Reading& reading, std::string body, std::shared_ptr<const KeyTerms> key,
               const wire::HttpReply& reply);
  void embed(std::string body, std::shared_ptr<const KeyTerms> key, const wire::HttpReply& reply);
  void compute(std::function<wire::HttpResponse()> work, const wire::HttpReply& reply);

  const ModelSet& models_;
  WorkQueue& queue_;
  std::vector<Reading> readings_;
  const FieldTable embedding_fields_{Embedder::fields()};
};

}  // namespace tandem::serve
