// GET /traces?slower_than=SECONDS, for admins.
#pragma once

#include "serve/body_paths.h"
#include "serve/traces.h"

namespace tandem::serve {

// `traces` outlives the paths.
void add_trace_path(BodyPaths& paths, const Traces& traces);

}  // namespace tandem::serve
