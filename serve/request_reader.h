// From the bytes of a request to what its endpoint makes of it, or the answer that refuses it.
//
// Thread safety: one thread reads all requests.
#pragma once

#include <optional>

#include "serve/keys.h"
#include "serve/model_set.h"

namespace tandem::serve {

struct ReadRequest {
  std::optional<wire::HttpResponse> refused;
  std::shared_ptr<Lane> lane;              // null where nothing was chosen before it was refused
  bool candidate = false, copied = false;  // see ChosenLane
  std::string session;                     // whose requests keep to one version
  std::string adapter;                     // its name, where the request names one
  Prepared prepared;
};

// The context of a body.
struct Around {
  std::string priority;                 // of the header X-Tandem-Priority, or empty
  std::string session;                  // of X-Tandem-Session, or empty: what the body says, or the key
  std::shared_ptr<const KeyTerms> key;  // whose request it is
  std::string id;                       // of the answer
  ResponseStore* stored = nullptr;      // of earlier answers; may be null
  bool keeps = true;                    // whether this one may become one
};

// 403 where the key may not use the model.
std::optional<wire::HttpResponse> refusal_of_model(const KeyTerms& key, const std::string& name);

// `now`: Unix seconds.
ReadRequest read_request(const ModelSet& models, const Endpoint& endpoint, const FieldTable& table,
                         std::string_view body, const Around& around, Version version, double now);

// Checks a body against its table, and that nothing required is missing.
Status read_fields(Fields& fields, const FieldTable& table, std::span<const std::string_view> required,
                   std::string_view body);

// Foreign JSON that is of another shape than somebody expected is the request's mistake.
template <typename Function>
auto shielded(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const Json::exception& error) {
    return fail(Status::invalid(error.what()));
  }
}

}  // namespace tandem::serve
