// URLs below the base URL of an OpenAI-compatible server.
#pragma once

#include <string>
#include <string_view>

namespace tandem::wire {

// The URL of `path`, such as "/models": "https://HOST" and "https://HOST/v1" become ".../v1/models"; a URL that ends so
// stays.
std::string api_url(std::string url, std::string_view path);

// The URL of the chat endpoint.
std::string completions_url(std::string url);

}  // namespace tandem::wire
