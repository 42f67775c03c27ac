// The endpoints that sample: what their requests mean, and how their answers look.
//
// Pure functions; they run on the thread that prepares the requests of a model.
#pragma once

#include <memory>

#include "serve/generation.h"
#include "serve/shape.h"

namespace tandem::serve {

// An endpoint's result for a request that was checked against its table.
struct Prepared {
  Generation generation;
  std::unique_ptr<Shape> shape;
  bool stream = false;
};

struct Endpoint {
  std::string_view path, summary;
  std::vector<std::span<const FieldRow>> fields;
  std::vector<std::string_view> required;
  // `id`: of the answer, for its shape; `created`: Unix seconds.
  Result<Prepared> (*prepare)(Fields& fields, const ModelView& model, const std::string& id, int64_t created);
};

Endpoint chat_endpoint();         // OpenAI's /v1/chat/completions
Endpoint completions_endpoint();  // OpenAI's /v1/completions
Endpoint responses_endpoint();    // OpenAI's /v1/responses
Endpoint messages_endpoint();     // Anthropic's /v1/messages
Endpoint generate_endpoint();     // vLLM's /inference/v1/generate: token in, token out

// Sets the constraint of the turn from "response_format".
Status read_response_format(Fields& fields, const ModelView& model, Generation& generation);

}  // namespace tandem::serve
