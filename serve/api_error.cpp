#include "serve/api_error.h"

namespace tandem::serve {
namespace {

std::string_view type_of(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "internal_server_error";
  }
}

}  // namespace

int http_status_of(const Status& status) {
  switch (status.code()) {
    case Code::kInvalid:
    case Code::kExhausted:  // of what the request asks for
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kUnavailable:
    case Code::kCancelled:
      return 503;
    case Code::kDeadline:
      return 504;
    default:
      return 500;
  }
}

Json error_body(int http_status, std::string_view message, std::string_view param) {
  return {{"type", "error"},
          {"error",
           {{"message", message},
            {"type", type_of(http_status)},
            {"param", param.empty() ? Json() : Json(param)},
            {"code", http_status}}}};
}

wire::HttpResponse error_response(int http_status, std::string_view message, std::string_view param) {
  return json_response(http_status, error_body(http_status, message, param));
}

wire::HttpResponse json_response(int http_status, const Json& body) {
  return {.status = http_status, .headers = {{"Content-Type", "application/json"}}, .body = dump_json(body)};
}

}  // namespace tandem::serve
