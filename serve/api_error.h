// Errors as OpenAI's API has them, {"error": {message, type, param, code}}, and Anthropic's: beside "type": "error".
#pragma once

#include <string_view>

#include "base/json.h"
#include "wire/http_server.h"

namespace tandem::serve {

// The HTTP status for an error of a request.
int http_status_of(const Status& status);

Json error_body(int http_status, std::string_view message, std::string_view param = "");
wire::HttpResponse error_response(int http_status, std::string_view message, std::string_view param = "");
wire::HttpResponse json_response(int http_status, const Json& body);

}  // namespace tandem::serve
