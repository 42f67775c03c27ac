// The OpenAPI document of a server, from the tables that check its requests.
#pragma once

#include <span>
#include <string_view>

#include "serve/fields.h"

namespace tandem::serve {

struct DescribedPath {
  std::string_view path, method, summary;
  const FieldTable* fields = nullptr;  // of the body; null: none
  std::span<const std::string_view> required;
};

// Pages: paths for GET without parameters.
std::span<const DescribedPath> pages();

Json openapi_document(std::span<const DescribedPath> paths, std::string_view version);

}  // namespace tandem::serve
