// Lets pages of other origins in a browser use the server (the Fetch standard's CORS protocol).
//
// Off unless origins are named. A page still needs a key: a browser sends it only because the page says so, cookies are
// not asked for. Thread safety: none; on the server's loop.
#pragma once

#include <string>
#include <vector>

#include "wire/http_server.h"

namespace tandem::serve {

// "*" allows every origin. kInvalid for what is neither that nor an origin such as https://app.example.com:8443.
Status check_origins(const std::vector<std::string>& origins);

// The handler with the headers that browsers ask for, and with answers to their preflight requests, which bring no key.
wire::HttpHandler with_cors(wire::HttpHandler handler, std::vector<std::string> origins);

}  // namespace tandem::serve
