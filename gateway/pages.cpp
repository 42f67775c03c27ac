#include "gateway/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tandem::gateway {
namespace {

std::string_view state_of(const Health& health, Time now) {
  if (!health.known()) return "unknown";
  if (health.broken()) return "broken";
  return health.open(1, now) ? "open" : "held";
}

}  // namespace

Json model_list(const Router& router, std::span<const UpstreamTerms> upstreams, int64_t created) {
  Json data = Json::array();
  for (const std::string& name : router.all_models()) {
    Json by = Json::array();
    for (size_t i = 0; i < upstreams.size(); ++i) {
      if (std::ranges::binary_search(router.models(i), name)) by.push_back(upstreams[i].name);
    }
    data.push_back({{"id", name},
                    {"object", "model"},
                    {"created", created},
                    {"owned_by", "tandem"},
                    {"root", name},
                    {"parent", nullptr},
                    {"upstreams", std::move(by)}});
  }
  return {{"object", "list"}, {"data", std::move(data)}};
}

Json upstream_list(const Router& router, std::span<const UpstreamTerms> upstreams, Time now) {
  Json data = Json::array();
  for (size_t i = 0; i < upstreams.size(); ++i) {
    const Health& health = router.health(i);
    const UpstreamCounters& counters = router.counters(i);
    Json failures = Json::object();
    for (const auto& [kind, count] : counters.failures) failures[kind] = count;
    data.push_back({{"name", upstreams[i].name},
                    {"url", upstreams[i].url},
                    {"state", state_of(health, now)},
                    {"opens_in_seconds", std::max(0.0, to_seconds(health.opens_at(1, now) - now))},
                    {"models", router.models(i)},
                    {"running", health.in_flight()},
                    {"limit", health.limit()},
                    {"slots", upstreams[i].slots},
                    {"seconds", health.seconds()},
                    {"first_byte_seconds", health.first_byte_seconds()},
                    {"sent", counters.sent},
                    {"answered", counters.answered},
                    {"repeated", counters.repeated},
                    {"failures", std::move(failures)},
                    {"prefix_asked", counters.prefix_asked},
                    {"prefix_found", counters.prefix_found}});
  }
  return {{"upstreams", std::move(data)}, {"requests", router.requests()}, {"waiting", router.waiting()}};
}

std::string prometheus_text(const Router& router, std::span<const UpstreamTerms> upstreams,
                            const std::map<int, uint64_t>& answers_by_status, Time now) {
  std::string text;
  const auto family = [&](std::string_view name, std::string_view type, std::string_view help) {
    fmt::format_to(std::back_inserter(text), "# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  };
  const auto each = [&](std::string_view name, std::string_view type, std::string_view help, const auto& value) {
    family(name, type, help);
    for (size_t i = 0; i < upstreams.size(); ++i)
      fmt::format_to(std::back_inserter(text), "{}{{upstream=\"{}\"}} {}\n", name, upstreams[i].name, value(i));
  };
  family("tandem_gateway_answers_total", "counter", "Answers to clients by HTTP status.");
  for (const auto& [status, count] : answers_by_status)
    fmt::format_to(std::back_inserter(text), "tandem_gateway_answers_total{{status=\"{}\"}} {}\n", status, count);
  family("tandem_gateway_requests_waiting", "gauge", "Requests that wait for an upstream.");
  fmt::format_to(std::back_inserter(text), "tandem_gateway_requests_waiting {}\n", router.waiting());
  each("tandem_upstream_up", "gauge", "1: it may get requests now.",
       [&](size_t i) { return router.health(i).open(1, now) ? 1 : 0; });
  each("tandem_upstream_requests_running", "gauge", "Requests that it has.",
       [&](size_t i) { return router.health(i).in_flight(); });
  each("tandem_upstream_limit", "gauge", "Requests that it gets at once, at most, now.",
       [&](size_t i) { return router.health(i).limit(); });
  each("tandem_upstream_sent_total", "counter", "Requests that it was sent.",
       [&](size_t i) { return router.counters(i).sent; });
  each("tandem_upstream_answered_total", "counter", "Requests that it answered whole.",
       [&](size_t i) { return router.counters(i).answered; });
  each("tandem_upstream_repeated_total", "counter", "Requests that it was sent after a failure elsewhere.",
       [&](size_t i) { return router.counters(i).repeated; });
  each("tandem_upstream_prefix_asked_total", "counter", "Pieces of the prompts that it was sent.",
       [&](size_t i) { return router.counters(i).prefix_asked; });
  each("tandem_upstream_prefix_found_total", "counter", "Of those, pieces that it had computed before.",
       [&](size_t i) { return router.counters(i).prefix_found; });
  each("tandem_upstream_first_byte_seconds", "gauge", "To the first byte of an answer, smoothed.",
       [&](size_t i) { return router.health(i).first_byte_seconds(); });
  each("tandem_upstream_answer_seconds", "gauge", "To the end of an answer, smoothed.",
       [&](size_t i) { return router.health(i).seconds(); });
  family("tandem_upstream_failures_total", "counter", "Requests that failed there, by kind.");
  for (size_t i = 0; i < upstreams.size(); ++i) {
    for (const auto& [kind, count] : router.counters(i).failures) {
      fmt::format_to(std::back_inserter(text), "tandem_upstream_failures_total{{upstream=\"{}\",kind=\"{}\"}} {}\n",
                     upstreams[i].name, kind, count);
    }
  }
  return text;
}

}  // namespace tandem::gateway
