#include "serve/traces.h"

#include <fmt/format.h>

#include <algorithm>

namespace tandem::serve {

std::string trace_id_of(std::string_view header) {
  // 00-TRACE-PARENT-FLAGS
  constexpr size_t kVersion = 3, kTrace = 32, kWhole = 55;
  if (header.size() < kWhole || header[2] != '-' || header[kVersion + kTrace] != '-') return "";
  const std::string_view id = header.substr(kVersion, kTrace);
  const bool hexadecimal =
      std::ranges::all_of(id, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  return hexadecimal ? std::string(id) : "";
}

void Traces::add(RequestTrace trace) {
  if (!wanted(trace.end - trace.start)) return;
  kept_.push_back(std::move(trace));
  while (kept_.size() > settings_.most) kept_.pop_front();
}

Json Traces::events(double slower_than) const {
  Json events = Json::array();
  // Each request is a process of the picture, and each of its rows a thread.
  int64_t process = 0;
  for (const RequestTrace& trace : kept_) {
    if (to_seconds(trace.end - trace.start) < slower_than) continue;
    ++process;
    const auto add = [&](std::string_view name, Time start, Time end, int row, Json facts) {
      events.push_back({{"name", name},
                        {"ph", "X"},
                        {"ts", microseconds(start)},
                        {"dur", to_seconds(end - start) * 1e6},
                        {"pid", process},
                        {"tid", row},
                        {"args", std::move(facts)}});
    };
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", process},
                      {"args", {{"name", fmt::format("{} {}", trace.path, trace.id)}}}});
    Json facts = trace.facts;
    facts["id"] = trace.id;
    if (const std::string id = trace_id_of(trace.parent); !id.empty()) facts["trace_id"] = id;
    add("request", trace.start, trace.end, 0, std::move(facts));
    for (const TraceSpan& span : trace.spans) add(span.name, span.start, span.end, span.row, span.facts);
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
}

}  // namespace tandem::serve
