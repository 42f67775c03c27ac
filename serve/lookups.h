// Endpoints that sample nothing: their answer is computed from the request alone.
#pragma once

#include <memory>

#include "model/text_encoder.h"
#include "serve/endpoints.h"

namespace tandem::serve {

struct Lookup {
  std::string_view path, summary;
  std::vector<std::span<const FieldRow>> fields;
  std::vector<std::string_view> required;
  Result<Json> (*answer)(Fields& fields, const ModelView& model);
};

Lookup tokenize_lookup();
Lookup detokenize_lookup();
Lookup count_tokens_lookup();  // Anthropic's /v1/messages/count_tokens

// /v1/embeddings, by a sentence encoder. Belongs to one thread.
class Embedder {
 public:
  static Result<std::unique_ptr<Embedder>> load(const fs::path& directory, int threads);
  static std::vector<std::span<const FieldRow>> fields();
  Result<Json> answer(Fields& fields) const;
  const std::string& name() const { return name_; }

 private:
  Embedder(std::string name, model::TextEncoder encoder, kernels::Stream stream)
      : name_(std::move(name)), encoder_(std::move(encoder)), stream_(std::move(stream)) {}
  std::string name_;
  model::TextEncoder encoder_;
  mutable kernels::Stream stream_;
};

}  // namespace tandem::serve
