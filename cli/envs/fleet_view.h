// Sandboxes of environment servers as people and scripts see them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "envs/fleet/messages.h"

namespace tandem::cli {

struct SeenSandbox {
  std::string server;
  envs::SandboxRow row;
};

// A line for each under a line of names, aligned.
std::string table_of(std::span<const SeenSandbox> seen);
Json to_json(const SeenSandbox& seen);

// "12:04:11.308  h2kq-17  call     run_terminal_cmd  0.31 s, exit 1".
std::string line_of(const envs::FleetEvent& event);
Json to_json(const envs::FleetEvent& event, const std::string& server);

// "12.1" seconds, "3m05s", as narrow as it goes.
std::string short_time(double seconds);

// All of one server in a line, for logs.
std::string line_of(const envs::ServerFigures& figures);
// The same in a few lines, for a terminal.
std::string lines_of(const std::string& server, const envs::ServerFigures& figures);
Json to_json(const envs::ServerFigures& figures);

}  // namespace tandem::cli
