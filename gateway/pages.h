// Status pages of a gateway.
//
// Pure; the gateway's loop calls them.
#pragma once

#include <map>
#include <span>
#include <string>

#include "base/json.h"
#include "gateway/router.h"
#include "gateway/upstream.h"

namespace tandem::gateway {

// As /v1/models has it; `created`: Unix seconds.
Json model_list(const Router& router, std::span<const UpstreamTerms> upstreams, int64_t created);
// The answer of /upstreams: each with its state, models and counters.
Json upstream_list(const Router& router, std::span<const UpstreamTerms> upstreams, Time now);
// In the text format of Prometheus.
std::string prometheus_text(const Router& router, std::span<const UpstreamTerms> upstreams,
                            const std::map<int, uint64_t>& answers_by_status, Time now);

}  // namespace tandem::gateway
