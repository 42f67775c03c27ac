// Pages of Prometheus' text format of several processes as one.
//
// Pure; any thread.
#pragma once

#include <span>
#include <string>

namespace tandem::gateway {

struct MetricsPage {
  std::string process;  // the value of the label "process" that its samples get; empty: they get none
  std::string text;
};

// Each family once, with its HELP and TYPE from the first page that has it and the samples of all pages behind them.
// Lines that are no samples are left out.
std::string merge_metrics(std::span<const MetricsPage> pages);

}  // namespace tandem::gateway
