// Serves one request, in a process of its own that the first process of a sandbox has made for it (init.h).
#pragma once

#include <string>
#include <vector>

#include "envs/sandbox/fields.h"
#include "envs/sandbox/files.h"
#include "envs/sandbox/request_kind.h"
#include "envs/tools/session.h"

namespace tandem::envs {

// Arguments of every request.
struct RequestContext {
  std::vector<std::string> environment;  // of commands
  Links links;
  bool has_network = false;
};

// The reply. Those of kCall and kRestore begin with what became of the session: 0, or 1 and the session; then comes the
// rest as a text. `descriptor` came with the request, where one did.
std::string serve_request(RequestKind kind, FieldReader& fields, const Session& session, int descriptor,
                          const RequestContext& context);

}  // namespace tandem::envs
