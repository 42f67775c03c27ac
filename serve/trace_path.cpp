#include "serve/trace_path.h"

#include <charconv>
#include <cmath>

#include "serve/api_error.h"
#include "serve/query.h"

namespace tandem::serve {

void add_trace_path(BodyPaths& paths, const Traces& traces) {
  const auto answer = [&traces](const wire::HttpRequest& request, Fields&, const std::string&,
                                const wire::HttpReply& reply) {
    const std::string given = query_parameter(request.query, "slower_than");
    double seconds = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), seconds);
    const bool whole = error == std::errc() && end == given.data() + given.size() && std::isfinite(seconds);
    if (!given.empty() && (!whole || seconds < 0))
      return reply(error_response(400, "slower_than must be a number of seconds", "slower_than"));
    reply(json_response(200, traces.events(seconds)));
  };
  paths.add(
      {"/traces", "GET", "Where the time of the last slow requests went, for Perfetto", FieldTable({}), {}, answer});
}

}  // namespace tandem::serve
