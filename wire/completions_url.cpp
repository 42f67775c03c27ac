#include "wire/completions_url.h"

#include <string_view>

namespace tandem::wire {

std::string completions_url(std::string url) {
  constexpr std::string_view kWhole = "/chat/completions";
  while (url.ends_with('/')) url.pop_back();
  if (url.ends_with(kWhole)) return url;
  const size_t host = url.find("://");
  const bool bare = host != std::string::npos && url.find('/', host + 3) == std::string::npos;
  if (bare) url += "/v1";
  return url.append(kWhole);
}

}  // namespace tandem::wire
