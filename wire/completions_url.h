// The URL of the chat endpoint of an OpenAI-compatible server.
#pragma once

#include <string>

namespace tandem::wire {

// "https://HOST" and "https://HOST/v1" become ".../v1/chat/completions"; a URL that ends so stays.
std::string completions_url(std::string url);

}  // namespace tandem::wire
