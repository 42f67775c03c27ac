#include "wire/completions_url.h"

#include <utility>

namespace tandem::wire {

std::string api_url(std::string url, std::string_view path) {
  while (url.ends_with('/')) url.pop_back();
  if (url.ends_with(path)) return url;
  const size_t host = url.find("://");
  const bool bare = host != std::string::npos && url.find('/', host + 3) == std::string::npos;
  if (bare) url += "/v1";
  return url.append(path);
}

std::string completions_url(std::string url) { return api_url(std::move(url), "/chat/completions"); }

}  // namespace tandem::wire
