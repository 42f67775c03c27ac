// A run on a terminal: a few lines that are drawn over and over, or one plain line at a time.
//
// Pure functions of what the coordinator reports (its status JSON: phase, step, steps, episodes, roles, last_step) and
// of the lines of metrics.jsonl so far. Keys that the supervisor may add to the status are shown where they are:
// `heldout` {before, after: pass rates}, `measured` {step, success}, `time` (seconds since 1970), `utilisation`
// {engine, env, trainer}, `steals`. Whatever is missing is left out, never guessed.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"

namespace tandem::dashboard {

// The view, `width` columns wide at most (at least 40), lines ended by '\n', without cursor movement or colour.
std::string render_live(const Json& status, const Json& history, int width);

// The same facts on one line without an end: for logs and pipes.
std::string plain_line(const Json& status, const Json& history = Json::array());

// Eight heights of block for values between `low` and `high`; the last `width` values count.
std::string sparkline(std::span<const double> values, size_t width, double low, double high);

}  // namespace tandem::dashboard
